//! Operations on children: the plan of them in stages, and the reasons where nothing is to be done.
//!
//! - **Two apply strategies, one comparison.** Dynamic apply merges three ways and keeps its record in an annotation.
//!   Server-side apply sends what is desired, and knows from memory what it sent last. Both ask whether merging the desired
//!   into the observed child would change it. From one to the other, fields are handed over once ([`Op::HandOver`]).
//!   See <https://github.com/metacontroller/metacontroller/issues/1177>.
//! - **Recreate is one operation**: delete, and create at once where the answer says that the deletion is final; otherwise
//!   the next reconcile creates. Where drift is the reason, a dry run decides first ([`Op::DryRun`]): the child is recreated
//!   only where the write would change something or is refused, and only where a dry run of creating it succeeds (admission
//!   policies refuse with the same 422 as immutable fields). Where the hook wants something else than before there is no dry
//!   run: users of Recreate expect the deletion, and it would be a third request for each child.
//! - **One failed operation does not stop the others.**

mod child;
pub mod claims;
pub mod deletion_brake;
pub mod deletion_reason;
pub mod desired;
pub mod differing;
pub mod flapping;
mod injected;
pub mod last_applied;
#[cfg(test)]
mod laws;
pub mod managed_fields;
pub mod plan;
pub mod refusal;
pub mod write_history;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::ControllerKind;
use crate::cache::CacheEvent;
use crate::json::places::FirstChanges;
use crate::object::id::{ObjectId, Resource, Uid};
use crate::object::{Object, Version};
use desired::ChildKind;
use differing::Differing;
use write_history::Drift;

/// Whose children are planned, and how.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub parent: &'a Object,
    pub kind: ControllerKind,
    /// The controller's name.
    pub controller: &'a str,
    pub child_kinds: &'a [ChildKind],
    /// The values of Secrets are recorded as hashes; Metacontroller cannot go on from there.
    pub hash_secrets: bool,
}

/// One operation: one request, unless its variant says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    Create {
        id: ObjectId,
        body: Value,
    },
    /// The whole object; its `resourceVersion` is inside.
    Replace {
        id: ObjectId,
        body: Value,
    },
    /// Server-side apply. Where `over` names no object, there must be none: what others have is not taken over.
    Apply {
        id: ObjectId,
        over: Option<(Uid, Version)>,
        body: Value,
        manager: Arc<str>,
    },
    /// Fields that dynamic apply wrote become what `manager` applied, and the record of dynamic apply goes: a read and
    /// a write of the managed fields.
    HandOver {
        id: ObjectId,
        uid: Uid,
        manager: Arc<str>,
    },
    /// A dry run of `write`, a `Replace` or an `Apply`. What comes of it decides what is done: see
    /// [`plan::judge`].
    DryRun {
        write: Box<Op>,
        otherwise: Box<Op>,
    },
    Delete {
        id: ObjectId,
        uid: Uid,
    },
    /// Delete, and create at once where the deletion is final; else the next reconcile creates. By server-side apply where
    /// there is a `manager`.
    /// See <https://github.com/prometheus-operator/prometheus-operator/issues/4519>.
    Recreate {
        id: ObjectId,
        uid: Uid,
        body: Value,
        manager: Option<Arc<str>>,
    },
    /// The status alone; `resourceVersion` is inside.
    Status {
        id: ObjectId,
        body: Value,
    },
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// It is as desired.
    Unchanged,
    /// It differs, but its strategy leaves it until it is deleted.
    OnDelete,
    BeingDeleted,
    /// It is there, or others like it are, and the hook was not shown them.
    LeftOut,
    /// The answer names it in another version of its kind, or without its namespace.
    Held,
    /// Another client keeps changing it back: its drift is corrected later.
    Flapping,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "it is as the answer wants it",
            Self::OnDelete => {
                "it differs from the answer, and its updateStrategy leaves it until it is deleted"
            }
            Self::BeingDeleted => "it is being deleted",
            Self::LeftOut => "the hook was not shown it, as there are too many children",
            Self::Held => "the answer names it in another version of its kind, or without its namespace",
            Self::Flapping => "another client keeps changing it back: its drift is corrected later",
        })
    }
}

/// # Guarantees
/// Deletions of unwanted objects come first, then the rest by kind and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub ops: Vec<Op>,
    pub skips: Vec<(ObjectId, Skip)>,
    /// Children that no decision can be made about; the others go on.
    pub problems: Vec<(ObjectId, Problem)>,
    /// The first changes by other operations of the first children that are there, for people.
    pub changes: Vec<(ObjectId, FirstChanges)>,
    /// Drift that operations correct: the desired values are the same as before.
    pub drifts: Vec<Drift>,
    /// Drift that another client keeps causing, and that is left alone for a while.
    pub flapping: Vec<Drift>,
    /// Children that are left as they are although the answer has changed.
    pub differing: Option<Differing>,
    /// When something that is left now is due.
    pub again: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(
        "its annotation metacontroller.k8s.io/last-applied-configuration is not JSON: remove the annotation, and it is taken over as it is"
    )]
    LastApplied,
    #[error("it is not the JSON of an object")]
    Observed,
}

impl Op {
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Create { id, .. }
            | Self::Replace { id, .. }
            | Self::Apply { id, .. }
            | Self::HandOver { id, .. }
            | Self::Delete { id, .. }
            | Self::Recreate { id, .. }
            | Self::Status { id, .. } => id,
            Self::DryRun { write, .. } => write.id(),
        }
    }

    /// Whether the API server's answer says that something changed: an update that changes nothing, as one whose fields
    /// are all pruned, leaves the version as it was, and no event will follow.
    pub fn is_answered_by_a_change(&self, answer: &[CacheEvent]) -> bool {
        let before = match self {
            Self::Replace { body, .. } | Self::Status { body, .. } => {
                body.pointer("/metadata/resourceVersion").and_then(Value::as_str)
            }
            Self::Apply { over: Some((_, version)), .. } => Some(version.as_str()),
            Self::Create { .. }
            | Self::Apply { over: None, .. }
            | Self::HandOver { .. }
            | Self::DryRun { .. }
            | Self::Delete { .. }
            | Self::Recreate { .. } => return true,
        };
        answer.iter().any(|event| match event {
            CacheEvent::Wrote(object) => Some(object.version.as_str()) != before,
            _ => true,
        })
    }

    /// The word for it in logs, metrics and plans.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Replace { .. } => "replace",
            Self::Apply { .. } => "apply",
            Self::HandOver { .. } => "hand over",
            Self::DryRun { .. } => "dry run",
            Self::Delete { .. } => "delete",
            Self::Recreate { .. } => "recreate",
            Self::Status { .. } => "status",
        }
    }
}

impl Owner<'_> {
    pub(crate) fn child_kind(&self, resource: &Resource) -> Option<&ChildKind> {
        self.child_kinds.iter().find(|kind| *kind.resource == *resource)
    }

    /// The controller for the annotation of its children; attachments have an annotation of their own.
    fn maker(&self) -> Option<&str> {
        match self.kind {
            ControllerKind::Composite => Some(self.controller),
            ControllerKind::Decorator => None,
        }
    }

    /// Salt that makes hashes of this parent's Secrets its own.
    fn salt(&self) -> Option<&Uid> {
        self.hash_secrets.then_some(&self.parent.uid)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, id) = (self.verb(), self.id());
        match self {
            Self::Delete { uid, .. } => write!(f, "{verb} {id} (uid {uid})"),
            Self::Create { body, .. } | Self::Replace { body, .. } | Self::Status { body, .. } => {
                write!(f, "{verb} {id}\n  {body}")
            }
            Self::Apply { over, body, manager, .. } => {
                let over = over.as_ref().map_or("a new one".to_owned(), |(uid, _)| format!("uid {uid}"));
                write!(f, "{verb} {id} ({over}) as {manager}\n  {body}")
            }
            Self::HandOver { uid, manager, .. } => write!(f, "{verb} {id} (uid {uid}) to {manager}"),
            Self::DryRun { write, otherwise } => {
                write!(f, "find out by a {verb} whether to {write}\n  or to {otherwise}")
            }
            Self::Recreate { uid, body, manager, .. } => {
                let manager = manager.as_ref().map_or(String::new(), |manager| format!(" as {manager}"));
                write!(f, "{verb} {id} (uid {uid}){manager}\n  {body}")
            }
        }
    }
}

/// Operations of a plan in stages: within one, the order does not matter; each waits for the one before. Deletions are
/// the first, and then each kind is one, in the plan's order.
pub fn stages(ops: &[Op]) -> impl Iterator<Item = &[Op]> {
    ops.chunk_by(|one, next| kind(one) == kind(next))
}

/// `None`: deletions, whatever of.
fn kind(op: &Op) -> Option<&Arc<Resource>> {
    if matches!(op, Op::Delete { .. }) { None } else { Some(&op.id().resource) }
}

/// How many of one parent's children are written at once. After a failure the next ones are tried one, two, four, ... at
/// a time, so that a quota that is used up or an API server in trouble is not hit by hundreds of requests in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteConcurrency(usize);

impl WriteConcurrency {
    /// As many as one client may well have under way.
    pub(crate) const MAX_CONCURRENCY: usize = 16;

    /// The first writes of a reconcile, after so many failures in a row.
    pub fn after(failures: u32) -> Self {
        Self(if failures == 0 { Self::MAX_CONCURRENCY } else { 1 })
    }

    /// The operations of the next batch, and those that are left.
    pub fn split<'a>(&self, ops: &'a [Op]) -> (&'a [Op], &'a [Op]) {
        ops.split_at(self.0.min(ops.len()))
    }

    /// Records whether all operations of a batch were carried out.
    pub fn record_batch(&mut self, all_well: bool) {
        self.0 = if all_well { (self.0 * 2).min(Self::MAX_CONCURRENCY) } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::id::{Key, ObjectId, Uid};
    use crate::object::testing::{a, resource};

    #[test]
    fn a_write_that_leaves_the_version_is_no_change() {
        let id = ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", "x") };
        let op = Op::Status { id: id.clone(), body: json!({"metadata": {"resourceVersion": "7"}}) };
        let answer = |version: &str| [CacheEvent::Wrote(a("v1", "Pod", "n/x").version(version).object())];
        assert!(!op.is_answered_by_a_change(&answer("7")));
        assert!(op.is_answered_by_a_change(&answer("8")));
        let create = Op::Create { id, body: json!({}) };
        assert!(create.is_answered_by_a_change(&answer("7")));
    }

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId { resource: resource("v1", kind), key: Key::new("n", name) }
    }

    fn create(kind: &str, name: &str) -> Op {
        Op::Create { id: id(kind, name), body: json!({}) }
    }

    fn delete(kind: &str, name: &str) -> Op {
        Op::Delete { id: id(kind, name), uid: Uid::new("u") }
    }

    #[test]
    fn deletions_of_all_kinds_come_together_and_then_kind_by_kind() {
        let ops = [
            delete("ConfigMap", "a"),
            delete("Pod", "b"),
            create("ConfigMap", "c"),
            Op::Recreate { id: id("ConfigMap", "d"), uid: Uid::new("u"), body: json!({}), manager: None },
            create("Pod", "e"),
        ];
        let names: Vec<Vec<_>> =
            stages(&ops).map(|stage| stage.iter().map(|op| &*op.id().key.name).collect()).collect();
        assert_eq!(names, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
        assert_eq!(stages(&[]).count(), 0);
    }

    #[test]
    fn after_a_failure_few_are_tried_and_then_more_and_more() {
        let ops: Vec<Op> = (0..40).map(|number| create("Pod", &number.to_string())).collect();
        let mut width = WriteConcurrency::after(0);
        assert_eq!(width.split(&ops).0.len(), 16);
        width.record_batch(true);
        assert_eq!(width, WriteConcurrency::after(0), "never more");
        width.record_batch(false);
        assert_eq!(width, WriteConcurrency::after(3));
        let mut tried = Vec::new();
        let mut left = &ops[..];
        while !left.is_empty() {
            let (now, later) = width.split(left);
            tried.push(now.len());
            width.record_batch(true);
            left = later;
        }
        assert_eq!(tried, [1, 2, 4, 8, 16, 9]);
    }
}
