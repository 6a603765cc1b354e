//! The states of a parent that its children are at: what is kept of each, its name, and the parent as it was then.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};
use sha1::{Digest, Sha1};

use crate::api::composite::{ControllerRevision, RevisionChildNames};
use crate::api::units::print_bytes;
use crate::hash::Fingerprint;
use crate::json::difference::plain;
use crate::json::size::tree_size;
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
    pub children: Vec<RevisionChildNames>,
    /// The parent, as it is or as it would be at this revision.
    pub parent: Arc<Object>,
}

/// The revisions of one parent.
#[derive(Debug)]
pub struct History {
    pub latest: Revision,
    /// Revisions that still have children, by name.
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
    #[error(
        "ControllerRevision {name} is left out, and its children are updated at once: the newest ones take {} of memory together, and no more is read",
        print_bytes(MAX_REVISIONS_MEMORY as u64)
    )]
    TooLarge { name: String },
    #[error("the parent as it was at ControllerRevision {name}")]
    Parent { name: String, source: ObjectError },
}

/// The most memory that the revisions of a parent take together, once they are read.
pub const MAX_REVISIONS_MEMORY: usize = 32 << 20;

/// The memory of a revision: its tree and text, and the parent as it was then.
pub fn revision_size(revision: &Object, parent: &Object) -> usize {
    tree_size(revision.json().as_bytes()) + 2 * revision.json().len() + parent.json().len()
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

/// Fields that a revision keeps of a parent, where the parent has them.
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
        // Patches that are the same print the same. A tenant may write many large ones that differ at their end alone.
        let print = |patch: &Value| Fingerprint::of(to_go_string(&plain(patch)).as_bytes());
        let mut prints = vec![print(&latest.patch)];
        let (mut older, mut surplus, mut unreadable) = (Vec::<Revision>::new(), Vec::new(), Vec::new());
        let mut sorted: Vec<_> = stored.iter().collect();
        let pruned = prune(&mut sorted, &latest.name);
        unreadable.extend(leave_out(&mut sorted, &latest.name, parent));
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
            let print = print(&patch);
            let position = prints.iter().position(|one| *one == print);
            let equal = position.and_then(|nth| std::iter::once(&mut latest).chain(&mut older).nth(nth));
            let (name, stored) = (object.key.name.to_string(), Some(Arc::clone(object)));
            if let Some(equal) = equal {
                equal.claims.extend(claims);
                if equal.stored.is_none() {
                    (equal.name, equal.stored, equal.children) = (name, stored, children);
                } else {
                    surplus.extend(stored);
                }
            } else {
                match hypothetical(&now, rolling, &patch, object) {
                    Ok(parent) => {
                        older.push(Revision { name, stored, patch, claims, children, parent });
                        prints.push(print);
                    }
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

/// Takes revisions out that are too large to be read beside newer ones.
fn leave_out(stored: &mut Vec<&Arc<Object>>, latest: &str, parent: &Object) -> Vec<RevisionError> {
    let size = |object: &&Arc<Object>| revision_size(object, parent);
    if stored.iter().map(size).sum::<usize>() <= MAX_REVISIONS_MEMORY {
        return Vec::new();
    }
    stored.sort_by_cached_key(|object| {
        (*object.key.name != *latest, std::cmp::Reverse(object.created), object.key.clone())
    });
    let (mut room, mut left_out) = (MAX_REVISIONS_MEMORY, Vec::new());
    stored.retain(|object| {
        let left = room.checked_sub(size(object));
        if left.is_none() {
            left_out.push(RevisionError::TooLarge { name: object.key.to_string() });
        }
        room = left.unwrap_or(room);
        left.is_some()
    });
    left_out
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
