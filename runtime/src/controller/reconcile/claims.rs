//! Claims carried out: a parent's children gathered, orphans adopted, strays released; finalizers put on and taken off.

use std::sync::Arc;

use metahook_core::children::claims::Claim;
use metahook_core::children::last_applied::owner_reference;
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::object::map::ChildMap;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::plan::ClaimedObject;
use serde_json::{Value, json};

use crate::cluster::apply::ApplyError;
use crate::cluster::apply::{RewriteError, list};
use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::apply::learned;
use crate::store::Writer;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    #[error("{id} is not adopted: its parent to be is gone or being deleted")]
    ParentGone { id: ObjectId },
}

impl ClaimError {
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Apply(error) | Self::Rewrite(RewriteError::Apply(error)) => error.retry(),
            Self::Rewrite(RewriteError::Unreadable(_)) | Self::ParentGone { .. } => Retry::Loud,
        }
    }
}

impl Reconciler {
    /// What is the parent's, and whether anything was written on the way.
    pub(crate) async fn claim(
        &self,
        parent: &Object,
        claims: &[ClaimedObject],
        writer: &Writer,
    ) -> Result<(ChildMap, bool), ClaimError> {
        let (mut children, mut wrote, mut parent_is_there) = (self.terms.no_children(), false, false);
        for ClaimedObject { resource, object, claim } in claims {
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
                    // Shown as it is now, so that what is planned is planned for the version that there is.
                    if let Some(now) =
                        self.change(&id, &object.uid, writer, |object| adopt(object, parent)).await?
                    {
                        children.insert(resource, now);
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

    /// Puts our finalizer on a parent; `None` where the parent is gone.
    pub(crate) async fn add_finalizer(
        &self,
        parent: &Object,
        writer: &Writer,
    ) -> Result<Option<Arc<Object>>, ClaimError> {
        let ours = &self.terms.selection.finalizer;
        let add = |object: &mut Value| {
            // One that is being deleted by now takes no finalizer any more.
            let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
            list(object, "finalizers", |all| {
                if !deleting && !all.iter().any(|one| one.as_str() == Some(ours)) {
                    all.push(json!(ours));
                }
            });
        };
        self.change(&self.parent_id(parent), &parent.uid, writer, add).await
    }

    /// Takes our finalizer off a parent; `None` where the parent is gone.
    pub(crate) async fn drop_finalizer(
        &self,
        parent: &Object,
        writer: &Writer,
    ) -> Result<Option<Arc<Object>>, ClaimError> {
        let ours = &self.terms.selection.finalizer;
        let drop = |object: &mut Value| {
            list(object, "finalizers", |all| {
                all.retain(|one| one.as_str() != Some(ours));
            });
        };
        self.change(&self.parent_id(parent), &parent.uid, writer, drop).await
    }

    pub(crate) fn parent_id(&self, parent: &Object) -> ObjectId {
        ObjectId { resource: Arc::clone(self.parents.resource()), key: parent.key.clone() }
    }

    /// The parent in the store may be long gone: ask before giving it a child.
    async fn parent_lives(&self, parent: &Object, orphan: &ObjectId) -> Result<(), ClaimError> {
        match self.tools.rest.read(&self.parent_id(parent)).await? {
            Some(now) if now.uid == parent.uid && !now.deleting => Ok(()),
            _ => Err(ClaimError::ParentGone { id: orphan.clone() }),
        }
    }

    /// Rewrites the object as it is now, and says what it became; `None` where it is gone.
    async fn change(
        &self,
        id: &ObjectId,
        uid: &Uid,
        writer: &Writer,
        change: impl Fn(&mut Value),
    ) -> Result<Option<Arc<Object>>, ClaimError> {
        let writing = self.writing(id, writer);
        Ok(learned(writing, self.tools.rest.rewrite(id, uid, change).await?))
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
