//! Rolling updates: which state of its parent each child is at, and which child moves to the latest state next.
//!
//! A [`revisions::Revision`] is a state of a parent: the fields that its ControllerRevision keeps. Each child of a rolling kind is
//! claimed by one revision, and is what the hook wants of the parent in that state; so the hook is asked about older states, too.
//! A reconcile puts the claims in order and moves at most one to the latest revision ([`step`]), once the children that moved
//! before are ready ([`readiness`]). It writes the claims before any child: after a crash the next reconcile reads how far it came.
//!
//! Claims are keyed by kind, namespace and name. In a ControllerRevision a name is without namespace where that is the parent's,
//! as Metacontroller writes it. The revisions are part of a reconcile's fingerprint.

#[cfg(test)]
mod laws;
pub mod readiness;
pub mod record;
pub mod revisions;
pub mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::common::ConditionCheck;
use crate::api::composite::RevisionChildren;
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

/// The children that are at one revision.
pub type Claims = BTreeSet<ObjectId>;

/// What a ControllerRevision of a parent in `home` (empty: cluster-scoped) claims. A name may stand with its namespace or,
/// where that is the parent's, without. Kinds that are no longer rolled out are left out.
pub fn read_claims(home: &str, kinds: &[RollingKind], stored: &[RevisionChildren]) -> Claims {
    let mut claims = Claims::new();
    for group in stored {
        let kind = kinds.iter().find(|kind| {
            *kind.resource.gvk.group == *group.api_group && *kind.resource.gvk.kind == *group.kind
        });
        let Some(RollingKind { resource, .. }) = kind else {
            continue;
        };
        let home = if resource.namespaced { home } else { "" };
        claims.extend(group.names.iter().map(|name| {
            let (namespace, name) = name.split_once('/').unwrap_or((home, name));
            ObjectId { resource: Arc::clone(resource), key: Key::new(namespace, name) }
        }));
    }
    claims
}

/// As a ControllerRevision stores it: by kind, names in order, without the namespace where it is the parent's.
pub fn write_claims(home: &str, claims: &Claims) -> Vec<RevisionChildren> {
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for id in claims {
        let gvk = &id.resource.gvk;
        groups.entry((&*gvk.group, &*gvk.kind)).or_default().push(name_in(home, &id.key));
    }
    groups
        .into_iter()
        .map(|((group, kind), names)| RevisionChildren {
            api_group: group.to_owned(),
            kind: kind.to_owned(),
            names,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::{cluster_resource, resource};

    fn kinds() -> Vec<RollingKind> {
        [resource("v1", "Pod"), resource("apps/v1", "Deployment"), cluster_resource("v1", "Namespace")]
            .map(|resource| RollingKind { resource, in_place: true, checks: vec![] })
            .into()
    }

    fn group(api_group: &str, kind: &str, names: &[&str]) -> RevisionChildren {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        RevisionChildren { api_group: api_group.to_owned(), kind: kind.to_owned(), names }
    }

    fn reprint(home: &str, stored: &[RevisionChildren]) -> Vec<RevisionChildren> {
        write_claims(home, &read_claims(home, &kinds(), stored))
    }

    #[test]
    fn one_child_is_one_claim_however_it_is_named() {
        let claims = read_claims("n", &kinds(), &[group("", "Pod", &["b", "n/a", "a"])]);
        let keys: Vec<_> = claims.iter().map(|id| id.key.clone()).collect();
        assert_eq!(keys, [Key::new("n", "a"), Key::new("n", "b")]);
        assert_eq!(write_claims("n", &claims), [group("", "Pod", &["a", "b"])]);
    }

    #[test]
    fn names_are_written_as_they_are_read_whatever_the_scopes() {
        let near = [group("", "Pod", &["a", "b"]), group("apps", "Deployment", &["m/x"])];
        assert_eq!(reprint("n", &near), near);
        let cluster = [group("", "Namespace", &["x"]), group("", "Pod", &["m/a", "n/a"])];
        assert_eq!(reprint("", &cluster), cluster);
    }

    #[test]
    fn kinds_are_told_apart_by_group_and_those_that_do_not_roll_are_dropped() {
        let stored = [
            group("apps", "Pod", &["a"]),
            group("", "ConfigMap", &["a"]),
            group("apps", "Deployment", &["a"]),
        ];
        assert_eq!(reprint("n", &stored), [group("apps", "Deployment", &["a"])]);
    }
}
