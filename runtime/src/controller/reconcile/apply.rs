//! Second half of a reconcile: all writes of its plan, in an order that a crash at any point does not harm.

use metahook_core::api::hook::Via;
use metahook_core::reconcile::config::KindConfig;
use metahook_core::reconcile::has_finalizer;
use metahook_core::reconcile::outcome::{Changed, StatusTiming, WrittenSoFar, status_timing};

use crate::controller::reconcile::children::WriteResults;
use crate::controller::reconcile::error::ReconcileError;
use crate::controller::reconcile::write::WriteResult;
use crate::controller::reconcile::{Reconcile, Reconciler};

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
        Ok(result.max(self.related_deleter.delete(reconcile).await?))
    }

    /// Revisions come before children: no child is written before its revision is recorded.
    async fn apply_composite(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let Reconcile { parent, plan, writer, streaks, wrote, .. } = reconcile;
        let mut result = if *wrote { WriteResult::Wrote } else { WriteResult::Nothing };
        for op in &plan.revisions {
            result = result.max(WriteResult::of(self.children.writer.write(op, writer).await?.changed));
        }
        if plan.finalized && has_finalizer(parent, &self.data.config.selection) {
            self.claims.drop_finalizer(parent, writer).await.map_err(ReconcileError::Finalizer)?;
            result = WriteResult::Wrote;
        }
        let mut results = self.children.write_all(reconcile).await;
        let wrote_children = results.result == WriteResult::Wrote;
        results.add(Ok(result));
        // A finalized parent may not be selected from now on, and a webhook may not answer the next time.
        let last = plan.finalized || self.data.config.hooks.sync.via == Via::Webhook;
        let due = self.parents.settled().take_status_due(&parent.key) || streaks.is_throttled() || last;
        let so_far = WrittenSoFar { wrote_children, failed: results.error.is_some(), due };
        match (status_timing(parent, so_far), &plan.decoration.status) {
            (_, None) => {}
            (StatusTiming::NextReconcile, Some(_)) => self.parents.settled().put_off_status(&parent.key),
            (StatusTiming::Now, Some(status)) => {
                results.add(self.parent.write_status(reconcile, status).await);
            }
        }
        results.finish()
    }

    async fn apply_decorator(&self, reconcile: &Reconcile) -> Result<WriteResult, ReconcileError> {
        let mut results = self.parent.decorate(reconcile).await?;
        if results.result == WriteResult::Gone {
            // Its attachments go with it.
            return Ok(WriteResult::Gone);
        }
        if reconcile.wrote {
            results.add(Ok(WriteResult::Wrote));
        }
        let WriteResults { result, error } = self.children.write_all(reconcile).await;
        results.add(Ok(result));
        if let Some(error) = error {
            results.add(Err(error));
        }
        results.finish()
    }

    pub(super) fn changed(&self, reconcile: &Reconcile, result: WriteResult) -> Changed {
        // A write without effect teaches how the API server changes a value: a rollout may go on by that, once.
        let learned = self.data.config.kind.rolling().is_some() && reconcile.streaks.self_triggered == 0;
        match result {
            WriteResult::Nothing => Changed::Nothing,
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
            Ok(WriteResult::Nothing)
                if reconcile.pure == Some(true) && reconcile.plan.children.again.is_none() =>
            {
                settled.settle(key, reconcile.state);
            }
            Ok(_) => settled.unsettle(key),
            // `log` stores failures with their category.
            Err(_) => {}
        }
    }
}
