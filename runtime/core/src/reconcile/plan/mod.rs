//! Plan of a reconcile: all that follows from its input and from the hook's answers.
//!
//! CompositeControllers and DecoratorControllers share all of it; their differences are [`KindConfig`]: the words of requests
//! and answers, the claims on children, and the mark on each child. An error in an answer (JSON, types, undeclared kinds, names
//! twice, labels that do not match) refuses all of it before the first write.

#[cfg(test)]
mod tests;

use std::mem;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::hook::HookName;
use crate::children::desired::{Desired, DesiredError, HeldChildren, UnmanagedChild, Wanted, desired};
use crate::children::plan::{is_as_wanted, to_read};
use crate::children::write_history::PastWrites;
use crate::children::{self, Op, Owner, Plan};
use crate::decorator::Decoration;
use crate::hook::read::ReadOptions;
use crate::hook::response::{self, HookEvent, Response};
use crate::hook::{AnswerWarning, ResponseError};
use crate::json::size::tree_size;
use crate::object::id::{ObjectId, Uid};
use crate::object::{ChildMap, Object};
use crate::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use crate::reconcile::input::ReconcileInput;
use crate::reconcile::manages_children;
use crate::reconcile::rollout::RolloutState;
use crate::related::deletion::{self, DeletionError, ShownObjects};
use crate::rollout::revisions::{History, RevisionError};
use crate::rollout::step::{self, Progress, RevisionChildren, Step, StepInput};
use crate::rollout::{Claims, record};

/// All that a reconcile does, once its claims are carried out.
#[derive(Debug, Default)]
pub struct ReconcilePlan {
    pub rollout: RolloutPlan,
    pub children: Plan,
    /// The desired children that `children` is made from.
    pub desired: Desired,
    pub unwritten: UnwrittenChildren,
    /// The decoration of the parent itself; for a CompositeController's parent only its status.
    pub decoration: Decoration,
    pub resync_after: Option<Duration>,
    /// Deletions of related objects: they come last, since they cannot be undone.
    pub deletions: Vec<Op>,
    /// The controller's finalizer comes off, before anything else. Not in a reconcile that deletes: the hook is asked
    /// again until nothing is left to delete.
    pub finalized: bool,
    pub feedback: HookFeedback,
}

/// The part of a plan that a rolling update adds.
#[derive(Debug, Default)]
pub struct RolloutPlan {
    /// Writes of revisions: they come before those of children, and where one fails no child is written.
    pub revisions: Vec<Op>,
    /// A child of a rolling update moves to the latest revision.
    pub moves: bool,
    pub wait: Option<RolloutWait>,
}

/// Children of an answer that the operations of the plan leave out.
#[derive(Debug, Default)]
pub struct UnwrittenChildren {
    pub unmanaged: Vec<UnmanagedChild>,
    /// Observed children that the answer names in another version or without a namespace: no operation deletes them.
    pub held: HeldChildren,
    /// Children that cannot be written; the others are, and the reconcile fails at its end.
    pub failed: Vec<DesiredError>,
}

/// Children of a rolling update that are at older revisions until it is their turn.
#[derive(Debug, PartialEq, Eq)]
pub struct RolloutWait {
    pub children: Claims,
    /// The child that moves now, or that the rollout waits for and what it lacks.
    pub why: String,
    pub progress: Progress,
}

/// The parts of an answer that only people read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HookFeedback {
    /// Events about the parent, by the hook.
    pub events: Vec<HookEvent>,
    pub warnings: Vec<AnswerWarning>,
    /// Message about what has no effect in a module's answer: webhooks answer with fields of their own.
    pub ignored: Option<String>,
    /// The number of children that are deleted because the answer has no list of children; 0 for a single child.
    pub missing_children: usize,
    /// Children are written without the annotations of the answer.
    pub without_annotations: Option<String>,
    /// Older revisions that the hook fails about, and how.
    pub left_out: Vec<(String, String)>,
}

/// A hook that fails about an older revision is asked again after this time.
pub(crate) const LEFT_OUT_INTERVAL: Duration = Duration::from_mins(1);

/// The answers to all requests of a reconcile.
#[derive(Debug, Clone, Copy)]
pub struct Answers<'a> {
    /// About the present state of the parent.
    pub latest: &'a [u8],
    /// About the older revisions, in their order. The children of one without an answer stay as they are until it is their
    /// turn to move: it may be forged, or the hook may no longer know such a state.
    pub older: &'a [Result<&'a [u8], String>],
}

/// An answer that is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error(transparent)]
    Desired(#[from] DesiredError),
    #[error(transparent)]
    Deletion(#[from] DeletionError),
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error("there is no memory to compare the children with the answer")]
    NoRoom,
}

/// An answer about an older revision: only these parts of it count.
struct OlderAnswer {
    desired: Desired,
    finalized: bool,
    resync_after: Option<Duration>,
}

impl ControllerConfig {
    /// The plan that follows from the hook's answers; `has_room`: asked for the memory of the children that have to be
    /// read.
    ///
    /// # Errors
    /// An error in the latest answer refuses all of them, or there is no room.
    pub fn plan(
        &self,
        input: &ReconcileInput,
        children: &ChildMap,
        answers: Answers<'_>,
        past: PastWrites<'_>,
        has_room: &dyn Fn(usize) -> bool,
    ) -> Result<ReconcilePlan, AnswerError> {
        let history = input.rollout.as_ref().map(RolloutState::history).transpose()?;
        let latest = self.read(input, answers.latest)?;
        let (older, left_out) = self.read_all_older(input, history, answers.older);
        let (parent, related) = (&input.parent, &input.related.objects);
        let shown =
            ShownObjects { parent, children, related, naming: self.hook(input.hook).version.naming() };
        let deletions = deletion::check(&latest.deletions, &self.deletions, shown)?;
        let read = || older.iter().flatten();
        let finalized = latest.finalized && read().all(|one| one.finalized);
        let again = (!left_out.is_empty()).then_some(LEFT_OUT_INTERVAL);
        let resyncs = read().filter_map(|one| one.resync_after).chain(latest.resync_after).chain(again);
        let mut plan = ReconcilePlan {
            resync_after: resyncs.min(),
            decoration: latest.decoration,
            finalized: finalized && deletions.is_empty(),
            deletions,
            feedback: HookFeedback { left_out, ..self.feedback(input.hook, latest.events, latest.warnings) },
            ..ReconcilePlan::default()
        };
        // The hook has not seen all children: those that it was shown go first, in as many rounds as it takes.
        let in_rounds = finalized && input.left_out.holds_up(&input.parent);
        let is_composite = matches!(self.kind, KindConfig::Composite { .. });
        // A decorator's attachments follow its last answer, too: its finalizer is off by then, but it was there.
        let is_off = finalized && is_composite && !in_rounds;
        if !manages_children(&input.parent, &self.selection, is_off) {
            return Ok(plan);
        }
        let (owner, mut wanted) = (self.owner(&input.parent), self.wanted(input, latest.children)?);
        plan.note_faults(&mut wanted);
        check_room(has_room, &to_read(owner, children, &wanted.desired, past))?;
        if in_rounds {
            plan.plan_round(owner, children, wanted.desired, past);
        } else if let Some((rollout, history)) = input.rollout.as_ref().zip(history) {
            let older: Vec<_> =
                older.into_iter().map(|one| one.map(|one| one.desired).unwrap_or_default()).collect();
            let claimed = history.older.iter().map(|revision| &revision.claims);
            let older: Vec<_> =
                claimed.zip(&older).map(|(claims, desired)| RevisionChildren { claims, desired }).collect();
            let step = StepInput {
                rolling: &rollout.config,
                observed: children,
                latest: RevisionChildren { claims: &history.latest.claims, desired: &wanted.desired },
                sequence: &wanted.sequence,
                older: &older,
                up_to_date: &|id, child, wanted| is_as_wanted(owner, id, child, wanted, past.history),
            };
            self.plan_rollout(&mut plan, input, history, &step, past);
        } else {
            plan.plan_children(owner, children, wanted.desired, past);
        }
        input.left_out.restrict(&mut plan.children);
        if in_rounds && is_composite {
            // As ever once a parent is finalized, what else the answer wants of its children does not count.
            plan.children.ops.retain(is_deletion);
        } else {
            (plan.unwritten.unmanaged, plan.unwritten.failed) = (wanted.unmanaged, wanted.failed);
        }
        plan.note_missing_children(latest.forgot_children);
        Ok(plan)
    }

    fn plan_rollout(
        &self,
        plan: &mut ReconcilePlan,
        input: &ReconcileInput,
        history: &History,
        step: &StepInput<'_>,
        past: PastWrites<'_>,
    ) {
        let owner = self.owner(&input.parent);
        let (rolling, observed) = (step.rolling, step.observed);
        let step = step.step();
        plan.add_rollout_step(input, history, &step);
        let generated = self.kind.generates_selector();
        plan.rollout.revisions = record::writes(rolling, owner, generated, history, &step.claims);
        let mut moving = observed.clone();
        step.held.iter().for_each(|id| moving.remove(id));
        plan.plan_children(owner, &moving, step.desired, past);
    }

    fn read(&self, input: &ReconcileInput, answer: &[u8]) -> Result<Response, ResponseError> {
        let hook = self.hook(input.hook);
        let (kind, max_children) = (self.kind.name(), self.max_children);
        let deletes = !self.deletions.is_empty();
        let HookConfig { via, mode, max_memory, .. } = *hook;
        response::sync(answer, ReadOptions { kind, via, mode, max_children, max_memory, deletes })
    }

    fn feedback(&self, hook: HookName, events: Vec<HookEvent>, warnings: Vec<AnswerWarning>) -> HookFeedback {
        let ignored = self.hook(hook).ignored(hook, &warnings);
        HookFeedback { events, warnings, ignored, ..HookFeedback::default() }
    }

    /// The answers about older revisions, and those revisions that the hook fails about.
    fn read_all_older(
        &self,
        input: &ReconcileInput,
        history: Option<&History>,
        answers: &[Result<&[u8], String>],
    ) -> (Vec<Option<OlderAnswer>>, Vec<(String, String)>) {
        let (mut read, mut left_out) = (Vec::new(), Vec::new());
        let revisions = history.into_iter().flat_map(|history| &history.older);
        for (revision, answer) in revisions.zip(answers) {
            let read_one = |answer: &[u8]| self.read_older(input, answer).map_err(|error| error.to_string());
            let one = answer.clone().and_then(read_one);
            read.push(one.map_err(|error| left_out.push((revision.name.clone(), error))).ok());
        }
        (read, left_out)
    }

    fn read_older(&self, input: &ReconcileInput, answer: &[u8]) -> Result<OlderAnswer, AnswerError> {
        let Response { children, finalized, resync_after, .. } = self.read(input, answer)?;
        Ok(OlderAnswer { desired: self.wanted(input, children)?.desired, finalized, resync_after })
    }

    fn wanted(
        &self,
        input: &ReconcileInput,
        children: Vec<Map<String, Value>>,
    ) -> Result<Wanted, DesiredError> {
        let options = self.desired_options(input.hook, input.selector.as_ref());
        desired(&input.parent, options, children)
    }
}

/// # Errors
/// There is no memory to read these children, each as the merge with what the answer wants.
fn check_room(has_room: &dyn Fn(usize) -> bool, children: &[&Object]) -> Result<(), AnswerError> {
    let trees = children.iter().map(|object| tree_size(object.json().as_bytes()));
    if has_room(trees.sum()) { Ok(()) } else { Err(AnswerError::NoRoom) }
}

fn without_annotations((why, count): (DesiredError, usize)) -> String {
    let others = match count {
        0 | 1 => String::new(),
        2 => ", and so is another".to_owned(),
        more => format!(", and so are {} others", more - 1),
    };
    format!("{why}: the child is written without any annotations of the answer{others}")
}

fn is_deletion(op: &Op) -> bool {
    matches!(op, Op::Delete { .. })
}

impl ReconcilePlan {
    /// The children that are not wanted any more. Those that are recreated are.
    pub fn unwanted_children(&self) -> Vec<(&ObjectId, &Uid)> {
        let ops = self.children.ops.iter();
        ops.filter_map(|op| if let Op::Delete { id, uid } = op { Some((id, uid)) } else { None }).collect()
    }

    fn note_faults(&mut self, wanted: &mut Wanted) {
        self.unwritten.held = mem::take(&mut wanted.held);
        self.feedback.without_annotations = wanted.without_annotations.take().map(without_annotations);
    }

    fn note_missing_children(&mut self, forgotten: bool) {
        if forgotten && self.children.ops.len() > 1 {
            self.feedback.missing_children = self.children.ops.len();
        }
    }

    fn plan_children(
        &mut self,
        owner: Owner<'_>,
        observed: &ChildMap,
        desired: Desired,
        past: PastWrites<'_>,
    ) {
        self.children = children::plan::children(owner, observed, &desired, past);
        self.unwritten.held.restrict(&mut self.children);
        self.desired = desired;
        self.resync_after = [self.resync_after, self.children.again].into_iter().flatten().min();
    }

    /// The parent goes once none of the children that the hook was shown is left to delete.
    fn plan_round(&mut self, owner: Owner<'_>, observed: &ChildMap, desired: Desired, past: PastWrites<'_>) {
        self.plan_children(owner, observed, desired, past);
        self.finalized &= !self.children.ops.iter().any(is_deletion);
    }

    /// Tells of the rollout in the parent's status.
    fn add_rollout_step(&mut self, input: &ReconcileInput, history: &History, step: &Step) {
        let condition = step.progress.condition(&input.parent.key.namespace, &history.latest.name);
        step::put_condition(self.decoration.status.get_or_insert_default(), condition);
        self.rollout.moves = matches!(step.progress, Progress::Moved(_));
        self.rollout.wait =
            step.progress.why_others_wait(&input.parent.key.namespace).map(|why| RolloutWait {
                children: step.claims.iter().skip(1).flatten().cloned().collect(),
                why,
                progress: step.progress.clone(),
            });
    }
}
