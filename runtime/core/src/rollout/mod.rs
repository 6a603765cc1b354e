//! Rolling updates: which state of its parent each child is at, and which child moves to the latest state next.
//!
//! A [`revisions::Revision`] is a state of a parent: the fields that its ControllerRevision keeps. Each child of a rolling kind is
//! claimed by one revision, and is what the hook wants of the parent in that state; so the hook is asked about older states, too.
//! A reconcile puts the claims in order and moves at most one to the latest revision ([`step`]), once the children that moved
//! before are ready ([`check_readiness`]). It writes the claims before any child: after a crash the next reconcile reads how far it came.
//!
//! Claims are keyed by kind, namespace and name. In a ControllerRevision a name is without namespace where that is the parent's,
//! as Metacontroller writes it. The revisions are part of a reconcile's fingerprint.

#[cfg(test)]
mod laws;
pub mod record;
pub mod revisions;
pub mod step;
pub mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::api::common::ConditionCheck;
use crate::api::composite::RevisionChildNames;
use crate::object::Object;
use crate::object::id::{Key, ObjectId, Resource};
use crate::shorten;
use revisions::FieldPath;

/// Rolling updates of a controller, as its spec declares them.
#[derive(Debug, Clone)]
pub struct RollingConfig {
    /// Fields of a parent that a revision keeps.
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
    /// The kind's children are updated; otherwise they are made anew.
    pub in_place: bool,
    pub checks: Vec<ConditionCheck>,
}

impl RollingConfig {
    pub fn kind(&self, resource: &Resource) -> Option<&RollingKind> {
        self.kinds.iter().find(|kind| *kind.resource == *resource)
    }
}

/// Name of a child for its parent in `home` (empty: cluster-scoped): without the namespace that they share.
fn name_in(home: &str, key: &Key) -> String {
    if *key.namespace == *home { key.name.to_string() } else { key.to_string() }
}

/// A child as conditions name it.
fn child_name(home: &str, id: &ObjectId) -> String {
    format!("{} {}", id.resource.gvk.kind, name_in(home, &id.key))
}

/// The children that are at one revision.
pub type Claims = BTreeSet<ObjectId>;

/// Children that a ControllerRevision of a parent in `home` (empty: cluster-scoped) claims. A name may stand with its
/// namespace or, where that is the parent's, without. Kinds that are no longer rolled out are left out.
pub fn read_claims(home: &str, kinds: &[RollingKind], stored: &[RevisionChildNames]) -> Claims {
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

/// Claims as a ControllerRevision stores them: by kind, names in order, without the namespace where it is the parent's.
pub fn write_claims(home: &str, claims: &Claims) -> Vec<RevisionChildNames> {
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for id in claims {
        let gvk = &id.resource.gvk;
        groups.entry((&*gvk.group, &*gvk.kind)).or_default().push(name_in(home, &id.key));
    }
    groups
        .into_iter()
        .map(|((group, kind), names)| RevisionChildNames {
            api_group: group.to_owned(),
            kind: kind.to_owned(),
            names,
        })
        .collect()
}

/// Bytes of a child's condition in a message.
const MAX_FOUND: usize = 100;

/// Reason why a rolling update waits for a child.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("it is not there")]
    Missing,
    #[error("it is being deleted")]
    BeingDeleted,
    #[error("it is not up to date")]
    Outdated,
    #[error("status.observedGeneration is {observed}, and its generation is {generation}")]
    NotObserved { observed: i64, generation: i64 },
    #[error("status.conditions has no {0}")]
    NoCondition(String),
    #[error("{field} of condition {kind} is {found:?}, not {expected:?}")]
    Condition { kind: String, field: &'static str, found: String, expected: String },
}

/// Checks that a claimed child is in order; the error is the reason to wait for it.
///
/// `up_to_date`: applying what the latest revision wants would change nothing.
pub fn check_readiness(
    kind: &RollingKind,
    child: Option<&Object>,
    up_to_date: impl FnOnce(&Object) -> bool,
) -> Result<(), NotReady> {
    let child = child.ok_or(NotReady::Missing)?;
    if child.deleting {
        return Err(NotReady::BeingDeleted);
    }
    if !up_to_date(child) {
        return Err(NotReady::Outdated);
    }
    let object = child.value().unwrap_or_default();
    let status = |field| object.get("status")?.get(field);
    let observed = status("observedGeneration").and_then(Value::as_i64).unwrap_or_default();
    // 0: its controller does not report which generation it has seen.
    if kind.in_place && observed > 0 && observed < child.generation {
        return Err(NotReady::NotObserved { observed, generation: child.generation });
    }
    let conditions = status("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    kind.checks.iter().try_for_each(|check| holds(check, conditions))
}

fn holds(check: &ConditionCheck, conditions: &[Value]) -> Result<(), NotReady> {
    fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
        condition.get(field).and_then(Value::as_str).unwrap_or_default()
    }
    let condition = conditions
        .iter()
        .find(|condition| text(condition, "type") == check.kind)
        .ok_or_else(|| NotReady::NoCondition(check.kind.clone()))?;
    for (field, expected) in [("status", &check.status), ("reason", &check.reason)] {
        let found = text(condition, field);
        if let Some(expected) = expected.clone().filter(|expected| *expected != found) {
            // The text is the child's, and is repeated for each child that waits.
            let found = shorten(found, MAX_FOUND);
            return Err(NotReady::Condition { kind: check.kind.clone(), field, found, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::{Build, a, cluster_resource, resource};

    fn kinds() -> Vec<RollingKind> {
        [resource("v1", "Pod"), resource("apps/v1", "Deployment"), cluster_resource("v1", "Namespace")]
            .map(|resource| RollingKind { resource, in_place: true, checks: vec![] })
            .into()
    }

    fn group(api_group: &str, kind: &str, names: &[&str]) -> RevisionChildNames {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        RevisionChildNames { api_group: api_group.to_owned(), kind: kind.to_owned(), names }
    }

    fn reprint(home: &str, stored: &[RevisionChildNames]) -> Vec<RevisionChildNames> {
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

    fn kind(in_place: bool, checks: Value) -> RollingKind {
        RollingKind {
            resource: resource("v1", "Pod"),
            in_place,
            checks: serde_json::from_value(checks).unwrap(),
        }
    }

    fn says(kind: &RollingKind, child: Build) -> String {
        check_readiness(kind, Some(&child.object()), |_| true)
            .map_or_else(|blocked| blocked.to_string(), |()| "open".to_owned())
    }

    fn pod() -> Build {
        a("v1", "Pod", "n/a")
    }

    #[test]
    fn the_reason_of_a_condition_is_cut_in_the_reason_to_wait() {
        let kind = kind(true, json!([{"type": "Ready", "reason": "Up"}]));
        let conditions = json!([{"type": "Ready", "reason": "x".repeat(1_000_000)}]);
        let reason = says(&kind, pod().with("status.conditions", conditions));
        assert!(reason.len() < 2 * MAX_FOUND && reason.ends_with("…\", not \"Up\""), "{reason}");
    }

    #[test]
    fn a_child_has_to_be_there_and_as_wanted() {
        let kind = kind(true, json!([]));
        assert_eq!(check_readiness(&kind, None, |_| true), Err(NotReady::Missing));
        assert_eq!(check_readiness(&kind, Some(&pod().object()), |_| false), Err(NotReady::Outdated));
        assert_eq!(
            check_readiness(&kind, Some(&pod().deleting().object()), |_| true),
            Err(NotReady::BeingDeleted)
        );
        assert_eq!(check_readiness(&kind, Some(&pod().object()), |_| true), Ok(()));
    }

    #[test]
    fn one_updated_in_place_has_to_be_seen_by_its_controller_where_that_tells() {
        let seen = |observed: i64| {
            pod()
                .with("metadata.generation", json!(4))
                .with("status", json!({"observedGeneration": observed}))
        };
        let behind = "status.observedGeneration is 3, and its generation is 4";
        for (in_place, observed, expected) in
            [(true, 3, behind), (true, 4, "open"), (true, 5, "open"), (true, 0, "open"), (false, 3, "open")]
        {
            assert_eq!(says(&kind(in_place, json!([])), seen(observed)), expected, "{in_place} {observed}");
        }
    }

    #[test]
    fn every_check_has_to_hold_of_the_first_condition_of_its_type() {
        let checks = json!([{"type": "Here"}, {"type": "Ready", "status": "True", "reason": "Up"}]);
        let with = |conditions: Value| {
            says(&kind(true, checks.clone()), pod().with("status.conditions", conditions))
        };
        let here = json!({"type": "Here", "status": "False"});
        let ready = |status: &str, reason: &str| json!({"type": "Ready", "status": status, "reason": reason});
        for (conditions, expected) in [
            (json!([]), "status.conditions has no Here"),
            (json!([here]), "status.conditions has no Ready"),
            (json!([here, ready("False", "Up")]), r#"status of condition Ready is "False", not "True""#),
            (json!([here, ready("True", "Down")]), r#"reason of condition Ready is "Down", not "Up""#),
            (
                json!([here, ready("False", "Up"), ready("True", "Up")]),
                r#"status of condition Ready is "False", not "True""#,
            ),
            (json!([ready("True", "Up"), here]), "open"),
            (json!([null, 1, here, ready("True", "Up")]), "open"),
            (json!("nonsense"), "status.conditions has no Here"),
        ] {
            assert_eq!(with(conditions), expected);
        }
    }
}
