//! A world that is watched: each step of a reconcile, in order, whatever the world behind it.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::selection::FinalizerChange;
use crate::children::Op;
use crate::children::claims::ClaimedObject;
use crate::children::deletion_brake::DeletionBrake;
use crate::children::deletion_reason::DeletionReason;
use crate::children::plan::DryRunResult;
use crate::children::write_history::{Drift, WriteHistory};
use crate::decorator::Decoration;
use crate::decorator::conflicts::Resolution;
use crate::hash::Fingerprint;
use crate::object::cached::CachedObject;
use crate::object::id::{Gvk, Key, ObjectId, Resource};
use crate::object::selector::Selector;
use crate::object::{ChildMap, Object};
use crate::reconcile::config::ControllerConfig;
use crate::reconcile::input::ReconcileInput;
use crate::reconcile::ports::{
    CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError, Record,
    RelatedQuery, Remember, WriteAnswer, WriteError,
};
use crate::reconcile::steps::{
    Decisions, HeldPlan, LeftFields, Looked, MAX_STEPS, Step, StepTime, TimedStep, WriteEnd, message,
};
use crate::settled::{CacheRevision, SettledParents};

/// A world whose steps are kept.
pub struct Watched<'w, W> {
    world: &'w W,
    is_kept: bool,
    steps: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    steps: Vec<TimedStep>,
    left_out: usize,
}

impl<'w, W> Watched<'w, W> {
    pub fn new(world: &'w W) -> Self {
        Self::keeping(true, world)
    }

    /// Keeps the steps, or nothing.
    pub fn keeping(is_kept: bool, world: &'w W) -> Self {
        Self { world, is_kept, steps: Mutex::default() }
    }

    /// The steps so far, in order.
    pub fn steps(&self) -> Vec<Step> {
        self.lock().steps.iter().map(|one| one.step.clone()).collect()
    }

    /// The steps, in order, and the number of those that found no room.
    pub fn into_steps(self) -> (Vec<TimedStep>, usize) {
        let Kept { steps, left_out } = self.steps.into_inner().unwrap_or_else(PoisonError::into_inner);
        (steps, left_out)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Observe> Watched<'_, W> {
    /// `step` is made only where it is kept.
    fn note(&self, step: impl FnOnce() -> Step) {
        self.note_since(self.start(), step);
    }

    /// When a step begins, where it is kept.
    fn start(&self) -> Option<Duration> {
        self.is_kept.then(|| self.world.now())
    }

    /// Calls, the plan and what failed have as much room again as the other steps.
    fn note_since(&self, began: Option<Duration>, step: impl FnOnce() -> Step) {
        let Some(began) = began else { return };
        let time = StepTime { began, ended: self.world.now() };
        let (timed, mut kept) = (TimedStep { step: step(), time }, self.lock());
        let room = if timed.step.says_why() { 2 * MAX_STEPS } else { MAX_STEPS };
        if kept.steps.len() < room {
            kept.steps.push(timed);
        } else {
            kept.left_out += 1;
        }
    }
}

impl<W: Observe> Observe for Watched<'_, W> {
    fn config(&self) -> &ControllerConfig {
        self.world.config()
    }

    fn parent_id(&self, parent: &Object) -> ObjectId {
        self.world.parent_id(parent)
    }

    fn parent_now(&self, key: &Key) -> Option<Arc<Object>> {
        self.world.parent_now(key)
    }

    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        self.world.candidates(parent, resource, selector)
    }

    fn child_now(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.world.child_now(id)
    }

    async fn read_child(&self, child: &ClaimedObject) -> Result<(), WriteError> {
        let start = self.start();
        self.world.read_child(child).await?;
        self.note_since(start, || Step::Read(child.id()));
        Ok(())
    }

    fn cache_revision(&self, parent: &Object, hooks: Fingerprint) -> CacheRevision {
        self.world.cache_revision(parent, hooks)
    }

    fn older_decorators(&self, parent: &Object) -> Option<Fingerprint> {
        self.world.older_decorators(parent)
    }

    fn fingerprint(&self, input: &ReconcileInput) -> Fingerprint {
        self.world.fingerprint(input)
    }

    fn now(&self) -> Duration {
        self.world.now()
    }

    fn may_show(&self, parent: &Object) -> impl Future<Output = Result<(), PortError>> + Send {
        self.world.may_show(parent)
    }
}

impl<W: CallHooks + Observe> CallHooks for Watched<'_, W> {
    type Hooks = W::Hooks;

    fn hooks(&self) -> Result<Self::Hooks, PortError> {
        self.world.hooks()
    }

    fn version(&self, hooks: &Self::Hooks) -> Fingerprint {
        self.world.version(hooks)
    }

    async fn call(
        &self,
        hooks: &Self::Hooks,
        hook: HookName,
        asked: ParentView<'_>,
        request: Vec<u8>,
    ) -> Result<HookAnswer, PortError> {
        let (is_older, start) = (matches!(asked, ParentView::Older(_)), self.start());
        let answer = self.world.call(hooks, hook, asked, request).await;
        self.note_since(start, || {
            let (usage, error) = match &answer {
                Ok(answer) => (answer.usage, None),
                Err(error) => (None, Some(message(error))),
            };
            Step::Asked { hook, is_older, usage, error }
        });
        answer
    }

    async fn related(
        &self,
        hooks: &Self::Hooks,
        states: &[Arc<Object>],
        query: RelatedQuery,
    ) -> Result<FoundObjects, PortError> {
        let start = self.start();
        let found = self.world.related(hooks, states, query).await;
        self.note_since(start, || {
            let parent = states.first();
            let limits =
                parent.map(|parent| self.config().related_limits(parent, query.hook)).unwrap_or_default();
            Step::Related(Looked::new(&found, limits))
        });
        found
    }

    fn answered(&self, input: ReconcileInput, children: ChildMap, answer: Vec<u8>) {
        self.world.answered(input, children, answer);
    }
}

impl<W: CarryOut + Observe> CarryOut for Watched<'_, W> {
    async fn write(&self, op: &Op, reason: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        let start = self.start();
        let answer = self.world.write(op, reason).await;
        self.note_since(start, || {
            let end = match &answer {
                Ok(WriteAnswer { changed: true, .. }) => WriteEnd::Changed,
                Ok(WriteAnswer { changed: false, .. }) => WriteEnd::NoEffect,
                Err(error) => WriteEnd::Failed(message(error)),
            };
            let reason = reason.map(ToString::to_string);
            let warnings = answer.as_ref().map(|answer| answer.warnings.clone()).unwrap_or_default();
            Step::Wrote { verb: op.verb(), id: op.id().clone(), reason, warnings, end }
        });
        answer
    }

    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        let start = self.start();
        let result = self.world.dry_run(write).await;
        self.note_since(start, || Step::Tried(write.id().clone()));
        result
    }

    fn try_making(
        &self,
        op: &Op,
        version: Option<&str>,
    ) -> impl Future<Output = Result<(), WriteError>> + Send {
        self.world.try_making(op, version)
    }

    async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let start = self.start();
        let now = self.world.claim(claimed, parent).await?;
        self.note_since(start, || Step::Claimed(claimed.claim.verb(), claimed.id()));
        Ok(now)
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let start = self.start();
        let now = self.world.change_finalizers(parent, change).await?;
        self.note_since(start, || Step::Finalizers);
        Ok(now)
    }

    fn is_there(&self, parent: &Object) -> impl Future<Output = Result<bool, WriteError>> + Send {
        self.world.is_there(parent)
    }

    async fn delete_related(&self, op: &Op) -> Result<bool, WriteError> {
        let start = self.start();
        let deleted = self.world.delete_related(op).await?;
        self.note_since(start, || Step::DeletedRelated(op.id().clone(), deleted));
        Ok(deleted)
    }

    fn resolve_kind(&self, kind: &Gvk) -> impl Future<Output = Result<Arc<Resource>, PortError>> + Send {
        self.world.resolve_kind(kind)
    }

    fn join<F>(&self, writes: Vec<F>) -> impl Future<Output = Vec<F::Output>> + Send
    where
        F: Future + Send,
        F::Output: Send,
    {
        self.world.join(writes)
    }
}

impl<W: Remember + Observe> Remember for Watched<'_, W> {
    fn settled<T>(&self, act: impl FnOnce(&mut SettledParents) -> T) -> T {
        self.world.settled(act)
    }

    fn write_history(&self, parent: &Key) -> Arc<WriteHistory> {
        self.world.write_history(parent)
    }

    fn change_history<T>(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T {
        self.world.change_history(parent, change)
    }

    fn drift_corrected(&self, parent: &Key, drift: &Drift) {
        self.world.drift_corrected(parent, drift);
    }

    fn brake<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T {
        self.world.brake(act)
    }

    async fn record_deletions(&self) -> Result<(), PortError> {
        let start = self.start();
        self.world.record_deletions().await?;
        self.note_since(start, || Step::RecordedDeletions);
        Ok(())
    }

    fn resolve_decoration(&self, parent: &Object, decoration: &Decoration) -> Option<Resolution> {
        let resolution = self.world.resolve_decoration(parent, decoration);
        if let Some(left) = resolution.as_ref().filter(|_| self.is_kept).and_then(LeftFields::of) {
            self.note(|| Step::LeftFields(left));
        }
        resolution
    }
}

impl<W: Record + Observe> Record for Watched<'_, W> {
    fn record(&self, parent: &Object, fact: Fact<'_>) {
        match &fact {
            Fact::Planned { plan, .. } => self.note(|| Step::Planned(Decisions::of(plan))),
            Fact::Held { deletions, version } => self.note(|| Step::Held(HeldPlan::of(deletions, *version))),
            Fact::StatusLeft(why) => self.note(|| Step::StatusLeft(*why)),
            _ => {}
        }
        self.world.record(parent, fact);
    }
}

impl<W: Charge> Charge for Watched<'_, W> {
    fn charge(&self, bytes: usize) -> Result<(), PortError> {
        self.world.charge(bytes)
    }

    fn check_room(&self) -> Result<(), PortError> {
        self.world.check_room()
    }

    fn refund(&self, bytes: usize) {
        self.world.refund(bytes);
    }

    fn shrink(&self) {
        self.world.shrink();
    }

    fn heavy<T: Send>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send,
    ) -> impl Future<Output = T> + Send {
        self.world.heavy(bytes, work)
    }
}
