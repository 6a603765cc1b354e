//! Memory budget of the server: reservations of reconciles, which grow without waiting, or end and wait in line.

mod cgroup;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use metahook_core::api::units::print_bytes;
use metahook_core::pacing::memory::{
    InLine, MIN_RESERVATION, MemoryAccounts, MemoryFigures, ReserveResult, Ticket,
};
use tokio::sync::oneshot;

pub(crate) use cgroup::{default_budget, default_cache_budget};

use crate::sync::lock;

/// The budget that all reconciles share.
#[derive(Clone)]
pub(crate) struct MemoryBudget(Arc<Mutex<State>>);

struct State {
    accounts: MemoryAccounts,
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// The memory of one reconcile; given back when the last copy is dropped. The default has no bound, for calls outside of a
/// server.
#[derive(Clone, Default)]
pub struct Reservation(Arc<Held>);

#[derive(Default)]
struct Held {
    budget: Option<MemoryBudget>,
    amounts: Mutex<Amounts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Amounts {
    reserved: u64,
    used: u64,
    most_used: u64,
    /// Bytes that would have been used when there was no room.
    short_of: Option<u64>,
}

/// There was no room for a reservation to grow: the reconcile ends before it writes, and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's memory budget is used up (--memory-budget): the reconcile waits for its turn")]
pub struct MemoryShort;

/// A reconcile that needs more than any may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the reconcile wants {} of memory, and one may have {}, three quarters of what --memory-budget leaves beside traces: let the hook answer with less, or raise the flag and the server's memory limit",
    print_bytes(wanted.next_multiple_of(1 << 20)),
    print_bytes(*max)
)]
pub(crate) struct MemoryTooLarge {
    wanted: u64,
    max: u64,
}

/// Bytes of the budget that traces have to leave: with less, no reconcile goes on.
const MIN_BUDGET: u64 = 1 << 20;

/// The traces of reconciles would leave reconciles nothing of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "--trace-memory-max is {}, and --memory-budget, in which it counts, is {}{}: reconciles need {} besides, so lower the one, or raise the other and the server's memory limit",
    print_bytes(*traces),
    print_bytes(*budget),
    if *is_default { " by default" } else { "" },
    print_bytes(MIN_BUDGET)
)]
pub struct TracesTooLarge {
    traces: u64,
    budget: u64,
    is_default: bool,
}

/// A reservation in line; leaves it when dropped.
struct QueuedReservation<'a> {
    budget: &'a MemoryBudget,
    place: InLine,
    bytes: u64,
    admitted: bool,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(State { accounts: MemoryAccounts::new(bytes), waiting: BTreeMap::new() })))
    }

    /// The budget that traces leave to reconciles. Traces are held as long as the server runs, so their bound is charged from
    /// the beginning.
    ///
    /// `given`: what reconciles and traces may take together; `default` when absent. `traces`: bytes that traces may take.
    ///
    /// # Errors
    /// Traces may take all of it, or all but what a reconcile needs.
    pub(crate) fn beside_traces(
        given: Option<u64>,
        default: impl FnOnce() -> u64,
        traces: u64,
    ) -> Result<Self, TracesTooLarge> {
        let budget = given.unwrap_or_else(default);
        match budget.checked_sub(traces).filter(|left| *left >= MIN_BUDGET) {
            Some(left) => Ok(Self::new(left)),
            None => Err(TracesTooLarge { traces, budget, is_default: given.is_none() }),
        }
    }

    pub(crate) fn figures(&self) -> MemoryFigures {
        self.lock().accounts.figures()
    }

    pub(crate) fn max_reservation(&self) -> u64 {
        self.lock().accounts.max_reservation()
    }

    pub(crate) fn max_small(&self) -> u64 {
        self.lock().accounts.max_small()
    }

    /// Reserves so many bytes, where need be in line behind others.
    ///
    /// # Errors
    /// No reservation may have so many.
    pub(crate) async fn reserve(
        &self,
        controller: &Arc<str>,
        bytes: u64,
    ) -> Result<Reservation, MemoryTooLarge> {
        let asked = {
            let mut state = self.lock();
            let asked = state.accounts.reserve(controller, bytes);
            let asked = asked.map_err(|it| MemoryTooLarge { wanted: it.wanted, max: it.max })?;
            match asked {
                ReserveResult::Reserved => None,
                ReserveResult::Waits(place) => {
                    let (turn, has_turn) = oneshot::channel();
                    state.waiting.insert(place.ticket, turn);
                    Some((place, has_turn))
                }
            }
        };
        if let Some((place, has_turn)) = asked {
            let mut waiting = QueuedReservation { budget: self, place, bytes, admitted: false };
            // Nobody drops the sender but by sending.
            waiting.admitted = has_turn.await.is_ok();
        }
        let amounts = Mutex::new(Amounts { reserved: bytes, ..Amounts::default() });
        Ok(Reservation(Arc::new(Held { budget: Some(self.clone()), amounts })))
    }

    fn give_back(&self, from: u64, to: u64) {
        let mut state = self.lock();
        state.accounts.shrink(from, to);
        state.admit();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    fn admit(&mut self) {
        for ticket in self.accounts.admit() {
            if let Some(turn) = self.waiting.remove(&ticket) {
                // One that was dropped meanwhile gives back what it got.
                turn.send(()).unwrap_or_default();
            }
        }
    }
}

impl Drop for QueuedReservation<'_> {
    fn drop(&mut self) {
        if self.admitted {
            return;
        }
        let mut state = self.budget.lock();
        state.waiting.remove(&self.place.ticket);
        if !state.accounts.leave(self.place) {
            state.accounts.shrink(self.bytes, 0);
        }
        state.admit();
    }
}

impl Reservation {
    /// Uses so many bytes more, and grows where they do not fit.
    ///
    /// # Errors
    /// There is no room. The reservation remembers it.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), MemoryShort> {
        let Some(budget) = &self.0.budget else { return Ok(()) };
        let mut amounts = lock(&self.0.amounts);
        let used = amounts.used + bytes as u64;
        if used > amounts.reserved {
            let mut state = budget.lock();
            // More than is needed now, so that it does not grow again at once.
            let steps = [used.max(amounts.reserved + MIN_RESERVATION), used];
            let grown = steps.into_iter().find(|to| state.accounts.grow(amounts.reserved, *to));
            let Some(reserved) = grown else {
                amounts.short_of = Some(amounts.short_of.unwrap_or_default().max(used));
                return Err(MemoryShort);
            };
            amounts.reserved = reserved;
        }
        amounts.used = used;
        amounts.most_used = amounts.most_used.max(used);
        Ok(())
    }

    /// Uses so many bytes less.
    pub(crate) fn refund(&self, bytes: usize) {
        let mut amounts = lock(&self.0.amounts);
        amounts.used = amounts.used.saturating_sub(bytes as u64);
    }

    /// Gives back what is reserved and not used.
    pub(crate) fn shrink(&self) {
        let Some(budget) = &self.0.budget else { return };
        let mut amounts = lock(&self.0.amounts);
        // A step that would soon be taken again is kept.
        if amounts.used + MIN_RESERVATION < amounts.reserved {
            budget.give_back(amounts.reserved, amounts.used);
            amounts.reserved = amounts.used;
        }
    }

    pub(crate) fn reserved(&self) -> u64 {
        lock(&self.0.amounts).reserved
    }

    pub(crate) fn most_used(&self) -> u64 {
        lock(&self.0.amounts).most_used
    }

    /// The bytes that there was no room for, with all before them.
    pub(crate) fn short_of(&self) -> Option<u64> {
        lock(&self.0.amounts).short_of
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give_back(lock(&self.amounts).reserved, 0);
        }
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reservation").field(&*lock(&self.0.amounts)).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn controller() -> Arc<str> {
        "c".into()
    }

    async fn reserved(budget: &MemoryBudget, bytes: u64) -> Reservation {
        budget.reserve(&controller(), bytes).await.unwrap()
    }

    #[tokio::test]
    async fn a_reservation_grows_as_far_as_there_is_room_and_is_given_back() {
        let budget = MemoryBudget::new(64 * MIB);
        let memory = reserved(&budget, MIB).await;
        memory.charge(1 << 20).unwrap();
        assert_eq!(memory.reserved(), MIB);
        memory.charge(20 << 20).unwrap();
        assert_eq!((budget.figures().reserved, memory.short_of()), (21 * MIB, None));
        memory.charge(30 << 20).unwrap_err();
        assert_eq!((memory.short_of(), memory.most_used()), (Some(51 * MIB), 21 * MIB));
        memory.refund(20 << 20);
        let copy = memory.clone();
        memory.shrink();
        assert_eq!(budget.figures().reserved, MIB);
        drop(memory);
        assert_eq!(budget.figures().reserved, MIB);
        drop(copy);
        assert_eq!(
            budget.figures(),
            MemoryFigures { budget: 64 * MIB, most_reserved: 21 * MIB, ..MemoryFigures::default() }
        );
    }

    #[tokio::test]
    async fn one_that_waits_gets_its_turn_and_one_that_gives_up_leaves_the_line() {
        let budget = MemoryBudget::new(64 * MIB);
        let large = reserved(&budget, 40 * MIB).await;
        let mut first = Box::pin(reserved(&budget, 40 * MIB));
        let mut second = Box::pin(reserved(&budget, 30 * MIB));
        let mut third = Box::pin(reserved(&budget, 30 * MIB));
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(first); // while it waits
        drop(large);
        drop(second); // when its turn has come, before it is polled
        assert!(third.as_mut().now_or_never().is_some());
        drop(third);
        assert_eq!((budget.figures().reserved, budget.figures().waits), (0, 3));
    }

    #[tokio::test]
    async fn more_than_one_may_have_is_refused_by_name() {
        let budget = MemoryBudget::new(64 * MIB);
        let error = budget.reserve(&controller(), 49 * MIB).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the reconcile wants 49Mi of memory, and one may have 48Mi, three quarters of what --memory-budget leaves beside traces: let the hook answer with less, or raise the flag and the server's memory limit"
        );
        Reservation::default().charge(usize::MAX).unwrap();
    }

    #[test]
    fn traces_are_charged_and_have_to_leave_something() {
        let budget = |given, traces| {
            let budget = MemoryBudget::beside_traces(given, || 64 * MIB, traces);
            budget.map(|budget| budget.figures().budget).map_err(|error| error.to_string())
        };
        for (given, traces, left) in [
            (Some(16 * MIB), 4 * MIB, 12 * MIB),
            (Some(16 * MIB), 0, 16 * MIB),
            (None, 4 * MIB, 60 * MIB),
            (Some(16 * MIB), 15 * MIB, MIB),
        ] {
            assert_eq!(budget(given, traces), Ok(left), "{given:?} {traces}");
        }
        for (given, traces, printed) in
            [(Some(16 * MIB), 15 * MIB + 1, "15728641"), (Some(16 * MIB), 16 * MIB + 1, "16777217")]
        {
            assert_eq!(
                budget(given, traces).unwrap_err(),
                format!(
                    "--trace-memory-max is {printed}, and --memory-budget, in which it counts, is 16Mi: reconciles need 1Mi besides, so lower the one, or raise the other and the server's memory limit"
                )
            );
        }
        let error = budget(None, u64::MAX).unwrap_err();
        assert!(error.contains("is 64Mi by default: reconciles need 1Mi besides, so lower"), "{error}");
    }
}
