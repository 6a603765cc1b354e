//! Outcome of a reconcile: when the queue hands its parent out again, when its status is written, and the Event of a failure.
//!
//! Each reconcile that writes something, also in vain, is charged to the budget of its parent ([`SelfTriggerBudget`]). What is left of it says
//! when the parent may run again, for whatever reason: at once, at a rate that the controller's restless parents share, or one
//! by one as time refills it. Only a change that another client makes to the parent refills it at once: children, statuses,
//! time and other hooks could keep a hook going that never settles.
//!
//! Where children were just written, the status waits for the next reconcile, which sees them; at most once, and not where
//! something failed or the parent is being deleted.

use std::time::Duration;

use crate::object::Object;
use crate::pacing::{Rate, RateLimiter};

/// The delays of client-go's queues after failures.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(5);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1000);

/// A reconcile that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One word, for metrics and for the controller's status.
    pub category: &'static str,
    pub message: String,
    pub retry: Retry,
}

/// How a failed reconcile is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After a delay that grows, with an Event.
    Loud,
    /// After a delay that grows, without an Event: another client was faster.
    Quiet,
    /// After the delay that the hook or the API server asked for, which is no failure.
    After(Duration),
}

/// How a reconcile ended, for the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was written: the next reconcile waits for a change, or for this delay.
    Settled(Option<Duration>),
    /// The same after writes that the API server ignored.
    InVain(Option<Duration>),
    /// Something was written: another reconcile follows, as soon as the parent's budget lets it.
    FollowUp,
    /// Something was written, as one of a finite number of steps: another reconcile follows at once, and is never throttled.
    NextStep,
    Failed(Duration),
    /// Neither a success nor a failure: another reconcile follows after this delay.
    Postponed(Duration),
    /// The same after something was written.
    Interrupted(Duration),
}

/// What went before a reconcile of a parent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streaks {
    /// Reconciles that failed, in a row.
    pub failures: u32,
    /// The reconcile before wrote something, and no other client has changed the parent since.
    pub self_triggered: bool,
    /// When the next one may run, if this one writes something.
    pub next: Pace,
}

/// What a reconcile changed in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Nothing,
    Something,
    /// A child of a rolling update moved to the latest revision, so that the end of the rollout is one step nearer.
    RolloutStep,
}

impl Outcome {
    /// `resync_after`: the delay that the hook asked for. `streaks`: without this reconcile. `wrote`: also in vain.
    pub fn of(
        result: &Result<Changed, Failure>,
        resync_after: Option<Duration>,
        streaks: Streaks,
        wrote: bool,
    ) -> Self {
        match result {
            Ok(Changed::Nothing) if wrote => Self::InVain(resync_after),
            Ok(Changed::Nothing) => Self::Settled(resync_after),
            Ok(Changed::Something) => Self::FollowUp,
            Ok(Changed::RolloutStep) => Self::NextStep,
            Err(Failure { retry: Retry::After(delay), .. }) if wrote => Self::Interrupted(*delay),
            Err(Failure { retry: Retry::After(delay), .. }) => Self::Postponed(*delay),
            Err(_) => Self::after_panic(streaks),
        }
    }

    /// A reconcile that panicked is repeated as after any failure.
    pub fn after_panic(streaks: Streaks) -> Self {
        Self::Failed(retry_delay(streaks.failures))
    }
}

impl Failure {
    /// The message of its Event.
    pub fn event(&self) -> Option<String> {
        (self.retry == Retry::Loud).then(|| format!("Sync error: {}", self.message))
    }
}

fn retry_delay(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    MIN_RETRY_DELAY.saturating_mul(factor).min(MAX_RETRY_DELAY)
}

/// Limits of the reconciles that a parent's own writes trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfTriggerLimits {
    /// For each parent, before there is one for each [`SELF_TRIGGER_REFILL`].
    pub max: u32,
    /// Per second of each controller, of the parents that had more than [`UNTHROTTLED`].
    pub rate: u32,
}

/// Self-triggered reconciles of a parent that nothing throttles.
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
    /// For the throttled parents of one controller.
    pub fn limiter(self) -> RateLimiter {
        RateLimiter::new(Rate { per_second: f64::from(self.rate), burst: SELF_TRIGGER_BURST })
    }
}

/// When a parent that its own writes triggered may run: the later, the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    #[default]
    AtOnce,
    /// At the rate that the controller's throttled parents share.
    Throttled,
    /// Its budget is used up until then.
    At(Duration),
}

/// Budget of a parent's self-triggered reconciles. Times are those since its queue was made.
///
/// # Guarantees
/// In any time `t` a parent whose reconciles are charged and paced has at most `max + 1` of them for each
/// [`SELF_TRIGGER_REFILL`] that began in `t`, and without changes by other clients `max + 1`, and one more for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SelfTriggerBudget {
    /// Nothing of the budget is used from then on.
    full_at: Duration,
    /// Another client's change does not refill it before.
    refill_at: Duration,
}

impl SelfTriggerBudget {
    /// Another client changed the parent. Clients that react to the parent's own writes refill it no more often than time.
    pub fn refill(&mut self, now: Duration) {
        if self.full_at > now && self.refill_at <= now {
            *self = Self { full_at: Duration::ZERO, refill_at: now.saturating_add(SELF_TRIGGER_REFILL) };
        }
    }

    /// A step of a rollout, of which there are finitely many, pays for what follows it.
    pub fn refund(&mut self) {
        self.full_at = self.full_at.saturating_sub(SELF_TRIGGER_REFILL * UNTHROTTLED);
    }

    pub fn charge(&mut self, now: Duration) {
        self.full_at = self.full_at.max(now).saturating_add(SELF_TRIGGER_REFILL);
    }

    pub fn pace(&self, now: Duration, max: u32) -> Pace {
        let used = self.full_at.saturating_sub(now);
        let exhausted = SELF_TRIGGER_REFILL.saturating_mul(max);
        if used > exhausted {
            Pace::At(self.full_at.saturating_sub(exhausted))
        } else if used > SELF_TRIGGER_REFILL * UNTHROTTLED {
            Pace::Throttled
        } else {
            Pace::AtOnce
        }
    }

    /// Whether it is as good as a new one.
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now && self.refill_at <= now
    }
}

/// The time at which the status that the hook wants is compared, and written where it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusTiming {
    Now,
    /// The hook is about to see the children that were just written: its next answer is worth writing.
    NextReconcile,
}

/// Progress of this reconcile, and of the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenSoFar {
    pub wrote_children: bool,
    pub failed: bool,
    /// The reconcile before put the status off, or the next one does not follow at once.
    pub due: bool,
}

/// # Guarantees
/// A status is put off by one reconcile at most; never when something failed, and never of a parent that is being deleted.
pub fn status_timing(parent: &Object, so_far: WrittenSoFar) -> StatusTiming {
    let WrittenSoFar { wrote_children, failed, due } = so_far;
    if wrote_children && !(failed || due || parent.deleting) {
        StatusTiming::NextReconcile
    } else {
        StatusTiming::Now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::testing::{Build, a};

    const FIRST: Streaks = Streaks { failures: 0, self_triggered: false, next: Pace::AtOnce };

    fn failure(retry: Retry) -> Result<Changed, Failure> {
        Err(Failure { category: "Hook", message: "it trapped".into(), retry })
    }

    #[test]
    fn a_reconcile_with_nothing_to_write_waits() {
        let resync_after = Some(Duration::from_secs(7));
        assert_eq!(Outcome::of(&Ok(Changed::Nothing), None, FIRST, false), Outcome::Settled(None));
        assert_eq!(
            Outcome::of(&Ok(Changed::Nothing), resync_after, FIRST, false),
            Outcome::Settled(resync_after)
        );
    }

    #[test]
    fn own_writes_are_followed_up_whatever_the_hook_asks_for() {
        let asked = Some(Duration::from_secs(1));
        assert_eq!(Outcome::of(&Ok(Changed::Something), asked, FIRST, false), Outcome::FollowUp);
        assert_eq!(Outcome::of(&Ok(Changed::RolloutStep), asked, FIRST, false), Outcome::NextStep);
    }

    #[test]
    fn writes_that_the_api_server_ignored_and_those_before_a_delay_are_told_apart() {
        let delay = Duration::from_secs(7);
        assert_eq!(
            Outcome::of(&Ok(Changed::Nothing), Some(delay), FIRST, true),
            Outcome::InVain(Some(delay))
        );
        assert_eq!(
            Outcome::of(&failure(Retry::After(delay)), None, FIRST, true),
            Outcome::Interrupted(delay)
        );
        assert_eq!(Outcome::of(&Ok(Changed::Something), None, FIRST, true), Outcome::FollowUp);
    }

    #[test]
    fn failures_back_off_up_to_a_cap() {
        for (failures, millis) in [(0, 5), (3, 40), (40, 1_000_000), (u32::MAX, 1_000_000)] {
            let streaks = Streaks { failures, ..FIRST };
            let failed = Outcome::Failed(Duration::from_millis(millis));
            assert_eq!(Outcome::of(&failure(Retry::Loud), None, streaks, false), failed);
            assert_eq!(Outcome::after_panic(streaks), failed);
        }
    }

    #[test]
    fn failures_have_an_event_unless_they_are_quiet() {
        let event = |retry| failure(retry).unwrap_err().event();
        assert_eq!(event(Retry::Loud).as_deref(), Some("Sync error: it trapped"));
        assert_eq!((event(Retry::Quiet), event(Retry::After(Duration::ZERO))), (None, None));
    }

    #[test]
    fn no_time_that_a_hook_asks_for_shortens_the_delay_of_a_failure() {
        let streaks = Streaks { failures: 40, ..FIRST };
        let failed = Outcome::of(&failure(Retry::Quiet), Some(Duration::from_secs(1)), streaks, false);
        assert_eq!(failed, Outcome::Failed(MAX_RETRY_DELAY));
    }

    #[test]
    fn a_hook_that_asks_for_time_gets_it() {
        let asked = Duration::from_secs(20);
        let streaks = Streaks { failures: 40, ..FIRST };
        assert_eq!(
            Outcome::of(&failure(Retry::After(asked)), None, streaks, false),
            Outcome::Postponed(asked)
        );
    }

    #[test]
    fn a_status_waits_for_one_reconcile_where_children_were_written_and_nothing_speaks_against_it() {
        let parent = || a("e/v1", "P", "n/p");
        let wrote = WrittenSoFar { wrote_children: true, ..WrittenSoFar::default() };
        let when = |parent: Build, so_far| status_timing(&parent.object(), so_far);
        assert_eq!(when(parent(), wrote), StatusTiming::NextReconcile);
        assert_eq!(when(parent(), WrittenSoFar::default()), StatusTiming::Now);
        for against in [WrittenSoFar { failed: true, ..wrote }, WrittenSoFar { due: true, ..wrote }] {
            assert_eq!(when(parent(), against), StatusTiming::Now, "{against:?}");
        }
        assert_eq!(when(parent().deleting(), wrote), StatusTiming::Now);
    }

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
