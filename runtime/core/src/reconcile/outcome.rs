//! Outcome of a reconcile: when the queue hands its parent out again, when its status is written, and the Event of a failure.
//!
//! Reconciles that a parent's own writes trigger run at once ten times, then slower and slower, up to 30 s. That ends when a
//! reconcile writes nothing, or when another client changes something. Neither time nor the writes of this server's other
//! reconciles shorten it: hooks that never settle would keep each other going.
//!
//! Where children were just written, the status waits for the next reconcile, which sees them; at most once, and not where
//! something failed or the parent is being deleted.

use std::time::Duration;

use crate::object::Object;

/// The reconciles that are throttled by nothing, though the parent's own writes triggered them.
const MAX_UNTHROTTLED: u32 = 10;
const MIN_THROTTLE_DELAY: Duration = Duration::from_millis(100);
const MAX_THROTTLE_DELAY: Duration = Duration::from_secs(30);

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
    /// Something was written: another reconcile follows after this delay.
    FollowUp(Duration),
    /// Something was written, as one of a finite number of steps: another reconcile follows at once, and is never throttled.
    NextStep,
    Failed(Duration),
    /// Neither a success nor a failure: another reconcile follows after this delay.
    Postponed(Duration),
}

/// Reconciles of one parent in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streaks {
    /// Those that failed.
    pub failures: u32,
    /// Those that the parent's own writes triggered.
    pub self_triggered: u32,
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
    /// `resync_after`: the delay that the hook asked for. `streaks`: without this reconcile.
    pub fn of(result: &Result<Changed, Failure>, resync_after: Option<Duration>, streaks: Streaks) -> Self {
        let sooner = |delay: Duration| resync_after.map_or(delay, |asked| asked.min(delay));
        match result {
            Ok(Changed::Nothing) => Self::Settled(resync_after),
            Ok(Changed::Something) => Self::FollowUp(sooner(throttle_delay(streaks.self_triggered))),
            Ok(Changed::RolloutStep) => Self::NextStep,
            Err(Failure { retry: Retry::After(delay), .. }) => Self::Postponed(*delay),
            Err(_) => Self::Failed(sooner(retry_delay(streaks.failures))),
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

impl Streaks {
    /// Whether the parent waits, because its own writes triggered so many reconciles.
    pub fn is_throttled(self) -> bool {
        !throttle_delay(self.self_triggered).is_zero()
    }
}

/// The first reconciles that a parent's own writes trigger run at once, the next ones slower and slower: a hook whose
/// answers never settle cannot overload the cluster.
fn throttle_delay(self_triggered: u32) -> Duration {
    match self_triggered.checked_sub(MAX_UNTHROTTLED) {
        None => Duration::ZERO,
        Some(beyond) => doubled(MIN_THROTTLE_DELAY, beyond).min(MAX_THROTTLE_DELAY),
    }
}

fn retry_delay(failures: u32) -> Duration {
    doubled(MIN_RETRY_DELAY, failures).min(MAX_RETRY_DELAY)
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
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
    use super::*;
    use crate::object::testing::{Build, a};

    const FIRST: Streaks = Streaks { failures: 0, self_triggered: 0 };

    fn failure(retry: Retry) -> Result<Changed, Failure> {
        Err(Failure { category: "Hook", message: "it trapped".into(), retry })
    }

    #[test]
    fn a_reconcile_with_nothing_to_write_waits() {
        let resync_after = Some(Duration::from_secs(7));
        assert_eq!(Outcome::of(&Ok(Changed::Nothing), None, FIRST), Outcome::Settled(None));
        assert_eq!(Outcome::of(&Ok(Changed::Nothing), resync_after, FIRST), Outcome::Settled(resync_after));
    }

    #[test]
    fn own_writes_are_followed_up_at_once_and_then_slower() {
        for (self_triggered, millis) in [(0, 0), (9, 0), (10, 100), (12, 400), (u32::MAX, 30_000)] {
            let streaks = Streaks { self_triggered, ..FIRST };
            let follow_up = Outcome::FollowUp(Duration::from_millis(millis));
            assert_eq!(Outcome::of(&Ok(Changed::Something), None, streaks), follow_up);
            assert_eq!(streaks.is_throttled(), millis > 0);
            assert_eq!(Outcome::of(&Ok(Changed::RolloutStep), None, streaks), Outcome::NextStep);
        }
    }

    #[test]
    fn failures_back_off_up_to_a_cap() {
        for (failures, millis) in [(0, 5), (3, 40), (40, 1_000_000), (u32::MAX, 1_000_000)] {
            let streaks = Streaks { failures, ..FIRST };
            let failed = Outcome::Failed(Duration::from_millis(millis));
            assert_eq!(Outcome::of(&failure(Retry::Loud), None, streaks), failed);
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
    fn a_failure_keeps_the_time_that_the_hook_asked_for() {
        let streaks = Streaks { failures: 40, ..FIRST };
        let asked = Duration::from_secs(3);
        assert_eq!(Outcome::of(&failure(Retry::Quiet), Some(asked), streaks), Outcome::Failed(asked));
    }

    #[test]
    fn a_hook_that_asks_for_time_gets_it() {
        let asked = Duration::from_secs(20);
        let streaks = Streaks { failures: 40, self_triggered: 40 };
        assert_eq!(Outcome::of(&failure(Retry::After(asked)), None, streaks), Outcome::Postponed(asked));
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
}
