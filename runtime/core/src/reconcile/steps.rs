//! Steps of a reconcile, as a watched world keeps them.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use crate::api::hook::HookName;
use crate::children::Skip;
use crate::children::write_history::Drift;
use crate::decorator::conflicts::Resolution;
use crate::hash::Fingerprint;
use crate::hook::Usage;
use crate::json::places::FirstChanges;
use crate::object::id::{ObjectId, Uid};
use crate::reconcile::config::RelatedLimits;
use crate::reconcile::outcome::StatusLeft;
use crate::reconcile::plan::ReconcilePlan;
use crate::reconcile::ports::{FoundObjects, PortError};
use crate::related::found::FoundByRule;
use crate::{error_chain, shorten_middle};

/// Steps, and decisions of a plan, that are kept: a parent may have ten thousand children.
pub(super) const MAX_STEPS: usize = 1000;

/// Children of a plan that is held that are named.
const MAX_HELD: usize = 10;

/// Conflicts between decorators that are named.
const MAX_CONFLICTS: usize = 10;

/// Bytes of an error.
const MAX_ERROR: usize = 1024;

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
    Asked { hook: HookName, is_older: bool, usage: Option<Usage>, error: Option<String> },
    /// The plan was made, and nothing of it is carried out.
    Planned(Decisions),
    /// The plan deletes children, and the deletion brake holds it: nothing of it is written.
    Held(HeldPlan),
    /// The number of deletions was recorded.
    RecordedDeletions,
    /// A write was tried by a dry run.
    Tried(ObjectId),
    /// An operation was carried out.
    Wrote {
        verb: &'static str,
        id: ObjectId,
        reason: Option<String>,
        /// Warnings of the API server.
        warnings: Vec<String>,
        end: WriteEnd,
    },
    /// The status of the parent was not written.
    StatusLeft(StatusLeft),
    /// Fields of a decorated object were left to other DecoratorControllers.
    LeftFields(LeftFields),
    /// A related object was deleted; false where it was gone.
    DeletedRelated(ObjectId, bool),
}

/// A step, and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedStep {
    pub step: Step,
    pub time: StepTime,
}

/// When a step began and ended, by the clock of its world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    pub began: Duration,
    pub ended: Duration,
}

/// Result of a look-up of related objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// Answers of the customize hook; none where the controller has no such hook.
    pub answers: usize,
    /// Those that were given to earlier reconciles.
    pub earlier: usize,
    /// Usage of all calls together.
    pub usage: Option<Usage>,
    pub rules: usize,
    pub objects: usize,
    /// The first rules about the present state of the parent.
    pub found: Vec<FoundByRule>,
    pub limits: RelatedLimits,
    pub error: Option<String>,
}

/// A plan that the deletion brake holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPlan {
    /// Children that it deletes.
    pub children: usize,
    /// The first ones.
    pub first: Vec<ObjectId>,
    /// The digest of the hooks and the spec that ask for it.
    pub version: String,
}

/// Fields of a decorated object that another DecoratorController has, or may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftFields {
    /// The first ones, with the controllers.
    pub conflicts: Vec<String>,
    pub more: usize,
    /// Some fields wait until older controllers have reconciled the object.
    pub waits: bool,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteEnd {
    Changed,
    /// The API server kept the object as it was.
    NoEffect,
    Failed(String),
}

/// Decisions of a plan about each child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Children that are written, by the verb.
    pub writes: Vec<(&'static str, ObjectId)>,
    /// Corrections of drift, by the child.
    pub drifts: Vec<(ObjectId, FirstChanges)>,
    /// Other changes by a write, by the child.
    pub changes: Vec<(ObjectId, FirstChanges)>,
    /// Children that are left although they are not as wanted, and why.
    pub left: Vec<(ObjectId, String)>,
    /// Children that are as wanted.
    pub unchanged: usize,
    /// Decisions that found no room.
    pub left_out: usize,
}

impl StepTime {
    pub fn took(self) -> Duration {
        self.ended.saturating_sub(self.began)
    }
}

impl Looked {
    pub(super) fn new(found: &Result<FoundObjects, PortError>, limits: RelatedLimits) -> Self {
        let FoundObjects { related, customized } = match found {
            Ok(found) => found,
            Err(error) => return Self { error: Some(message(error)), ..Self::default() },
        };
        let usage = customized.iter().filter_map(|one| one.usage).reduce(|all, one| Usage {
            instructions: all.instructions + one.instructions,
            memory: all.memory.max(one.memory),
        });
        Self {
            answers: customized.len(),
            earlier: customized.iter().filter(|one| one.is_earlier).count(),
            usage,
            rules: customized.iter().map(|one| one.answer.rules.len()).sum(),
            objects: related.iter().map(|one| one.objects.objects().count()).sum(),
            found: related.first().map(|one| one.found.clone()).unwrap_or_default(),
            limits,
            error: None,
        }
    }
}

impl Step {
    /// Whether it says why things went as they did. There are few of these in most reconciles.
    pub fn says_why(&self) -> bool {
        match self {
            Self::Asked { is_older, error, .. } => !is_older || error.is_some(),
            Self::Planned(_) | Self::Held(_) | Self::Wrote { end: WriteEnd::Failed(_), .. } => true,
            _ => false,
        }
    }
}

impl LeftFields {
    /// `None`: nothing is left.
    pub(super) fn of(resolution: &Resolution) -> Option<Self> {
        let Resolution { conflicts, waits, .. } = resolution;
        let first: Vec<_> = conflicts.iter().take(MAX_CONFLICTS).map(|conflict| message(conflict)).collect();
        let more = conflicts.len() - first.len();
        (*waits || !first.is_empty()).then_some(Self { conflicts: first, more, waits: *waits })
    }
}

impl HeldPlan {
    pub(super) fn of(children: &[(&ObjectId, &Uid)], version: Fingerprint) -> Self {
        let first = children.iter().take(MAX_HELD).map(|(id, _)| (*id).clone()).collect();
        Self { children: children.len(), first, version: version.to_string() }
    }
}

impl Decisions {
    pub(super) fn of(whole: &ReconcilePlan) -> Self {
        let (plan, waiting) = (&whole.children, WaitingChildren::of(whole));
        let not_as_wanted = || plan.skips.iter().filter(|(_, skip)| *skip != Skip::Unchanged);
        let left = not_as_wanted().map(|(id, skip)| (id.clone(), skip.to_string()));
        let turns = waiting.children.iter().map(|&id| (id.clone(), waiting.why.clone()));
        let problems = plan.problems.iter().map(|(id, problem)| (id.clone(), problem.to_string()));
        let changes = |drift: &Drift| FirstChanges::of(&drift.values, drift.id.resource.is_secret());
        let drifts = plan.drifts.iter().map(|drift| (drift.id.clone(), changes(drift)));
        let kept = |all: usize| all.saturating_sub(MAX_STEPS);
        let left_children = not_as_wanted().count() + plan.problems.len() + waiting.children.len();
        Self {
            writes: plan.ops.iter().take(MAX_STEPS).map(|op| (op.verb(), op.id().clone())).collect(),
            drifts: drifts.take(MAX_STEPS).collect(),
            changes: plan.changes.clone(),
            left: left.chain(problems).chain(turns).take(MAX_STEPS).collect(),
            unchanged: plan.skips.len() - not_as_wanted().count() - waiting.unchanged,
            left_out: kept(plan.ops.len()) + kept(left_children),
        }
    }
}

/// Children of a rolling update that are not at the latest revision, and are left for no other reason.
#[derive(Default)]
struct WaitingChildren<'a> {
    children: BTreeSet<&'a ObjectId>,
    /// Those that are as their older revision wants them.
    unchanged: usize,
    why: String,
}

impl<'a> WaitingChildren<'a> {
    fn of(plan: &'a ReconcilePlan) -> Self {
        let Some(rollout) = &plan.rollout.wait else { return Self::default() };
        let mut children: BTreeSet<_> = rollout.children.iter().collect();
        let mut unchanged = 0;
        for (id, skip) in &plan.children.skips {
            match skip {
                Skip::Unchanged => unchanged += usize::from(children.contains(id)),
                _ => drop(children.remove(id)),
            }
        }
        Self { children, unchanged, why: rollout.why.clone() }
    }
}

/// An error as a step keeps it.
pub(super) fn message(error: &dyn Error) -> String {
    shorten_middle(&error_chain(error), MAX_ERROR)
}
