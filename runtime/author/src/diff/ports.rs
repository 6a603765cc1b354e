//! The cluster as it is as the ports of a reconcile: each write is a dry run, and a step where it would change something.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::{Cache, CacheEvent};
use metahook_core::children::Op;
use metahook_core::children::claims::ClaimedObject;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::deletion_reason::DeletionReason;
use metahook_core::children::plan::DryRunResult;
use metahook_core::children::write_history::{Drift, WriteHistory};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::input::customize_request;
use metahook_core::reconcile::outcome::{Changed, Retry};
use metahook_core::reconcile::ports::{
    CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError, Record,
    RelatedQuery, Remember, WriteAnswer, WriteError,
};
use metahook_core::reconcile::sequence::{Reached, ReconcileReport};
use metahook_core::related::Related;
use metahook_core::settled::{CacheRevision, SettledParents};
use metahook_server::sync::lock;

use super::{Differ, LiveParent};
use crate::render::RenderedReconcile;
use crate::render::effect::Effect;
use crate::render::related::{RelatedError, allowed_rule};

/// The world of one reconcile of one parent.
pub(super) struct Ports<'a> {
    differ: &'a Differ,
    parent: &'a LiveParent,
    /// Objects that other clients have changed since they were listed; `None` for those that are gone.
    fresh: Overlay,
    state: Mutex<State>,
}

/// Objects as they are later than in the lists.
pub(super) type Overlay = BTreeMap<ObjectId, Option<Arc<Object>>>;

/// State that a reconcile changes; the next one begins anew.
struct State {
    reconciled: RenderedReconcile,
    settled: SettledParents,
    history: Arc<WriteHistory>,
    /// The brake of a server that has just started: it holds no deletion, so that all are shown.
    brake: DeletionBrake,
    /// Objects as the dry runs so far would leave them.
    written: Overlay,
    /// Objects whose write failed.
    failed: Vec<ObjectId>,
}

impl<'a> Ports<'a> {
    pub(super) fn new(differ: &'a Differ, parent: &'a LiveParent, fresh: Overlay) -> Self {
        let state = State {
            reconciled: RenderedReconcile::of(&parent.id),
            settled: SettledParents::default(),
            history: Arc::default(),
            brake: DeletionBrake::new(BrakeLimits::default(), None, 0),
            written: Overlay::new(),
            failed: Vec::new(),
        };
        Self { differ, parent, fresh, state: Mutex::new(state) }
    }

    /// The result of the reconcile, and the objects whose write failed.
    pub(super) fn finish(self, report: ReconcileReport) -> (RenderedReconcile, Vec<ObjectId>) {
        let mut state = self.state();
        let follows = match (report.reached, &report.result) {
            (Reached::WroteBeforePlan, Ok(_)) => {
                Some("the hook is called in the next reconcile, which is not shown")
            }
            (_, Ok(Changed::RolloutStep)) => {
                Some("the rollout goes on in further reconciles, which are not shown")
            }
            _ => None,
        };
        let is_due = state.settled.is_status_due(&self.parent.id.key);
        let status = is_due.then_some("the status is written in the next reconcile, which is not shown");
        state.reconciled.notes.extend(follows.into_iter().chain(status).map(str::to_owned));
        let empty = RenderedReconcile::of(&self.parent.id);
        let reconciled = std::mem::replace(&mut state.reconciled, empty);
        (RenderedReconcile { error: report.result.err(), ..reconciled }, std::mem::take(&mut state.failed))
    }

    /// The result of a write, whose object is known where it failed.
    fn noting<T>(&self, written: Result<T, WriteError>) -> Result<T, WriteError> {
        written.inspect_err(|error| self.state().failed.push(error.id.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The object as the dry runs so far would leave it.
    fn seen(&self, id: &ObjectId) -> Option<Arc<Object>> {
        let written = self.state().written.get(id).cloned();
        if let Some(known) = written.or_else(|| self.fresh.get(id).cloned()) {
            return known;
        }
        if *id == self.parent.id {
            return Some(Arc::clone(&self.parent.parent));
        }
        self.differ.live.known(id)
    }

    /// Records a write that would change something; gives back whether it would.
    fn record_write(&self, verb: &'static str, id: &ObjectId, after: Option<Arc<Object>>) -> bool {
        let effect = Effect { id: id.clone(), before: self.seen(id), after: after.clone() };
        let changes = after.is_none() || effect.shown_before() != effect.shown_after();
        let mut state = self.state();
        if changes {
            state.reconciled.record(verb, vec![effect]);
        }
        state.written.insert(id.clone(), after);
        changes
    }

    async fn ask(&self, hook: HookName, request: Vec<u8>) -> Result<Vec<u8>, PortError> {
        let called = self.differ.hooks.call(&self.differ.controller, hook, request).await;
        self.state().reconciled.record_call(called)
    }

    async fn related_of(&self, state: &Object) -> Result<Related, PortError> {
        if self.parent.config.hooks.customize.is_none() {
            return Ok(Related::default());
        }
        let answer = self.ask(HookName::Customize, customize_request(&self.parent.config, state)).await?;
        let rules = self.state().reconciled.asked_rules(&self.parent.config, &answer)?;
        let mut related = Related::default();
        for (at, asked) in rules {
            let live = &self.differ.live;
            let resource = live.resolve(&asked.gvr).await.map_err(|error| RelatedError::of(at, error))?;
            let rule = allowed_rule(&self.parent.config, state, (at, &asked), &resource)?;
            let found = live.find(&rule).await.map_err(|error| RelatedError::of(at, error))?;
            related.add(&state.key.namespace, at, &rule, found);
        }
        Ok(related)
    }
}

impl Observe for Ports<'_> {
    fn config(&self) -> &ControllerConfig {
        &self.parent.config
    }

    fn parent_id(&self, _parent: &Object) -> ObjectId {
        self.parent.id.clone()
    }

    fn parent_now(&self, _key: &Key) -> Option<Arc<Object>> {
        self.seen(&self.parent.id)
    }

    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        let Some(listed) = self.differ.live.children.get(resource) else { return Vec::new() };
        let is_newer = |key: &Key| self.fresh.keys().any(|id| *id.resource == *resource && id.key == *key);
        let mut all = listed.candidates(&parent.uid, &parent.key.namespace, selector);
        all.retain(|object| !is_newer(&object.key));
        // Newer objects are selected by the same rules.
        let mut newer = Cache::default();
        for (_, now) in self.fresh.iter().filter(|(id, _)| *id.resource == *resource) {
            if let Some(now) = now {
                newer.apply(CacheEvent::Wrote(Arc::clone(now)));
            }
        }
        all.extend(newer.candidates(&parent.uid, &parent.key.namespace, selector));
        all.retain(|object| match self.parent.config.other_maker(object) {
            Some(maker) => !self.differ.controllers.contains(&(maker.kind, maker.name.to_owned())),
            None => true,
        });
        all
    }

    fn child_now(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.seen(id)
    }

    fn cache_revision(&self, parent: &Object, hooks: Fingerprint) -> CacheRevision {
        CacheRevision::of(parent, hooks, None, [])
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl CallHooks for Ports<'_> {
    type Hooks = Fingerprint;

    fn hooks(&self) -> Result<Self::Hooks, PortError> {
        Ok(Fingerprint::of(b"version"))
    }

    fn version(&self, hooks: &Self::Hooks) -> Fingerprint {
        *hooks
    }

    async fn call(
        &self,
        _hooks: &Self::Hooks,
        hook: HookName,
        _asked: ParentView<'_>,
        request: Vec<u8>,
    ) -> Result<HookAnswer, PortError> {
        let bytes = self.ask(hook, request).await?;
        Ok(HookAnswer { bytes, pure: None, usage: None })
    }

    async fn related(
        &self,
        _hooks: &Self::Hooks,
        states: &[Arc<Object>],
        _query: RelatedQuery,
    ) -> Result<FoundObjects, PortError> {
        let mut found = FoundObjects::default();
        for state in states {
            found.related.push(self.related_of(state).await?);
        }
        Ok(found)
    }
}

impl CarryOut for Ports<'_> {
    async fn write(&self, op: &Op, _: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        let answer = self.noting(self.differ.live.client.carry_out(op).await)?;
        self.state().reconciled.notes.extend(answer.warnings.iter().cloned());
        let changed = self.record_write(op.verb(), op.id(), answer.object.clone());
        Ok(WriteAnswer { changed, object: answer.object, warnings: answer.warnings })
    }

    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        self.noting(self.differ.live.client.dry_run(write).await)
    }

    async fn try_making(&self, op: &Op, version: Option<&str>) -> Result<(), WriteError> {
        self.noting(self.differ.live.client.try_making(op, version).await)
    }

    async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let after = self.noting(self.differ.live.client.claim(claimed, parent).await)?;
        self.record_write(claimed.claim.verb(), &claimed.id(), after.clone());
        Ok(after)
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let done = self.differ.live.client.change_finalizers(&self.parent.id, parent, change).await;
        let after = self.noting(done)?;
        self.record_write("finalizer", &self.parent.id, after.clone());
        Ok(after)
    }

    async fn is_there(&self, parent: &Object) -> Result<bool, WriteError> {
        Ok(self.seen(&self.parent.id).is_some_and(|now| now.uid == parent.uid && !now.deleting))
    }

    async fn delete_related(&self, op: &Op) -> Result<bool, WriteError> {
        self.write(op, None).await.map(|answer| answer.changed)
    }

    async fn resolve_kind(&self, kind: &Gvk) -> Result<Arc<Resource>, PortError> {
        let resolved = self.differ.live.discovery.resolve_kind(kind).await;
        resolved.map_err(|error| PortError::new("Child", Retry::WithEvent, error))
    }
}

impl Remember for Ports<'_> {
    fn settled<T>(&self, act: impl FnOnce(&mut SettledParents) -> T) -> T {
        act(&mut self.state().settled)
    }

    fn write_history(&self, _parent: &Key) -> Arc<WriteHistory> {
        Arc::clone(&self.state().history)
    }

    fn change_history<T>(&self, _parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T {
        change(Arc::make_mut(&mut self.state().history))
    }

    fn drift_corrected(&self, _parent: &Key, _drift: &Drift) {}

    fn brake<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T {
        act(&mut self.state().brake, Duration::ZERO)
    }
}

impl Record for Ports<'_> {
    fn record(&self, _parent: &Object, fact: Fact<'_>) {
        self.state().reconciled.note(fact);
    }
}

impl Charge for Ports<'_> {}
