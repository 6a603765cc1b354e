//! Deletion of related objects that a hook asked for: the last writes of a reconcile.

use std::sync::Arc;

use futures_util::future::join_all;
use metahook_core::api::reason::EventReason;
use metahook_core::cache::CacheEvent;
use metahook_core::children::{Op, WriteConcurrency};
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::related::deletion;

use crate::cluster::api_client::ApiClient;
use crate::controller::data::ControllerData;
use crate::controller::reconcile::Reconcile;
use crate::controller::reconcile::error::ReconcileError;
use crate::controller::reconcile::write::WriteResult;
use crate::controller::related::RelatedObjects;
use crate::store::Writer;

pub(crate) struct RelatedDeleter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) api: ApiClient,
    pub(crate) related: Arc<RelatedObjects>,
}

impl RelatedDeleter {
    /// Deletes exactly the objects that the hook was shown, not others that have taken their names since. A deletion that
    /// fails does not stop the others.
    pub(crate) async fn delete(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let mut deleted = Vec::new();
        let mut first = None;
        let mut left = &*reconcile.plan.deletions;
        let mut width = WriteConcurrency::after(reconcile.streaks.failures);
        while !left.is_empty() {
            let (now, later) = width.split(left);
            let results = join_all(now.iter().map(|op| self.delete_one(op, &reconcile.writer))).await;
            width.went(results.iter().all(Result::is_ok));
            for (op, result) in now.iter().zip(results) {
                match result {
                    Ok(true) => deleted.push(op.id().clone()),
                    Ok(false) => {}
                    Err(error) => drop(first.get_or_insert(error)),
                }
            }
            left = later;
        }
        let parent = &reconcile.parent;
        for message in deletion::event_messages(&parent.key.namespace, &deleted) {
            self.data.recorder.record(parent, EventReason::DeletedRelated, &message);
        }
        let result = if deleted.is_empty() { WriteResult::Nothing } else { WriteResult::Wrote };
        first.map_or(Ok(result), Err)
    }

    /// `false`: the object was gone already.
    async fn delete_one(&self, op: &Op, writer: &Writer) -> Result<bool, ReconcileError> {
        let Op::Delete { id, uid } = op else { return Ok(false) };
        let guards = self.related.write_guards(id, writer);
        let deleted = match self.api.carry_out(op).await {
            Ok(events) => events.iter().any(|event| matches!(event, CacheEvent::Deleting(..))),
            Err(error) if error.is_conflict() && self.is_replaced(id, uid).await => false,
            Err(error) => return Err(error.into()),
        };
        for guard in guards {
            let (key, uid) = (id.key.clone(), uid.clone());
            let event = if deleted { CacheEvent::Deleting(key, uid) } else { CacheEvent::Missing(key, uid) };
            guard.answered(vec![event]);
        }
        if deleted {
            self.data.meter.counts().wrote(op.verb());
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
