//! Standby of a controller: with stores filled and modules loaded it waits until its server leads, and writes nothing.

use std::sync::atomic::Ordering;

use metahook_core::api::CheckedSpec;

use crate::controller::brake::Brake;
use crate::controller::runner::{ControllerRunner, StartReason};

impl ControllerRunner {
    /// Waits until this server leads. A controller that stood by goes on from what the leader before it accepted, and all
    /// parents are new to it.
    pub(super) async fn lead(&self, spec: &CheckedSpec, brake: &Brake) -> StartReason {
        if !self.stands_by.load(Ordering::Relaxed) {
            return self.reason;
        }
        self.context.cluster.api.gate().opened().await;
        self.reporter.read_again(self.context.controllers.get(self.kind, &self.object.key.name).as_deref());
        brake.set(self.reporter.brake(spec.common().deletion_brake.clone()));
        self.stands_by.store(false, Ordering::Relaxed);
        StartReason::First
    }
}
