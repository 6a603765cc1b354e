//! The sequence of a reconcile: what is read, asked, decided and written for one parent, in order.
//!
//! # Flow
//! 1. *Phase* ([`phase`]): a parent that the controller does not select, or that is paused ([`pause`]), ends here. A finalizer is
//!    put in order before anything else.
//! 2. *Gather*: the related objects, the revisions of a rollout, and the children become one [`ReconcileInput`].
//! 3. *Settled?* Where the input is the one that the parent settled with, the reconcile ends.
//! 4. *Claims*: objects are adopted, released, and their owner references renewed, so that the hook is shown the result.
//! 5. *Hook*: one request about the present state of the parent, and one about each older state in a rollout.
//! 6. *Plan*: all that follows from the answers; the deletion brake lets all of its deletions through, or none of it is
//!    written.
//! 7. *Writes*: revisions, finalizer of a finalized parent, children by stages, status or decoration, and deletions of related
//!    objects, which cannot be undone, last.
//!
//! # Guarantees
//! - A reconcile never mixes versions of hooks.
//! - Nothing of a plan is written where the answer has an error, the deletion brake holds, or memory is short. Nothing grows
//!   after the first write of a plan.
//! - A crash between any two writes harms nothing: the next reconcile goes on from what the cluster shows.
//! - A child that fails does not stop the others. The reconcile fails with all of them.
//!
//! # Assumptions
//! No two reconciles of one parent run at once. What a port answers is true of some moment of this reconcile; where two moments
//! differ, the API server refuses the write, and the next reconcile sees why.
//!
//! # Errors
//! [`ReconcileError`] says what failed. The report says what was written all the same.

mod apply;
mod ask;
mod children;
mod parent;
mod prepare;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::selection::FinalizerChange;
use crate::children::Op;
use crate::children::claims::ClaimedObject;
use crate::children::deletion_reason::DeletionReason;
use crate::children::write_history::Drift;
use crate::hash::Fingerprint;
use crate::object::Object;
use crate::object::id::{Key, ObjectId};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::outcome::{Changed, Retry, RetryState};
use crate::reconcile::plan::ReconcilePlan;
use crate::reconcile::ports::{World, WriteAnswer, WriteError};
#[cfg(doc)]
use crate::reconcile::{input::ReconcileInput, pause, phase};
use crate::settled::SettledState;
pub use prepare::ClaimedChildren;

/// A name that was taken may be free after this time: the object that has it is another owner's, and may go at any time.
/// See <https://github.com/GoogleCloudPlatform/metacontroller/issues/194>.
pub const TAKEN_RETRY_DELAY: Duration = Duration::from_mins(10);

/// State of a parent before a reconcile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    pub retry_state: RetryState,
    /// An attempt before, which found no memory, has written finalizers or claims.
    pub wrote_before_plan: bool,
}

/// Effects of a reconcile, and how far it came.
#[derive(Debug)]
pub struct ReconcileReport {
    pub result: Result<Changed, ReconcileError>,
    pub reached: Reached,
    /// Finalizers or claims were written before there was a plan.
    pub wrote_before_plan: bool,
    /// A write was accepted, also one without effect.
    pub accepted: bool,
    /// The delay that the hook asked for, or that the reconcile needs.
    pub resync_after: Option<Duration>,
    /// The hook read the clock.
    pub reads_clock: bool,
    /// Drift that another client keeps causing, and that is left alone for a while.
    pub flapping: Vec<Drift>,
}

/// How far a reconcile came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It failed before there was a plan.
    Preparation,
    /// The controller does not select the parent.
    Ignored,
    /// The parent or the controller is paused.
    Paused,
    /// Nothing changed since the parent settled.
    Settled,
    /// Something was written before a plan could be made.
    WroteBeforePlan,
    /// There was a plan.
    Plan,
}

/// Effect of writing on the cluster; the strongest of several counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WriteEffect {
    /// There was nothing to write.
    #[default]
    Nothing,
    /// The API server accepted the write and kept its object as it was, as it does with unknown fields.
    NoEffect,
    /// The name of an attachment is taken, so it was not made; the next reconcile after [`TAKEN_RETRY_DELAY`] tries again.
    NameTaken,
    Changed,
    /// The parent is gone: nothing else is done for it.
    ParentGone,
}

/// A reconcile that is planned.
#[derive(Debug)]
pub struct Planned {
    /// The parent as the hook was shown it.
    pub parent: Arc<Object>,
    pub plan: ReconcilePlan,
    /// The state that the parent settles in, if nothing is written.
    pub state: SettledState,
    /// Whether the answers depend on the requests alone; `None`: unknown.
    pub pure: Option<bool>,
    /// Owner references that could not be renewed.
    pub unrenewed: Vec<ReconcileError>,
    /// The versions of all hooks.
    pub version: Fingerprint,
    /// The hook that decided.
    pub hook: HookName,
}

/// One reconcile under way.
struct Sequence<'w, W> {
    world: &'w W,
    retry_state: RetryState,
    accepted: AtomicBool,
}

/// Reconciles one parent.
pub async fn reconcile<W: World>(world: &W, parent: Arc<Object>, start: Start) -> ReconcileReport {
    let sequence = Sequence::new(world, start.retry_state);
    let mut report = ReconcileReport::new(Ok(Changed::Nothing), start);
    report.result = sequence.run(parent, &mut report).await;
    report.accepted |= sequence.accepted.load(Ordering::Relaxed);
    report
}

/// The second half of a reconcile alone, for tests of the writes of a world.
pub async fn carry_out<W: World>(world: &W, planned: Planned, start: Start) -> ReconcileReport {
    let sequence = Sequence::new(world, start.retry_state);
    let mut report = ReconcileReport::new(Ok(Changed::Nothing), start);
    report.result = sequence.carry_out(planned, &mut report).await;
    report.accepted |= sequence.accepted.load(Ordering::Relaxed);
    report
}

/// The claims of a reconcile alone, for tests of the writes of a world.
///
/// # Errors
/// At least one of them was not carried out, and the plan has to wait for it.
pub async fn claim<W: World>(
    world: &W,
    parent: &Object,
    claims: &[ClaimedObject],
) -> Result<ClaimedChildren, ReconcileError> {
    Sequence::new(world, RetryState::default()).claim(parent, claims).await
}

impl ReconcileReport {
    fn new(result: Result<Changed, ReconcileError>, start: Start) -> Self {
        Self {
            result,
            reached: Reached::Preparation,
            wrote_before_plan: start.wrote_before_plan,
            accepted: start.wrote_before_plan,
            resync_after: None,
            reads_clock: false,
            flapping: Vec::new(),
        }
    }

    /// A reconcile that failed before it began.
    pub fn failed(error: ReconcileError, start: Start) -> Self {
        Self::new(Err(error), start)
    }
}

impl WriteEffect {
    fn of(answer: &WriteAnswer) -> Self {
        if answer.changed { Self::Changed } else { Self::NoEffect }
    }
}

impl<'w, W: World> Sequence<'w, W> {
    fn new(world: &'w W, retry_state: RetryState) -> Self {
        Self { world, retry_state, accepted: AtomicBool::new(false) }
    }

    async fn run(
        &self,
        parent: Arc<Object>,
        report: &mut ReconcileReport,
    ) -> Result<Changed, ReconcileError> {
        let (key, id) = (parent.key.clone(), self.world.parent_id(&parent));
        let planned = match self.prepare(parent, report).await? {
            ControlFlow::Continue(planned) => planned,
            ControlFlow::Break(reached) => {
                report.reached = reached;
                match reached {
                    Reached::Settled => {}
                    Reached::Paused => self.pause(&key, &id),
                    _ => self.world.settled(|settled| settled.unsettle(&key)),
                }
                return Ok(match reached {
                    Reached::WroteBeforePlan => Changed::Something,
                    _ => Changed::Nothing,
                });
            }
        };
        self.carry_out(planned, report).await
    }

    async fn carry_out(
        &self,
        mut planned: Planned,
        report: &mut ReconcileReport,
    ) -> Result<Changed, ReconcileError> {
        report.reached = Reached::Plan;
        report.resync_after = planned.plan.resync_after;
        report.reads_clock = planned.pure == Some(false);
        let applied = self.apply(&planned, report.wrote_before_plan).await;
        report.flapping = std::mem::take(&mut planned.plan.children.flapping);
        let unrenewed = std::mem::take(&mut planned.unrenewed);
        let effect = match applied {
            Ok(effect) => ReconcileError::of_all("claims", unrenewed).map_or(Ok(effect), Err),
            // One that is not told has its own delay, or is tried again at once.
            Err(error) if unrenewed.is_empty() || error.failure().retry != Retry::WithEvent => Err(error),
            Err(error) => {
                let all = std::iter::once(error).chain(unrenewed).collect();
                ReconcileError::of_all("objects", all).map_or(Ok(WriteEffect::Nothing), Err)
            }
        }?;
        if effect == WriteEffect::NameTaken {
            report.resync_after =
                Some(report.resync_after.map_or(TAKEN_RETRY_DELAY, |it| it.min(TAKEN_RETRY_DELAY)));
        }
        self.settle(&planned, effect);
        Ok(self.changed(&planned, effect))
    }

    async fn write(&self, op: &Op) -> Result<WriteAnswer, WriteError> {
        self.write_for(op, None).await
    }

    async fn write_for(&self, op: &Op, reason: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        let answer = self.world.write(op, reason).await?;
        self.accept();
        Ok(answer)
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, ReconcileError> {
        let now = self.world.change_finalizers(parent, change).await.map_err(ReconcileError::Finalizer)?;
        self.accept();
        Ok(now)
    }

    /// Takes the controller's finalizer off; gives back the parent, `None` where it is gone.
    async fn drop_finalizer(&self, parent: &Object) -> Result<Option<Arc<Object>>, ReconcileError> {
        let finalizer = &self.world.config().selection.finalizer;
        let is_ours = |one: &str| one == finalizer;
        self.change_finalizers(parent, FinalizerChange::Remove(&is_ours)).await
    }

    fn accept(&self) {
        self.accepted.store(true, Ordering::Relaxed);
    }

    /// Remembers that the parent is paused. The versions of a paused controller are not compared.
    fn pause(&self, key: &Key, id: &ObjectId) {
        self.world.settled(|settled| settled.pause(key));
        if !self.world.config().paused {
            self.world.brake(|brake, _| brake.pause(id));
        }
    }

    /// Remembers for the next reconcile of the parent that this one went well.
    fn settle(&self, planned: &Planned, effect: WriteEffect) {
        let Planned { parent, plan, state, pure, version, .. } = planned;
        let key = &parent.key;
        self.world.settled(|settled| match effect {
            // A drift that is corrected later keeps the parent from settling.
            WriteEffect::Nothing if plan.children.again.is_none() => match pure {
                Some(true) => settled.settle(key, *state),
                Some(false) => settled.unsettle(key),
                None => settled.settle_without_state(key),
            },
            _ => settled.unsettle(key),
        });
        let (id, has_settled) = (self.world.parent_id(parent), plan.children.ops.is_empty());
        self.world.brake(|brake, now| brake.reconciled(&id, *version, has_settled, now));
    }

    fn changed(&self, planned: &Planned, effect: WriteEffect) -> Changed {
        // A write without effect teaches how the API server changes a value: a rollout may go on by that, once.
        let learned = self.world.config().kind.rolling().is_some() && !self.retry_state.self_triggered;
        match effect {
            WriteEffect::Nothing | WriteEffect::NameTaken => Changed::Nothing,
            WriteEffect::NoEffect if !learned => Changed::Nothing,
            _ if planned.plan.rollout.moves => Changed::RolloutStep,
            WriteEffect::NoEffect | WriteEffect::Changed | WriteEffect::ParentGone => Changed::Something,
        }
    }
}
