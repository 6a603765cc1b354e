//! Claims carried out: a parent's children gathered, orphans adopted, strays released, finalizers taken off.

use std::sync::Arc;

use metahook_core::claim::Claim;
use metahook_core::index::Event;
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::object::map::ChildMap;
use metahook_core::pass::{Claimed, Seen};
use metahook_core::plan::Op;
use metahook_core::plan::children::owner_reference;
use serde_json::{Value, json};

use super::composite::Controller;
use crate::cluster::apply::ApplyError;
use crate::store::Writer;

/// Somebody else may be writing the same object.
const TRIES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{id} is not adopted: its parent to be is gone or being deleted")]
    ParentGone { id: ObjectId },
    #[error("{id} cannot be read")]
    Unreadable { id: ObjectId },
}

impl Controller {
    /// The parent's children, and whether anything was written on the way.
    pub(super) async fn claim(&self, seen: &Seen, writer: &Writer) -> Result<(ChildMap, bool), ClaimError> {
        let parent = &seen.parent;
        let (mut children, mut wrote, mut parent_is_there) = (self.terms.no_children(), false, false);
        for Claimed { resource, object, claim } in &seen.claims {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            match claim {
                Claim::Leave => {}
                Claim::Keep => children.insert(resource, Arc::clone(object)),
                Claim::Adopt => {
                    if !parent_is_there {
                        self.parent_lives(parent, &id).await?;
                        parent_is_there = true;
                    }
                    wrote = true;
                    if self.change(&id, &object.uid, writer, |object| adopt(object, parent)).await? {
                        children.insert(resource, Arc::clone(object));
                    }
                }
                Claim::Release => {
                    wrote = true;
                    self.change(&id, &object.uid, writer, |object| release(object, parent)).await?;
                }
            }
        }
        Ok((children, wrote))
    }

    /// Takes our finalizer off a parent.
    pub(super) async fn drop_finalizer(&self, parent: &Object, writer: &Writer) -> Result<bool, ClaimError> {
        let id = ObjectId { resource: Arc::clone(self.parents.resource()), key: parent.key.clone() };
        let ours = &self.terms.selection.finalizer;
        let drop = |object: &mut Value| {
            list(object, "finalizers", |all| {
                all.retain(|one| one.as_str() != Some(ours));
            });
        };
        self.change(&id, &parent.uid, writer, drop).await
    }

    /// The parent in the store may be long gone: ask before giving it a child.
    async fn parent_lives(&self, parent: &Object, orphan: &ObjectId) -> Result<(), ClaimError> {
        let id = ObjectId { resource: Arc::clone(self.parents.resource()), key: parent.key.clone() };
        match self.tools.rest.read(&id).await? {
            Some(now) if now.uid == parent.uid && !now.deleting => Ok(()),
            _ => Err(ClaimError::ParentGone { id: orphan.clone() }),
        }
    }

    /// Rewrites the object as it is now; `false` where it is gone.
    async fn change(
        &self,
        id: &ObjectId,
        uid: &Uid,
        writer: &Writer,
        change: impl Fn(&mut Value),
    ) -> Result<bool, ClaimError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(now) = self.tools.rest.read(id).await?.filter(|now| now.uid == *uid) else {
                self.absorb(id, vec![Event::Missing(id.key.clone(), uid.clone())], writer);
                return Ok(false);
            };
            let mut body = now.value().map_err(|_invalid| ClaimError::Unreadable { id: id.clone() })?;
            change(&mut body);
            match self.tools.rest.carry_out(&Op::Replace { id: id.clone(), body }).await {
                Ok(known) => {
                    let there = !known.iter().any(|event| matches!(event, Event::Missing(..)));
                    self.absorb(id, known, writer);
                    return Ok(there);
                }
                Err(error) if error.is_conflict() && tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn adopt(object: &mut Value, parent: &Object) {
    release(object, parent);
    list(object, "ownerReferences", |owners| {
        owners.push(owner_reference(parent));
    });
}

fn release(object: &mut Value, parent: &Object) {
    let ours = |owner: &Value| owner.get("uid").and_then(Value::as_str) == Some(parent.uid.as_str());
    list(object, "ownerReferences", |owners| {
        owners.retain(|owner| !ours(owner));
    });
}

/// Changes a list of the metadata; one that is not there is empty.
fn list(object: &mut Value, field: &str, change: impl FnOnce(&mut Vec<Value>)) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Value::Array(list) = metadata.entry(field).or_insert_with(|| json!([]))
    {
        change(list);
    }
}
