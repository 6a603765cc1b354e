//! Steps of a trace.

use serde::{Deserialize, Serialize};

use super::rules::TracedRule;
use super::{Hidden, MAX_SHOWN, TracedObject, is_zero, message};
use crate::hook::Usage;
use crate::json::places::{ChangedValue, FirstChanges};
use crate::object::id::ObjectId;
use crate::reconcile::outcome::StatusLeft;
use crate::reconcile::steps::{Decisions, HeldPlan, LeftFields, Step, WriteEnd};

/// Stands for what a trace says of an object that the user may not get.
const NO_DETAILS: &str = "you may not get it, so no more is shown";

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
        /// The first rules, and what each finds.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        found: Vec<TracedRule>,
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
    /// The plan for the children was made.
    Planned {
        writes: Vec<PlannedWrite>,
        left: Vec<LeftChild>,
        unchanged: usize,
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: usize,
    },
    /// The plan deletes children, and the deletion brake holds it: nothing of it is written.
    Held {
        children: usize,
        /// The first ones.
        objects: Vec<TracedObject>,
        /// The digest of the hooks and the spec that ask for it.
        version: String,
    },
    /// The number of deletions was recorded.
    RecordedDeletions,
    /// A write was tried by a dry run.
    Tried { object: TracedObject },
    /// An object was written, or not.
    Wrote {
        verb: String,
        object: TracedObject,
        #[serde(default)]
        took_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Warnings of the API server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        end: TracedWriteEnd,
    },
    /// The status of the parent was not written.
    StatusLeft { why: StatusLeft },
    /// Fields of a decorated object were left to other DecoratorControllers.
    LeftFields {
        /// The first ones, with the controllers.
        conflicts: Vec<String>,
        #[serde(default, skip_serializing_if = "is_zero")]
        more: usize,
        /// Some fields wait until older controllers have reconciled the object.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// A related object was deleted; false where it was gone.
    DeletedRelated {
        /// Absent where the user who asks may not list such objects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<TracedObject>,
        deleted: bool,
    },
    /// A step of a newer server.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWrite {
    pub verb: String,
    pub object: TracedObject,
    /// Places whose drift is corrected, the first ones of many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<String>,
    /// Places that the write changes, of a child whose answer is another one; the first ones of many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// What stands at these places before and after the write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ChangedValue>,
}

/// A child that is left although it is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftChild {
    pub object: TracedObject,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TracedWriteEnd {
    Changed,
    /// The API server kept the object as it was.
    NoEffect,
    Failed(String),
}

impl TracedStep {
    /// `None`: people learn nothing by it.
    pub(super) fn of(step: &Step, took_us: u64) -> Option<Self> {
        Some(match step {
            Step::Related(looked) if looked.answers == 0 && looked.error.is_none() => return None,
            Step::Related(looked) => Self::Related {
                earlier: looked.answers > 0 && looked.earlier == looked.answers,
                took_us,
                usage: looked.usage,
                rules: looked.rules,
                objects: looked.objects,
                found: TracedRule::all(looked),
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
            Step::Held(HeldPlan { children, first, version }) => Self::Held {
                children: *children,
                objects: first.iter().map(TracedObject::of).collect(),
                version: version.clone(),
            },
            Step::RecordedDeletions => Self::RecordedDeletions,
            Step::Tried(id) => Self::Tried { object: TracedObject::of(id) },
            Step::Wrote { verb, id, reason, warnings, end } => Self::Wrote {
                verb: (*verb).to_owned(),
                object: TracedObject::of(id),
                took_us,
                reason: reason.as_deref().map(message),
                warnings: warnings.iter().map(|warning| message(warning)).collect(),
                end: TracedWriteEnd::of(end),
            },
            Step::StatusLeft(why) => Self::StatusLeft { why: *why },
            Step::LeftFields(left) => {
                let LeftFields { conflicts, more, waits } = left.clone();
                let conflicts = conflicts.iter().map(|conflict| message(conflict)).collect();
                Self::LeftFields { conflicts, more, waits }
            }
            Step::DeletedRelated(id, deleted) => {
                Self::DeletedRelated { object: Some(TracedObject::of(id)), deleted: *deleted }
            }
        })
    }

    fn planned(decisions: &Decisions) -> Self {
        let Decisions { writes, drifts, changes, left, unchanged, left_out } = decisions;
        let write = |(verb, id): &(&'static str, ObjectId)| {
            let [drift, changes] = [drifts, changes]
                .map(|all| all.iter().find(|(child, _)| child == id).map(|(_, changes)| changes));
            let places =
                |changes: Option<&FirstChanges>| changes.map(FirstChanges::places).unwrap_or_default();
            PlannedWrite {
                verb: (*verb).to_owned(),
                object: TracedObject::of(id),
                drift: places(drift),
                changes: places(changes),
                values: drift.or(changes).map(|changes| changes.values().to_vec()).unwrap_or_default(),
            }
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

    /// The rules of a customize hook.
    pub fn rules(&mut self) -> &mut [TracedRule] {
        match self {
            Self::Related { found, .. } => found,
            _ => &mut [],
        }
    }

    /// Objects of which it says more than the name and the verb.
    pub(super) fn detailed(&self) -> Vec<&TracedObject> {
        match self {
            Self::Planned { writes, left, .. } => {
                let writes = writes.iter().filter(|write| write.has_details()).map(|write| &write.object);
                writes.chain(left.iter().map(|child| &child.object)).collect()
            }
            Self::Wrote { object, reason, warnings, end, .. } => {
                let has_details =
                    reason.is_some() || !warnings.is_empty() || matches!(end, TracedWriteEnd::Failed(_));
                has_details.then_some(object).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Leaves out of such objects all but the name and the verb. `hidden`: why.
    pub(super) fn hide_details(&mut self, hidden: impl Fn(&TracedObject) -> Option<Hidden>) {
        match self {
            Self::Planned { writes, left, .. } => {
                for write in writes.iter_mut().filter(|write| hidden(&write.object).is_some()) {
                    write.hide_details();
                }
                for LeftChild { object, why } in left {
                    if let Some(hidden) = hidden(object) {
                        *why = hidden.text_for(NO_DETAILS);
                    }
                }
            }
            Self::Wrote { object, reason, warnings, end, .. } => {
                let Some(hidden) = hidden(object) else { return };
                *reason = Some(hidden.text_for(NO_DETAILS));
                warnings.clear();
                if let TracedWriteEnd::Failed(why) = end {
                    *why = reason.take().unwrap_or_default();
                }
            }
            _ => {}
        }
    }

    /// The related object that was deleted, where it is named; taken out, the step stays without it.
    pub fn deleted_related(&mut self) -> Option<&mut Option<TracedObject>> {
        match self {
            Self::DeletedRelated { object, .. } => Some(object),
            _ => None,
        }
    }

    /// Counts the objects of the rules that are shown, where rules were hidden or are not in the trace: a difference would say how
    /// many objects these find.
    pub fn recount(&mut self) {
        if let Self::Related { found, rules, objects, .. } = self
            && (*rules > found.len() || found.iter().any(|rule| rule.objects.is_none()))
        {
            *objects = found.iter().filter_map(|rule| rule.objects).sum();
        }
    }

    /// The objects that it names.
    pub(super) fn objects(&self) -> impl Iterator<Item = &TracedObject> {
        let none: &[TracedObject] = &[];
        let (one, held, writes, left): (_, _, &[PlannedWrite], &[LeftChild]) = match self {
            Self::Read { object }
            | Self::Claimed { object, .. }
            | Self::Tried { object }
            | Self::Wrote { object, .. } => (Some(object), none, &[], &[]),
            Self::DeletedRelated { object, .. } => (object.as_ref(), none, &[], &[]),
            Self::Planned { writes, left, .. } => (None, none, writes, left),
            Self::Held { objects, .. } => (None, objects, &[], &[]),
            Self::Finalizers
            | Self::Related { .. }
            | Self::Called { .. }
            | Self::RecordedDeletions
            | Self::StatusLeft { .. }
            | Self::LeftFields { .. }
            | Self::Unknown => (None, none, &[], &[]),
        };
        let (writes, left) = (writes.iter().map(|it| &it.object), left.iter().map(|it| &it.object));
        one.into_iter().chain(held).chain(writes).chain(left)
    }
}

impl PlannedWrite {
    fn has_details(&self) -> bool {
        !self.drift.is_empty() || !self.changes.is_empty() || !self.values.is_empty()
    }

    fn hide_details(&mut self) {
        self.drift.clear();
        self.changes.clear();
        self.values.clear();
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
