//! State of one key of the queue: where it waits, its state of retries, its budgets.

use std::time::Duration;

use metahook_core::pacing::lanes::{Cause, LanePosition};
use metahook_core::pacing::self_triggered::SelfTriggerBudget;
use metahook_core::reconcile::outcome::Outcome;
use tokio::time::Instant;

/// One key.
#[derive(Default)]
pub(super) struct Entry {
    /// Where it is queued.
    pub(super) place: Option<LanePosition>,
    pub(super) queued_at: Option<Instant>,
    pub(super) running: bool,
    /// The strongest cause to run again that came while it was running.
    pub(super) meanwhile: Option<Cause>,
    pub(super) delay: Delay,
    pub(super) retry: KeptRetryState,
    /// The strongest cause that came since it was handed out.
    pub(super) since: Option<Cause>,
    pub(super) budget: SelfTriggerBudget,
    /// Budget of the tries that come earlier than a failure, a hook or the API server lets them.
    pub(super) early: SelfTriggerBudget,
}

/// The delay of a key: when it runs though no event adds it.
#[derive(Default)]
pub(super) struct Delay {
    pub(super) due: Option<Instant>,
    /// Time that passes does not let the key run until it is due.
    pub(super) only_when_due: bool,
    /// The key runs by then, with its tries reset.
    pub(super) reset_at: Option<Instant>,
}

/// The part of a key's state of retries that the queue keeps between two reconciles.
#[derive(Default)]
pub(super) struct KeptRetryState {
    /// Failures in a row.
    pub(super) failures: u32,
    /// The key runs again because of its own last reconcile.
    pub(super) self_triggered: bool,
}

impl Entry {
    pub(super) fn note(&mut self, cause: Cause) {
        self.meanwhile = Some(stronger(self.meanwhile, cause));
    }

    pub(super) fn caused(&mut self, cause: Cause) {
        self.since = Some(stronger(self.since, cause));
    }

    /// `changed`: meanwhile another client changed the parent.
    pub(super) fn ended(&mut self, outcome: Outcome, changed: bool, time: Duration) {
        match outcome {
            Outcome::FollowUp | Outcome::FollowUpByClock => {
                self.budget.charge(time);
                self.budget.note_clock(outcome == Outcome::FollowUpByClock);
            }
            Outcome::NoEffect(_) | Outcome::PostponedAfterWrite(_) => self.budget.charge(time),
            Outcome::NextStep => self.budget.refund(),
            // The others in a row are bounded by their delays.
            Outcome::Failed(_) if self.retry.failures == 0 => self.budget.charge(time),
            Outcome::Settled(_) => self.budget.settled(),
            Outcome::Failed(_) | Outcome::Postponed(_) => {}
        }
        match outcome {
            Outcome::FollowUp | Outcome::FollowUpByClock => {
                self.retry = KeptRetryState { failures: 0, self_triggered: !changed };
            }
            Outcome::Settled(_) | Outcome::NoEffect(_) | Outcome::NextStep => {
                self.retry = KeptRetryState::default();
            }
            Outcome::Failed(_) => self.retry.failures = self.retry.failures.saturating_add(1),
            Outcome::Postponed(_) | Outcome::PostponedAfterWrite(_) => {}
        }
    }

    /// Whether the entry is as good as a new one.
    pub(super) fn is_idle(&self, time: Duration) -> bool {
        let waits = self.place.is_some() || self.running || self.delay.due.is_some();
        !waits
            && self.retry.failures == 0
            && !self.retry.self_triggered
            && self.budget.is_full(time)
            && self.early.is_full(time)
    }
}

fn stronger(before: Option<Cause>, cause: Cause) -> Cause {
    before.map_or(cause, |before| before.min(cause))
}
