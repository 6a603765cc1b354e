//! Memory budget: the bytes that reconciles have reserved, and the two lines in which others wait.
//!
//! A reservation is small or large. Large ones take at most three quarters of the budget, so that a quarter is always left to
//! small ones; while a large one waits, small ones take no more than that quarter. So neither starves the other. One that
//! waits holds nothing, so there is no deadlock.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::pacing::turns::{TurnLine, TurnPosition};

/// The share of the budget up to which a reservation is small; of a small budget so much that usual modules are.
const SMALL_SHARE: u64 = 64;
const USUAL_SMALL: u64 = 4 << 20;
const MAX_SMALL_SHARE: u64 = 16;

/// Bytes that a reservation has at least.
pub const MIN_RESERVATION: u64 = 256 << 10;

/// The reservations of a server in numbers; the owners keep the reservations themselves.
#[derive(Debug)]
pub struct MemoryAccounts {
    figures: MemoryFigures,
    small: u64,
    large: u64,
    small_line: TurnLine<WaitingReservation>,
    large_line: TurnLine<WaitingReservation>,
}

/// The numbers that metrics show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    pub budget: u64,
    pub reserved: u64,
    pub most_reserved: u64,
    /// Reservations that had to wait.
    pub waits: u64,
    /// Reservations that are larger than any may be.
    pub refusals: u64,
}

#[derive(Debug)]
struct WaitingReservation {
    bytes: u64,
    ticket: Ticket,
}

/// A reservation that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Where a reservation waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InLine {
    pub ticket: Ticket,
    place: TurnPosition,
    is_large: bool,
}

/// The answer to a reservation that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveResult {
    Reserved,
    Waits(InLine),
}

/// More than one reservation may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    pub wanted: u64,
    pub max: u64,
}

impl MemoryAccounts {
    pub fn new(budget: u64) -> Self {
        Self {
            figures: MemoryFigures { budget, ..MemoryFigures::default() },
            small: 0,
            large: 0,
            small_line: TurnLine::default(),
            large_line: TurnLine::default(),
        }
    }

    pub fn figures(&self) -> MemoryFigures {
        MemoryFigures { reserved: self.small + self.large, ..self.figures }
    }

    /// The most that one reservation may have.
    pub fn max_reservation(&self) -> u64 {
        self.figures.budget - self.kept_for_small()
    }

    /// The most that a small reservation has.
    pub fn max_small(&self) -> u64 {
        let budget = self.figures.budget;
        (budget / SMALL_SHARE).max(USUAL_SMALL.min(budget / MAX_SMALL_SHARE))
    }

    /// Reserves so many bytes at once, where nothing of that size waits; else in line.
    pub fn reserve(&mut self, controller: &Arc<str>, bytes: u64) -> Result<ReserveResult, TooLarge> {
        if bytes > self.max_reservation() {
            self.figures.refusals += 1;
            return Err(TooLarge { wanted: bytes, max: self.max_reservation() });
        }
        let is_large = self.is_large(bytes);
        if self.line(is_large).is_empty() && self.fits(bytes) {
            self.add(bytes);
            return Ok(ReserveResult::Reserved);
        }
        self.figures.waits += 1;
        let ticket = Ticket(self.figures.waits);
        let place = self.line(is_large).push(controller, WaitingReservation { bytes, ticket });
        Ok(ReserveResult::Waits(InLine { ticket, place, is_large }))
    }

    /// Grows a reservation, or leaves it as it is. One that becomes large passes none that waits to be.
    #[must_use]
    pub fn grow(&mut self, from: u64, to: u64) -> bool {
        let passes = self.is_large(to) && !self.is_large(from) && !self.large_line.is_empty();
        if passes || to > self.max_reservation() {
            return false;
        }
        self.take(from);
        let grows = self.fits(to);
        self.add(if grows { to } else { from });
        grows
    }

    /// Gives back a part of a reservation, or all of it.
    pub fn shrink(&mut self, from: u64, to: u64) {
        self.take(from);
        self.add(to.min(from));
    }

    /// Admits reservations, and returns the tickets of those that wait no longer: each has what it asked for. To be
    /// called after anything was given back or left its line.
    pub fn admit(&mut self) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        // Small ones once more: where no large one waits any longer they may have more.
        for is_large in [false, true, false] {
            while let Some((_, WaitingReservation { bytes, ticket })) = self.line(is_large).first() {
                let (bytes, ticket) = (*bytes, *ticket);
                if !self.fits(bytes) {
                    break;
                }
                self.line(is_large).pop();
                self.add(bytes);
                admitted.push(ticket);
            }
        }
        admitted
    }

    /// Takes a reservation out of its line; `false`: it does not wait any longer.
    pub fn leave(&mut self, waits: InLine) -> bool {
        self.line(waits.is_large).remove(waits.place).is_some()
    }

    fn fits(&self, bytes: u64) -> bool {
        let (small, large, budget) = (self.small, self.large, self.figures.budget);
        if self.is_large(bytes) {
            large + bytes <= self.max_reservation() && small + large + bytes <= budget
        } else {
            let all = small + large + bytes <= budget;
            all && (self.large_line.is_empty() || small + bytes <= self.kept_for_small())
        }
    }

    fn kept_for_small(&self) -> u64 {
        self.figures.budget / 4
    }

    fn is_large(&self, bytes: u64) -> bool {
        bytes > self.max_small()
    }

    fn line(&mut self, is_large: bool) -> &mut TurnLine<WaitingReservation> {
        if is_large { &mut self.large_line } else { &mut self.small_line }
    }

    fn share(&mut self, bytes: u64) -> &mut u64 {
        if self.is_large(bytes) { &mut self.large } else { &mut self.small }
    }

    fn add(&mut self, bytes: u64) {
        *self.share(bytes) += bytes;
        self.figures.most_reserved = self.figures.most_reserved.max(self.small + self.large);
    }

    fn take(&mut self, bytes: u64) {
        let share = self.share(bytes);
        *share = share.saturating_sub(bytes);
    }
}

/// Bytes that the reconciles of a controller usually need: one and a half times the largest of late, at most a small
/// reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsualNeed(u64);

impl UsualNeed {
    /// A reconcile used so many bytes. A larger one before it counts less with each.
    pub fn used(&mut self, bytes: u64) {
        self.0 = bytes.max(self.0 - self.0 / 16);
    }

    pub fn bytes(self, max_small: u64) -> u64 {
        (self.0 + self.0 / 2).max(MIN_RESERVATION).min(max_small)
    }
}

/// Bytes to reserve for a reconcile that found out that it needs `needed`, with `reserved` at hand: so that it ends
/// after a few tries.
pub fn next_reservation(needed: u64, reserved: u64, max: u64) -> u64 {
    needed.max((2 * reserved).min(max))
}
