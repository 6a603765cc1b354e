//! Writer of claims and finalizers: orphans are adopted, children that no longer match are released.

use std::sync::Arc;

use metahook_core::children::claims::{Claim, ClaimedObject, owner_reference};
use metahook_core::object::id::ObjectId;
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::outcome::Retry;
use serde_json::{Value, json};

use crate::cluster::apply::{ApplyError, list};
use crate::controller::data::ControllerData;
use crate::controller::reconcile::write::ObjectWriter;
use crate::store::Writer;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{id} is not adopted: its parent to be is gone or being deleted")]
    ParentGone { id: ObjectId },
}

pub(crate) struct ClaimWriter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) writer: Arc<ObjectWriter>,
}

/// The children of a parent once its claims are carried out.
pub(crate) struct Claimed {
    pub(crate) children: ChildMap,
    pub(crate) wrote: bool,
}

impl ClaimError {
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Apply(error) => error.retry(),
            Self::ParentGone { .. } => Retry::Loud,
        }
    }
}

impl ClaimWriter {
    pub(crate) async fn claim(
        &self,
        parent: &Object,
        claims: &[ClaimedObject],
        writer: &Writer,
    ) -> Result<Claimed, ClaimError> {
        let mut claimed = Claimed { children: self.data.config.no_children(), wrote: false };
        let mut parent_exists = false;
        for ClaimedObject { resource, object, claim } in claims {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            match claim {
                Claim::Leave => {}
                Claim::Keep => claimed.children.insert(resource, Arc::clone(object)),
                Claim::Adopt => {
                    if !parent_exists {
                        self.check_parent(parent, &id).await?;
                        parent_exists = true;
                    }
                    claimed.wrote = true;
                    let adopt = |object: &mut Value| adopt(object, parent);
                    // The plan is made for the version that the API server has now.
                    if let Some(now) = self.writer.rewrite(&id, &object.uid, writer, adopt).await? {
                        claimed.children.insert(resource, now);
                    }
                }
                Claim::Release => {
                    claimed.wrote = true;
                    let release = |object: &mut Value| release(object, parent);
                    self.writer.rewrite(&id, &object.uid, writer, release).await?;
                }
            }
        }
        Ok(claimed)
    }

    /// The parent with the controller's finalizer; `None` where it is gone.
    pub(crate) async fn add_finalizer(
        &self,
        parent: &Object,
        writer: &Writer,
    ) -> Result<Option<Arc<Object>>, ClaimError> {
        let finalizer = &self.data.config.selection.finalizer;
        let add = |object: &mut Value| {
            // The API server refuses new finalizers on an object that is being deleted by now.
            let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
            list(object, "finalizers", |all| {
                if !deleting && !all.iter().any(|one| one.as_str() == Some(finalizer)) {
                    all.push(json!(finalizer));
                }
            });
        };
        Ok(self.writer.rewrite(&self.data.parent_id(parent), &parent.uid, writer, add).await?)
    }

    /// The parent without the controller's finalizer; `None` where it is gone.
    pub(crate) async fn drop_finalizer(
        &self,
        parent: &Object,
        writer: &Writer,
    ) -> Result<Option<Arc<Object>>, ClaimError> {
        let finalizer = &self.data.config.selection.finalizer;
        let drop = |object: &mut Value| {
            list(object, "finalizers", |all| all.retain(|one| one.as_str() != Some(finalizer)));
        };
        Ok(self.writer.rewrite(&self.data.parent_id(parent), &parent.uid, writer, drop).await?)
    }

    /// Reads the parent before it gets a child: the one in the store may be long gone.
    async fn check_parent(&self, parent: &Object, orphan: &ObjectId) -> Result<(), ClaimError> {
        match self.writer.api.read(&self.data.parent_id(parent)).await? {
            Some(now) if now.uid == parent.uid && !now.deleting => Ok(()),
            _ => Err(ClaimError::ParentGone { id: orphan.clone() }),
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
    let is_parent = |owner: &Value| owner.get("uid").and_then(Value::as_str) == Some(parent.uid.as_str());
    list(object, "ownerReferences", |owners| {
        owners.retain(|owner| !is_parent(owner));
    });
}
