//! The steps of one reconcile, with their reasons, as `metahook explain` shows them.

pub mod recent;
pub mod settled;
pub mod spans;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hook::Usage;
use crate::object::Object;
use crate::object::id::{Key, ObjectId, Resource};
use crate::reconcile::outcome::{Changed, Failure, Retry, StatusLeft};
use crate::reconcile::steps::{Decisions, Step, StepTime, TimedStep, WriteEnd};
use crate::reconcile::trigger::ReconcileCause;
use crate::shorten_middle;
use settled::SettledTriggers;

/// Steps, and decisions of a plan, that a trace shows.
const MAX_SHOWN: usize = 100;

/// Bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// What the server answers about an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// That of the server.
    pub version: String,
    /// The latest one first.
    pub reconciles: Vec<ReconcileTrace>,
    /// Parents whose reconciles are not shown: the user may not get them, or there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden_parents: usize,
}

/// One reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileTrace {
    /// Its kind and name.
    pub controller: String,
    pub parent: TracedObject,
    pub generation: i64,
    pub resource_version: String,
    /// When it began, in RFC 3339.
    pub began: String,
    pub took_us: u64,
    pub cause: String,
    /// Paths of the fields that changed, of the object that the cause names or of the parent; `…` at the end: there are more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_fields: Vec<String>,
    pub steps: Vec<TracedStep>,
    /// Steps that found no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    pub end: TraceEnd,
    /// The delay after which the next reconcile comes, where one was asked for or a failure is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_us: Option<u64>,
    /// The delay until the controller's next resync begins, where nothing else was left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_resync_us: Option<u64>,
    /// Triggers after it that changed nothing, where it is the latest trace of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledTriggers>,
}

/// An object that a trace names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedObject {
    pub group: String,
    /// The plural.
    pub resource: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "step")]
pub enum TracedStep {
    /// The finalizers of the parent were changed.
    Finalizers,
    /// A child that was known by its metadata alone was read.
    Read { object: TracedObject },
    /// The child was adopted, or released, or its owner reference renewed.
    Claimed { verb: String, object: TracedObject },
    /// Related objects were looked up, by an answer of the customize hook.
    Related {
        /// The hook was not called: the answer was given to an earlier reconcile.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        earlier: bool,
        took_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        rules: usize,
        objects: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A hook was called about the parent, or about an older state of it.
    Called {
        hook: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        older: bool,
        took_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// What is to be done about the children.
    Planned {
        writes: Vec<PlannedWrite>,
        left: Vec<LeftChild>,
        unchanged: usize,
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: usize,
    },
    /// The number of deletions was recorded.
    RecordedDeletions,
    /// A write was tried by a dry run.
    Tried { object: TracedObject },
    /// An object was written, or not.
    Wrote {
        verb: String,
        object: TracedObject,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        end: TracedWriteEnd,
    },
    /// The status of the parent was not written.
    StatusLeft { why: StatusLeft },
    /// A related object was deleted; false where it was gone.
    DeletedRelated { object: TracedObject, deleted: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWrite {
    pub verb: String,
    pub object: TracedObject,
    /// Places whose drift is corrected, the first ones of many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<String>,
}

/// A child that is left although it is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftChild {
    pub object: TracedObject,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TracedWriteEnd {
    Changed,
    /// The API server kept the object as it was.
    NoEffect,
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TraceEnd {
    Unchanged,
    Wrote,
    /// The parent or the controller is paused.
    Paused,
    /// It is repeated by itself: another client was faster, or something is waited for.
    Again(String),
    Failed(String),
}

/// What is known of a reconcile beside its steps.
#[derive(Debug)]
pub struct Reconciled<'a> {
    /// Its kind and name.
    pub controller: &'a str,
    pub resource: &'a Resource,
    pub parent: &'a Object,
    pub began: String,
    pub took: Duration,
    pub cause: ReconcileCause,
    pub end: TraceEnd,
    pub next: Option<Duration>,
    pub next_resync: Option<Duration>,
}

impl ReconcileTrace {
    /// With the time of each of its steps. `left_out`: steps that were not kept.
    pub fn new(reconciled: Reconciled<'_>, steps: &[TimedStep], left_out: usize) -> (Self, Vec<StepTime>) {
        let Reconciled { controller, resource, parent, began, took, cause, end, .. } = reconciled;
        let mut room = MAX_SHOWN;
        let mut left_out = left_out;
        let (mut traced, mut times) = (Vec::new(), Vec::new());
        for timed in steps {
            let step = &timed.step;
            // What says why has room of its own.
            let has_room = if step.says_why() { traced.len() < 2 * MAX_SHOWN } else { room > 0 };
            let Some(one) = TracedStep::of(step, micros(timed.time.took())) else { continue };
            if !has_room {
                left_out += 1;
                continue;
            }
            room -= usize::from(!step.says_why());
            traced.push(one);
            times.push(timed.time);
        }
        let trace = Self {
            controller: controller.to_owned(),
            parent: TracedObject::new(resource, &parent.key),
            generation: parent.generation,
            resource_version: parent.version.as_str().to_owned(),
            began,
            took_us: micros(took),
            cause: message(&cause.text),
            changed_fields: cause.fields.into_paths(),
            steps: traced,
            left_out,
            end,
            next_us: reconciled.next.map(micros),
            next_resync_us: reconciled.next_resync.map(micros),
            settled: None,
        };
        (trace, times)
    }

    /// The cause with the fields that changed.
    pub fn whole_cause(&self) -> String {
        let Self { cause, changed_fields, .. } = self;
        if changed_fields.is_empty() {
            cause.clone()
        } else {
            format!("{cause} ({})", changed_fields.join(", "))
        }
    }

    /// Whether it is about this object: its parent, or one that it wrote or would not write.
    pub fn is_about(&self, object: &TracedObject) -> bool {
        let is = |one: &TracedObject| one.is(object);
        is(&self.parent) || self.steps.iter().any(|step| step.objects().any(is))
    }
}

impl TracedObject {
    pub fn new(resource: &Resource, key: &Key) -> Self {
        Self {
            group: resource.gvk.group.to_string(),
            resource: resource.plural.to_string(),
            kind: resource.gvk.kind.to_string(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        }
    }

    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    fn of(id: &ObjectId) -> Self {
        Self::new(&id.resource, &id.key)
    }

    /// Whether both are one object. The kind follows from the resource.
    pub fn is(&self, other: &Self) -> bool {
        (&self.group, &self.resource, &self.namespace, &self.name)
            == (&other.group, &other.resource, &other.namespace, &other.name)
    }
}

impl TracedStep {
    /// `None`: people learn nothing by it.
    fn of(step: &Step, took_us: u64) -> Option<Self> {
        Some(match step {
            Step::Related(looked) if looked.answers == 0 && looked.error.is_none() => return None,
            Step::Related(looked) => Self::Related {
                earlier: looked.answers > 0 && looked.earlier == looked.answers,
                took_us,
                usage: looked.usage,
                rules: looked.rules,
                objects: looked.objects,
                error: looked.error.clone(),
            },
            Step::Finalizers => Self::Finalizers,
            Step::Read(id) => Self::Read { object: TracedObject::of(id) },
            Step::Claimed(verb, id) => {
                Self::Claimed { verb: (*verb).to_owned(), object: TracedObject::of(id) }
            }
            Step::Asked { hook, is_older, usage, error } => Self::Called {
                hook: hook.to_string(),
                older: *is_older,
                took_us,
                usage: *usage,
                error: error.clone(),
            },
            Step::Planned(decisions) => Self::planned(decisions),
            Step::RecordedDeletions => Self::RecordedDeletions,
            Step::Tried(id) => Self::Tried { object: TracedObject::of(id) },
            Step::Wrote { verb, id, reason, end } => Self::Wrote {
                verb: (*verb).to_owned(),
                object: TracedObject::of(id),
                reason: reason.as_deref().map(message),
                end: TracedWriteEnd::of(end),
            },
            Step::StatusLeft(why) => Self::StatusLeft { why: *why },
            Step::DeletedRelated(id, deleted) => {
                Self::DeletedRelated { object: TracedObject::of(id), deleted: *deleted }
            }
        })
    }

    fn planned(decisions: &Decisions) -> Self {
        let Decisions { writes, drifts, left, unchanged, left_out } = decisions;
        let drift = |id: &ObjectId| {
            let found = drifts.iter().find(|(drifted, _)| drifted == id);
            found.map(|(_, places)| places.clone())
        };
        let write = |(verb, id): &(&'static str, ObjectId)| PlannedWrite {
            verb: (*verb).to_owned(),
            object: TracedObject::of(id),
            drift: drift(id).unwrap_or_default(),
        };
        let more = |all: usize| all.saturating_sub(MAX_SHOWN);
        Self::Planned {
            writes: writes.iter().take(MAX_SHOWN).map(write).collect(),
            left: left
                .iter()
                .take(MAX_SHOWN)
                .map(|(id, why)| LeftChild { object: TracedObject::of(id), why: message(why) })
                .collect(),
            unchanged: *unchanged,
            left_out: left_out + more(writes.len()) + more(left.len()),
        }
    }

    /// The objects that it names.
    fn objects(&self) -> impl Iterator<Item = &TracedObject> {
        let (one, writes, left): (_, &[PlannedWrite], &[LeftChild]) = match self {
            Self::Read { object }
            | Self::Claimed { object, .. }
            | Self::Tried { object }
            | Self::Wrote { object, .. }
            | Self::DeletedRelated { object, .. } => (Some(object), &[], &[]),
            Self::Planned { writes, left, .. } => (None, writes, left),
            Self::Finalizers
            | Self::Related { .. }
            | Self::Called { .. }
            | Self::RecordedDeletions
            | Self::StatusLeft { .. } => (None, &[], &[]),
        };
        let (writes, left) = (writes.iter().map(|it| &it.object), left.iter().map(|it| &it.object));
        one.into_iter().chain(writes).chain(left)
    }
}

impl TracedWriteEnd {
    fn of(end: &WriteEnd) -> Self {
        match end {
            WriteEnd::Changed => Self::Changed,
            WriteEnd::NoEffect => Self::NoEffect,
            WriteEnd::Failed(error) => Self::Failed(error.clone()),
        }
    }
}

impl TraceEnd {
    pub fn of(result: &Result<Changed, Failure>) -> Self {
        match result {
            Ok(Changed::Nothing) => Self::Unchanged,
            Ok(Changed::Something | Changed::RolloutStep) => Self::Wrote,
            Err(Failure { retry: Retry::WithEvent, message: text, .. }) => Self::Failed(message(text)),
            Err(Failure { message: text, .. }) => Self::Again(message(text)),
        }
    }
}

fn message(text: &str) -> String {
    shorten_middle(text, MAX_MESSAGE)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
