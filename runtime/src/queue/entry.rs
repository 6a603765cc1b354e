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
    pub(super) due: Option<Instant>,
    /// Time that passes does not let it run until it is due.
    pub(super) held: bool,
    /// It runs by then, with its state of retries reset.
    pub(super) reset_at: Option<Instant>,
    pub(super) failures: u32,
    pub(super) self_triggered: bool,
    /// The strongest cause that came since it was handed out.
    pub(super) since: Option<Cause>,
    pub(super) budget: SelfTriggerBudget,
    /// Budget of the tries that come earlier than a failure, a hook or the API server lets them.
    pub(super) early: SelfTriggerBudget,
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
            Outcome::Failed(_) if self.failures == 0 => self.budget.charge(time),
            Outcome::Settled(_) => self.budget.settled(),
            Outcome::Failed(_) | Outcome::Postponed(_) => {}
        }
        match outcome {
            Outcome::FollowUp | Outcome::FollowUpByClock => {
                (self.failures, self.self_triggered) = (0, !changed);
            }
            Outcome::Settled(_) | Outcome::NoEffect(_) | Outcome::NextStep => {
                (self.failures, self.self_triggered) = (0, false);
            }
            Outcome::Failed(_) => self.failures = self.failures.saturating_add(1),
            Outcome::Postponed(_) | Outcome::PostponedAfterWrite(_) => {}
        }
    }

    /// Whether the entry is as good as a new one.
    pub(super) fn is_idle(&self, time: Duration) -> bool {
        let waits = self.place.is_some() || self.running || self.due.is_some();
        !waits
            && self.failures == 0
            && !self.self_triggered
            && self.budget.is_full(time)
            && self.early.is_full(time)
    }
}

fn stronger(before: Option<Cause>, cause: Cause) -> Cause {
    before.map_or(cause, |before| before.min(cause))
}
