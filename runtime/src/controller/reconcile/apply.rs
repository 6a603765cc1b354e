//! What a pass decided, carried out: children in stages, and single writes with what they are answered.

use std::sync::Arc;

use futures_util::future::join_all;
use metahook_core::api::reason::EventReason;
use metahook_core::cache;
use metahook_core::children::desired::UnmanagedChild;
use metahook_core::children::write_order::{WriteConcurrency, stages};
use metahook_core::children::{self, Op};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;

use crate::controller::reconcile::{Decision, ReconcileError, Reconciler};
use crate::queue::Streaks;
use crate::store::{WriteGuard, Writer};

/// What became of what a pass wanted done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteResult {
    /// There was nothing to do.
    Nothing,
    /// The API server took what was written and kept what it had, as it does with fields that it does not know.
    InVain,
    Wrote,
    /// The parent was found to be no more: nothing else is done for it.
    Gone,
}

impl WriteResult {
    pub(crate) fn of(changed: bool) -> Self {
        if changed { Self::Wrote } else { Self::InVain }
    }
}

impl Reconciler {
    /// All that is to be done about children. Goes on after a failed operation, so that one child does not hold the others;
    /// gives back what came of all of them, and the first that is wrong.
    pub(crate) async fn act_on_children(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> (WriteResult, Option<ReconcileError>) {
        let Decision { parent, decided, .. } = decision;
        let (acted, mut first) = self.act_in_stages(decision, writer, streaks).await;
        self.tell_flips(decision).await;
        let made_once =
            |stray: &UnmanagedChild| format!("{}; it is created once and then left alone", stray.why);
        self.warn_once(parent, EventReason::UnmanagedChild, decided.strays.iter().map(made_once));
        for stray in &decided.strays {
            if let Err(error) = self.create_stray(parent, stray, writer).await {
                first.get_or_insert(error);
            }
        }
        (acted, first)
    }

    /// Stage by stage, as many at once as the last ones allow.
    async fn act_in_stages(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> (WriteResult, Option<ReconcileError>) {
        let plan = &decision.decided.plan;
        let mut first = plan
            .problems
            .first()
            .map(|(id, problem)| ReconcileError::Child { id: Box::new(id.clone()), source: *problem });
        let (mut acted, mut width) = (WriteResult::Nothing, WriteConcurrency::after(streaks.failures));
        for mut left in stages(&plan.ops) {
            while !left.is_empty() {
                let (now, later) = width.split(left);
                let results = join_all(now.iter().map(|op| self.act_on(op, decision, writer))).await;
                width.went(results.iter().all(Result::is_ok));
                for result in results {
                    match result {
                        Ok(became) => acted = acted.max(became),
                        Err(error) => drop(first.get_or_insert(error)),
                    }
                }
                left = later;
            }
        }
        (acted, first)
    }

    /// Makes a child that nobody looks after, where it does not exist.
    async fn create_stray(
        &self,
        parent: &Object,
        stray: &UnmanagedChild,
        writer: &Writer,
    ) -> Result<(), ReconcileError> {
        let resource = self.tools.discovery.resolve_kind(&stray.gvk).await?;
        let id = ObjectId { resource, key: stray.key.clone() };
        let body = children::plan::new_object(self.terms.owner(parent), &id, &stray.body);
        match self.carry_out(&Op::Create { id, body }, writer).await {
            Err(ReconcileError::Apply(error)) if error.is_there_already() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Writes the parent, where the API server did not drop the same a short while ago; and the parent as it is then.
    pub(crate) async fn write_parent(
        &self,
        op: &Op,
        writer: &Writer,
    ) -> Result<(WriteResult, Option<Arc<Object>>), ReconcileError> {
        let print = || Fingerprint::of(op.to_string().as_bytes());
        if self.standings().is_vain(&writer.parent, print, self.started.elapsed()) {
            return Ok((WriteResult::InVain, None));
        }
        let (changed, now) = self.write(op, writer).await?;
        if !changed {
            self.standings().wrote_in_vain(&writer.parent, print(), self.started.elapsed());
        }
        let gone = changed && now.is_none();
        Ok((if gone { WriteResult::Gone } else { WriteResult::of(changed) }, now))
    }

    /// One operation, and what its answer says into the store; `true` when it changed something.
    pub(crate) async fn carry_out(&self, op: &Op, writer: &Writer) -> Result<bool, ReconcileError> {
        Ok(self.write(op, writer).await?.0)
    }

    /// As above, and the object as the API server answered.
    pub(crate) async fn write(
        &self,
        op: &Op,
        writer: &Writer,
    ) -> Result<(bool, Option<Arc<Object>>), ReconcileError> {
        let writing = self.writing(op.id(), writer);
        let known = self.tools.rest.carry_out(op).await?;
        let changed = op.is_answered_by_a_change(&known);
        if changed {
            self.meter.counts().wrote(op.verb());
        }
        let what = if changed { "written" } else { "written in vain" };
        // A status is what every change of every child ends with.
        if changed && !matches!(op, Op::Status { .. }) {
            tracing::info!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "{what}");
        } else {
            tracing::debug!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "{what}");
        }
        Ok((changed, learned(writing, known)))
    }

    /// `None` where nobody looks at such objects.
    pub(crate) fn writing(&self, id: &ObjectId, writer: &Writer) -> Option<WriteGuard> {
        self.stores()
            .find(|store| *store.resource() == id.resource)
            .map(|store| store.writing(&id.key, writer))
    }
}

/// Tells the store what a write was answered; gives back the object as it was written last.
pub(crate) fn learned(writing: Option<WriteGuard>, known: Vec<cache::CacheEvent>) -> Option<Arc<Object>> {
    let written = known.iter().rev().find_map(|event| match event {
        cache::CacheEvent::Wrote(object) => Some(Arc::clone(object)),
        _ => None,
    });
    if let Some(writing) = writing {
        writing.answered(known);
    }
    written
}
