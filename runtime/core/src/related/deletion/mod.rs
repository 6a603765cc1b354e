//! Deletions of related objects: which of those that an answer asks for are granted and were shown, and how they are reported.
//!
//! An answer is checked against the very request that it answers, so a hook cannot name an object that it was not shown.
//! Deletions carry the uid and follow everything else of a reconcile that succeeded. They hold `finalized` back: after the
//! parent has gone they could not be tried again. There is one Event per kind, so that many deletions are no flood that is cut.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::api::common::Grant;
use crate::children::Op;
use crate::object::id::{Gvk, Key, ObjectId, Resource, Uid};
use crate::object::{ChildMap, Naming, Object};

/// An object that an answer wants deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Its position in the answer's list.
    pub at: usize,
    pub gvk: Gvk,
    pub key: Key,
    pub uid: Uid,
}

impl fmt::Display for Deletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deleteRelated[{}] is {} {}", self.at, self.gvk, self.key)
    }
}

/// What a hook was asked.
#[derive(Debug, Clone, Copy)]
pub struct ShownObjects<'a> {
    pub parent: &'a Object,
    pub children: &'a ChildMap,
    pub related: &'a ChildMap,
    pub naming: Naming,
}

/// An object that may not be deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeletionError {
    #[error(
        "the hook's answer: {0}, which is not among the related objects of its request: only what the customize hook asks for, and the request shows, can be deleted"
    )]
    NotRelated(Box<Deletion>),
    #[error(
        "the hook's answer: deleteRelated[{}].uid is {}, and {} {} in its request has the uid {shown}: answer with what the request says",
        asked.at, asked.uid, asked.gvk, asked.key
    )]
    OtherUid { asked: Box<Deletion>, shown: Uid },
    #[error(
        "the hook's answer: {asked}, and the controller's spec does not let its hooks delete such objects: add {{apiVersion: {}, resource: {plural}}} to spec.relatedDeletion where that is meant",
        asked.gvk.api_version()
    )]
    NotGranted { asked: Box<Deletion>, plural: String },
    #[error(
        "the hook's answer: deleteRelated[{}].namespace is {:?}, and spec.relatedDeletion[{grant}] lets hooks delete such objects ({}) in the parent's own namespace ({home:?}) alone: set anyNamespace there where more is meant",
        asked.at, &*asked.key.namespace, asked.gvk
    )]
    OtherNamespace { asked: Box<Deletion>, grant: usize, home: String },
    #[error(
        "the hook's answer: {0}, which is this parent's own: leave it out of the list of what should exist to have it deleted"
    )]
    Own(Box<Deletion>),
}

/// The deletions that an answer asks for.
///
/// # Errors
/// One object that may not be deleted refuses the whole answer: nothing has been written yet, and nothing will be.
///
/// # Guarantees
/// Whatever is deleted was shown by the request, with this uid, and is granted. What is being deleted already is left.
pub fn check(
    asked: &[Deletion],
    grants: &[Grant],
    shown: ShownObjects<'_>,
) -> Result<Vec<Op>, DeletionError> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    // Whatever the group and version: an object may be served by two.
    let own = shown.children.objects().map(|(_, child)| (&child.uid, &child.gvk.kind, &child.key));
    let own: BTreeSet<_> = own.collect();
    let checked = asked.iter().map(|deletion| {
        if own.contains(&(&deletion.uid, &deletion.gvk.kind, &deletion.key)) {
            return Err(DeletionError::Own(Box::new(deletion.clone())));
        }
        let (resource, object) = find(deletion, grants, shown)?;
        let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
        Ok((!object.deleting).then(|| Op::Delete { id, uid: object.uid.clone() }))
    });
    checked.filter_map(Result::transpose).collect()
}

/// The object that is meant, where it may be deleted.
fn find<'a>(
    deletion: &Deletion,
    grants: &[Grant],
    shown: ShownObjects<'a>,
) -> Result<(&'a Arc<Resource>, &'a Object), DeletionError> {
    let Deletion { gvk, key, uid, .. } = deletion;
    let (asked, home) = (|| Box::new(deletion.clone()), &shown.parent.key.namespace);
    let of_the_kind = shown.related.groups().find(|(resource, _)| resource.gvk == *gvk);
    let found = of_the_kind.and_then(|(resource, objects)| Some((resource, objects.get(key)?)));
    let Some((resource, object)) = found.filter(|_| shown.naming.name(home, key).is_some()) else {
        return Err(DeletionError::NotRelated(asked()));
    };
    if object.uid != *uid {
        return Err(DeletionError::OtherUid { asked: asked(), shown: object.uid.clone() });
    }
    match grants.iter().enumerate().find(|(_, grant)| grant.grants(&resource.gvr())) {
        None => Err(DeletionError::NotGranted { asked: asked(), plural: resource.plural.to_string() }),
        Some((grant, Grant { any_namespace: false, .. })) if key.namespace != *home => {
            Err(DeletionError::OtherNamespace { asked: asked(), grant, home: home.to_string() })
        }
        Some(_) => Ok((resource, object)),
    }
}

/// So many bytes of names: an Event takes 1,024 in all, and what is around them fits into the rest.
const NAMES: usize = 512;

/// What the parent's Events say of objects that one pass deleted: one per kind, so that a large pass is no flood. A name that
/// is in another namespace than the parent comes with its namespace; where not all names fit, the rest is
/// counted.
pub fn event_messages(home: &str, deleted: &[ObjectId]) -> Vec<String> {
    let mut kinds = BTreeMap::<_, Vec<_>>::new();
    for ObjectId { resource, key } in deleted {
        let name = if *key.namespace == *home { key.name.to_string() } else { key.to_string() };
        kinds.entry(&resource.gvk).or_default().push(name);
    }
    let messages = kinds.into_iter().map(|(gvk, mut names)| {
        names.sort_unstable();
        let (count, mut length) = (names.len(), 0);
        names.retain(|name| {
            length += name.len() + ", ".len();
            length <= NAMES
        });
        let more = count - names.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("Deleted {count} of {gvk}, as the hook asked: {}{more}", names.join(", "))
    });
    messages.collect()
}
