//! Related objects that a hook has deleted: the last that a pass does.

use futures_util::future::join_all;
use metahook_core::api::reason::EventReason;
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::write_order::WriteConcurrency;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::related::deletion;

use crate::controller::reconcile::apply::WriteResult;
use crate::controller::reconcile::{Decision, ReconcileError, Reconciler};
use crate::controller::related::RelatedObjects;
use crate::controller::related::scopes::Followed;
use crate::queue::Streaks;
use crate::store::{WriteGuard, Writer};

impl Reconciler {
    /// Deletes what is to be deleted, and nothing that has taken its name since. One that fails does not hold the others.
    pub(crate) async fn delete_related(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> Result<WriteResult, ReconcileError> {
        let (mut deleted, mut first) = (Vec::new(), None);
        let (mut left, mut width) = (&*decision.decided.deletions, WriteConcurrency::after(streaks.failures));
        while !left.is_empty() {
            let (now, later) = width.split(left);
            let results = join_all(now.iter().map(|op| self.delete_one(op, writer))).await;
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
        let parent = &decision.parent;
        for message in deletion::told(&parent.key.namespace, &deleted) {
            self.tools.recorder.record(parent, EventReason::DeletedRelated, &message);
        }
        let acted = if deleted.is_empty() { WriteResult::Nothing } else { WriteResult::Wrote };
        first.map_or(Ok(acted), Err)
    }

    /// `false` where the object was gone already.
    async fn delete_one(&self, op: &Op, writer: &Writer) -> Result<bool, ReconcileError> {
        let Op::Delete { id, uid } = op else { return Ok(false) };
        let writing = self.relations.writing(id, writer);
        let deleted = match self.tools.rest.carry_out(op).await {
            Ok(known) => known.iter().any(|event| matches!(event, CacheEvent::Deleting(..))),
            Err(error) if error.is_conflict() && self.is_replaced(id, uid).await => false,
            Err(error) => return Err(error.into()),
        };
        for one in writing {
            let (key, uid) = (id.key.clone(), uid.clone());
            let event = if deleted { CacheEvent::Deleting(key, uid) } else { CacheEvent::Missing(key, uid) };
            one.answered(vec![event]);
        }
        let parent = &writer.parent;
        if deleted {
            self.meter.counts().wrote(op.verb());
            tracing::info!(controller = %self.object.key, %parent, op = op.verb(), object = %id, %uid, "related object deleted");
        } else {
            tracing::debug!(controller = %self.object.key, %parent, object = %id, %uid, "related object gone before it was deleted");
        }
        Ok(deleted)
    }

    /// Whether the object is gone and another one may have its name; the API server's refusal says so by its words alone.
    async fn is_replaced(&self, id: &ObjectId, uid: &Uid) -> bool {
        self.tools.rest.read(id).await.is_ok_and(|now| now.is_none_or(|now| now.uid != *uid))
    }
}

impl RelatedObjects {
    /// To be called before a related object is written, wherever it is looked at.
    fn writing(&self, id: &ObjectId, writer: &Writer) -> Vec<WriteGuard> {
        let state = self.lock();
        let stores = state.places.all().map(Followed::store);
        let stores = stores.filter(|store| *store.resource() == id.resource && store.get(&id.key).is_some());
        stores.map(|store| store.writing(&id.key, writer)).collect()
    }
}
