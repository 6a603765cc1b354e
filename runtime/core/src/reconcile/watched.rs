//! A world that is watched: each step of a reconcile, in order, whatever the world behind it.

use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::selection::FinalizerChange;
use crate::children::claims::ClaimedObject;
use crate::children::deletion_brake::DeletionBrake;
use crate::children::deletion_reason::DeletionReason;
use crate::children::plan::DryRunResult;
use crate::children::write_history::{Drift, WriteHistory};
use crate::children::{Op, Plan, Skip};
use crate::decorator::Decoration;
use crate::decorator::conflicts::Resolution;
use crate::hash::Fingerprint;
use crate::hook::Usage;
use crate::object::cached::CachedObject;
use crate::object::id::{Gvk, Key, ObjectId, Resource};
use crate::object::selector::Selector;
use crate::object::{ChildMap, Object};
use crate::reconcile::config::ControllerConfig;
use crate::reconcile::input::ReconcileInput;
use crate::reconcile::ports::{
    Asking, CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError,
    Record, Remember, WriteAnswer, WriteError,
};
use crate::settled::{CacheRevision, SettledParents};
use crate::{error_chain, shorten, shorten_middle};

/// A world whose steps are kept.
pub struct Watched<'w, W> {
    world: &'w W,
    is_kept: bool,
    steps: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    steps: Vec<Step>,
    left_out: usize,
}

/// Steps, and decisions of a plan, that are kept: a parent may have ten thousand children.
const MAX_STEPS: usize = 1000;

/// Places of drift that are kept of a child.
const MAX_PLACES: usize = 5;

/// Bytes of one.
const MAX_PLACE: usize = 100;

/// Bytes of an error.
const MAX_ERROR: usize = 1024;

fn message(error: &dyn Error) -> String {
    shorten_middle(&error_chain(error), MAX_ERROR)
}

/// A step of a reconcile that reaches out of its own data, or decides about what does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The finalizers of the parent were changed.
    Finalizers,
    /// The related objects of all states of the parent were looked up, by answers of the customize hook.
    Related(Looked),
    /// A child that was known by its metadata alone was read.
    Read(ObjectId),
    /// A claim was carried out: its verb and its object.
    Claimed(&'static str, ObjectId),
    /// A hook was asked about the parent, or about an older state of it.
    Asked { hook: HookName, is_older: bool, took: Duration, usage: Option<Usage>, error: Option<String> },
    /// The plan was made, and nothing of it is carried out.
    Planned(Decisions),
    /// The number of deletions was recorded.
    RecordedDeletions,
    /// A write was tried by a dry run.
    Tried(ObjectId),
    /// An operation was carried out.
    Wrote { verb: &'static str, id: ObjectId, reason: Option<String>, end: WriteEnd },
    /// A related object was deleted; false where it was gone.
    DeletedRelated(ObjectId, bool),
}

/// What became of a look-up of related objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    pub took: Duration,
    /// Answers of the customize hook; none where the controller has no such hook.
    pub answers: usize,
    /// Those that were given to earlier reconciles.
    pub earlier: usize,
    /// Of all calls together.
    pub usage: Option<Usage>,
    pub rules: usize,
    pub objects: usize,
    pub error: Option<String>,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteEnd {
    Changed,
    /// The API server kept the object as it was.
    NoEffect,
    Failed(String),
}

/// What a plan decides about each child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Children that are written, by the verb.
    pub writes: Vec<(&'static str, ObjectId)>,
    /// Places whose drift is corrected, by the child.
    pub drifts: Vec<(ObjectId, Vec<String>)>,
    /// Children that are left although they are not as wanted, and why.
    pub left: Vec<(ObjectId, String)>,
    /// Children that are as wanted.
    pub unchanged: usize,
    /// Decisions that found no room.
    pub left_out: usize,
}

impl Looked {
    fn new(found: &Result<FoundObjects, PortError>, took: Duration) -> Self {
        let FoundObjects { related, customized } = match found {
            Ok(found) => found,
            Err(error) => return Self { took, error: Some(message(error)), ..Self::default() },
        };
        let usage = customized.iter().filter_map(|one| one.usage).reduce(|all, one| Usage {
            instructions: all.instructions + one.instructions,
            memory: all.memory.max(one.memory),
        });
        Self {
            took,
            answers: customized.len(),
            earlier: customized.iter().filter(|one| one.is_earlier).count(),
            usage,
            rules: customized.iter().map(|one| one.answer.rules.len()).sum(),
            objects: related.iter().map(|one| one.objects.objects().count()).sum(),
            error: None,
        }
    }
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
        self.lock().steps.clone()
    }

    /// The steps, in order, and the number of those that found no room.
    pub fn into_steps(self) -> (Vec<Step>, usize) {
        let Kept { steps, left_out } = self.steps.into_inner().unwrap_or_else(PoisonError::into_inner);
        (steps, left_out)
    }

    /// `step` is made only where it is kept. Calls, the plan and what failed have as much room again.
    fn note(&self, step: impl FnOnce() -> Step) {
        if !self.is_kept {
            return;
        }
        let (step, mut kept) = (step(), self.lock());
        let room = if step.says_why() { 2 * MAX_STEPS } else { MAX_STEPS };
        if kept.steps.len() < room {
            kept.steps.push(step);
        } else {
            kept.left_out += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Step {
    /// Whether it says why things went as they did. There are few of these in most reconciles.
    pub fn says_why(&self) -> bool {
        match self {
            Self::Asked { is_older, error, .. } => !is_older || error.is_some(),
            Self::Planned(_) | Self::Wrote { end: WriteEnd::Failed(_), .. } => true,
            _ => false,
        }
    }
}

impl Decisions {
    fn of(plan: &Plan) -> Self {
        let left = plan.skips.iter().filter(|(_, skip)| *skip != Skip::Unchanged);
        let left = left.map(|(id, skip)| (id.clone(), skip.to_string()));
        let problems = plan.problems.iter().map(|(id, problem)| (id.clone(), problem.to_string()));
        let drifts = plan.drifts.iter().map(|drift| {
            let places = drift.values.iter().take(MAX_PLACES).map(|place| shorten(&place.path, MAX_PLACE));
            (drift.id.clone(), places.collect())
        });
        let kept = |all: usize| all.saturating_sub(MAX_STEPS);
        let not_as_wanted = plan.skips.iter().filter(|(_, skip)| *skip != Skip::Unchanged).count();
        Self {
            writes: plan.ops.iter().take(MAX_STEPS).map(|op| (op.verb(), op.id().clone())).collect(),
            drifts: drifts.take(MAX_STEPS).collect(),
            left: left.chain(problems).take(MAX_STEPS).collect(),
            unchanged: plan.skips.len() - not_as_wanted,
            left_out: kept(plan.ops.len()) + kept(not_as_wanted + plan.problems.len()),
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
        self.world.read_child(child).await?;
        self.note(|| Step::Read(child.id()));
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
        let (is_older, start) = (matches!(asked, ParentView::Older(_)), self.world.now());
        let answer = self.world.call(hooks, hook, asked, request).await;
        self.note(|| {
            let took = self.world.now().saturating_sub(start);
            let (usage, error) = match &answer {
                Ok(answer) => (answer.usage, None),
                Err(error) => (None, Some(message(error))),
            };
            Step::Asked { hook, is_older, took, usage, error }
        });
        answer
    }

    async fn related(
        &self,
        hooks: &Self::Hooks,
        states: &[Arc<Object>],
        asking: Asking,
    ) -> Result<FoundObjects, PortError> {
        let start = self.world.now();
        let found = self.world.related(hooks, states, asking).await;
        self.note(|| Step::Related(Looked::new(&found, self.world.now().saturating_sub(start))));
        found
    }

    fn answered(&self, input: ReconcileInput, children: ChildMap, answer: Vec<u8>) {
        self.world.answered(input, children, answer);
    }
}

impl<W: CarryOut> CarryOut for Watched<'_, W> {
    async fn write(&self, op: &Op, reason: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        let answer = self.world.write(op, reason).await;
        self.note(|| {
            let end = match &answer {
                Ok(WriteAnswer { changed: true, .. }) => WriteEnd::Changed,
                Ok(WriteAnswer { changed: false, .. }) => WriteEnd::NoEffect,
                Err(error) => WriteEnd::Failed(message(error)),
            };
            let reason = reason.map(ToString::to_string);
            Step::Wrote { verb: op.verb(), id: op.id().clone(), reason, end }
        });
        answer
    }

    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        let result = self.world.dry_run(write).await;
        self.note(|| Step::Tried(write.id().clone()));
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
        let now = self.world.claim(claimed, parent).await?;
        self.note(|| Step::Claimed(claimed.claim.verb(), claimed.id()));
        Ok(now)
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let now = self.world.change_finalizers(parent, change).await?;
        self.note(|| Step::Finalizers);
        Ok(now)
    }

    fn is_there(&self, parent: &Object) -> impl Future<Output = Result<bool, WriteError>> + Send {
        self.world.is_there(parent)
    }

    async fn delete_related(&self, op: &Op) -> Result<bool, WriteError> {
        let deleted = self.world.delete_related(op).await?;
        self.note(|| Step::DeletedRelated(op.id().clone(), deleted));
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

impl<W: Remember> Remember for Watched<'_, W> {
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
        self.world.record_deletions().await?;
        self.note(|| Step::RecordedDeletions);
        Ok(())
    }

    fn resolve_decoration(&self, parent: &Object, decoration: &Decoration) -> Option<Resolution> {
        self.world.resolve_decoration(parent, decoration)
    }
}

impl<W: Record> Record for Watched<'_, W> {
    fn record(&self, parent: &Object, fact: Fact<'_>) {
        if let Fact::Planned { plan, .. } = &fact {
            self.note(|| Step::Planned(Decisions::of(&plan.children)));
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
