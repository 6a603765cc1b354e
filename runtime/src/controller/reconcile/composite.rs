//! What a CompositeController does about a parent: revisions, the finalizer, the children, the status.

use metahook_core::api::hook::Via;
use metahook_core::children::Op;
use metahook_core::children::status::{StatusTiming, WrittenSoFar};
use metahook_core::object::Object;
use metahook_core::reconcile::outcome;
use metahook_core::reconcile::phase;
use serde_json::{Map, Value};

use crate::controller::reconcile::apply::WriteResult;
use crate::controller::reconcile::{Decision, ReconcileError, Reconciler};
use crate::queue::Streaks;
use crate::store::Writer;

impl Reconciler {
    /// No child is written before it is recorded which revision it is at.
    pub(crate) async fn compose(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> Result<WriteResult, ReconcileError> {
        let Decision { parent, decided, .. } = decision;
        let mut acted = if decision.wrote { WriteResult::Wrote } else { WriteResult::Nothing };
        for op in &decided.revisions {
            acted = acted.max(WriteResult::of(self.carry_out(op, writer).await?));
        }
        if decided.finalized && phase::has_finalizer(parent, &self.terms.selection) {
            self.drop_finalizer(parent, writer).await.map_err(ReconcileError::Finalizer)?;
            acted = WriteResult::Wrote;
        }
        let (children, mut first) = self.act_on_children(decision, writer, streaks).await;
        acted = acted.max(children);
        // A parent that is finalized may be none of ours from now on, and a webhook may not answer the next time.
        let last = decided.finalized || self.terms.hooks.sync.via == Via::Webhook;
        let due = self.standings().take_status_due(&parent.key) || outcome::is_held(streaks.own) || last;
        let so_far =
            WrittenSoFar { wrote_children: children == WriteResult::Wrote, failed: first.is_some(), due };
        match (metahook_core::children::status::when(parent, so_far), &decided.wish.status) {
            (_, None) => {}
            (StatusTiming::NextPass, Some(_)) => self.standings().put_off_status(&parent.key),
            (StatusTiming::Now, Some(status)) => {
                if let Some(op) = self.status(parent, status.clone()) {
                    match self.write_parent(&op, writer).await {
                        Ok((became, _)) => acted = acted.max(became),
                        Err(error) => drop(first.get_or_insert(error)),
                    }
                }
            }
        }
        first.map_or(Ok(acted), Err)
    }

    fn status(&self, parent: &Object, status: Map<String, Value>) -> Option<Op> {
        // An adoption or another writer may have changed the parent since: what is compared is the latest of the same
        // generation, so that only an answer to another spec is refused by the API server.
        let now = self.parents.get(&parent.key).filter(|now| now.uid == parent.uid)?;
        let now = if now.generation == parent.generation { &now } else { parent };
        let body = metahook_core::children::status::status(now, status)?;
        Some(Op::Status { id: self.parent_id(parent), body })
    }
}
