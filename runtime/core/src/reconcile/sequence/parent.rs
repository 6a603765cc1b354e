//! Writes of the parent itself: its status, and the decoration of a decorated object.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::children::Op;
use crate::decorator::{self, status};
use crate::hash::Fingerprint;
use crate::object::Object;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::has_finalizer;
use crate::reconcile::outcome::StatusLeft;
use crate::reconcile::ports::{Fact, World, WriteError};
use crate::reconcile::sequence::apply::WriteEffects;
use crate::reconcile::sequence::{Planned, Sequence, WriteEffect};

/// The write of a part of an object that has a request of its own.
type PartWrite<'a> = &'a (dyn Fn(&Object) -> Option<Op> + Send + Sync);

impl<W: World> Sequence<'_, W> {
    pub(super) async fn write_status(
        &self,
        parent: &Arc<Object>,
        wanted: &Map<String, Value>,
    ) -> Result<WriteEffect, ReconcileError> {
        // An adoption or another client may have changed the parent since. The status is compared with the latest version of
        // the same generation, so that the API server refuses only an answer to another spec.
        let now = self.world.parent_now(&parent.key).filter(|now| now.uid == parent.uid);
        let Some(now) = now else { return Ok(WriteEffect::Nothing) };
        let now = if now.generation == parent.generation { &now } else { parent };
        let Some(body) = status(now, wanted.clone()) else {
            self.world.record(parent, Fact::StatusLeft(StatusLeft::Unchanged));
            return Ok(WriteEffect::Nothing);
        };
        let op = Op::Status { id: self.world.parent_id(parent), body };
        Ok(self.write_parent(parent, &op).await?.0)
    }

    /// Writes status, labels, annotations and finalizer. A conflict is no reason to leave the attachments alone: the next
    /// reconcile reads the object that the other client wrote.
    pub(super) async fn decorate(&self, planned: &Planned) -> Result<WriteEffects, ReconcileError> {
        let Planned { parent, plan, .. } = planned;
        let (id, selection) = (self.world.parent_id(parent), &self.world.config().selection);
        let resolution = self.world.resolve_decoration(parent, &plan.decoration);
        let decoration = resolution.as_ref().map_or(&plan.decoration, |resolution| &resolution.decoration);
        let may_go =
            plan.finalized && resolution.as_ref().is_none_or(|resolution| resolution.lets_go(parent));
        let finalizer = may_go.then_some(selection.finalizer.as_str());
        let mut effects = WriteEffects::default();
        let mut now = Arc::clone(parent);
        if decoration.status.is_some() && decorator::status_write(&id, parent, decoration).is_none() {
            self.world.record(parent, Fact::StatusLeft(StatusLeft::Unchanged));
        }
        let status = |now: &Object| decorator::status_write(&id, now, decoration);
        let object = |now: &Object| decorator::object_write(&id, now, decoration, finalizer);
        for part in [&status as PartWrite<'_>, &object] {
            let Some(op) = part(&now) else { continue };
            match self.write_parent(parent, &op).await {
                Ok((effect, written)) => {
                    effects.add(Ok(effect));
                    if effects.effect == WriteEffect::ParentGone {
                        break;
                    }
                    now = written.unwrap_or(now);
                }
                Err(error) if error.is_conflict() => {
                    effects.add(Err(error.into()));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let waits = may_go && has_finalizer(&now, selection);
        if waits && effects.errors.is_empty() && effects.effect != WriteEffect::ParentGone {
            let dropped = self.drop_finalizer(&now).await;
            let effect = |now: Option<_>| now.map_or(WriteEffect::ParentGone, |_| WriteEffect::Changed);
            effects.add(dropped.map(effect));
        }
        Ok(effects)
    }

    /// Writes the parent, unless the API server ignored the same write a short while ago. Gives back the object, if the answer
    /// has it.
    async fn write_parent(
        &self,
        shown: &Object,
        op: &Op,
    ) -> Result<(WriteEffect, Option<Arc<Object>>), WriteError> {
        let parent = &op.id().key;
        let (fingerprint, now) = (|| Fingerprint::of(op.to_string().as_bytes()), self.world.now());
        if self.world.settled(|settled| settled.is_no_op_write(parent, fingerprint, now)) {
            if matches!(op, Op::Status { .. }) {
                self.world.record(shown, Fact::StatusLeft(StatusLeft::NoEffectBefore));
            }
            return Ok((WriteEffect::NoEffect, None));
        }
        let answer = self.write(op).await?;
        let effect = match (&answer.object, answer.changed) {
            (None, true) => WriteEffect::ParentGone,
            _ => WriteEffect::of(&answer),
        };
        if !answer.changed {
            self.world.settled(|settled| settled.record_no_op_write(parent, fingerprint(), now));
        }
        Ok((effect, answer.object))
    }
}
