//! Memory of a reconcile: one reservation for each attempt, until an attempt has all that it needs.
//!
//! All growth comes before the first write of the plan. An attempt that finds no room gives everything back, and the next one
//! waits for what is known to be needed by then; so no reconcile waits while it holds memory.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use metahook_core::pacing::memory::{UsualNeed, next_reservation};
use metahook_core::reconcile::outcome::RetryState;
use metahook_core::reconcile::sequence::Start;
use metahook_core::reconcile::trigger::ReconcileCause;

use crate::controller::ControllerData;
use crate::memory::{MemoryBudget, MemoryTooLarge, Reservation};
use crate::sync::lock;

/// Reconciles that had to wait for longer tell the user.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// The memory of the parents of one kind of one controller.
pub(crate) struct ReconcileMemory {
    budget: MemoryBudget,
    usual: Mutex<UsualNeed>,
}

/// The attempts of one reconcile.
#[derive(Default)]
pub(super) struct Attempts {
    needed: Option<u64>,
    waited: Duration,
    /// An attempt wrote finalizers or claims.
    pub(super) wrote_before_plan: bool,
    /// Why the reconcile takes place, where the log or a trace has it.
    pub(super) cause: Option<ReconcileCause>,
}

impl ReconcileMemory {
    pub(super) fn new(budget: MemoryBudget) -> Self {
        Self { budget, usual: Mutex::default() }
    }

    /// The memory of the next attempt.
    pub(super) async fn reserve(
        &self,
        data: &ControllerData,
        attempts: &mut Attempts,
    ) -> Result<Reservation, MemoryTooLarge> {
        let bytes = attempts.needed.unwrap_or_else(|| lock(&self.usual).bytes(self.budget.max_small()));
        let start = Instant::now();
        let reserved = self.budget.reserve(&data.object.key.name, bytes).await;
        attempts.waited += start.elapsed();
        reserved
    }

    /// Notes what an attempt needed; `true`: it found no room and is to be made again.
    pub(super) fn ended(&self, memory: &Reservation, attempts: &mut Attempts) -> bool {
        let Some(needed) = memory.short_of() else {
            lock(&self.usual).used(memory.most_used());
            return false;
        };
        tracing::debug!(needed, reserved = memory.reserved(), "no memory for the reconcile");
        let max = self.budget.max_reservation();
        let usual = lock(&self.usual).bytes(max);
        attempts.needed = Some(next_reservation(needed, memory.reserved(), max).max(usual));
        true
    }
}

impl Attempts {
    /// The start of the next attempt.
    pub(super) fn start(&self, retry_state: RetryState) -> Start {
        Start { retry_state, wrote_before_plan: self.wrote_before_plan }
    }

    /// The text of an Event about a long wait.
    pub(super) fn warning(&self) -> Option<String> {
        // Without the time, which would make another Event of each.
        (self.waited > LONG_WAIT).then(|| {
            "The reconcile waited for memory for more than 10 s, because reconciles take more than --memory-budget has: raise the flag and the server's memory limit, or let hooks answer with less".to_owned()
        })
    }
}
