//! The objects of files as the ports of a reconcile: writes change them in memory, and each is a step that is printed.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metahook_core::api::hook::HookName;
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
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{
    CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError, Record,
    RelatedQuery, Remember, WriteAnswer, WriteError, WriteErrorCause,
};
use metahook_core::settled::{CacheRevision, SettledParents};
use serde_json::Value;

use super::hooks::{Called, HookSet};
use super::world::{Refusal, World};
use super::{Effect, Remembered, RenderedReconcile};
use crate::kinds::{KindError, KnownKinds};
use metahook_server::sync::lock;

/// The world of one reconcile of one parent.
pub(super) struct Ports<'a> {
    pub(super) controller: &'a str,
    pub(super) config: &'a ControllerConfig,
    pub(super) kinds: &'a KnownKinds,
    pub(super) hooks: &'a HookSet,
    pub(super) version: Fingerprint,
    pub(super) shared: Mutex<Shared<'a>>,
}

/// State that a reconcile changes.
pub(super) struct Shared<'a> {
    pub(super) world: &'a mut World,
    pub(super) brake: &'a mut DeletionBrake,
    pub(super) remembered: &'a mut Remembered,
    pub(super) round: &'a mut RenderedReconcile,
}

/// A write that an API server would refuse.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {id}")]
struct RefusedWrite {
    verb: &'static str,
    id: ObjectId,
    #[source]
    why: Refusal,
}

impl<'a> Ports<'a> {
    pub(super) fn shared(&self) -> MutexGuard<'_, Shared<'a>> {
        lock(&self.shared)
    }

    /// Why an API server refuses an object for its schema.
    fn refusal(&self, id: &ObjectId, object: &Value) -> Option<String> {
        let mut faults = self.kinds.faults(&id.resource.gvk, object).into_iter();
        faults.find(|fault| fault.ends_with(REFUSES))
    }
}

/// End of the faults for which an API server refuses an object.
const REFUSES: &str = "the API server refuses it";

fn refused(verb: &'static str, id: &ObjectId, why: Refusal) -> WriteError {
    let cause = match why {
        Refusal::Taken { .. } => WriteErrorCause::Taken,
        Refusal::Object { .. } | Refusal::Unmakable { .. } => WriteErrorCause::Other,
    };
    let source = Box::new(RefusedWrite { verb, id: id.clone(), why });
    WriteError { id: id.clone(), cause, retry: Retry::WithEvent, source }
}

impl Observe for Ports<'_> {
    fn config(&self) -> &ControllerConfig {
        self.config
    }

    fn parent_id(&self, _parent: &Object) -> ObjectId {
        self.shared().round.parent.clone()
    }

    fn parent_now(&self, _key: &Key) -> Option<Arc<Object>> {
        let shared = self.shared();
        shared.world.get(&shared.round.parent).cloned()
    }

    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        self.shared().world.candidates(self.config, parent, resource, selector)
    }

    fn child_now(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.shared().world.get(id).cloned()
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
        Ok(self.version)
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
        // Each round asks anew: whatever settles here is seen by what is written.
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

impl Ports<'_> {
    pub(super) async fn ask(&self, hook: HookName, request: Vec<u8>) -> Result<Vec<u8>, PortError> {
        let called = self.hooks.call(self.controller, hook, request).await;
        self.shared().round.record_call(called)
    }
}

impl CarryOut for Ports<'_> {
    async fn write(&self, op: &Op, _: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        let mut shared = self.shared();
        let id = op.id();
        let effects = shared.world.carry_out(op).map_err(|why| refused(op.verb(), id, why))?;
        let changed = !effects.is_empty();
        shared.round.record(op.verb(), effects);
        // One that waits for its finalizers is no answer to a write.
        let object = shared
            .world
            .get(id)
            .filter(|now| !now.deleting || matches!(op, Op::Status { .. } | Op::Replace { .. }));
        Ok(WriteAnswer { changed, object: object.cloned(), warnings: Vec::new() })
    }

    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        let Some(becomes) = self.shared().world.dry_run(write) else { return Ok(DryRunResult::Unable) };
        let is_refused = becomes.value().is_ok_and(|value| self.refusal(write.id(), &value).is_some());
        Ok(if is_refused { DryRunResult::Refused } else { DryRunResult::Becomes(Box::new(becomes)) })
    }

    async fn try_making(&self, op: &Op, _version: Option<&str>) -> Result<(), WriteError> {
        let Op::Recreate { id, body, .. } = op else { return Ok(()) };
        match self.refusal(id, body) {
            Some(fault) => Err(refused(op.verb(), id, Refusal::Unmakable { fault })),
            None => Ok(()),
        }
    }

    async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let (id, verb, mut shared) = (claimed.id(), claimed.claim.verb(), self.shared());
        let effects = shared.world.rewrite(&id, |object| claimed.carry_out(object, parent));
        shared.round.record(verb, effects.map_err(|why| refused(verb, &id, why))?);
        Ok(shared.world.get(&id).cloned())
    }

    async fn change_finalizers(
        &self,
        _parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let mut shared = self.shared();
        let id = shared.round.parent.clone();
        let effects = shared.world.change_finalizers(&id, change);
        shared.round.record("finalizer", effects.map_err(|why| refused("patch", &id, why))?);
        Ok(shared.world.get(&id).cloned())
    }

    async fn is_there(&self, parent: &Object) -> Result<bool, WriteError> {
        Ok(self.parent_now(&parent.key).is_some_and(|now| now.uid == parent.uid && !now.deleting))
    }

    async fn delete_related(&self, op: &Op) -> Result<bool, WriteError> {
        self.write(op, None).await.map(|answer| answer.changed)
    }

    async fn resolve_kind(&self, kind: &Gvk) -> Result<Arc<Resource>, PortError> {
        let unknown = |error: KindError| PortError::new("Child", Retry::WithEvent, error);
        self.kinds.resolve_kind(kind).map(Arc::clone).map_err(unknown)
    }
}

impl Remember for Ports<'_> {
    fn settled<T>(&self, act: impl FnOnce(&mut SettledParents) -> T) -> T {
        act(&mut self.shared().remembered.settled)
    }

    fn write_history(&self, parent: &Key) -> Arc<WriteHistory> {
        self.shared().remembered.histories.get(parent).cloned().unwrap_or_default()
    }

    fn change_history<T>(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T {
        change(Arc::make_mut(self.shared().remembered.histories.entry(parent.clone()).or_default()))
    }

    fn drift_corrected(&self, _parent: &Key, _drift: &Drift) {
        // No time passes here, in which another client could be too quick.
    }

    fn brake<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T {
        act(self.shared().brake, Duration::ZERO)
    }
}

impl Record for Ports<'_> {
    fn record(&self, _parent: &Object, fact: Fact<'_>) {
        self.shared().round.note(fact);
    }
}

impl Charge for Ports<'_> {}

impl RenderedReconcile {
    /// Records a call, and returns its answer.
    pub(crate) fn record_call(&mut self, called: Called) -> Result<Vec<u8>, PortError> {
        let answer = called.answer.clone();
        self.calls.push(called);
        answer.map_err(|error| PortError::new("Hook", Retry::WithEvent, error))
    }

    pub(crate) fn record(&mut self, op: &'static str, effects: Vec<Effect>) {
        for effect in effects {
            let is_own = effect.after.is_some() || matches!(op, "delete" | "recreate");
            let op = if is_own { op } else { "delete" };
            self.steps.push(super::Step { op, effect });
        }
    }
}
