//! Second half of a reconcile: all writes of its plan, in an order that a crash at any point does not harm.

use std::sync::Arc;

use futures_util::future::join_all;
use metahook_core::api::hook::Via;
use metahook_core::api::reason::EventReason;
use metahook_core::cache::CacheEvent;
use metahook_core::children::{Op, WriteConcurrency};
use metahook_core::decorator::{self, status};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::pacing::self_triggered::Pace;
use metahook_core::reconcile::config::KindConfig;
use metahook_core::reconcile::has_finalizer;
use metahook_core::reconcile::outcome::{Changed, StatusTiming, WrittenSoFar, status_timing};
use metahook_core::related::deletion;
use serde_json::{Map, Value};

use crate::cluster::apply::ApplyError;
use crate::controller::reconcile::write::{WriteResult, WriteResults};
use crate::controller::reconcile::{Reconcile, ReconcileError, Reconciler};
use crate::store::Writer;

/// The write of a part of an object that has a request of its own.
type PartWrite<'a> = &'a (dyn Fn(&Object) -> Option<Op> + Sync);

impl Reconciler {
    /// Writes all that is planned. Deletions of related objects cannot be undone: they come last, and only where all other
    /// writes succeeded.
    pub(super) async fn apply(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let result = match self.data.config.kind {
            KindConfig::Composite { .. } => self.apply_composite(reconcile).await?,
            KindConfig::Decorator => self.apply_decorator(reconcile).await?,
        };
        if result == WriteResult::Gone {
            return Ok(result);
        }
        Ok(result.max(self.delete_related(reconcile).await?))
    }

    /// Revisions come before children: no child is written before its revision is recorded.
    async fn apply_composite(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let Reconcile { parent, plan, writer, streaks, wrote, .. } = reconcile;
        let mut result = if *wrote { WriteResult::Wrote } else { WriteResult::Nothing };
        for op in &plan.revisions {
            result = result.max(WriteResult::of(self.children.writer.write(op, writer).await?.changed));
        }
        if plan.finalized && has_finalizer(parent, &self.data.config.selection) {
            self.children.writer.drop_finalizer(parent, writer).await.map_err(ReconcileError::Finalizer)?;
            result = WriteResult::Wrote;
        }
        let mut results = self.children.write_all(reconcile).await;
        let wrote_children = results.result == WriteResult::Wrote;
        results.add(Ok(result));
        // A finalized parent may not be selected from now on, and a webhook may not answer the next time.
        let last = plan.finalized || self.data.config.hooks.sync.via == Via::Webhook;
        let due =
            self.parents.settled().take_status_due(&parent.key) || (streaks.next != Pace::AtOnce) || last;
        let so_far = WrittenSoFar { wrote_children, failed: !results.errors.is_empty(), due };
        let mut what = self.data.config.kind.name().children();
        match (status_timing(parent, so_far), &plan.decoration.status) {
            (_, None) => {}
            (StatusTiming::NextReconcile, Some(_)) => self.parents.settled().put_off_status(&parent.key),
            (StatusTiming::Now, Some(status)) => {
                let written = self.write_status(reconcile, status).await;
                if written.is_err() {
                    what = "objects";
                }
                results.add(written);
            }
        }
        results.finish(what)
    }

    async fn apply_decorator(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let mut results = self.decorate(reconcile).await?;
        if results.result == WriteResult::Gone {
            // Its attachments go with it.
            return Ok(WriteResult::Gone);
        }
        if reconcile.wrote {
            results.add(Ok(WriteResult::Wrote));
        }
        let of_children = self.data.config.kind.name().children();
        let what = if results.errors.is_empty() { of_children } else { "objects" };
        results.add_all(self.children.write_all(reconcile).await);
        results.finish(what)
    }

    async fn write_status(
        &self,
        reconcile: &Reconcile,
        wanted: &Map<String, Value>,
    ) -> Result<WriteResult, ReconcileError> {
        let parent = &reconcile.parent;
        // An adoption or another client may have changed the parent since. The status is compared with the latest version of
        // the same generation, so that the API server refuses only an answer to another spec.
        let Some(now) = self.data.parents.get(&parent.key).filter(|now| now.uid == parent.uid) else {
            return Ok(WriteResult::Nothing);
        };
        let now = if now.generation == parent.generation { &now } else { parent };
        let Some(body) = status(now, wanted.clone()) else { return Ok(WriteResult::Nothing) };
        let op = Op::Status { id: self.data.parent_id(parent), body };
        Ok(self.write_parent(&op, &reconcile.writer).await?.0)
    }

    /// Writes status, labels, annotations and finalizer. A conflict is no reason to leave the attachments alone: the next
    /// reconcile reads the object that the other client wrote.
    async fn decorate(&self, reconcile: &Reconcile) -> Result<WriteResults, ReconcileError> {
        let Reconcile { parent, plan, writer, .. } = reconcile;
        let id = self.data.parent_id(parent);
        let resolution = self.parents.decorator.as_ref().map(|decorator| {
            decorator.resolve(&id.resource.gvr(), parent, &plan.decoration, &self.data.recorder)
        });
        let decoration = resolution.as_ref().map_or(&plan.decoration, |resolution| &resolution.decoration);
        let may_go =
            plan.finalized && resolution.as_ref().is_none_or(|resolution| resolution.lets_go(parent));
        let finalizer = may_go.then_some(self.data.config.selection.finalizer.as_str());
        let mut results = WriteResults::default();
        let mut now = Arc::clone(parent);
        let status = |now: &Object| decorator::status_write(&id, now, decoration);
        let object = |now: &Object| decorator::object_write(&id, now, decoration, finalizer);
        for part in [&status as PartWrite<'_>, &object] {
            let Some(op) = part(&now) else { continue };
            match self.write_parent(&op, writer).await {
                Ok((result, written)) => {
                    results.add(Ok(result));
                    if results.result == WriteResult::Gone {
                        break;
                    }
                    now = written.unwrap_or(now);
                }
                Err(error) if error.is_conflict() => {
                    results.add(Err(error.into()));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let waits = may_go && has_finalizer(&now, &self.data.config.selection);
        if waits && results.errors.is_empty() && results.result != WriteResult::Gone {
            let dropped = self.children.writer.drop_finalizer(&now, writer).await;
            let result = dropped.map(|now| now.map_or(WriteResult::Gone, |_| WriteResult::Wrote));
            results.add(result.map_err(ReconcileError::Finalizer));
        }
        Ok(results)
    }

    /// Writes the parent, unless the API server ignored the same write a short while ago. Returns the object, if the answer
    /// has it.
    async fn write_parent(
        &self,
        op: &Op,
        writer: &Writer,
    ) -> Result<(WriteResult, Option<Arc<Object>>), ApplyError> {
        let fingerprint = || Fingerprint::of(op.to_string().as_bytes());
        if self.parents.settled().is_vain(&writer.parent, fingerprint, self.data.elapsed()) {
            return Ok((WriteResult::NoOp, None));
        }
        let written = self.children.writer.write(op, writer).await?;
        let result = match (&written.object, written.changed) {
            (None, true) => WriteResult::Gone,
            (_, changed) => WriteResult::of(changed),
        };
        if !written.changed {
            self.parents.settled().wrote_in_vain(&writer.parent, fingerprint(), self.data.elapsed());
        }
        Ok((result, written.object))
    }

    /// Deletes exactly the objects that the hook was shown, not others that have taken their names since. A deletion that
    /// fails does not stop the others.
    async fn delete_related(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let mut deleted = Vec::new();
        let mut all = WriteResults::default();
        let mut left = &*reconcile.plan.deletions;
        let mut width = WriteConcurrency::after(reconcile.streaks.failures);
        while !left.is_empty() {
            let (now, later) = width.split(left);
            let results = join_all(now.iter().map(|op| self.delete_one(op, &reconcile.writer))).await;
            width.went(results.iter().all(Result::is_ok));
            for (op, result) in now.iter().zip(results) {
                if matches!(result, Ok(WriteResult::Wrote)) {
                    deleted.push(op.id().clone());
                }
                all.add(result);
            }
            left = later;
        }
        let parent = &reconcile.parent;
        for message in deletion::event_messages(&parent.key.namespace, &deleted) {
            self.data.recorder.record(parent, EventReason::DeletedRelated, &message);
        }
        all.finish("related objects")
    }

    /// `Nothing`: the object was gone already.
    async fn delete_one(&self, op: &Op, writer: &Writer) -> Result<WriteResult, ReconcileError> {
        let Op::Delete { id, uid } = op else { return Ok(WriteResult::Nothing) };
        let guards = self.related.write_guards(id, writer);
        let deleted = match self.children.writer.api.carry_out(op).await {
            Ok(done) => done.events.iter().any(|event| matches!(event, CacheEvent::Deleting(..))),
            Err(error) if error.is_conflict() && self.is_replaced(id, uid).await => false,
            Err(error) => return Err(error.into()),
        };
        for guard in guards {
            let (key, uid) = (id.key.clone(), uid.clone());
            let event = if deleted { CacheEvent::Deleting(key, uid) } else { CacheEvent::Missing(key, uid) };
            guard.answered(vec![event]);
        }
        if deleted {
            writer.accepted.note();
            self.data.meter.counts().wrote(op.verb());
            self.data.observer.wrote(writer, op.verb(), id);
            tracing::info!(op = op.verb(), object = %id, %uid, "related object deleted");
        } else {
            tracing::debug!(object = %id, %uid, "related object gone before it was deleted");
        }
        Ok(if deleted { WriteResult::Wrote } else { WriteResult::Nothing })
    }

    /// Whether the object is gone, and another one may have its name: the API server's refusal tells that only in its text.
    async fn is_replaced(&self, id: &ObjectId, uid: &Uid) -> bool {
        self.children.writer.api.read(id).await.is_ok_and(|now| now.is_none_or(|now| now.uid != *uid))
    }

    pub(super) fn changed(&self, reconcile: &Reconcile, result: WriteResult) -> Changed {
        // A write without effect teaches how the API server changes a value: a rollout may go on by that, once.
        let learned = self.data.config.kind.rolling().is_some() && !reconcile.streaks.self_triggered;
        match result {
            WriteResult::Nothing | WriteResult::Taken => Changed::Nothing,
            WriteResult::NoOp if !learned => Changed::Nothing,
            _ if reconcile.plan.rollout_moves => Changed::RolloutStep,
            WriteResult::NoOp | WriteResult::Wrote | WriteResult::Gone => Changed::Something,
        }
    }

    /// Remembers a parent that has settled.
    pub(super) fn settle(&self, reconcile: &Reconcile, written: &Result<WriteResult, ReconcileError>) {
        let mut settled = self.parents.settled();
        let key = &reconcile.parent.key;
        match written {
            // A drift that is corrected later keeps the parent from settling.
            Ok(WriteResult::Nothing) if reconcile.plan.children.again.is_none() => match reconcile.pure {
                Some(true) => settled.settle(key, reconcile.state),
                Some(false) => settled.unsettle(key),
                None => settled.rest(key),
            },
            Ok(_) => settled.unsettle(key),
            // `log` stores failures with their category.
            Err(_) => {}
        }
    }
}
