//! Memory budget: the bytes that reconciles have reserved, and the two lines in which others wait.
//!
//! A reservation is small or large. Large ones take at most three quarters of the budget, so that a quarter is always left to
//! small ones; while a large one waits, small ones take no more than that quarter. So neither starves the other. One that
//! waits holds nothing, so there is no deadlock.

use std::sync::Arc;

use crate::pacing::turns::{Place, TurnLine};

/// The share of the budget up to which a reservation is small.
const SMALL_SHARE: u64 = 64;

/// Bytes that a reservation has at least.
pub const MIN_RESERVATION: u64 = 256 << 10;

/// The reservations of a server in numbers; the owners keep the reservations themselves.
#[derive(Debug)]
pub struct MemoryAccounts {
    figures: MemoryFigures,
    small: u64,
    large: u64,
    small_line: TurnLine<Waiting>,
    large_line: TurnLine<Waiting>,
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
struct Waiting {
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
    place: Place,
    is_large: bool,
}

/// The answer to a reservation that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
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
        self.figures.budget / SMALL_SHARE
    }

    /// Reserves so many bytes at once, where nothing of that size waits; else in line.
    pub fn reserve(&mut self, controller: &Arc<str>, bytes: u64) -> Result<Asked, TooLarge> {
        if bytes > self.max_reservation() {
            self.figures.refusals += 1;
            return Err(TooLarge { wanted: bytes, max: self.max_reservation() });
        }
        let is_large = self.is_large(bytes);
        if self.line(is_large).is_empty() && self.fits(bytes) {
            self.add(bytes);
            return Ok(Asked::Reserved);
        }
        self.figures.waits += 1;
        let ticket = Ticket(self.figures.waits);
        let place = self.line(is_large).push(controller, Waiting { bytes, ticket });
        Ok(Asked::Waits(InLine { ticket, place, is_large }))
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

    /// Those that wait no longer: each has what it asked for. To be called after anything was given back or left its line.
    pub fn admit(&mut self) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        for is_large in [false, true] {
            while let Some((_, Waiting { bytes, ticket })) = self.line(is_large).first() {
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

    fn line(&mut self, is_large: bool) -> &mut TurnLine<Waiting> {
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

/// What the reconciles of a controller usually need: one and a half times the largest of late, at most a small reservation.
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

/// What a reconcile reserves that found out that it needs `needed`, with `reserved` at hand: so that it ends after a few tries.
pub fn next_reservation(needed: u64, reserved: u64, max: u64) -> u64 {
    needed.max((2 * reserved).min(max))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const BUDGET: u64 = 6400;
    const SMALL: u64 = 100;
    const LARGE: u64 = 1600;

    /// A run: what is held, and what waits with its controller.
    struct Run {
        accounts: MemoryAccounts,
        held: Vec<(&'static str, u64)>,
        waiting: BTreeMap<Ticket, (&'static str, u64, InLine)>,
        /// Those that were admitted after they had waited.
        admitted: Vec<(&'static str, u64)>,
    }

    impl Run {
        fn new() -> Self {
            let accounts = MemoryAccounts::new(BUDGET);
            Self { accounts, held: Vec::new(), waiting: BTreeMap::new(), admitted: Vec::new() }
        }

        fn reserve(&mut self, controller: &'static str, bytes: u64) -> bool {
            match self.accounts.reserve(&controller.into(), bytes) {
                Ok(Asked::Reserved) => self.held.push((controller, bytes)),
                Ok(Asked::Waits(place)) => {
                    self.waiting.insert(place.ticket, (controller, bytes, place));
                    return false;
                }
                Err(TooLarge { wanted, max }) => assert!(wanted > max),
            }
            true
        }

        fn end(&mut self, which: usize) {
            let (_, bytes) = self.held.swap_remove(which);
            self.accounts.shrink(bytes, 0);
            self.admit();
        }

        fn admit(&mut self) {
            for ticket in self.accounts.admit() {
                let (controller, bytes, _) = self.waiting.remove(&ticket).unwrap();
                self.held.push((controller, bytes));
                self.admitted.push((controller, bytes));
            }
        }
    }

    #[test]
    fn a_large_one_waits_and_small_ones_go_on_beside_it() {
        let mut run = Run::new();
        assert!((0..3).all(|_| run.reserve("hog", LARGE)));
        assert!(!run.reserve("hog", LARGE), "a quarter is kept");
        assert!((0..16).all(|_| run.reserve("small", SMALL)));
        assert!(!run.reserve("small", SMALL));
        assert_eq!(run.accounts.figures().reserved, BUDGET);
        run.end(0);
        assert_eq!(
            run.admitted,
            [("hog", LARGE)],
            "the quarter is all for small ones while a large one waits"
        );
        let figures = run.accounts.figures();
        assert_eq!((figures.waits, figures.most_reserved, figures.refusals), (2, BUDGET, 0));
    }

    #[test]
    fn small_ones_use_what_no_large_one_waits_for_and_give_it_back() {
        let mut run = Run::new();
        assert!((0..64).all(|_| run.reserve("small", SMALL)));
        assert!(!run.reserve("large", LARGE));
        for _ in 0..64 {
            if run.waiting.values().any(|(controller, ..)| *controller == "large") {
                run.end(0);
                run.reserve("small", SMALL);
            }
        }
        assert_eq!(run.admitted.first(), Some(&("large", LARGE)));
    }

    #[test]
    fn controllers_take_turns() {
        let mut run = Run::new();
        for controller in ["hog"; 8].into_iter().chain(["one", "two"]) {
            run.reserve(controller, LARGE);
        }
        while !run.held.is_empty() {
            run.end(0);
        }
        let order: Vec<_> = run.admitted.iter().map(|(controller, _)| *controller).collect();
        assert_eq!(order, ["hog", "one", "two", "hog", "hog", "hog", "hog"]);
    }

    #[test]
    fn growing_passes_none_that_waits() {
        let mut run = Run::new();
        assert!(run.reserve("a", SMALL) && run.accounts.grow(SMALL, LARGE));
        assert!(run.accounts.grow(LARGE, 3 * LARGE) && !run.accounts.grow(3 * LARGE, 3 * LARGE + 1));
        assert!(run.reserve("b", SMALL) && !run.reserve("c", LARGE));
        assert!(!run.accounts.grow(SMALL, SMALL + 1), "there is no room for two large ones");
        run.accounts.shrink(3 * LARGE, LARGE);
        assert!(!run.accounts.grow(SMALL, SMALL + 1), "there is, but another one waits for it");
        run.admit();
        assert!(run.accounts.grow(SMALL, SMALL + 1));
    }

    #[test]
    fn more_than_three_quarters_are_refused() {
        let mut accounts = MemoryAccounts::new(BUDGET);
        let refused = accounts.reserve(&"a".into(), 4801);
        assert_eq!(refused, Err(TooLarge { wanted: 4801, max: 4800 }));
        assert_eq!(
            accounts.figures(),
            MemoryFigures { budget: BUDGET, refusals: 1, ..MemoryFigures::default() }
        );
    }

    #[test]
    fn the_usual_need_follows_the_largest_and_is_small() {
        let mut usual = UsualNeed::default();
        assert_eq!(usual.bytes(8 << 20), MIN_RESERVATION);
        usual.used(1 << 20);
        assert_eq!(usual.bytes(8 << 20), 3 << 19);
        usual.used(1 << 30);
        assert_eq!(usual.bytes(8 << 20), 8 << 20);
        (0..200).for_each(|_| usual.used(1));
        assert_eq!(usual.bytes(8 << 20), MIN_RESERVATION);
        assert_eq!(next_reservation(5, 100, 150), 150);
        assert_eq!(next_reservation(500, 100, 150), 500, "which is refused by name");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Reserve(&'static str, u64),
        Grow(usize, u64),
        Shrink(usize, u64),
        Leave(usize),
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || prop_oneof![3 => 1..=SMALL, 1 => SMALL..5000];
        let controller = proptest::sample::select(vec!["a", "b", "c"]);
        let step = prop_oneof![
            4 => (controller, bytes()).prop_map(|(controller, bytes)| Step::Reserve(controller, bytes)),
            1 => (any::<usize>(), bytes()).prop_map(|(which, by)| Step::Grow(which, by)),
            1 => (any::<usize>(), bytes()).prop_map(|(which, to)| Step::Shrink(which, to)),
            1 => any::<usize>().prop_map(Step::Leave),
            3 => any::<usize>().prop_map(Step::End),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn no_more_is_held_than_there_is_and_all_that_wait_are_served(steps in steps()) {
            let mut run = Run::new();
            for step in steps {
                let count = run.held.len().max(1);
                match step {
                    Step::Reserve(controller, bytes) => drop(run.reserve(controller, bytes)),
                    Step::Grow(which, by) => if let Some((_, bytes)) = run.held.get_mut(which % count)
                        && run.accounts.grow(*bytes, *bytes + by)
                    {
                        *bytes += by;
                    }
                    Step::Shrink(which, to) => if let Some((_, bytes)) = run.held.get_mut(which % count) {
                        run.accounts.shrink(*bytes, to);
                        *bytes = to.min(*bytes);
                        run.admit();
                    }
                    Step::Leave(which) => {
                        let waiting = run.waiting.len().max(1);
                        if let Some(ticket) = run.waiting.keys().nth(which % waiting).copied() {
                            let (.., place) = run.waiting.remove(&ticket).unwrap();
                            prop_assert!(run.accounts.leave(place) && !run.accounts.leave(place));
                            run.admit();
                        }
                    }
                    Step::End(which) => if !run.held.is_empty() { run.end(which % count) },
                }
                let held = |large: bool| run.held.iter().filter(|(_, bytes)| (*bytes > SMALL) == large).map(|(_, bytes)| bytes).sum::<u64>();
                prop_assert_eq!(run.accounts.figures().reserved, held(true) + held(false));
                prop_assert!(held(true) + held(false) <= BUDGET && held(true) <= BUDGET / 4 * 3);
                let waits = |large: bool| run.waiting.values().any(|(_, bytes, _)| (*bytes > SMALL) == large);
                prop_assert!(!waits(true) || held(true) > 0 || held(false) > BUDGET / 4);
                prop_assert!(!waits(false) || held(false) + SMALL > BUDGET / 4, "a small one waits, and its quarter is free");
            }
            while !run.held.is_empty() {
                run.end(0);
            }
            prop_assert!(run.waiting.is_empty(), "some wait for nothing");
            prop_assert_eq!(run.accounts.figures().reserved, 0);
        }
    }
}
