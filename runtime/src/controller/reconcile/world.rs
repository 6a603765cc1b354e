//! The server's world: its caches, hooks, API server and memory as the ports of one attempt of a reconcile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use metahook_core::api::hook::HookName;
use metahook_core::api::selection::FinalizerChange;
use metahook_core::children::Op;
use metahook_core::children::claims::ClaimedObject;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::deletion_reason::DeletionReason;
use metahook_core::children::plan::DryRunResult;
use metahook_core::children::write_history::{Drift, WriteHistory};
use metahook_core::decorator::Decoration;
use metahook_core::decorator::conflicts::Resolution;
use metahook_core::hash::Fingerprint;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::reconcile::outcome::{Retry, RetryState};
use metahook_core::reconcile::ports::{
    CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError, Record,
    RelatedQuery, Remember, WriteAnswer, WriteError,
};
use metahook_core::settled::{CacheRevision, SettledParents};

use crate::controller::brake::RecordError;
use crate::controller::hooks::LoadedHooks;
use crate::controller::read_rights::ReadRightsError;
use crate::controller::reconcile::Reconciler;
use crate::memory::{MemoryShort, MemoryTooLarge, Reservation};
use crate::store::Writer;
use crate::sync::lock;

/// One attempt to reconcile one parent.
pub(super) struct Attempt<'a> {
    pub(super) reconciler: &'a Reconciler,
    pub(super) memory: &'a Reservation,
    /// The author of all writes.
    pub(super) writer: Writer,
    pub(super) retry_state: RetryState,
    /// The place that the plan changes, of a parent that is watched.
    changing: Mutex<Option<String>>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        reconciler: &'a Reconciler,
        memory: &'a Reservation,
        parent: &Key,
        retry_state: RetryState,
    ) -> Self {
        let writer = reconciler.data.writer(parent);
        Self { reconciler, memory, writer, retry_state, changing: Mutex::default() }
    }

    /// To be called at the end.
    pub(super) fn changing(&self) -> Option<String> {
        lock(&self.changing).take()
    }
}

impl Observe for Attempt<'_> {
    fn config(&self) -> &ControllerConfig {
        &self.reconciler.data.config
    }

    fn parent_id(&self, parent: &Object) -> ObjectId {
        self.reconciler.data.parent_id(parent)
    }

    fn parent_now(&self, key: &Key) -> Option<Arc<Object>> {
        self.reconciler.data.parents.get(key)
    }

    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        self.reconciler.data.candidates(parent, resource, selector)
    }

    fn child_now(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.reconciler.data.observed_child(id)
    }

    async fn read_child(&self, child: &ClaimedObject) -> Result<(), WriteError> {
        match self.reconciler.data.children_of(&child.resource) {
            Some(store) => Ok(store.read_whole(&child.object).await?),
            None => Ok(()),
        }
    }

    fn cache_revision(&self, parent: &Object, hooks: Fingerprint) -> CacheRevision {
        let controllers = self.reconciler.data.controllers.changes();
        self.reconciler.parents.cache_revision(parent, hooks, controllers)
    }

    fn older_decorators(&self, parent: &Object) -> Option<Fingerprint> {
        self.reconciler.parents.older_decorators(parent)
    }

    fn now(&self) -> Duration {
        self.reconciler.data.elapsed()
    }

    async fn may_show(&self, parent: &Object) -> Result<(), PortError> {
        match &self.reconciler.data.reads {
            Some(reads) => Ok(reads.check(&parent.key.namespace).await?),
            None => Ok(()),
        }
    }
}

impl CallHooks for Attempt<'_> {
    type Hooks = Arc<LoadedHooks>;

    fn hooks(&self) -> Result<Self::Hooks, PortError> {
        Ok(self.reconciler.hooks.loaded()?)
    }

    fn version(&self, hooks: &Self::Hooks) -> Fingerprint {
        hooks.identity
    }

    async fn call(
        &self,
        hooks: &Self::Hooks,
        hook: HookName,
        asked: ParentView<'_>,
        request: Vec<u8>,
    ) -> Result<HookAnswer, PortError> {
        Ok(self.reconciler.hooks.call(hooks, hook, asked, request, self.memory).await?)
    }

    async fn related(
        &self,
        hooks: &Self::Hooks,
        states: &[Arc<Object>],
        query: RelatedQuery,
    ) -> Result<FoundObjects, PortError> {
        Ok(self.reconciler.related.find(hooks, states, query.cached, self.memory).await?)
    }

    fn answered(&self, input: ReconcileInput, children: ChildMap, answer: Vec<u8>) {
        if let Some(shadows) = &self.reconciler.hooks.shadows {
            let history = self.write_history(&input.parent.key);
            shadows.answered(input, children, history, answer);
        }
    }
}

impl CarryOut for Attempt<'_> {
    async fn write(&self, op: &Op, reason: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        Ok(self.reconciler.writer.write(op, reason, &self.writer).await?)
    }

    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        let tried = self.reconciler.writer.api.dry_run(write).await?;
        tracing::debug!(object = %write.id(), "tried by a dry run");
        Ok(tried)
    }

    async fn try_making(&self, op: &Op, version: Option<&str>) -> Result<(), WriteError> {
        let tried = self.reconciler.writer.api.try_making(op, version).await;
        Ok(self.reconciler.writer.naming_rights(tried).await?)
    }

    async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        Ok(self.reconciler.writer.claim(claimed, parent, &self.writer).await?)
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        Ok(self.reconciler.writer.change_finalizers(parent, &self.writer, change).await?)
    }

    async fn is_there(&self, parent: &Object) -> Result<bool, WriteError> {
        let now = self.reconciler.writer.api.read(&self.parent_id(parent)).await?;
        Ok(now.is_some_and(|now| now.uid == parent.uid && !now.deleting))
    }

    async fn delete_related(&self, op: &Op) -> Result<bool, WriteError> {
        let guards = self.reconciler.related.write_guards(op.id(), &self.writer);
        Ok(self.reconciler.writer.delete_related(op, &self.writer, guards).await?)
    }

    async fn resolve_kind(&self, kind: &Gvk) -> Result<Arc<Resource>, PortError> {
        let resolved = self.reconciler.discovery.resolve_kind(kind).await;
        resolved.map_err(|error| PortError::new("Child", error.retry(), error))
    }

    async fn join<F>(&self, writes: Vec<F>) -> Vec<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        join_all(writes).await
    }
}

impl Remember for Attempt<'_> {
    fn settled<T>(&self, act: impl FnOnce(&mut SettledParents) -> T) -> T {
        act(&mut self.reconciler.parents.settled())
    }

    fn write_history(&self, parent: &Key) -> Arc<WriteHistory> {
        self.reconciler.parents.histories.of(parent)
    }

    fn change_history<T>(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T {
        self.reconciler.parents.histories.change(parent, change)
    }

    fn drift_corrected(&self, parent: &Key, drift: &Drift) {
        self.reconciler.parents.histories.drift_corrected(parent, drift, self.now());
    }

    fn brake<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T {
        self.reconciler.data.brake.with(act)
    }

    async fn record_deletions(&self) -> Result<(), PortError> {
        Ok(self.reconciler.data.brake.record().await?)
    }

    fn resolve_decoration(&self, parent: &Object, decoration: &Decoration) -> Option<Resolution> {
        let data = &self.reconciler.data;
        let decorator = self.reconciler.parents.decorator.as_ref()?;
        Some(decorator.resolve(&data.parents.resource.gvr(), parent, decoration, &data.recorder))
    }
}

impl Record for Attempt<'_> {
    fn record(&self, parent: &Object, fact: Fact<'_>) {
        let reconciler = self.reconciler;
        match fact {
            Fact::Warnings(reason, warnings) => reconciler.parents.record_new(parent, reason, warnings),
            Fact::Event(reason, message) => reconciler.data.recorder.record(parent, reason, &message),
            Fact::Differing(differing) => reconciler.parents.note_differing(parent, differing),
            Fact::Planned { input, plan, customized } => {
                reconciler.record_feedback(input, &plan.feedback, customized);
                if !customized.is_empty() {
                    reconciler.related.record_hidden(input);
                }
                reconciler.record_overlaps(input);
                reconciler.parents.note_rollout(&parent.key, plan.rollout.wait.as_ref());
                reconciler.parents.keep_warned(&parent.key, input, plan);
                *lock(&self.changing) = reconciler.changing(parent, plan, self.retry_state);
            }
            Fact::TwoAnswers(hook) => reconciler.record_two_answers(parent, hook),
            // It waits for a user, and no longer for its children.
            Fact::Held { .. } => reconciler.parents.note_rollout(&parent.key, None),
            // A trace has it as a step.
            Fact::StatusLeft(_) => {}
        }
    }
}

impl Charge for Attempt<'_> {
    fn charge(&self, bytes: usize) -> Result<(), PortError> {
        Ok(self.memory.charge(bytes)?)
    }

    fn check_room(&self) -> Result<(), PortError> {
        match self.memory.short_of() {
            Some(_) => Err(MemoryShort.into()),
            None => Ok(()),
        }
    }

    fn refund(&self, bytes: usize) {
        self.memory.refund(bytes);
    }

    fn shrink(&self) {
        self.memory.shrink();
    }

    async fn heavy<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        let span = tracing::debug_span!("plan");
        self.reconciler.heavy_work.work(bytes, || span.in_scope(work)).await
    }
}

impl From<ReadRightsError> for PortError {
    fn from(error: ReadRightsError) -> Self {
        let is_ungranted = matches!(error, ReadRightsError::Missing(_));
        Self { is_ungranted, ..Self::new("Rights", Retry::WithEvent, error) }
    }
}

impl From<RecordError> for PortError {
    fn from(error: RecordError) -> Self {
        Self::new("Write", error.retry(), error)
    }
}

impl From<MemoryShort> for PortError {
    fn from(error: MemoryShort) -> Self {
        Self::new("MemoryShort", Retry::Silent, error)
    }
}

impl From<MemoryTooLarge> for PortError {
    fn from(error: MemoryTooLarge) -> Self {
        Self::new("MemoryTooLarge", Retry::WithEvent, error)
    }
}
