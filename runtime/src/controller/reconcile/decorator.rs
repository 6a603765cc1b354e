//! What a DecoratorController does about an object: its status, labels, annotations and finalizer, then its attachments.

use std::sync::Arc;

use metahook_core::decorator;

use crate::controller::Context;
use crate::controller::reconcile::apply::WriteResult;
use crate::controller::reconcile::{Decision, ReconcileError, Reconciler};
use crate::queue::Streaks;
use crate::store::Writer;

/// What of an object is written by itself.
#[derive(Clone, Copy)]
enum Part {
    Status,
    Rest,
}

impl Reconciler {
    pub(crate) async fn decorate(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> Result<WriteResult, ReconcileError> {
        let (mut acted, mut first) = self.decorate_object(decision, writer).await?;
        if acted == WriteResult::Gone {
            // Its attachments go with it.
            return Ok(acted);
        }
        if decision.wrote {
            acted = WriteResult::Wrote;
        }
        let (attachments, wrong) = self.act_on_children(decision, writer, streaks).await;
        acted = acted.max(attachments);
        first = first.or(wrong);
        first.map_or(Ok(acted), Err)
    }

    /// What became of the object itself, and what is wrong with that though attachments may follow: somebody else may be
    /// faster, and the next pass sees what it became.
    async fn decorate_object(
        &self,
        decision: &Decision,
        writer: &Writer,
    ) -> Result<(WriteResult, Option<ReconcileError>), ReconcileError> {
        let Decision { parent, decided, .. } = decision;
        let id = self.parent_id(parent);
        let Context { wishing, recorder, .. } = &self.tools;
        let say = |who| wishing.say(&id.resource.gvr(), parent, (who, &decided.wish), recorder);
        let verdict = self.claimant.as_ref().map(say);
        let wish = verdict.as_ref().map_or(&decided.wish, |verdict| &verdict.wish);
        let goes = decided.finalized && verdict.as_ref().is_none_or(|verdict| verdict.lets_go(parent));
        let finalizer = goes.then_some(self.terms.selection.finalizer.as_str());
        let (mut now, mut acted) = (Arc::clone(parent), WriteResult::Nothing);
        for part in [Part::Status, Part::Rest] {
            let op = match part {
                Part::Status => decorator::status_write(&id, &now, wish),
                Part::Rest => decorator::object_write(&id, &now, wish, finalizer),
            };
            let Some(op) = op else { continue };
            match self.write_parent(&op, writer).await {
                Ok((became, after)) => {
                    acted = acted.max(became);
                    if acted == WriteResult::Gone {
                        break;
                    }
                    now = after.unwrap_or(now);
                }
                Err(ReconcileError::Apply(error)) if error.is_conflict() => {
                    return Ok((acted, Some(error.into())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((acted, None))
    }
}
