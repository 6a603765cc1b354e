//! Deletions of related objects: which of those that an answer asks for are granted and were shown, and how they are reported.
//!
//! An answer is checked against the very request that it answers, so a hook cannot name an object that it was not shown.
//! Deletions carry the uid and follow everything else of a reconcile that succeeded. They hold `finalized` back: after the
//! parent has gone they could not be tried again. There is one Event per kind, so that many deletions are no flood that is cut.

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

/// Objects that a request shows a hook.
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
        "the hook's answer: {asked}, which is not among the related objects of its request: only what the customize hook asks for, and the request shows, can be deleted"
    )]
    NotRelated { asked: Box<Deletion>, plural: Arc<str> },
    #[error(
        "the hook's answer: deleteRelated[{}].uid is {}, and {} {} in its request has the uid {shown}: answer with what the request says",
        asked.at, asked.uid, asked.gvk, asked.key
    )]
    OtherUid { asked: Box<Deletion>, plural: Arc<str>, shown: Uid },
    #[error(
        "the hook's answer: {asked}, and the controller's spec does not let its hooks delete such objects: add {{apiVersion: {}, resource: {plural}}} to spec.relatedDeletion where that is meant",
        asked.gvk.api_version()
    )]
    NotGranted { asked: Box<Deletion>, plural: Arc<str> },
    #[error(
        "the hook's answer: deleteRelated[{}].namespace is {:?}, and spec.relatedDeletion[{grant}] lets hooks delete such objects ({}) in the parent's own namespace ({home:?}) alone: set anyNamespace there where more is meant",
        asked.at, &*asked.key.namespace, asked.gvk
    )]
    OtherNamespace { asked: Box<Deletion>, plural: Arc<str>, grant: usize, home: String },
    #[error(
        "the hook's answer: {0}, which is this parent's own: leave it out of the list of what should exist to have it deleted"
    )]
    Own(Box<Deletion>),
}

/// The plural of a kind whose plural is not known: only who may list all of a group may list it.
const ANY_PLURAL: &str = "*";

impl DeletionError {
    /// The related object that the error names; `None`: it is the parent's own.
    pub fn object(&self) -> Option<ObjectId> {
        let (Self::NotRelated { asked, plural }
        | Self::OtherUid { asked, plural, .. }
        | Self::NotGranted { asked, plural }
        | Self::OtherNamespace { asked, plural, .. }) = self
        else {
            return None;
        };
        let Deletion { gvk, key, .. } = &**asked;
        let (gvk, plural) = (gvk.clone(), Arc::clone(plural));
        let resource = Resource { gvk, plural, namespaced: !key.namespace.is_empty(), has_status: false };
        Some(ObjectId { resource: Arc::new(resource), key: key.clone() })
    }
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
    let plural = || of_the_kind.map_or_else(|| ANY_PLURAL.into(), |(it, _)| Arc::clone(&it.plural));
    let found = of_the_kind.and_then(|(resource, objects)| Some((resource, objects.get(key)?)));
    let Some((resource, object)) = found.filter(|_| shown.naming.name(home, key).is_some()) else {
        return Err(DeletionError::NotRelated { asked: asked(), plural: plural() });
    };
    if object.uid != *uid {
        let shown = object.uid.clone();
        return Err(DeletionError::OtherUid { asked: asked(), plural: plural(), shown });
    }
    match grants.iter().enumerate().find(|(_, grant)| grant.grants(&resource.gvr())) {
        None => Err(DeletionError::NotGranted { asked: asked(), plural: plural() }),
        Some((grant, Grant { any_namespace: false, .. })) if key.namespace != *home => {
            let home = home.to_string();
            Err(DeletionError::OtherNamespace { asked: asked(), plural: plural(), grant, home })
        }
        Some(_) => Ok((resource, object)),
    }
}

/// Bytes of names in one message: an Event takes 1,024 in all, and what is around them fits into the rest.
const NAMES: usize = 512;

/// Messages of the Events about objects that one reconcile deleted: one per kind, so that many are no flood. A name that
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

#[cfg(test)]
mod tests;
