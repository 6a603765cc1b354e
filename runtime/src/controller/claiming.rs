//! Claims carried out: a parent's children gathered, orphans adopted, strays released.

use std::sync::Arc;

use metahook_core::claim::{self, Claim};
use metahook_core::index::Event;
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::object::map::ChildMap;
use metahook_core::object::selector::Selector;
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
    pub(super) async fn claim(
        &self,
        parent: &Arc<Object>,
        selector: &Selector,
        writer: &Writer,
    ) -> Result<(ChildMap, bool), ClaimError> {
        let (mut children, mut wrote, mut parent_is_there) = (ChildMap::default(), false, false);
        for (rule, store) in &self.children {
            children.declare(&rule.resource);
            for candidate in store.candidates(&parent.uid, &parent.key.namespace) {
                let id = ObjectId {
                    resource: Arc::clone(&rule.resource),
                    key: candidate.key.clone(),
                };
                match claim::decide(parent, selector, &candidate) {
                    Claim::Leave => {}
                    Claim::Keep => children.insert(&rule.resource, candidate),
                    Claim::Adopt => {
                        if !parent_is_there {
                            self.parent_lives(parent, &id).await?;
                            parent_is_there = true;
                        }
                        wrote |= self
                            .change_owners(&id, &candidate.uid, writer, |owners| adopt(owners, parent))
                            .await?;
                        children.insert(&rule.resource, candidate);
                    }
                    Claim::Release => {
                        wrote |= self
                            .change_owners(&id, &candidate.uid, writer, |owners| release(owners, parent))
                            .await?;
                    }
                }
            }
        }
        Ok((children, wrote))
    }

    /// The parent in the store may be long gone: ask before giving it a child.
    async fn parent_lives(&self, parent: &Object, orphan: &ObjectId) -> Result<(), ClaimError> {
        let id = ObjectId {
            resource: Arc::clone(self.parents.resource()),
            key: parent.key.clone(),
        };
        match self.tools.rest.read(&id).await? {
            Some(now) if now.uid == parent.uid && !now.deleting => Ok(()),
            _ => Err(ClaimError::ParentGone { id: orphan.clone() }),
        }
    }

    /// Rewrites the owner references of the object as it is now; `false` where it is gone.
    async fn change_owners(
        &self,
        id: &ObjectId,
        uid: &Uid,
        writer: &Writer,
        change: impl Fn(&mut Vec<Value>),
    ) -> Result<bool, ClaimError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(now) = self.tools.rest.read(id).await?.filter(|now| now.uid == *uid) else {
                self.absorb(id, vec![Event::Missing(id.key.clone(), uid.clone())], writer);
                return Ok(false);
            };
            let mut body = now
                .value()
                .map_err(|_invalid| ClaimError::Unreadable { id: id.clone() })?;
            if let Some(Value::Object(metadata)) = body.get_mut("metadata")
                && let Value::Array(owners) = metadata.entry("ownerReferences").or_insert_with(|| json!([]))
            {
                change(owners);
            }
            match self
                .tools
                .rest
                .carry_out(&Op::Replace { id: id.clone(), body })
                .await
            {
                Ok(known) => {
                    self.absorb(id, known, writer);
                    return Ok(true);
                }
                Err(error) if error.is_conflict() && tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn adopt(owners: &mut Vec<Value>, parent: &Object) {
    release(owners, parent);
    owners.push(owner_reference(parent));
}

fn release(owners: &mut Vec<Value>, parent: &Object) {
    owners.retain(|owner| owner.get("uid").and_then(Value::as_str) != Some(parent.uid.as_str()));
}
