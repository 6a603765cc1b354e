//! Rolling updates: which state of its parent each child is at, and which child moves to the latest state next.
//!
//! A [`revisions::Revision`] is a state of a parent: the fields that its ControllerRevision keeps. Each child of a rolling kind is
//! claimed by one revision, and is what the hook wants of the parent in that state; so the hook is asked about older states, too.
//! A reconcile puts the claims in order and moves at most one to the latest revision ([`step`]), once the children that moved
//! before are ready ([`readiness`]). It writes the claims before any child: after a crash the next reconcile reads how far it came.
//!
//! Claims are keyed by kind, namespace and name. In a ControllerRevision a name is without namespace where that is the parent's,
//! as Metacontroller writes it. The revisions are part of a reconcile's fingerprint.

pub mod claims;
#[cfg(test)]
mod laws;
pub mod readiness;
pub mod record;
pub mod revisions;
pub mod step;

use std::sync::Arc;

use crate::api::common::ConditionCheck;
use crate::object::id::{Key, ObjectId, Resource};
use revisions::FieldPath;

/// What a controller's spec says about rolling updates, if any of its kinds is updated so.
#[derive(Debug, Clone)]
pub struct RollingConfig {
    /// What a revision keeps of a parent.
    pub paths: Vec<FieldPath>,
    pub kinds: Vec<RollingKind>,
    pub parents: Arc<Resource>,
    /// The kind of revisions: ControllerRevision.
    pub revisions: Arc<Resource>,
    /// The namespace of revisions whose parents have none.
    pub home: Arc<str>,
}

/// A kind of children that is updated one child after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingKind {
    pub resource: Arc<Resource>,
    /// Its children are updated; otherwise they are made anew.
    pub in_place: bool,
    pub checks: Vec<ConditionCheck>,
}

impl RollingConfig {
    pub fn kind(&self, resource: &Resource) -> Option<&RollingKind> {
        self.kinds.iter().find(|kind| *kind.resource == *resource)
    }
}

/// What a child is called by its parent in `home` (empty: cluster-scoped): without the namespace that they share.
fn name_in(home: &str, key: &Key) -> String {
    if *key.namespace == *home { key.name.to_string() } else { key.to_string() }
}

/// A child as conditions name it.
fn child_name(home: &str, id: &ObjectId) -> String {
    format!("{} {}", id.resource.gvk.kind, name_in(home, &id.key))
}
