//! Rolling updates: which state of its parent each child is at, and which child goes to the latest one next.
//!
//! A [`revisions::Revision`] is a state of a parent: some of its fields, kept in a ControllerRevision. Each child of a
//! rolling kind is claimed by one revision, and is what the hook wants of a parent in that state. A pass moves at most one
//! claim to the latest revision ([`step`]), once what was moved before is in order ([`gate`]).

pub mod claims;
#[cfg(test)]
mod laws;
pub mod pass;
pub mod readiness;
pub mod record;
pub mod revisions;
pub mod step;

use std::sync::Arc;

use crate::api::composite::ConditionCheck;
use crate::object::id::{Key, ObjectId, Resource};
use revisions::FieldPath;

/// What a controller's spec says about rolling updates, if any of its kinds is updated so.
#[derive(Debug, Clone)]
pub struct RollingConfig {
    /// What a revision keeps of a parent.
    pub paths: Vec<FieldPath>,
    pub rules: Vec<RollingKind>,
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
    pub fn rule(&self, resource: &Resource) -> Option<&RollingKind> {
        self.rules.iter().find(|rule| *rule.resource == *resource)
    }
}

/// What a child is called by its parent in `home` (empty: cluster-scoped): without the namespace that they share.
fn name_in(home: &str, key: &Key) -> String {
    if *key.namespace == *home { key.name.to_string() } else { key.to_string() }
}

/// A child as conditions name it.
fn told(home: &str, id: &ObjectId) -> String {
    format!("{} {}", id.resource.gvk.kind, name_in(home, &id.key))
}
