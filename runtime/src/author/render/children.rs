//! Writes of a plan's children, each decided by a dry run where the plan asks for one.

use std::sync::Arc;

use metahook_core::children::plan::{DryRunResult, DryRunVerdict, judge, learn, new_object, wrote};
use metahook_core::children::{Op, stages};
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::plan::ReconcilePlan;

use super::{ReconcileError, Reconciled, Simulation};

impl Simulation {
    /// A child that fails does not stop the others; the first error is returned.
    pub(super) fn write_children(
        &mut self,
        config: &ControllerConfig,
        parent: &Object,
        plan: &ReconcilePlan,
        round: &mut Reconciled,
    ) -> Result<(), ReconcileError> {
        let mut failed = None;
        if let Some((id, source)) = plan.children.problems.first() {
            failed = Some(ReconcileError::Problem { id: Box::new(id.clone()), source: *source });
        }
        if let Some(why) = plan.failed.first() {
            failed.get_or_insert(why.clone().into());
        }
        for op in stages(&plan.children.ops).flatten() {
            if let Err(error) = self.write_child(config, (parent, plan), op, round) {
                failed.get_or_insert(error);
            }
        }
        for child in &plan.unmanaged {
            round.notes.push(format!("{}; it is created once and then left alone", child.why));
            let made = self.kinds.resolve_kind(&child.gvk).map(Arc::clone).map_err(ReconcileError::from);
            let made = made.and_then(|resource| {
                let id = ObjectId { resource, key: child.key.clone() };
                let body = new_object(config.owner(parent), &id, &child.body);
                if self.world.get(&id).is_some() {
                    return Ok(());
                }
                self.write(&Op::Create { id, body }, round)
            });
            if let Err(error) = made {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn write_child(
        &mut self,
        config: &ControllerConfig,
        (parent, plan): (&Object, &ReconcilePlan),
        op: &Op,
        round: &mut Reconciled,
    ) -> Result<(), ReconcileError> {
        let id = op.id().clone();
        let desired = plan.desired.get(&id.resource).and_then(|group| group.get(&id.key));
        let owner = config.owner(parent);
        let op = match op {
            Op::Probe { write, otherwise } => {
                let (Some(observed), Some(tried)) = (self.world.get(&id), self.world.dry_run(write)) else {
                    return Ok(());
                };
                let history = self.histories.entry(round.parent.clone()).or_default();
                let tried = DryRunResult::Becomes(Box::new(tried));
                let verdict = judge(((**write).clone(), (**otherwise).clone()), observed, &tried, history);
                match verdict
                    .map_err(|source| ReconcileError::Problem { id: Box::new(id.clone()), source })?
                {
                    DryRunVerdict::Do(op) => op,
                    DryRunVerdict::AsItIs => {
                        if let Some(desired) = desired {
                            learn(history, owner, &id, desired, observed);
                        }
                        return Ok(());
                    }
                    DryRunVerdict::Unknown => return Ok(()),
                }
            }
            op => op.clone(),
        };
        self.write(&op, round)?;
        if let (Some(desired), Some(answer)) = (desired, self.world.get(&id))
            && !matches!(op, Op::HandOver { .. } | Op::Delete { .. })
        {
            let history = self.histories.entry(round.parent.clone()).or_default();
            wrote(history, owner, &op, desired, answer);
        }
        Ok(())
    }
}
