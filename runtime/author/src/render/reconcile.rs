//! One reconcile of one parent: the sequence of `metahook_core::reconcile` over the objects of files.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::sequence::{Start, reconcile};
use serde_json::Value;

use super::ports::{Ports, Shared};
use super::{RenderedReconcile, Simulation, Step};
use crate::kinds::KnownKinds;

impl Simulation {
    pub(super) async fn reconcile(&mut self, config: &ControllerConfig, id: &ObjectId) -> RenderedReconcile {
        let mut round = RenderedReconcile::of(id);
        let Some(parent) = self.world.get(id).cloned() else { return round };
        let Self { controller, kinds, hooks, version, world, brake, remembered, .. } = self;
        let remembered = remembered.entry(Arc::clone(&id.resource)).or_default();
        let shared = Mutex::new(Shared { world, brake, remembered, round: &mut round });
        let ports = Ports { controller, config, kinds, hooks, version: *version, shared };
        let report = reconcile(&ports, parent, Start::default()).await;
        let again =
            |delay: Duration| format!("the parent is reconciled again after {}s", delay.as_secs_f64());
        round.notes.extend(round.resync_after.map(again));
        if self.remembered.get(&id.resource).is_some_and(|of_kind| of_kind.settled.is_status_due(&id.key)) {
            let note = "the status is written in the next reconcile, which sees these children";
            round.notes.push(note.to_owned());
        }
        if config.paused {
            let note = "the controller is paused by spec.paused: no hook is called, and nothing is written";
            round.notes.push(note.to_owned());
        }
        round.error = report.result.err();
        round.faults = faults(&self.kinds, &round);
        round.notes.extend(round.faults.iter().cloned());
        round
    }
}

/// Faults of the objects that are written: a child is checked whole, of a parent the status alone.
fn faults(kinds: &KnownKinds, round: &RenderedReconcile) -> Vec<String> {
    let mut all = Vec::new();
    for Step { op, effect } in &round.steps {
        let Some(mut after) = effect.shown_after() else { continue };
        // That is the server's own, and lost without harm where the schema does not know it.
        if let Some(Value::Object(status)) = after.get_mut("status") {
            status.remove("observedGeneration");
        }
        let gvk = &effect.id.resource.gvk;
        let found = match *op {
            "status" => kinds.status_faults(gvk, after.get("status").unwrap_or(&Value::Null)),
            "adopt" | "renew" | "release" | "finalizer" => continue,
            _ if effect.id == round.parent => continue,
            _ => kinds.faults(gvk, &after),
        };
        all.extend(found.into_iter().map(|fault| format!("{}: {fault}", effect.id)));
    }
    all
}

impl RenderedReconcile {
    pub(crate) fn of(parent: &ObjectId) -> Self {
        let (steps, notes, ignored, calls, faults) = Default::default();
        let (parent, resync_after) = (parent.clone(), None);
        Self { parent, steps, notes, ignored, calls, resync_after, faults, error: None }
    }
}
