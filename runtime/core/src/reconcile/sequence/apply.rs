//! Second half of a reconcile: all writes of its plan, in an order that a crash at any point does not harm.

use crate::api::reason::EventReason;
use crate::children::WriteConcurrency;
use crate::pacing::self_triggered::Pace;
use crate::reconcile::config::KindConfig;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::has_finalizer;
use crate::reconcile::outcome::{ReconcileProgress, StatusLeft, StatusTiming, status_timing};
use crate::reconcile::ports::{Fact, World};
use crate::reconcile::sequence::{Planned, Sequence, WriteEffect};
use crate::related::deletion;

/// The effect of several writes: the strongest one, and all errors.
#[derive(Default)]
pub(super) struct WriteEffects {
    pub(super) effect: WriteEffect,
    pub(super) errors: Vec<ReconcileError>,
}

impl WriteEffects {
    pub(super) fn add(&mut self, result: Result<WriteEffect, ReconcileError>) {
        match result {
            Ok(effect) => self.effect = self.effect.max(effect),
            Err(error) => self.errors.push(error),
        }
    }

    fn add_all(&mut self, others: Self) {
        self.effect = self.effect.max(others.effect);
        self.errors.extend(others.errors);
    }

    /// `what`: the plural of what was written.
    fn finish(self, what: &str) -> Result<WriteEffect, ReconcileError> {
        ReconcileError::of_all(what, self.errors).map_or(Ok(self.effect), Err)
    }
}

impl<W: World> Sequence<'_, W> {
    /// Writes all that is planned. Deletions of related objects cannot be undone: they come last, and only where all other
    /// writes succeeded. `wrote`: finalizers or claims were written before.
    pub(super) async fn apply(&self, planned: &Planned, wrote: bool) -> Result<WriteEffect, ReconcileError> {
        let before = if wrote { WriteEffect::Changed } else { WriteEffect::Nothing };
        let effect = match self.world.config().kind {
            KindConfig::Composite { .. } => self.apply_composite(planned).await?,
            KindConfig::Decorator => self.apply_decorator(planned).await?,
        };
        if effect == WriteEffect::ParentGone {
            return Ok(effect);
        }
        Ok(effect.max(before).max(self.delete_related(planned).await?))
    }

    /// Revisions come before children: no child is written before its revision is recorded.
    async fn apply_composite(&self, planned: &Planned) -> Result<WriteEffect, ReconcileError> {
        let Planned { parent, plan, .. } = planned;
        let config = self.world.config();
        let mut before = WriteEffect::Nothing;
        for op in &plan.rollout.revisions {
            before = before.max(WriteEffect::of(&self.write(op).await?));
        }
        if plan.finalized && has_finalizer(parent, &config.selection) {
            self.drop_finalizer(parent).await?;
            before = WriteEffect::Changed;
        }
        let mut effects = self.write_children(planned).await;
        let wrote_children = effects.effect == WriteEffect::Changed;
        effects.add(Ok(before));
        // A finalized parent may not be selected from now on, and a webhook may not answer the next time.
        let last = plan.finalized || !config.hooks.sync.via.runs_in_sandbox();
        let was_put_off = self.world.settled(|settled| settled.take_status_due(&parent.key));
        let due = was_put_off || self.retry_state.next != Pace::AtOnce || last;
        let so_far = ReconcileProgress { wrote_children, failed: !effects.errors.is_empty(), due };
        let mut what = config.kind.name().children();
        match (status_timing(parent, so_far), &plan.decoration.status) {
            (_, None) => {}
            (StatusTiming::NextReconcile, Some(_)) => {
                self.world.settled(|settled| settled.put_off_status(&parent.key));
                self.world.record(parent, Fact::StatusLeft(StatusLeft::PutOff));
            }
            (StatusTiming::Now, Some(status)) => {
                let written = self.write_status(parent, status).await;
                if written.is_err() {
                    what = "objects";
                }
                effects.add(written);
            }
        }
        effects.finish(what)
    }

    async fn apply_decorator(&self, planned: &Planned) -> Result<WriteEffect, ReconcileError> {
        let mut effects = self.decorate(planned).await?;
        if effects.effect == WriteEffect::ParentGone {
            // Its attachments go with it.
            return Ok(WriteEffect::ParentGone);
        }
        let of_children = self.world.config().kind.name().children();
        let what = if effects.errors.is_empty() { of_children } else { "objects" };
        effects.add_all(self.write_children(planned).await);
        effects.finish(what)
    }

    /// Deletes exactly the objects that the hook was shown, not others that have taken their names since. A deletion that
    /// fails does not stop the others.
    async fn delete_related(&self, planned: &Planned) -> Result<WriteEffect, ReconcileError> {
        let mut deleted = Vec::new();
        let mut all = WriteEffects::default();
        let mut left = &*planned.plan.deletions;
        let mut width = WriteConcurrency::after(self.retry_state.failures);
        while !left.is_empty() {
            let (now, later) = width.split(left);
            let deletions = now.iter().map(|op| self.world.delete_related(op)).collect();
            let results = self.world.join(deletions).await;
            width.record_batch(results.iter().all(Result::is_ok));
            for (op, result) in now.iter().zip(results) {
                if matches!(result, Ok(true)) {
                    self.accept();
                    deleted.push(op.id().clone());
                }
                let effect = |deleted| if deleted { WriteEffect::Changed } else { WriteEffect::Nothing };
                all.add(result.map(effect).map_err(ReconcileError::RelatedDeletion));
            }
            left = later;
        }
        let parent = &planned.parent;
        for message in deletion::event_messages(&parent.key.namespace, &deleted) {
            self.world.record(parent, Fact::Event(EventReason::DeletedRelated, message));
        }
        all.finish("related objects")
    }
}
