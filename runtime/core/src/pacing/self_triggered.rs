//! Budget of a parent's self-triggered reconciles, so that no hook keeps the server, or the API server, busy for ever.
//!
//! Each reconcile that writes something, also in vain, is charged to the budget of its parent. What is left of it says when the
//! parent may run again, for whatever reason: at once, at a rate that the controller's restless parents share, or one by one as
//! time refills it. Only a change that another client makes to the parent refills it at once: children, statuses, time and other
//! hooks could keep a hook going that never settles.

use std::time::Duration;

use crate::pacing::{Rate, RateLimiter};

/// Limits of the reconciles that a parent's own writes trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfTriggerLimits {
    /// For each parent, before there is one for each [`SELF_TRIGGER_REFILL`].
    pub max: u32,
    /// Per second of each controller, of the parents that had more than [`UNTHROTTLED`].
    pub rate: u32,
}

/// Self-triggered reconciles of a parent that nothing throttles, in a row and in the time that refills them.
pub const UNTHROTTLED: u32 = 10;

/// A parent gets one self-triggered reconcile back after this time, and all of them at most once in this time.
pub const SELF_TRIGGER_REFILL: Duration = Duration::from_secs(10);

/// Throttled reconciles that a controller may start at once after a pause.
const SELF_TRIGGER_BURST: u32 = 5;

impl Default for SelfTriggerLimits {
    fn default() -> Self {
        Self { max: 300, rate: 20 }
    }
}

impl SelfTriggerLimits {
    /// Rate limiter of the throttled parents of one controller.
    pub fn limiter(self) -> RateLimiter {
        RateLimiter::new(Rate { per_second: f64::from(self.rate), burst: SELF_TRIGGER_BURST })
    }
}

/// When a parent that its own writes triggered may run: the later, the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    #[default]
    AtOnce,
    /// The reconcile follows at the rate that the controller's throttled parents share.
    Throttled,
    /// The parent's budget is used up until then.
    At(Duration),
}

/// Budget of a parent's self-triggered reconciles. Times are those since its queue was made.
///
/// # Guarantees
/// In any time `t` a parent whose reconciles are charged and paced has at most `max + 1` of them for each
/// [`SELF_TRIGGER_REFILL`] that began in `t`, and without changes by other clients `max + 1`, and one more for each.
/// Reconciles in a row, without the parent being settled or changed by another client, are throttled but for
/// [`UNTHROTTLED`], however slow they are: else time would let ten thousand parents that never settle have a thousand
/// in a second. Where the hook read the clock, those have the pace of a budget that is used up: one for each
/// [`SELF_TRIGGER_REFILL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SelfTriggerBudget {
    /// Nothing of the budget is used from then on.
    full_at: Duration,
    /// Another client's change does not refill it before.
    refill_at: Duration,
    /// When it was charged last.
    charged_at: Duration,
    /// Since the parent was settled, or since the budget was refilled at once.
    in_a_row: u32,
    /// The hook read the clock in the last one: what it writes may be the time, which never settles.
    /// See <https://github.com/multigres/multigres-operator/pull/185>.
    reads_clock: bool,
}

impl SelfTriggerBudget {
    /// Another client changed the parent. Clients that react to the parent's own writes refill it no more often than time.
    pub fn refill(&mut self, now: Duration) {
        if self.full_at > now && self.refill_at <= now {
            let refill_at = now.saturating_add(SELF_TRIGGER_REFILL);
            *self = Self { refill_at, ..Self::default() };
        }
    }

    /// The parent came to rest.
    pub fn settled(&mut self) {
        self.in_a_row = 0;
    }

    /// A step of a rollout, of which there are finitely many, pays for what follows it.
    pub fn refund(&mut self) {
        self.full_at = self.full_at.saturating_sub(SELF_TRIGGER_REFILL * UNTHROTTLED);
        self.in_a_row = self.in_a_row.saturating_sub(UNTHROTTLED);
    }

    /// Charged reconciles in a row.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    pub fn charge(&mut self, now: Duration) {
        self.full_at = self.full_at.max(now).saturating_add(SELF_TRIGGER_REFILL);
        self.charged_at = now;
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    /// Notes whether the hook read the clock in a reconcile that is charged.
    pub fn note_clock(&mut self, read: bool) {
        self.reads_clock = read;
    }

    pub fn pace(&self, now: Duration, max: u32) -> Pace {
        let used = self.full_at.saturating_sub(now);
        let exhausted = SELF_TRIGGER_REFILL.saturating_mul(max);
        if used > exhausted {
            return Pace::At(self.full_at.saturating_sub(exhausted));
        }
        // A hook that reads the clock and settles now and then is paced as all others are. What it was charged before it read the
        // clock delays it no further.
        let next = self.charged_at.saturating_add(SELF_TRIGGER_REFILL);
        if self.reads_clock && self.in_a_row > UNTHROTTLED && next > now {
            Pace::At(next)
        } else if used > SELF_TRIGGER_REFILL * UNTHROTTLED || self.in_a_row > UNTHROTTLED {
            Pace::Throttled
        } else {
            Pace::AtOnce
        }
    }

    /// Whether the budget is as good as a new one.
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now && self.refill_at <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The paces of so many reconciles in a row, each charged, with their counts.
    fn paces(budget: &mut SelfTriggerBudget, now: Duration, count: u32) -> [u32; 3] {
        let mut counts = [0; 3];
        for _ in 0..count {
            budget.charge(now);
            match budget.pace(now, 300) {
                Pace::AtOnce => counts[0] += 1,
                Pace::Throttled => counts[1] += 1,
                Pace::At(_) => counts[2] += 1,
            }
        }
        counts
    }

    #[test]
    fn ten_run_at_once_three_hundred_at_a_rate_and_then_time_refills_one_by_one() {
        let (mut budget, now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        assert_eq!(paces(&mut budget, now, 300), [10, 290, 0]);
        budget.charge(now);
        assert_eq!(budget.pace(now, 300), Pace::At(now + SELF_TRIGGER_REFILL));
        assert_eq!(budget.pace(now + SELF_TRIGGER_REFILL, 300), Pace::Throttled);
        let full = now + SELF_TRIGGER_REFILL * 301;
        assert!(!budget.is_full(now + SELF_TRIGGER_REFILL * 300) && budget.is_full(full));
    }

    #[test]
    fn another_client_refills_a_budget_no_more_often_than_time() {
        let (mut budget, now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        budget.refill(now);
        assert_eq!(budget, SelfTriggerBudget::default(), "nothing was used");
        budget.charge(now);
        budget.refill(now);
        assert_eq!(paces(&mut budget, now, 11), [10, 1, 0]);
        budget.refill(now);
        assert_eq!(budget.pace(now, 300), Pace::Throttled, "an echo refills nothing");
        budget.refill(now + SELF_TRIGGER_REFILL);
        assert_eq!(budget.pace(now + SELF_TRIGGER_REFILL, 300), Pace::AtOnce);
        assert!(!budget.is_full(now + SELF_TRIGGER_REFILL), "or it could be refilled again");
    }

    #[test]
    fn time_refills_no_row_and_being_settled_does() {
        let (mut budget, mut now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        let mut step = |budget: &mut SelfTriggerBudget| {
            now += SELF_TRIGGER_REFILL;
            budget.charge(now);
            budget.pace(now, 300)
        };
        assert_eq!([(); 10].map(|()| step(&mut budget)), [Pace::AtOnce; 10]);
        assert_eq!(step(&mut budget), Pace::Throttled);
        budget.settled();
        assert_eq!(step(&mut budget), Pace::AtOnce);
    }

    #[test]
    fn a_hook_that_writes_the_time_is_rationed_after_ten_in_a_row() {
        let (mut budget, now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        budget.note_clock(true);
        assert_eq!(paces(&mut budget, now, 12), [10, 0, 2]);
        assert_eq!(budget.pace(now, 300), Pace::At(now + SELF_TRIGGER_REFILL));
        assert_eq!(budget.pace(now + SELF_TRIGGER_REFILL, 300), Pace::Throttled);
        budget.note_clock(false);
        assert_eq!(budget.pace(now, 300), Pace::Throttled, "the next call did not read it");
        budget.note_clock(true);
        budget.refill(now + SELF_TRIGGER_REFILL);
        assert_eq!(
            budget.pace(now + SELF_TRIGGER_REFILL, 300),
            Pace::AtOnce,
            "another client changed the parent"
        );
    }

    #[test]
    fn a_clock_that_is_read_late_delays_by_one_refill() {
        let (mut budget, now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        budget.note_clock(false);
        assert_eq!(paces(&mut budget, now, 200), [10, 190, 0]);
        budget.note_clock(true);
        assert_eq!(budget.pace(now, 300), Pace::At(now + SELF_TRIGGER_REFILL));
    }

    #[test]
    fn a_hook_that_reads_the_clock_and_converges_is_never_rationed() {
        let (mut budget, mut now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        for _ in 0..20 {
            for _ in 0..UNTHROTTLED {
                budget.charge(now);
                budget.note_clock(true);
                assert!(!matches!(budget.pace(now, 300), Pace::At(_)));
            }
            budget.settled();
            now += Duration::from_secs(1);
        }
    }

    #[test]
    fn a_step_of_a_rollout_pays_for_ten() {
        let (mut budget, now) = (SelfTriggerBudget::default(), Duration::from_secs(100));
        paces(&mut budget, now, 20);
        budget.refund();
        assert_eq!(budget.pace(now, 300), Pace::AtOnce);
        budget.charge(now);
        assert_eq!(budget.pace(now, 300), Pace::Throttled);
    }

    proptest! {
        /// A hook that never settles, and other clients that change what they like: what runs is bounded.
        #[test]
        fn a_budget_bounds_the_reconciles_of_any_time(
            steps in prop::collection::vec((0..3_000_u64, any::<bool>()), 1..600), max in 1..30_u32,
        ) {
            let (mut budget, mut now, mut ran, mut refills) =
                (SelfTriggerBudget::default(), Duration::from_hours(1), 0_u64, 0_u64);
            let start = now;
            for (millis, change) in steps {
                now += Duration::from_millis(millis);
                if change {
                    let before = budget;
                    budget.refill(now);
                    refills += u64::from(before != budget);
                }
                if !matches!(budget.pace(now, max), Pace::At(_)) {
                    ran += 1;
                    budget.charge(now);
                }
                let intervals = now.saturating_sub(start).as_secs() / SELF_TRIGGER_REFILL.as_secs() + 1;
                prop_assert!(refills <= intervals);
                prop_assert!(ran <= (u64::from(max) + 1) * (refills + 1) + intervals);
            }
        }
    }
}
