//! What a pass decided, carried out: the finalizer, the children, the status.

use std::sync::Arc;

use metahook_core::gate;
use metahook_core::index;
use metahook_core::json::difference::Difference;
use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::plan::children::{judge, learn};
use metahook_core::plan::desired::Stray;
use metahook_core::plan::flip::others;
use metahook_core::plan::ledger::Drift;
use metahook_core::plan::{self, Op, ssa};
use serde_json::{Map, Value};

use super::composite::{Controller, Decision, SyncError};
use crate::cluster::events::Severity;
use crate::store::Writer;

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
    fn of(changed: bool) -> Self {
        if changed { Self::Wrote } else { Self::InVain }
    }
}

impl Controller {
    /// Goes on after a failed operation, so that one child does not hold the others.
    pub(super) async fn act(&self, decision: &Decision, writer: &Writer) -> Result<Acted, SyncError> {
        let Decision { parent, decided, .. } = decision;
        let mut acted = if decision.wrote { Acted::Wrote } else { Acted::Nothing };
        if decided.finalized && gate::has_finalizer(parent, &self.terms.selection) {
            self.drop_finalizer(parent, writer).await.map_err(SyncError::Finalizer)?;
            acted = Acted::Wrote;
        }
        let mut first = decided
            .plan
            .problems
            .first()
            .map(|(id, problem)| SyncError::Child { id: Box::new(id.clone()), source: *problem });
        for op in &decided.plan.ops {
            match self.act_on(op, decision, writer).await {
                Ok(became) => acted = acted.max(became),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        self.tell_flips(decision).await;
        for stray in &decided.strays {
            if let Err(error) = self.create_stray(parent, stray, writer).await {
                first.get_or_insert(error);
            }
        }
        if let Some(op) = self.status(parent, decided.status.clone()) {
            match self.carry_out(&op, writer).await {
                Ok(changed) => acted = acted.max(Acted::of(changed)),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        first.map_or(Ok(acted), Err)
    }

    /// One operation on a child; what comes of it is learned.
    async fn act_on(&self, op: &Op, decision: &Decision, writer: &Writer) -> Result<Acted, SyncError> {
        let id = op.id();
        let op = match op {
            Op::Probe { write, otherwise } => {
                let Some(observed) = self.observed(id) else { return Ok(Acted::Wrote) };
                let probed = self.tools.rest.probe(write).await?;
                let next = judge((**write).clone(), (**otherwise).clone(), &observed, &probed)
                    .map_err(|source| SyncError::Child { id: Box::new(id.clone()), source })?;
                let Some(next) = next else {
                    self.learn(id, decision, &observed);
                    return Ok(Acted::InVain);
                };
                next
            }
            op => op.clone(),
        };
        let (changed, answer) = self.write(&op, writer).await?;
        if let Some(answer) = answer.filter(|_| !matches!(op, Op::HandOver { .. })) {
            self.learn(id, decision, &answer);
        }
        if let Some(drift) = decision.decided.plan.drifts.iter().find(|drift| drift.id == *id) {
            let now = self.started.elapsed();
            self.ledgers.change(&decision.parent.key, |ledger| ledger.put_right(drift, now));
        }
        Ok(Acted::of(changed))
    }

    fn observed(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.children.iter().find(|store| *store.resource() == id.resource)?.get(&id.key)
    }

    fn learn(&self, id: &ObjectId, decision: &Decision, answer: &Object) {
        let Decision { parent, decided, .. } = decision;
        if let Some(desired) = decided.desired.get(&id.resource).and_then(|group| group.get(&id.key)) {
            let owner = self.terms.owner(parent);
            self.ledgers.change(&parent.key, |ledger| learn(ledger, owner, id, desired, answer));
        }
    }

    /// Names values that somebody else keeps changing back, with both values and the other manager; of Secrets the
    /// places alone.
    async fn tell_flips(&self, decision: &Decision) {
        for flip in &decision.decided.plan.flips {
            let mut news = false;
            self.ledgers.change(&decision.parent.key, |ledger| news = ledger.tell(flip));
            if !news {
                continue;
            }
            let live = self.tools.rest.live(&flip.id).await.unwrap_or_default();
            let fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
            let message = flipping(flip, fields, &[ssa::DYNAMIC_MANAGER, &self.tools.applying.manager]);
            self.tools.recorder.record(&decision.parent, Severity::Warning, "ValueFlips", &message);
        }
    }

    fn status(&self, parent: &Object, status: Map<String, Value>) -> Option<Op> {
        // An adoption or another writer may have changed the parent since: what is compared is the latest of the same
        // generation, so that only an answer to another spec is refused by the API server.
        let now = self.parents.get(&parent.key).filter(|now| now.uid == parent.uid)?;
        let now = if now.generation == parent.generation { &now } else { parent };
        let body = plan::status::status(now, status)?;
        Some(Op::Status {
            id: ObjectId { resource: Arc::clone(self.parents.resource()), key: parent.key.clone() },
            body,
        })
    }

    /// Makes a child that nobody looks after, where it does not exist.
    async fn create_stray(&self, parent: &Object, stray: &Stray, writer: &Writer) -> Result<(), SyncError> {
        let message = format!("{}; it is created once and then left alone", stray.why);
        self.tools.recorder.record(parent, Severity::Warning, "UnmanagedChild", &message);
        let resource = self.tools.discovery.resolve_kind(&stray.gvk).await?;
        let id = ObjectId { resource, key: stray.key.clone() };
        let body = plan::children::new_object(self.terms.owner(parent), &id, &stray.body);
        match self.carry_out(&Op::Create { id, body }, writer).await {
            Err(SyncError::Apply(error)) if error.is_taken_name() => Ok(()),
            other => other.map(drop),
        }
    }

    /// One operation, and what its answer says into the store; `true` when it changed something.
    pub(super) async fn carry_out(&self, op: &Op, writer: &Writer) -> Result<bool, SyncError> {
        Ok(self.write(op, writer).await?.0)
    }

    /// As above, and the object as the API server answered.
    async fn write(&self, op: &Op, writer: &Writer) -> Result<(bool, Option<Object>), SyncError> {
        let known = self.tools.rest.carry_out(op).await?;
        let changed = op.is_answered_by_a_change(&known);
        if changed {
            self.meter.tally().wrote(op.verb());
            tracing::info!(controller = %self.object.key, parent = %writer.parent, op = op.verb(), object = %op.id(), "written");
        }
        let answer = known.iter().rev().find_map(|event| match event {
            index::Event::Wrote(object) => Some(object.clone()),
            _ => None,
        });
        self.absorb(op.id(), known, writer);
        Ok((changed, answer))
    }

    pub(super) fn absorb(&self, id: &ObjectId, known: Vec<index::Event>, writer: &Writer) {
        if let Some(store) =
            self.children.iter().chain([&self.parents]).find(|store| *store.resource() == id.resource)
        {
            store.absorb(known, Some(writer));
        }
    }
}

/// What a user is told of values that flip.
fn flipping(flip: &Drift, fields: &Value, ours: &[&str]) -> String {
    let secret = flip.id.resource.gvk.kind.as_ref() == "Secret";
    let told: Vec<_> = flip
        .values
        .iter()
        .map(|Difference { path, wanted, found }| {
            let others: Vec<_> = others(fields, path, ours).into_iter().collect();
            let by = if others.is_empty() { String::new() } else { format!(", by {}", others.join(", ")) };
            let values = if secret { String::new() } else { format!(" ({wanted} becomes {found}{by})") };
            format!("{path}{}", if secret { by } else { values })
        })
        .collect();
    format!(
        "{} is changed back again and again: {}; it is put right less and less often, so stop the one or the other",
        flip.id,
        told.join("; ")
    )
}
