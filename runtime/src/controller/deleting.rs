//! Related objects that a hook has deleted: the last that a pass does.

use futures_util::future::join_all;
use metahook_core::index::Event;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::plan::Op;
use metahook_core::plan::stages::Width;

use super::acting::Acted;
use super::pass::{Controller, Decision, SyncError};
use super::places::Followed;
use super::related::Relations;
use crate::cluster::events::Severity;
use crate::queue::Streaks;
use crate::store::{Writer, Writing};

impl Controller {
    /// Deletes what is to be deleted, and nothing that has taken its name since. One that fails does not hold the others.
    pub(super) async fn delete_related(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> Result<Acted, SyncError> {
        let (mut acted, mut first) = (Acted::Nothing, None);
        let (mut left, mut width) = (&*decision.decided.deletions, Width::after(streaks.failures));
        while !left.is_empty() {
            let (now, later) = width.split(left);
            let results = join_all(now.iter().map(|op| self.delete_one(op, decision, writer))).await;
            width.went(results.iter().all(Result::is_ok));
            for result in results {
                match result {
                    Ok(became) => acted = acted.max(became),
                    Err(error) => drop(first.get_or_insert(error)),
                }
            }
            left = later;
        }
        first.map_or(Ok(acted), Err)
    }

    async fn delete_one(&self, op: &Op, decision: &Decision, writer: &Writer) -> Result<Acted, SyncError> {
        let Op::Delete { id, uid } = op else { return Ok(Acted::Nothing) };
        let writing = self.relations.writing(id, writer);
        let deleted = match self.tools.rest.carry_out(op).await {
            Ok(known) => known.iter().any(|event| matches!(event, Event::Deleting(..))),
            Err(error) if error.is_conflict() && self.is_replaced(id, uid).await => false,
            Err(error) => return Err(error.into()),
        };
        for one in writing {
            let (key, uid) = (id.key.clone(), uid.clone());
            let event = if deleted { Event::Deleting(key, uid) } else { Event::Missing(key, uid) };
            one.answered(vec![event]);
        }
        let parent = &writer.parent;
        if !deleted {
            tracing::debug!(controller = %self.object.key, %parent, object = %id, %uid, "related object gone before it was deleted");
            return Ok(Acted::Nothing);
        }
        self.meter.tally().wrote(op.verb());
        tracing::info!(controller = %self.object.key, %parent, op = op.verb(), object = %id, %uid, "related object deleted");
        let message = format!("Deleted {id} (uid {uid}), as the hook asked");
        self.tools.recorder.record(&decision.parent, Severity::Normal, "DeletedRelated", &message);
        Ok(Acted::Wrote)
    }

    /// Whether the object is gone and another one may have its name; the API server's refusal says so by its words alone.
    async fn is_replaced(&self, id: &ObjectId, uid: &Uid) -> bool {
        self.tools.rest.read(id).await.is_ok_and(|now| now.is_none_or(|now| now.uid != *uid))
    }
}

impl Relations {
    /// To be called before a related object is written, wherever it is looked at.
    fn writing(&self, id: &ObjectId, writer: &Writer) -> Vec<Writing> {
        let state = self.lock();
        let stores = state.places.all().map(Followed::store);
        let stores = stores.filter(|store| *store.resource() == id.resource && store.get(&id.key).is_some());
        stores.map(|store| store.writing(&id.key, writer)).collect()
    }
}
