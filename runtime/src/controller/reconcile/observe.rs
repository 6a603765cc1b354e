//! Observation of a reconcile's begin and end, where `metahook dev` prints it.

use std::time::Instant;

use metahook_core::object::Object;
use metahook_core::reconcile::outcome::{Changed, Retry, RetryState};
use metahook_core::reconcile::trigger::Beginning;

use super::{ReconcileError, Reconciler};
use crate::controller::observer::{Observed, ReconcileEnd, Reconciled};
use crate::telemetry::error_chain;

/// When a reconcile began, and with what.
pub(super) type Began = (Instant, Beginning);

impl Reconciler {
    /// When the reconcile began, and with what; `None`: nobody observes.
    pub(super) fn begins(&self, parent: &Object) -> Option<Began> {
        self.data
            .observer
            .is_observed()
            .then(|| (Instant::now(), Beginning::of(parent, self.hooks.identity())))
    }

    pub(super) fn observe(
        &self,
        parent: &Object,
        began: Option<Began>,
        result: &Result<Changed, ReconcileError>,
        retry_state: RetryState,
    ) {
        let Some((start, beginning)) = began else { return };
        self.data.observer.note(|| {
            let end = match result.as_ref().map_err(|error| (error, error.failure().retry)) {
                Ok(_) => ReconcileEnd::Ok,
                Err((error, Retry::WithEvent)) => ReconcileEnd::failed(&error_chain(error)),
                Err((error, Retry::Silent | Retry::After(_))) => ReconcileEnd::Again(error_chain(error)),
            };
            Observed::Reconciled(Box::new(Reconciled {
                parent: self.data.parent_id(parent),
                beginning,
                retry_state,
                took: start.elapsed(),
                end,
            }))
        });
    }
}
