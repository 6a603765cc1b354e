//! What a pass decided, carried out: the finalizer, the children, the status.

use std::sync::Arc;

use futures_util::future::join_all;
use metahook_core::fingerprint::Fingerprint;
use metahook_core::gate;
use metahook_core::index;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::outcome;
use metahook_core::plan::desired::Stray;
use metahook_core::plan::stages::{Width, stages};
use metahook_core::plan::status::{SoFar, When};
use metahook_core::plan::{self, Op};
use metahook_core::spec::hook::Via;
use serde_json::{Map, Value};

use super::composite::{Controller, Decision, SyncError};
use crate::queue::Streaks;
use crate::store::{Writer, Writing};

/// What became of what a pass wanted done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Acted {
    /// There was nothing to do.
    Nothing,
    /// The API server took what was written and kept what it had, as it does with fields that it does not know.
    InVain,
    Wrote,
}

impl Acted {
    pub(super) fn of(changed: bool) -> Self {
        if changed { Self::Wrote } else { Self::InVain }
    }
}

impl Controller {
    /// Goes on after a failed operation, so that one child does not hold the others. But no child is written before it is
    /// recorded which revision it is at.
    pub(super) async fn act(
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
        self.tell_flips(decision).await;
        let made_once = |stray: &Stray| format!("{}; it is created once and then left alone", stray.why);
        self.warn_once(parent, "UnmanagedChild", decided.strays.iter().map(made_once));
        for stray in &decided.strays {
            if let Err(error) = self.create_stray(parent, stray, writer).await {
                first.get_or_insert(error);
            }
        }
        // A parent that is finalized may be none of ours from now on, and a webhook may not answer the next time.
        let last = decided.finalized || self.terms.hooks.sync.via == Via::Webhook;
        let due = self.standings().take_status_due(&parent.key) || outcome::is_held(streaks.own) || last;
        if let Some(op) = decided.wish.status.clone().and_then(|status| self.status(parent, status)) {
            let so_far = SoFar { wrote_children: children == Acted::Wrote, failed: first.is_some(), due };
            let print = || Fingerprint::of(op.to_string().as_bytes());
            let vain = self.standings().is_vain(&parent.key, print, self.started.elapsed());
            match plan::status::when(parent, so_far) {
                _ if vain => acted = acted.max(Acted::InVain),
                When::NextPass => self.standings().put_off_status(&parent.key),
                When::Now => match self.carry_out(&op, writer).await {
                    Ok(changed) => {
                        if !changed {
                            let now = self.started.elapsed();
                            self.standings().wrote_in_vain(&parent.key, print(), now);
                        }
                        acted = acted.max(Acted::of(changed));
                    }
                    Err(error) => drop(first.get_or_insert(error)),
                },
            }
        }
        first.map_or(Ok(acted), Err)
    }

    /// Stage by stage, as many at once as the last ones allow; what came of all of them, and the first that is wrong.
    async fn act_on_children(
        &self,
        decision: &Decision,
        writer: &Writer,
        streaks: Streaks,
    ) -> (Acted, Option<SyncError>) {
        let plan = &decision.decided.plan;
        let mut first = plan
            .problems
            .first()
            .map(|(id, problem)| SyncError::Child { id: Box::new(id.clone()), source: *problem });
        let (mut acted, mut width) = (Acted::Nothing, Width::after(streaks.failures));
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

    fn status(&self, parent: &Object, status: Map<String, Value>) -> Option<Op> {
        // An adoption or another writer may have changed the parent since: what is compared is the latest of the same
        // generation, so that only an answer to another spec is refused by the API server.
        let now = self.parents.get(&parent.key).filter(|now| now.uid == parent.uid)?;
        let now = if now.generation == parent.generation { &now } else { parent };
        let body = plan::status::status(now, status)?;
        let id = ObjectId { resource: Arc::clone(self.parents.resource()), key: parent.key.clone() };
        Some(Op::Status { id, body })
    }

    /// Makes a child that nobody looks after, where it does not exist.
    async fn create_stray(&self, parent: &Object, stray: &Stray, writer: &Writer) -> Result<(), SyncError> {
        let resource = self.tools.discovery.resolve_kind(&stray.gvk).await?;
        let id = ObjectId { resource, key: stray.key.clone() };
        let body = plan::children::new_object(self.terms.owner(parent), &id, &stray.body);
        match self.carry_out(&Op::Create { id, body }, writer).await {
            Err(SyncError::Apply(error)) if error.is_there_already() => Ok(()),
            other => other.map(drop),
        }
    }

    /// One operation, and what its answer says into the store; `true` when it changed something.
    pub(super) async fn carry_out(&self, op: &Op, writer: &Writer) -> Result<bool, SyncError> {
        Ok(self.write(op, writer).await?.0)
    }

    /// As above, and the object as the API server answered.
    pub(super) async fn write(
        &self,
        op: &Op,
        writer: &Writer,
    ) -> Result<(bool, Option<Arc<Object>>), SyncError> {
        let writing = self.writing(op.id(), writer);
        let known = self.tools.rest.carry_out(op).await?;
        let changed = op.is_answered_by_a_change(&known);
        if changed {
            self.meter.tally().wrote(op.verb());
            tracing::info!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "written");
        } else {
            tracing::debug!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "written in vain");
        }
        Ok((changed, learned(writing, known)))
    }

    /// `None` where nobody looks at such objects.
    pub(super) fn writing(&self, id: &ObjectId, writer: &Writer) -> Option<Writing> {
        self.stores()
            .find(|store| *store.resource() == id.resource)
            .map(|store| store.writing(&id.key, writer))
    }
}

/// Tells the store what a write was answered; gives back the object as it was written last.
pub(super) fn learned(writing: Option<Writing>, known: Vec<index::Event>) -> Option<Arc<Object>> {
    let written = known.iter().rev().find_map(|event| match event {
        index::Event::Wrote(object) => Some(Arc::clone(object)),
        _ => None,
    });
    if let Some(writing) = writing {
        writing.answered(known);
    }
    written
}
