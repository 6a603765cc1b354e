//! What should happen to the cluster, operation by operation, and why nothing happens where nothing does.

pub mod children;
pub mod desired;
pub mod stages;
pub mod status;

use std::fmt;

use serde_json::Value;

use crate::index::Event;

use crate::object::id::{ObjectId, Uid};

/// One operation; carried out by one request each, but for `Recreate`.
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
    Delete {
        id: ObjectId,
        uid: Uid,
    },
    /// Delete, and create at once where the deletion is final; else the next pass creates.
    Recreate {
        id: ObjectId,
        uid: Uid,
        body: Value,
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
    /// It differs, but its strategy leaves it until somebody deletes it.
    OnDelete,
    BeingDeleted,
}

/// # Guarantees
/// Deletions of unwanted objects come first, then the rest by kind and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub ops: Vec<Op>,
    pub skips: Vec<(ObjectId, Skip)>,
    /// Children that no decision can be made about; the others go on.
    pub problems: Vec<(ObjectId, Problem)>,
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
            | Self::Delete { id, .. }
            | Self::Recreate { id, .. }
            | Self::Status { id, .. } => id,
        }
    }

    /// Whether the API server's answer says that something changed: an update that changes nothing, as one whose fields
    /// are all pruned, leaves the version as it was, and no event will follow.
    pub fn is_answered_by_a_change(&self, answer: &[Event]) -> bool {
        let (Self::Replace { body, .. } | Self::Status { body, .. }) = self else {
            return true;
        };
        let before = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        answer.iter().any(|event| match event {
            Event::Wrote(object) => Some(object.version.as_str()) != before,
            _ => true,
        })
    }

    /// The word for it in logs, metrics and plans.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Replace { .. } => "replace",
            Self::Delete { .. } => "delete",
            Self::Recreate { .. } => "recreate",
            Self::Status { .. } => "status",
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in &self.ops {
            match op {
                Op::Delete { id, uid } => writeln!(f, "delete {id} (uid {uid})")?,
                Op::Create { id, body } | Op::Replace { id, body } | Op::Status { id, body } => {
                    writeln!(f, "{} {id}\n  {body}", op.verb())?;
                }
                Op::Recreate { id, uid, body } => writeln!(f, "recreate {id} (uid {uid})\n  {body}")?,
            }
        }
        for (id, skip) in &self.skips {
            writeln!(f, "leave {id}: {skip:?}")?;
        }
        for (id, problem) in &self.problems {
            writeln!(f, "cannot decide about {id}: {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::id::Key;
    use crate::object::testing::{a, resource};

    #[test]
    fn a_write_that_leaves_the_version_is_no_change() {
        let id = ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", "x") };
        let op = Op::Status { id: id.clone(), body: json!({"metadata": {"resourceVersion": "7"}}) };
        let answer =
            |version: &str| [Event::Wrote((*a("v1", "Pod", "n/x").version(version).object()).clone())];
        assert!(!op.is_answered_by_a_change(&answer("7")));
        assert!(op.is_answered_by_a_change(&answer("8")));
        let create = Op::Create { id, body: json!({}) };
        assert!(create.is_answered_by_a_change(&answer("7")));
    }
}
