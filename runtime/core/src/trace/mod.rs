//! The steps of one reconcile, with their reasons, as `metahook explain` shows them.

pub mod recent;
pub mod repeated;
pub mod rules;
pub mod settled;
pub mod spans;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::object::Object;
use crate::object::id::{Key, ObjectId, Resource};
use crate::reconcile::outcome::{Changed, Failure, Retry};
use crate::reconcile::steps::{StepTime, TimedStep};
use crate::reconcile::trigger::ReconcileCause;
use crate::shorten_middle;
use repeated::Repeated;
use settled::SettledTriggers;
pub use steps::{LeftChild, PlannedWrite, TracedStep, TracedWriteEnd};

/// Steps, and decisions of a plan, that a trace shows.
const MAX_SHOWN: usize = 100;

/// Bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// A cause whose object the user may not list.
const RELATED_CHANGED: &str = "a related object changed";

/// Why a reconcile failed that could not delete related objects, where the user may not list them.
const RELATED_FAILED: &str = "the deletion of a related object failed";

/// Follows a text without the related object, where the server did not ask whether the user may see it.
const UNREVIEWED: &str = " (there are too many to ask whether you may see it)";

/// Namespaces of related objects that a trace tells apart for its end.
const MAX_REACHES: usize = 10;

/// The server's answer about an object.
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The related object that the cause names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_cause: Option<TracedObject>,
    pub steps: Vec<TracedStep>,
    /// Steps that found no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    pub end: TraceEnd,
    /// Kinds and namespaces of the related objects that the end may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_failure: Vec<TracedObject>,
    /// Why the next reconcile waits, where the parent is throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<String>,
    /// The delay after which the next reconcile comes: the hook asked for it, a failure is repeated, or the parent is throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_us: Option<u64>,
    /// The delay until the controller's next resync begins, where nothing else was left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_resync_us: Option<u64>,
    /// Triggers after it that changed nothing, where it is the latest trace of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledTriggers>,
    /// Reconciles before it in a row that were the same in all but their times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
}

/// An object that a trace names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedObject {
    pub group: Arc<str>,
    /// The plural.
    pub resource: Arc<str>,
    pub kind: Arc<str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TraceEnd {
    #[default]
    Unchanged,
    Wrote,
    /// The parent or the controller is paused.
    Paused,
    /// It is repeated by itself: another client was faster, or something is waited for.
    Again(String),
    Failed(String),
}

/// Why a related object, or more than the name of a child, is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// The user may not list or get such objects.
    Forbidden,
    /// There are too many kinds and namespaces to ask about all of them.
    Unreviewed,
}

/// Facts about a reconcile beside its steps.
#[derive(Debug)]
pub struct TraceInput<'a> {
    /// Its kind and name.
    pub controller: &'a str,
    pub resource: &'a Resource,
    pub parent: &'a Object,
    pub began: String,
    pub took: Duration,
    pub cause: ReconcileCause,
    pub end: TraceEnd,
    /// The related objects that the end may name.
    pub related_failure: Vec<ObjectId>,
    pub next: NextReconcile,
}

/// When the parent of a reconcile is reconciled again, as far as that is known at its end.
#[derive(Debug, Default)]
pub struct NextReconcile {
    /// The delay after which the next reconcile comes: the hook asked for it, a failure is repeated, or the parent is throttled.
    pub after: Option<Duration>,
    /// The delay until the controller's next resync begins, where nothing else was left to do.
    pub resync: Option<Duration>,
    /// Why the next reconcile waits, where the parent is throttled.
    pub throttled: Option<String>,
}

impl Explained {
    /// It shows no reconcile, and hides none.
    pub fn says_nothing(&self) -> bool {
        self.reconciles.is_empty() && self.hidden_parents == 0
    }
}

impl ReconcileTrace {
    /// With the time of each of its steps. `left_out`: steps that were not kept.
    pub fn new(input: TraceInput<'_>, steps: &[TimedStep], left_out: usize) -> (Self, Vec<StepTime>) {
        let TraceInput { controller, resource, parent, began, took, cause, end, related_failure, next } =
            input;
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
            related_cause: cause.related.as_deref().map(TracedObject::of),
            steps: traced,
            left_out,
            end,
            related_failure: reaches(&related_failure),
            throttled: next.throttled.as_deref().map(message),
            next_us: next.after.map(micros),
            next_resync_us: next.resync.map(micros),
            settled: None,
            repeated: None,
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

    /// Leaves out the name of the related object that caused it, and its fields.
    pub fn hide_cause(&mut self, why: Hidden) {
        if self.related_cause.take().is_some() {
            self.cause = why.text_for(RELATED_CHANGED);
            self.changed_fields.clear();
        }
    }

    /// Leaves out why it failed, where that may name related objects.
    pub fn hide_end(&mut self, hidden: Hidden) {
        if std::mem::take(&mut self.related_failure).is_empty() {
            return;
        }
        if let TraceEnd::Again(why) | TraceEnd::Failed(why) = &mut self.end {
            *why = hidden.text_for(RELATED_FAILED);
        }
    }

    /// Objects of which it says more than the name and the verb.
    pub fn detailed(&self) -> impl Iterator<Item = &TracedObject> {
        self.steps.iter().flat_map(TracedStep::detailed)
    }

    /// Leaves out all but the names and the verbs of such objects. `hidden`: why.
    pub fn hide_details(&mut self, hidden: impl Fn(&TracedObject) -> Option<Hidden>) {
        let detailed: Vec<_> = self.detailed().filter(|object| hidden(object).is_some()).cloned().collect();
        for step in &mut self.steps {
            // Also of a write whose fields the plan alone names, so that it says that there is more.
            step.hide_details(|object| hidden(object).filter(|_| detailed.contains(object)));
        }
    }

    /// Why it failed or is put off, for those who may list no related objects.
    pub fn public_reason(&self) -> Option<&str> {
        let (TraceEnd::Again(why) | TraceEnd::Failed(why)) = &self.end else { return None };
        Some(if self.related_failure.is_empty() { why } else { RELATED_FAILED })
    }

    /// Whether it is about this object: its parent, or one that it wrote or would not write.
    pub fn is_about(&self, object: &TracedObject) -> bool {
        let is = |one: &TracedObject| one.is(object);
        is(&self.parent) || self.steps.iter().any(|step| step.objects().any(is))
    }
}

impl Hidden {
    /// The text that stands for what is hidden.
    fn text_for(self, text: &str) -> String {
        let remark = if self == Self::Unreviewed { UNREVIEWED } else { "" };
        format!("{text}{remark}")
    }
}

impl TracedObject {
    pub fn new(resource: &Resource, key: &Key) -> Self {
        Self {
            group: Arc::clone(&resource.gvk.group),
            resource: Arc::clone(&resource.plural),
            kind: Arc::clone(&resource.gvk.kind),
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
        }
    }

    pub fn key(&self) -> Key {
        Key { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// All objects of its kind in its namespace: they have no name.
    #[must_use]
    pub fn reach(&self) -> Self {
        Self { name: Arc::default(), ..self.clone() }
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

/// Kinds and namespaces of objects, each once; where there are many, the kinds in all namespaces.
fn reaches(objects: &[ObjectId]) -> Vec<TracedObject> {
    let each_once = |all: Vec<TracedObject>| {
        let mut found = Vec::<TracedObject>::new();
        for reach in all {
            if !found.iter().any(|other| other.is(&reach)) {
                found.push(reach);
            }
        }
        found
    };
    let all = each_once(objects.iter().map(|id| TracedObject::of(id).reach()).collect());
    if all.len() <= MAX_REACHES {
        return all;
    }
    each_once(all.into_iter().map(|reach| TracedObject { namespace: Arc::default(), ..reach }).collect())
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
