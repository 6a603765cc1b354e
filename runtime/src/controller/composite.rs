//! What a CompositeController does about a parent: revisions, the finalizer, the children, the status.

use metahook_core::gate;
use metahook_core::object::Object;
use metahook_core::outcome;
use metahook_core::plan::status::{SoFar, When};
use metahook_core::plan::{self, Op};
use metahook_core::spec::hook::Via;
use serde_json::{Map, Value};

use super::acting::Acted;
use super::pass::{Controller, Decision, SyncError};
use crate::queue::Streaks;
use crate::store::Writer;

impl Controller {
    /// No child is written before it is recorded which revision it is at.
    pub(super) async fn compose(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> Result<Acted, SyncError> {
        let Decision { parent, decided, .. } = decision;
        let mut acted = if decision.wrote { Acted::Wrote } else { Acted::Nothing };
        for op in &decided.revisions {
            acted = acted.max(Acted::of(self.carry_out(op, writer).await?));
        }
        if decided.finalized && gate::has_finalizer(parent, &self.terms.selection) {
            self.drop_finalizer(parent, writer).await.map_err(SyncError::Finalizer)?;
            acted = Acted::Wrote;
        }
        let (children, mut first) = self.act_on_children(decision, writer, streaks).await;
        acted = acted.max(children);
        // A parent that is finalized may be none of ours from now on, and a webhook may not answer the next time.
        let last = decided.finalized || self.terms.hooks.sync.via == Via::Webhook;
        let due = self.standings().take_status_due(&parent.key) || outcome::is_held(streaks.own) || last;
        let so_far = SoFar { wrote_children: children == Acted::Wrote, failed: first.is_some(), due };
        match (plan::status::when(parent, so_far), &decided.wish.status) {
            (_, None) => {}
            (When::NextPass, Some(_)) => self.standings().put_off_status(&parent.key),
            (When::Now, Some(status)) => {
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
        let body = plan::status::status(now, status)?;
        Some(Op::Status { id: self.parent_id(parent), body })
    }
}
