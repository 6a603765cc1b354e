//! What should happen to the cluster, operation by operation, and why nothing happens where nothing does.

pub mod children;
pub mod desired;
pub mod status;

use std::fmt;

use serde_json::Value;

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
