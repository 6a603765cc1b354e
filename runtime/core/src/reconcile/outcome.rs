//! Outcome of a reconcile: when the queue hands its parent out again, when its status is written, and the Event of a failure.
//!
//! Where children were just written, the status waits for the next reconcile, which sees them; at most once, and not where
//! something failed or the parent is being deleted.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::object::Object;
use crate::object::id::ObjectId;
use crate::pacing::self_triggered::Pace;
use crate::shorten_middle;

/// The delays of client-go's queues after failures.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(5);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1000);

/// Beginning of an Event's message.
const SYNC_ERROR: &str = "Sync error: ";

/// The length of a failure's message that its Event shows whole: the API server takes 1,024 bytes.
pub const MAX_EVENT_MESSAGE: usize = 1024 - SYNC_ERROR.len();

/// A reconcile that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One word, for metrics and for the controller's status.
    pub category: &'static str,
    pub message: String,
    pub retry: Retry,
    /// The related objects that the message may name: not all who may read it may list them.
    pub related: Vec<ObjectId>,
}

/// How a failed reconcile is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After a delay that grows, with an Event.
    WithEvent,
    /// After a delay that grows, without an Event: another client was faster.
    Silent,
    /// After the delay that the hook or the API server asked for, which is no failure.
    After(Duration),
}

/// How a reconcile ended, for the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was written: the next reconcile waits for a change, or for this delay.
    Settled(Option<Duration>),
    /// Writes had no effect, as the API server ignored them: the next reconcile waits for a change, or for this delay.
    NoEffect(Option<Duration>),
    /// Something was written: another reconcile follows, as soon as the parent's budget lets it.
    FollowUp,
    /// Something was written after a call in which the hook read the clock: another reconcile follows, as soon as the
    /// budget lets it.
    FollowUpByClock,
    /// Something was written, as one of a finite number of steps: another reconcile follows at once, and is never throttled.
    NextStep,
    Failed(Duration),
    /// Neither a success nor a failure: another reconcile follows after this delay.
    Postponed(Duration),
    /// Something was written before the reconcile was put off: another one follows after this delay.
    PostponedAfterWrite(Duration),
}

/// History of a parent's reconciles, as far as the outcome of the next one depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryState {
    /// Reconciles that failed, in a row.
    pub failures: u32,
    /// The reconcile before wrote something, and no other client has changed the parent since.
    pub self_triggered: bool,
    /// Reconciles before this one in a row that wrote something, tried to, or were the first to fail.
    pub in_a_row: u32,
    /// An object that concerns the parent, or its status, changed by another hand since the reconcile before began.
    pub others_changed: bool,
    /// When the next one may run, if this one writes something.
    pub next: Pace,
    /// How long `next` is away when this one is handed out; zero where it is no time.
    pub wait: Duration,
}

/// Effect of a reconcile on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Nothing,
    Something,
    /// A child of a rolling update moved to the latest revision, so that the end of the rollout is one step nearer.
    RolloutStep,
}

impl Outcome {
    /// `resync_after`: the delay that the hook asked for. `retry_state`: before this reconcile. `wrote`: also without effect.
    pub fn of(
        result: &Result<Changed, Failure>,
        resync_after: Option<Duration>,
        retry_state: RetryState,
        wrote: bool,
    ) -> Self {
        match result {
            Ok(Changed::Nothing) if wrote => Self::NoEffect(resync_after),
            Ok(Changed::Nothing) => Self::Settled(resync_after),
            Ok(Changed::Something) => Self::FollowUp,
            Ok(Changed::RolloutStep) => Self::NextStep,
            Err(Failure { retry: Retry::After(delay), .. }) if wrote => Self::PostponedAfterWrite(*delay),
            Err(Failure { retry: Retry::After(delay), .. }) => Self::Postponed(*delay),
            Err(_) => Self::after_panic(retry_state),
        }
    }

    /// The delay after which the next reconcile comes, where one is known.
    pub fn delay(self) -> Option<Duration> {
        match self {
            Self::Settled(delay) | Self::NoEffect(delay) => delay,
            Self::Failed(delay) | Self::Postponed(delay) | Self::PostponedAfterWrite(delay) => Some(delay),
            Self::FollowUp | Self::FollowUpByClock | Self::NextStep => None,
        }
    }

    /// The outcome of a reconcile whose hook read the clock.
    #[must_use]
    pub fn by_clock(self) -> Self {
        match self {
            Self::FollowUp => Self::FollowUpByClock,
            outcome => outcome,
        }
    }

    /// A reconcile that panicked is repeated as after any failure.
    pub fn after_panic(retry_state: RetryState) -> Self {
        Self::Failed(retry_delay(retry_state.failures))
    }
}

impl Failure {
    /// The message of its Event.
    pub fn event(&self) -> Option<String> {
        let text = || format!("{SYNC_ERROR}{}", shorten_middle(&self.message, MAX_EVENT_MESSAGE));
        (self.retry == Retry::WithEvent).then(text)
    }
}

fn retry_delay(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    MIN_RETRY_DELAY.saturating_mul(factor).min(MAX_RETRY_DELAY)
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
pub struct ReconcileProgress {
    pub wrote_children: bool,
    pub failed: bool,
    /// The reconcile before put the status off, or the next one does not follow at once.
    pub due: bool,
}

/// Why the status that the hook wants is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StatusLeft {
    /// The parent has it.
    Unchanged,
    /// It waits for the next reconcile, which sees the children that were just written.
    PutOff,
    /// The API server kept the parent as it was after the same write, a short while ago.
    NoEffectBefore,
}

impl fmt::Display for StatusLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::PutOff => "put off: the next reconcile shows the hook the children that were just written",
            Self::NoEffectBefore => {
                "not written: the API server kept the object as it was after the same write, a short while ago"
            }
        })
    }
}

/// # Guarantees
/// A status is put off by one reconcile at most; never when something failed, and never of a parent that is being deleted.
pub fn status_timing(parent: &Object, so_far: ReconcileProgress) -> StatusTiming {
    let ReconcileProgress { wrote_children, failed, due } = so_far;
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

    const FIRST: RetryState = RetryState {
        failures: 0,
        self_triggered: false,
        in_a_row: 0,
        others_changed: false,
        next: Pace::AtOnce,
        wait: Duration::ZERO,
    };

    fn failure(retry: Retry) -> Result<Changed, Failure> {
        Err(Failure { category: "Hook", message: "it trapped".into(), retry, related: Vec::new() })
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
            Outcome::NoEffect(Some(delay))
        );
        assert_eq!(
            Outcome::of(&failure(Retry::After(delay)), None, FIRST, true),
            Outcome::PostponedAfterWrite(delay)
        );
        assert_eq!(Outcome::of(&Ok(Changed::Something), None, FIRST, true), Outcome::FollowUp);
    }

    #[test]
    fn failures_back_off_up_to_a_cap() {
        for (failures, millis) in [(0, 5), (3, 40), (40, 1_000_000), (u32::MAX, 1_000_000)] {
            let retry_state = RetryState { failures, ..FIRST };
            let failed = Outcome::Failed(Duration::from_millis(millis));
            assert_eq!(Outcome::of(&failure(Retry::WithEvent), None, retry_state, false), failed);
            assert_eq!(Outcome::after_panic(retry_state), failed);
        }
    }

    #[test]
    fn failures_have_an_event_unless_they_are_silent() {
        let event = |retry| failure(retry).unwrap_err().event();
        assert_eq!(event(Retry::WithEvent).as_deref(), Some("Sync error: it trapped"));
        assert_eq!((event(Retry::Silent), event(Retry::After(Duration::ZERO))), (None, None));
    }

    #[test]
    fn no_time_that_a_hook_asks_for_shortens_the_delay_of_a_failure() {
        let retry_state = RetryState { failures: 40, ..FIRST };
        let failed = Outcome::of(&failure(Retry::Silent), Some(Duration::from_secs(1)), retry_state, false);
        assert_eq!(failed, Outcome::Failed(MAX_RETRY_DELAY));
    }

    #[test]
    fn a_hook_that_asks_for_time_gets_it() {
        let asked = Duration::from_secs(20);
        let retry_state = RetryState { failures: 40, ..FIRST };
        assert_eq!(
            Outcome::of(&failure(Retry::After(asked)), None, retry_state, false),
            Outcome::Postponed(asked)
        );
    }

    #[test]
    fn a_status_waits_for_one_reconcile_where_children_were_written_and_nothing_speaks_against_it() {
        let parent = || a("e/v1", "P", "n/p");
        let wrote = ReconcileProgress { wrote_children: true, ..ReconcileProgress::default() };
        let when = |parent: Build, so_far| status_timing(&parent.object(), so_far);
        assert_eq!(when(parent(), wrote), StatusTiming::NextReconcile);
        assert_eq!(when(parent(), ReconcileProgress::default()), StatusTiming::Now);
        for against in [ReconcileProgress { failed: true, ..wrote }, ReconcileProgress { due: true, ..wrote }]
        {
            assert_eq!(when(parent(), against), StatusTiming::Now, "{against:?}");
        }
        assert_eq!(when(parent().deleting(), wrote), StatusTiming::Now);
    }
}
