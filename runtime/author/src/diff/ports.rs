//! The cluster as it is as the ports of a reconcile: writes are tried by dry runs, and each that would change something is a step.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::selection::FinalizerChange;
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
use metahook_core::reconcile::error::ReconcileError;
use metahook_core::reconcile::input::customize_request;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{
    Asking, CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError,
    Record, Remember, WriteAnswer, WriteError,
};
use metahook_core::related::Related;
use metahook_core::settled::{CacheRevision, SettledParents};
use metahook_server::sync::lock;

use super::Differ;
use crate::render::Reconciled;
use crate::render::effect::Effect;
use crate::render::related::{RelatedError, allowed_rule};

/// The world of one reconcile of one parent.
pub(super) struct Ports<'a> {
    differ: &'a Differ,
    config: &'a ControllerConfig,
    id: &'a ObjectId,
    state: Mutex<State>,
}

/// State that a reconcile changes; the next one begins anew.
struct State {
    round: Reconciled,
    settled: SettledParents,
    history: Arc<WriteHistory>,
    /// Lets everything through: deletions are what is to be seen.
    brake: DeletionBrake,
}

impl<'a> Ports<'a> {
    pub(super) fn new(differ: &'a Differ, config: &'a ControllerConfig, id: &'a ObjectId) -> Self {
        let state = State {
            round: Reconciled::of(id),
            settled: SettledParents::default(),
            history: Arc::default(),
            brake: DeletionBrake::new(BrakeLimits::default(), None, 0),
        };
        Self { differ, config, id, state: Mutex::new(state) }
    }

    /// The result of the reconcile.
    pub(super) fn finish(self, error: Option<ReconcileError>) -> Reconciled {
        let mut state = self.state();
        if state.settled.is_status_due(&self.id.key) {
            let note = "the status follows in the next reconcile, which sees these children";
            state.round.notes.push(note.to_owned());
        }
        let round = Reconciled::of(self.id);
        Reconciled { error, ..std::mem::replace(&mut state.round, round) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn seen(&self, id: &ObjectId) -> Option<Arc<Object>> {
        if id == self.id {
            let parent = self.differ.parents.iter().find(|one| one.id == *id)?;
            return Some(Arc::clone(&parent.parent));
        }
        self.differ.live.children.get(&id.resource)?.get(&id.key)?.whole().cloned()
    }

    /// Records a write that would change something; gives back whether it would.
    fn tried(&self, verb: &'static str, id: &ObjectId, after: Option<Arc<Object>>) -> bool {
        let effect = Effect { id: id.clone(), before: self.seen(id), after };
        let changes = effect.shown_before() != effect.shown_after();
        if changes {
            self.state().round.record(verb, vec![effect]);
        }
        changes
    }

    async fn ask(&self, hook: HookName, request: Vec<u8>) -> Result<Vec<u8>, PortError> {
        let called = self.differ.hooks.call(&self.differ.controller, hook, request).await;
        let answer = called.answer.clone();
        self.state().round.calls.push(called);
        answer.map_err(|error| PortError::new("Hook", Retry::WithEvent, error))
    }

    async fn related_of(&self, state: &Object) -> Result<Related, PortError> {
        if self.config.hooks.customize.is_none() {
            return Ok(Related::default());
        }
        let answer = self.ask(HookName::Customize, customize_request(self.config, state)).await?;
        let rules = self.state().round.asked_rules(self.config, &answer)?;
        let mut related = Related::default();
        for (at, asked) in rules {
            let live = &self.differ.live;
            let resource = live.resolve(&asked.gvr).await.map_err(|error| RelatedError::of(at, error))?;
            let rule = allowed_rule(self.config, state, (at, &asked), &resource)?;
            let found = live.find(&rule).await.map_err(|error| RelatedError::of(at, error))?;
            related.add(&state.key.namespace, at, &rule, found);
        }
        Ok(related)
    }
}

impl Observe for Ports<'_> {
    fn config(&self) -> &ControllerConfig {
        self.config
    }

    fn parent_id(&self, _parent: &Object) -> ObjectId {
        self.id.clone()
    }

    fn parent_now(&self, _key: &Key) -> Option<Arc<Object>> {
        self.seen(self.id)
    }

    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        let Some(cache) = self.differ.live.children.get(resource) else { return Vec::new() };
        let mut all = cache.candidates(&parent.uid, &parent.key.namespace, selector);
        all.retain(|object| self.config.other_maker(object).is_none());
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
        _asking: Asking,
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
        let tried = self.differ.live.trial.carry_out(op).await?;
        self.state().round.notes.extend(tried.warnings);
        let changed = self.tried(op.verb(), op.id(), tried.object.clone());
        Ok(WriteAnswer { changed, object: tried.object })
    }

    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        self.differ.live.trial.dry_run(write).await
    }

    async fn try_making(&self, op: &Op, version: Option<&str>) -> Result<(), WriteError> {
        self.differ.live.trial.try_making(op, version).await
    }

    async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let after = self.differ.live.trial.claim(claimed, parent).await?;
        self.tried(claimed.claim.verb(), &claimed.id(), after.clone());
        Ok(after)
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let after = self.differ.live.trial.change_finalizers(self.id, parent, change).await?;
        self.tried("finalizer", self.id, after.clone());
        Ok(after)
    }

    async fn is_there(&self, parent: &Object) -> Result<bool, WriteError> {
        Ok(!parent.deleting)
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
        self.state().round.note(fact);
    }
}

impl Charge for Ports<'_> {}
