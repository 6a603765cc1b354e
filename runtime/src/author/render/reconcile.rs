//! One reconcile of one parent, in the order of the server's: finalizer, related objects, claims, hook, plan, writes.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::hook::{HookName, Via};
use metahook_core::api::selection::FinalizerChange;
use metahook_core::children::Op;
use metahook_core::children::claims::{self, Claim, ClaimedObject};
use metahook_core::children::plan::read_late;
use metahook_core::children::write_history::PastWrites;
use metahook_core::decorator;
use metahook_core::hash::Fingerprint;
use metahook_core::object::id::{ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::config::{ControllerConfig, KindConfig};
use metahook_core::reconcile::input::{InputParts, ReconcileInput};
use metahook_core::reconcile::outcome::{StatusTiming, WrittenSoFar, status_timing};
use metahook_core::reconcile::plan::{Answers, ReconcilePlan};
use metahook_core::reconcile::rollout::{ParentState, RolloutState};
use metahook_core::reconcile::{Phase, has_finalizer, phase};

use serde_json::Value;

use super::notes::note;
use super::{Effect, ReconcileError, Reconciled, Simulation, Step};
use crate::author::kinds::KnownKinds;

/// A parent whose claims are carried out, and what the hook wants for it.
struct Planned {
    parent: Arc<Object>,
    plan: ReconcilePlan,
}

impl Simulation {
    pub(super) async fn reconcile(&mut self, config: &ControllerConfig, id: &ObjectId) -> Reconciled {
        let mut round = Reconciled::of(id);
        let done = async {
            let Some(planned) = self.prepare(config, id, &mut round).await? else { return Ok(()) };
            match config.kind {
                KindConfig::Composite { .. } => self.apply_composite(config, &planned, &mut round)?,
                KindConfig::Decorator => self.apply_decorator(config, &planned, &mut round)?,
            }
            self.write_all(planned.plan.deletions.iter(), &mut round)
        };
        round.error = done.await.err();
        round.faults = faults(&self.kinds, &round);
        round.notes.extend(round.faults.iter().cloned());
        round
    }

    /// `None`: the reconcile ends before there is a plan.
    async fn prepare(
        &mut self,
        config: &ControllerConfig,
        id: &ObjectId,
        round: &mut Reconciled,
    ) -> Result<Option<Planned>, ReconcileError> {
        let Some((parent, hook)) = self.enter(config, id, round)? else { return Ok(None) };
        let input = self.gather(config, &parent, hook, round).await?;
        round.notes.extend(input.left_out.message(config.shown_bounds(hook)));
        let children = self.claim(config, &parent, &input.claims, round)?;
        if let Some(rollout) = &input.rollout {
            let before = round.steps.len();
            self.claim(config, &parent, &rollout.revisions, round)?;
            if round.steps.len() > before {
                return Ok(None); // the content of revisions is read once they are the parent's
            }
        }
        let plan = self.plan(config, &input, &children, round).await?;
        Ok(Some(Planned { parent, plan }))
    }

    fn enter(
        &mut self,
        config: &ControllerConfig,
        id: &ObjectId,
        round: &mut Reconciled,
    ) -> Result<Option<(Arc<Object>, HookName)>, ReconcileError> {
        let finalizer = &config.selection.finalizer;
        let mut wrote = false;
        loop {
            let Some(parent) = self.world.get(id).cloned() else { return Ok(None) };
            let is_ours = |one: &str| one == finalizer;
            let change = match phase(&parent, &config.selection) {
                Phase::Ask(hook) => return Ok(Some((parent, hook))),
                Phase::Ignore => return Ok(None),
                Phase::AddFinalizer | Phase::DropFinalizer if wrote => return Ok(None),
                Phase::AddFinalizer => FinalizerChange::Add(finalizer),
                Phase::DropFinalizer => FinalizerChange::Remove(&is_ours),
            };
            wrote = true;
            let effects = self.world.change_finalizers(id, change)?;
            round.record("finalizer", effects);
        }
    }

    async fn gather(
        &mut self,
        config: &ControllerConfig,
        parent: &Arc<Object>,
        hook: HookName,
        round: &mut Reconciled,
    ) -> Result<ReconcileInput, ReconcileError> {
        let candidates = |resource: &Arc<Resource>, selector: Option<&Selector>| {
            let found = self.world.view(resource);
            found.map_or_else(Vec::new, |cache| {
                let mut all = cache.candidates(&parent.uid, &parent.key.namespace, selector);
                // No other controller exists here, so that nothing is left to one.
                all.retain(|object| config.other_maker(object).is_none());
                all
            })
        };
        let mut rollout = RolloutState::of(config, parent, candidates);
        let related = self.related(config, parent, round).await?;
        if let Some(rollout) = rollout.as_mut().filter(|_| config.hooks.customize.is_some()) {
            let states: Vec<_> =
                rollout.history()?.older.iter().map(|older| Arc::clone(&older.parent)).collect();
            for state in states {
                rollout.related.push(self.related(config, &state, round).await?);
            }
        }
        let hooks = Fingerprint::of(b"");
        let parts = InputParts { hook, hooks, related, rollout, older_decorators: None };
        Ok(ReconcileInput::of(config, parent, parts, candidates)?)
    }

    fn claim(
        &mut self,
        config: &ControllerConfig,
        parent: &Object,
        claimed: &[ClaimedObject],
        round: &mut Reconciled,
    ) -> Result<ChildMap, ReconcileError> {
        let mut children = config.no_children();
        for ClaimedObject { resource, object, claim } in claimed {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            match claim {
                Claim::Leave => {}
                // The world holds all objects whole.
                Claim::Keep => {
                    if let Some(object) = object.whole() {
                        children.insert(resource, Arc::clone(object));
                    }
                }
                Claim::Renew => {
                    let effects = self.world.rewrite(&id, |object| claims::renew(object, parent))?;
                    round.record("renew", effects);
                    if let Some(now) = self.world.get(&id) {
                        children.insert(resource, Arc::clone(now));
                    }
                }
                Claim::Adopt => {
                    let effects = self.world.rewrite(&id, |object| claims::adopt(object, parent))?;
                    round.record("adopt", effects);
                    if let Some(now) = self.world.get(&id) {
                        children.insert(resource, Arc::clone(now));
                    }
                }
                Claim::Release => {
                    let effects = self.world.rewrite(&id, |object| claims::release(object, parent))?;
                    round.record("release", effects);
                }
            }
        }
        Ok(children)
    }

    async fn plan(
        &mut self,
        config: &ControllerConfig,
        input: &ReconcileInput,
        children: &ChildMap,
        round: &mut Reconciled,
    ) -> Result<ReconcilePlan, ReconcileError> {
        let latest = self.ask(config, input, (input.state(), children), round).await?;
        let mut older = Vec::new();
        let states = input.rollout.as_ref().map(RolloutState::older_states).transpose()?;
        for (_, state) in states.unwrap_or_default() {
            let answer = self.ask(config, input, (state, children), round).await;
            older.push(answer.map_err(|error| crate::telemetry::error_chain(&error)));
        }
        let history = self.histories.entry(round.parent.clone()).or_default();
        let late = read_late(history, config.owner(&input.parent), children);
        history.read(late);
        let older: Vec<_> = older.iter().map(|answer| answer.as_deref().map_err(Clone::clone)).collect();
        let answers = Answers { latest: &latest, older: &older };
        let past = PastWrites { history, now: Duration::ZERO };
        let plan = config.plan(input, children, answers, past);
        let plan = plan.map_err(|error| ReconcileError::Answer(input.hook, error))?;
        history.keep(children, &plan.desired);
        note(input.hook, &plan, &mut round.notes);
        round.ignored.extend(plan.feedback.ignored.clone());
        Ok(plan)
    }

    async fn ask(
        &self,
        config: &ControllerConfig,
        input: &ReconcileInput,
        (state, children): (ParentState<'_>, &ChildMap),
        round: &mut Reconciled,
    ) -> Result<Vec<u8>, ReconcileError> {
        let request = input.request(config, state, children)?;
        self.call(input.hook, request, round).await
    }

    pub(super) async fn call(
        &self,
        hook: HookName,
        request: Vec<u8>,
        round: &mut Reconciled,
    ) -> Result<Vec<u8>, ReconcileError> {
        let called = self.hooks.call(&self.controller, hook, request).await;
        let answer = called.answer.clone();
        round.calls.push(called);
        Ok(answer?)
    }

    fn apply_composite(
        &mut self,
        config: &ControllerConfig,
        Planned { parent, plan }: &Planned,
        round: &mut Reconciled,
    ) -> Result<(), ReconcileError> {
        self.write_all(plan.revisions.iter(), round)?;
        if plan.finalized && has_finalizer(parent, &config.selection) {
            self.drop_finalizer(config, round)?;
        }
        let before = round.steps.len();
        let written = self.write_children(config, parent, plan, round);
        let due =
            self.put_off.remove(&round.parent) || plan.finalized || config.hooks.sync.via == Via::Webhook;
        let wrote_children = round.steps.len() > before;
        let so_far = WrittenSoFar { wrote_children, failed: written.is_err(), due };
        match (status_timing(parent, so_far), &plan.decoration.status) {
            (_, None) => {}
            (StatusTiming::NextReconcile, Some(_)) => {
                self.put_off.insert(round.parent.clone());
                let note = "the status is written in the next reconcile, which sees these children";
                round.notes.push(note.to_owned());
            }
            (StatusTiming::Now, Some(status)) => {
                let now = self.world.get(&round.parent).cloned();
                if let Some(body) = now.and_then(|now| decorator::status(&now, status.clone())) {
                    let op = Op::Status { id: round.parent.clone(), body };
                    self.write(&op, round)?;
                }
            }
        }
        written
    }

    fn apply_decorator(
        &mut self,
        config: &ControllerConfig,
        Planned { parent, plan }: &Planned,
        round: &mut Reconciled,
    ) -> Result<(), ReconcileError> {
        let id = round.parent.clone();
        if let Some(op) = decorator::status_write(&id, parent, &plan.decoration) {
            self.write(&op, round)?;
        }
        let finalizer = plan.finalized.then_some(config.selection.finalizer.as_str());
        let now = self.world.get(&id).cloned();
        if let Some(op) = now.and_then(|now| decorator::object_write(&id, &now, &plan.decoration, finalizer))
        {
            self.write(&op, round)?;
        }
        let now = self.world.get(&id);
        if now.is_some_and(|now| plan.finalized && has_finalizer(now, &config.selection)) {
            self.drop_finalizer(config, round)?;
        }
        if self.world.get(&id).is_none() {
            return Ok(()); // its attachments went with it
        }
        self.write_children(config, parent, plan, round)
    }

    fn drop_finalizer(
        &mut self,
        config: &ControllerConfig,
        round: &mut Reconciled,
    ) -> Result<(), ReconcileError> {
        let is_ours = |one: &str| one == config.selection.finalizer;
        let effects = self.world.change_finalizers(&round.parent, FinalizerChange::Remove(&is_ours))?;
        round.record("finalizer", effects);
        Ok(())
    }

    fn write_all<'a>(
        &mut self,
        ops: impl Iterator<Item = &'a Op>,
        round: &mut Reconciled,
    ) -> Result<(), ReconcileError> {
        ops.into_iter().try_for_each(|op| self.write(op, round))
    }

    pub(super) fn write(&mut self, op: &Op, round: &mut Reconciled) -> Result<(), ReconcileError> {
        let effects = self.world.carry_out(op)?;
        round.record(op.verb(), effects);
        Ok(())
    }
}

/// Of children all that is written is looked at, of parents the status.
fn faults(kinds: &KnownKinds, round: &Reconciled) -> Vec<String> {
    let mut all = Vec::new();
    for Step { op, effect } in &round.steps {
        let Some(mut after) = effect.shown_after() else { continue };
        // That is the server's own, and lost without harm where the schema does not know it.
        if let Some(Value::Object(status)) = after.get_mut("status") {
            status.remove("observedGeneration");
        }
        let gvk = &effect.id.resource.gvk;
        let found = match *op {
            "status" => kinds.status_faults(gvk, after.get("status").unwrap_or(&Value::Null)),
            "adopt" | "renew" | "release" | "finalizer" => continue,
            _ if effect.id == round.parent => continue,
            _ => kinds.faults(gvk, &after),
        };
        all.extend(found.into_iter().map(|fault| format!("{}: {fault}", effect.id)));
    }
    all
}

impl Reconciled {
    fn of(parent: &ObjectId) -> Self {
        let (steps, notes, ignored, calls, faults) = Default::default();
        Self { parent: parent.clone(), steps, notes, ignored, calls, faults, error: None }
    }

    pub(super) fn record(&mut self, op: &'static str, effects: Vec<Effect>) {
        for effect in effects {
            let is_own = effect.after.is_some() || matches!(op, "delete" | "recreate");
            let op = if is_own { op } else { "delete" };
            self.steps.push(Step { op, effect });
        }
    }
}
