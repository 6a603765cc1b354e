//! The states of a parent that its children are at: what is kept of each, its name, and the parent as it was then.

use std::sync::Arc;

use serde_json::{Map, Value};
use sha1::{Digest, Sha1};

use crate::api::composite::{ControllerRevision, RevisionChildren};
use crate::json::difference::same;
use crate::json::to_go_string;
use crate::object::id::{Resource, Uid};
use crate::object::{Object, ObjectError};
use crate::rollout::{Claims, RollingConfig, read_claims};

/// The way to a field, from the root of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

/// A state of a parent, and the children that are at it.
#[derive(Debug, Clone)]
pub struct Revision {
    pub name: String,
    /// The ControllerRevision; there is none of the latest state until a reconcile makes it.
    pub stored: Option<Arc<Object>>,
    /// The kept part of the parent.
    pub patch: Value,
    pub claims: Claims,
    /// The claims as they are stored.
    pub children: Vec<RevisionChildren>,
    /// The parent, as it is or as it would be at this revision.
    pub parent: Arc<Object>,
}

/// The revisions of one parent.
#[derive(Debug)]
pub struct History {
    pub latest: Revision,
    /// Those that still have children, by name.
    pub older: Vec<Revision>,
    /// Objects that repeat what another one holds, that no child is at, and the oldest ones beyond the bound.
    pub surplus: Vec<Arc<Object>>,
    /// The number of revisions beyond the bound.
    pub pruned: usize,
    /// Revisions that cannot be read, and why.
    pub unreadable: Vec<RevisionError>,
}

/// Revisions of one parent besides the latest: each costs a call of the hook in a reconcile. A rollout has one for each
/// change of the parent while children still wait for an earlier one.
pub const MAX_REVISIONS: usize = 50;

#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    #[error(
        "ControllerRevision {name} cannot be read ({source}): it is left out, and its children are updated at once"
    )]
    Malformed { name: String, source: serde_json::Error },
    #[error("the parent as it was at ControllerRevision {name}")]
    Parent { name: String, source: ObjectError },
}

impl FieldPath {
    /// Steps are separated by dots.
    pub fn new(text: &str) -> Self {
        Self(text.split('.').map(str::to_owned).collect())
    }

    fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |at, step| at.get(step))
    }
}

/// What a revision keeps of a parent: the fields that are there.
pub fn patch(parent: &Value, paths: &[FieldPath]) -> Value {
    let mut patch = Map::new();
    for path in paths {
        if let Some(value) = path.get(parent) {
            set(&mut patch, &path.0, value);
        }
    }
    Value::Object(patch)
}

/// The parent as it was: each kept field has its value back, and one that was not there is not there.
pub fn parent_at(parent: &Value, paths: &[FieldPath], patch: &Value) -> Value {
    let mut parent = parent.clone();
    if let Value::Object(parent) = &mut parent {
        for path in paths {
            match path.get(patch) {
                Some(value) => set(parent, &path.0, value),
                None => remove(parent, &path.0),
            }
        }
    }
    parent
}

fn set(object: &mut Map<String, Value>, path: &[String], value: &Value) {
    match path {
        [] => {}
        [last] => drop(object.insert(last.clone(), value.clone())),
        [first, rest @ ..] => {
            let inner = object.entry(first).or_insert(Value::Null);
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

fn remove(object: &mut Map<String, Value>, path: &[String]) {
    let Some((last, way)) = path.split_last() else { return };
    let within = way.iter().try_fold(object, |at, step| at.get_mut(step)?.as_object_mut());
    within.map(|object| object.remove(last));
}

/// The name that Metacontroller gives to a revision: another parent, or another state, has another one.
pub fn name(parents: &Resource, uid: &Uid, patch: &Value) -> String {
    const MAX_PREFIX: usize = 212; // and a dash and 40 digits are the 253 that a name may have
    let group = if parents.gvk.group.is_empty() { "core" } else { &*parents.gvk.group };
    let prefix: String = format!("{}.{group}", parents.plural).chars().take(MAX_PREFIX).collect();
    let state = format!("{uid}{}", to_go_string(patch));
    format!("{prefix}-{:x}", Sha1::digest(state))
}

/// The name that the parent's state as it is now would get.
pub fn latest_name(rolling: &RollingConfig, parent: &Object) -> Option<String> {
    let patch = patch(&parent.value().ok()?, &rolling.paths);
    Some(name(&rolling.parents, &parent.uid, &patch))
}

impl History {
    /// # Guarantees
    /// The order of `stored` does not matter. Of revisions of the same state one remains, with the claims of all: the one
    /// with the name that such a state has, if there is one.
    pub fn of(
        rolling: &RollingConfig,
        parent: &Arc<Object>,
        stored: &[Arc<Object>],
    ) -> Result<Self, RevisionError> {
        let now =
            parent.value().map_err(|source| RevisionError::Parent { name: "latest".to_owned(), source })?;
        let patch = patch(&now, &rolling.paths);
        let mut latest = Revision {
            name: name(&rolling.parents, &parent.uid, &patch),
            stored: None,
            patch,
            claims: Claims::new(),
            children: Vec::new(),
            parent: Arc::clone(parent),
        };
        let (mut older, mut surplus, mut unreadable) = (Vec::<Revision>::new(), Vec::new(), Vec::new());
        let mut sorted: Vec<_> = stored.iter().collect();
        let pruned = prune(&mut sorted, &latest.name);
        sorted.sort_by_key(|object| (*object.key.name != *latest.name, &object.key));
        for object in sorted {
            let stored: ControllerRevision = match serde_json::from_str(object.json()) {
                Ok(stored) => stored,
                Err(source) => {
                    unreadable.push(RevisionError::Malformed { name: object.key.to_string(), source });
                    continue;
                }
            };
            let (patch, children) = (Value::Object(stored.parent_patch), stored.children.unwrap_or_default());
            let claims = read_claims(&parent.key.namespace, &rolling.kinds, &children);
            let known = std::iter::once(&mut latest).chain(&mut older).find(|one| same(&one.patch, &patch));
            let (name, stored) = (object.key.name.to_string(), Some(Arc::clone(object)));
            if let Some(known) = known {
                known.claims.extend(claims);
                if known.stored.is_none() {
                    (known.name, known.stored, known.children) = (name, stored, children);
                } else {
                    surplus.extend(stored);
                }
            } else {
                match hypothetical(&now, rolling, &patch, object) {
                    Ok(parent) => older.push(Revision { name, stored, patch, claims, children, parent }),
                    Err(error) => unreadable.push(error),
                }
            }
        }
        // No child is at it: its hook need not be asked.
        let (older, empty): (Vec<_>, Vec<_>) = older.into_iter().partition(|one| !one.claims.is_empty());
        surplus.extend(empty.into_iter().filter_map(|one| one.stored));
        let count = pruned.len();
        surplus.extend(pruned);
        Ok(Self { latest, older, surplus, pruned: count, unreadable })
    }
}

/// Takes the oldest revisions beyond the bound out, without reading what they keep.
fn prune(stored: &mut Vec<&Arc<Object>>, latest: &str) -> Vec<Arc<Object>> {
    // One more, since the latest may be among them.
    if stored.len() <= MAX_REVISIONS + 1 {
        return Vec::new();
    }
    stored.sort_by_cached_key(|object| (*object.key.name == *latest, object.created, object.key.clone()));
    stored.drain(..stored.len() - MAX_REVISIONS - 1).cloned().collect()
}

fn hypothetical(
    now: &Value,
    rolling: &RollingConfig,
    patch: &Value,
    object: &Object,
) -> Result<Arc<Object>, RevisionError> {
    let then = parent_at(now, &rolling.paths, patch).to_string();
    let then = Object::parse(&then, None)
        .map_err(|source| RevisionError::Parent { name: object.key.to_string(), source })?;
    Ok(Arc::new(then))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::{Build, a, resource};
    use crate::rollout::RollingKind;

    fn rolling(paths: &[&str]) -> RollingConfig {
        RollingConfig {
            paths: paths.iter().map(|path| FieldPath::new(path)).collect(),
            kinds: vec![RollingKind { resource: resource("v1", "Pod"), in_place: true, checks: vec![] }],
            parents: resource("e/v1", "P"),
            revisions: resource("metacontroller.k8s.io/v1alpha1", "ControllerRevision"),
            home: "server".into(),
        }
    }

    fn parent(spec: Value) -> Build {
        a("e/v1", "P", "n/p").uid("u").with("spec", spec)
    }

    fn revision(name: &str, patch: Value, pods: &[&str]) -> Arc<Object> {
        a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", &format!("n/{name}"))
            .with("parentPatch", patch)
            .with("children", json!([{"apiGroup": "", "kind": "Pod", "names": pods}]))
            .object()
    }

    fn history(paths: &[&str], parent: Build, stored: &[Arc<Object>]) -> History {
        History::of(&rolling(paths), &parent.object(), stored).unwrap()
    }

    fn pods(revision: &Revision) -> Vec<&str> {
        revision.claims.iter().map(|id| &*id.key.name).collect()
    }

    #[test]
    fn a_patch_has_the_fields_that_are_there() {
        let parent = parent(json!({"a": {"b": 1, "c": 2}, "d": null})).object().value().unwrap();
        for (paths, expected) in [
            (&["spec"][..], json!({"spec": {"a": {"b": 1, "c": 2}, "d": null}})),
            (
                &["spec.a.b", "spec.d", "spec.x.y", "metadata.name.x"],
                json!({"spec": {"a": {"b": 1}, "d": null}}),
            ),
            (&["spec.a.b", "spec.a"], json!({"spec": {"a": {"b": 1, "c": 2}}})),
            (&[""], json!({})),
        ] {
            assert_eq!(patch(&parent, &rolling(paths).paths), expected, "{paths:?}");
        }
    }

    #[test]
    fn a_field_that_was_not_there_is_not_there_in_the_parent_as_it_was() {
        let now = parent(json!({"a": {"b": 1, "c": 2}, "e": 3})).object().value().unwrap();
        let then = |paths: &[&str], patch| parent_at(&now, &rolling(paths).paths, &patch)["spec"].clone();
        assert_eq!(then(&["spec"], json!({"spec": {"a": 1}})), json!({"a": 1}));
        assert_eq!(then(&["spec"], json!({})), json!(null));
        assert_eq!(
            then(&["spec.a.b", "spec.a.c", "spec.e"], json!({"spec": {"a": {"b": 7}}})),
            json!({"a": {"b": 7}})
        );
        assert_eq!(
            then(&["spec.e.f"], json!({"spec": {"e": {"f": 1}}})),
            json!({"a": {"b": 1, "c": 2}, "e": {"f": 1}})
        );
    }

    #[test]
    fn names_are_those_that_metacontroller_gives() {
        let patch = json!({"spec": {"b": 1.0, "a": "<"}});
        assert_eq!(
            name(&resource("e/v1", "P"), &Uid::new("u"), &patch),
            "ps.e-fe00e3a0860ddfab31815b91367c776d1486b231"
        );
        assert!(name(&resource("v1", "P"), &Uid::new("u"), &patch).starts_with("ps.core-"));
        let long = name(&resource(&format!("{}/v1", "g".repeat(250)), "P"), &Uid::new("u"), &patch);
        assert_eq!((long.len(), long.find('-')), (253, Some(212)));
    }

    #[test]
    fn the_latest_revision_is_the_one_that_means_the_same() {
        let stored = [
            revision("b", json!({"spec": {"a": 2}}), &["x"]),
            revision("a", json!({"spec": {"a": 1.0, "b": null}}), &["y"]),
        ];
        let found = history(&["spec"], parent(json!({"a": 1})), &stored);
        assert_eq!((found.latest.name.as_str(), pods(&found.latest)), ("a", vec!["y"]));
        assert_eq!(found.older.len(), 1);
        assert_eq!(found.older[0].parent.value().unwrap()["spec"], json!({"a": 2}));
        assert_eq!(found.older[0].parent.uid, found.latest.parent.uid);
        assert!(found.surplus.is_empty());
    }

    #[test]
    fn a_state_without_a_revision_gets_one() {
        let found = history(&["spec"], parent(json!({"a": 1})), &[]);
        assert!(found.latest.stored.is_none() && found.latest.claims.is_empty());
        assert!(found.latest.name.starts_with("ps.e-"));
        assert_eq!(found.latest.patch, json!({"spec": {"a": 1}}));
    }

    #[test]
    fn of_revisions_of_one_state_the_rightly_named_one_stays_and_claims_all() {
        let right = history(&["spec"], parent(json!({"a": 1})), &[]).latest.name;
        let one = |name: &str, pod: &str| revision(name, json!({"spec": {"a": 1}}), &[pod]);
        let mut stored =
            vec![one("a", "x"), one(&right, "y"), one("z", "w"), revision("o", json!({}), &["q"])];
        for _ in 0..stored.len() {
            stored.rotate_left(1);
            let found = history(&["spec"], parent(json!({"a": 1})), &stored);
            assert_eq!((&found.latest.name, pods(&found.latest)), (&right, vec!["w", "x", "y"]));
            let surplus: Vec<_> = found.surplus.iter().map(|object| &*object.key.name).collect();
            assert_eq!(surplus, ["a", "z"]);
            assert_eq!(found.older.len(), 1);
        }
    }

    #[test]
    fn an_older_revision_without_children_is_surplus() {
        let found = history(&["spec"], parent(json!({"a": 1})), &[revision("o", json!({"spec": {}}), &[])]);
        assert!(found.older.is_empty());
        assert_eq!(found.surplus.len(), 1);
    }

    #[test]
    fn the_oldest_revisions_beyond_the_bound_are_surplus() {
        let name = history(&["spec"], parent(json!({"a": 0})), &[]).latest.name;
        let one = |nth: usize| {
            let name = if nth == 0 { name.clone() } else { format!("r{nth}") };
            a("metacontroller.k8s.io/v1alpha1", "ControllerRevision", &format!("n/{name}"))
                .with(
                    "metadata.creationTimestamp",
                    json!(format!("2026-01-01T00:{:02}:{:02}Z", nth / 60, nth % 60)),
                )
                .with("parentPatch", json!({"spec": {"a": nth}}))
                .with("children", json!([{"apiGroup": "", "kind": "Pod", "names": [nth.to_string()]}]))
                .object()
        };
        for (count, pruned) in
            [(MAX_REVISIONS + 1, 0), (MAX_REVISIONS + 2, 1), (200, 200 - MAX_REVISIONS - 1)]
        {
            let stored: Vec<_> = (0..count).map(one).collect();
            let found = history(&["spec"], parent(json!({"a": 0})), &stored);
            assert_eq!((found.pruned, found.older.len()), (pruned, MAX_REVISIONS), "of {count}");
            assert!(found.latest.stored.is_some(), "the latest stays, though it is the oldest");
            let names: Vec<_> = found.surplus.iter().map(|object| object.key.name.to_string()).collect();
            assert_eq!(names, (1..=pruned).map(|nth| format!("r{nth}")).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_that_cannot_be_read_is_named() {
        let bad = a("m/v1", "ControllerRevision", "n/bad").with("parentPatch", json!(1)).object();
        let found = history(&["spec"], parent(json!({})), &[bad]);
        assert!(found.unreadable[0].to_string().starts_with("ControllerRevision n/bad cannot be read"));
        assert!(found.older.is_empty() && found.surplus.is_empty());
    }
}
