//! Writer of objects: operations, claims and finalizers, each with its answer in the store.

use std::sync::Arc;

use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::claims::{Claim, ClaimedObject};
use metahook_core::children::deletion_reason::DeletionReason;
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::reconcile::ports::WriteAnswer;
use tracing::Instrument;

use crate::cluster::access;
use crate::cluster::api_client::ApiClient;
use crate::cluster::apply::Carried;
use crate::cluster::objects::RequestError;
use crate::controller::ControllerData;
use crate::controller::reconcile::parents::Parents;
use crate::controller::troubleshooting::log_differences;
use crate::store::{WriteGuard, Writer};

pub(crate) struct ObjectWriter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) parents: Arc<Parents>,
    pub(crate) api: ApiClient,
}

impl ObjectWriter {
    /// `reason`: why a child is deleted.
    pub(crate) async fn write(
        &self,
        op: &Op,
        reason: Option<&DeletionReason>,
        writer: &Writer,
    ) -> Result<WriteAnswer, RequestError> {
        let span = tracing::info_span!("write", op = op.verb(), object = %op.id());
        log_differences(&self.data, op);
        let hooks = self.parents.hooks_version();
        let guard = self.data.write_guard(op.id(), writer);
        let carried = self.api.carry_out(op).instrument(span.clone()).await;
        let Carried { events, warnings } = self.naming_rights(carried).await?;
        let changed = op.is_answered_by_a_change(&events);
        if changed {
            self.data.telemetry.meter.counts().wrote(op.verb());
            self.data.telemetry.observer.wrote(writer, op.verb(), op.id());
        }
        let _within = span.entered();
        let message = if changed { "written" } else { "written in vain" };
        // Every change of a child ends with a write of the status.
        if changed && !matches!(op, Op::Status { .. }) {
            let reason = reason.map(ToString::to_string);
            tracing::info!(reason, "{message}");
        } else {
            tracing::debug!("{message}");
        }
        self.parents.record_api_warnings(&writer.parent, op, &warnings, hooks);
        Ok(WriteAnswer { changed, object: observe(guard, events), warnings })
    }

    /// A guard of owner references does not say which right it misses: the refusal names it from here on.
    pub(crate) async fn naming_rights<T>(&self, done: Result<T, RequestError>) -> Result<T, RequestError> {
        let error = match done {
            Err(error) => error,
            done => return done,
        };
        let Some((guard, id)) = error.guard() else { return Err(error) };
        let forbidden = guard.forbids(&self.data.parents.resource, &id.resource);
        let message = access::guarded(&self.api, &forbidden).await;
        Err(error.with_right(message))
    }

    /// Reads the object, changes it as the claim says, and writes it; gives back the object as it is then, `None` where it is
    /// gone.
    pub(crate) async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
        writer: &Writer,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let (id, uid) = (claimed.id(), &claimed.object.uid);
        let guard = self.data.write_guard(&id, writer);
        let rewritten = self.api.rewrite(&id, uid, |object| claimed.carry_out(object, parent)).await;
        let events = self.naming_rights(rewritten).await?;
        self.data.telemetry.observer.wrote(writer, "claim or release", &id);
        if claimed.claim == Claim::Release {
            let reason = "its labels no longer match the selector of its parent";
            tracing::info!(object = %id, reason, "released: it is left as it is");
        }
        Ok(observe(guard, events))
    }

    /// The parent with other finalizers; `None` where it is gone.
    pub(crate) async fn change_finalizers(
        &self,
        parent: &Object,
        writer: &Writer,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let id = self.data.parent_id(parent);
        let guard = self.data.write_guard(&id, writer);
        let events = self.api.change_finalizers(&id, parent, change).await?;
        self.data.telemetry.observer.wrote(writer, "finalizers", &id);
        Ok(observe(guard, events))
    }

    /// Deletes a related object; false where it is gone already, or replaced by another one.
    pub(crate) async fn delete_related(
        &self,
        op: &Op,
        writer: &Writer,
        guards: Vec<WriteGuard>,
    ) -> Result<bool, RequestError> {
        let Op::Delete { id, uid } = op else { return Ok(false) };
        let deleted = match self.api.carry_out(op).await {
            Ok(done) => done.events.iter().any(|event| matches!(event, CacheEvent::Deleting(..))),
            Err(error) if error.is_conflict() && self.is_replaced(id, uid).await => false,
            Err(error) => return Err(error),
        };
        for guard in guards {
            let (key, uid) = (id.key.clone(), uid.clone());
            let event = if deleted { CacheEvent::Deleting(key, uid) } else { CacheEvent::Missing(key, uid) };
            guard.answered(vec![event]);
        }
        if deleted {
            self.data.telemetry.meter.counts().wrote(op.verb());
            self.data.telemetry.observer.wrote(writer, op.verb(), id);
            tracing::info!(op = op.verb(), object = %id, %uid, "related object deleted");
        } else {
            tracing::debug!(object = %id, %uid, "related object gone before it was deleted");
        }
        Ok(deleted)
    }

    /// Whether the object is gone, and another one may have its name: the API server's refusal tells that only in its text.
    async fn is_replaced(&self, id: &ObjectId, uid: &Uid) -> bool {
        self.api.read(id).await.is_ok_and(|now| now.is_none_or(|now| now.uid != *uid))
    }
}

/// Passes the answer of a write to the store; gives back the object as it was written last.
fn observe(guard: Option<WriteGuard>, events: Vec<CacheEvent>) -> Option<Arc<Object>> {
    let written = events.iter().rev().find_map(|event| match event {
        CacheEvent::Wrote(object) => Some(Arc::clone(object)),
        _ => None,
    });
    if let Some(guard) = guard {
        guard.answered(events);
    }
    written
}
