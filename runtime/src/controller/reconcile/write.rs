//! Writer of objects: operations, claims and finalizers, each with its answer in the store.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::children::claims::{self, Claim, ClaimedObject};
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::object::{ChildMap, Object};
use serde_json::Value;
use tracing::Instrument;

use crate::cluster::access;
use crate::cluster::api_client::ApiClient;
use crate::cluster::apply::{ApplyError, Carried};
use crate::controller::ControllerData;
use crate::controller::reconcile::parents::Parents;
use crate::controller::reconcile::{ClaimError, ReconcileError};
use crate::controller::troubleshooting::log_differences;
use crate::store::{WriteGuard, Writer};

/// What writing changed in the cluster; the strongest of several results counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteResult {
    /// There was nothing to write.
    #[default]
    Nothing,
    /// The API server accepted the write and kept its object as it was, as it does with unknown fields.
    NoOp,
    /// The name of an attachment is taken, so it was not made; the next reconcile after [`TAKEN_RETRY_DELAY`] tries again.
    Taken,
    Wrote,
    /// The parent is gone: nothing else is done for it.
    Gone,
}

/// A name that was taken may be free after this time: the object that has it is another owner's, and may go at any time.
pub(crate) const TAKEN_RETRY_DELAY: Duration = Duration::from_mins(10);

/// One operation that was carried out.
pub(crate) struct Written {
    pub(crate) changed: bool,
    /// The object as the API server answered; `None` where it is gone.
    pub(crate) object: Option<Arc<Object>>,
}

/// The result of several writes: the strongest one, and all errors.
#[derive(Default)]
pub(crate) struct WriteResults {
    pub(crate) result: WriteResult,
    pub(crate) errors: Vec<ReconcileError>,
}

/// The children of a parent once its claims are carried out.
pub(crate) struct Claimed {
    pub(crate) children: ChildMap,
    pub(crate) wrote: bool,
    /// Why an owner reference could not be renewed. The children are as they should be otherwise, so the reconcile goes on,
    /// and fails at its end.
    pub(crate) error: Option<ClaimError>,
}

pub(crate) struct ObjectWriter {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) parents: Arc<Parents>,
    pub(crate) api: ApiClient,
}

impl WriteResult {
    pub(crate) fn of(changed: bool) -> Self {
        if changed { Self::Wrote } else { Self::NoOp }
    }
}

impl WriteResults {
    pub(crate) fn add(&mut self, result: Result<WriteResult, ReconcileError>) {
        match result {
            Ok(result) => self.result = self.result.max(result),
            Err(error) => self.errors.push(error),
        }
    }

    pub(crate) fn add_all(&mut self, results: Self) {
        self.result = self.result.max(results.result);
        self.errors.extend(results.errors);
    }

    /// `what`: the plural of what was written.
    pub(crate) fn finish(self, what: &str) -> Result<WriteResult, ReconcileError> {
        ReconcileError::of_all(what, self.errors).map_or(Ok(self.result), Err)
    }
}

impl ObjectWriter {
    pub(crate) async fn write(&self, op: &Op, writer: &Writer) -> Result<Written, ApplyError> {
        let span = tracing::info_span!("write", op = op.verb(), object = %op.id());
        log_differences(&self.data, op);
        let guard = self.data.write_guard(op.id(), writer);
        let carried = self.api.carry_out(op).instrument(span.clone()).await;
        let Carried { events, warnings } = self.naming_rights(carried).await?;
        writer.accepted.note();
        let changed = op.is_answered_by_a_change(&events);
        if changed {
            self.data.meter.counts().wrote(op.verb());
            self.data.observer.wrote(writer, op.verb(), op.id());
        }
        let _within = span.entered();
        let message = if changed { "written" } else { "written in vain" };
        // Every change of a child ends with a write of the status.
        if changed && !matches!(op, Op::Status { .. }) {
            tracing::info!("{message}");
        } else {
            tracing::debug!("{message}");
        }
        self.parents.record_api_warnings(&writer.parent, op, &warnings);
        Ok(Written { changed, object: observe(guard, events) })
    }

    /// A guard of owner references does not say which right it misses: the refusal names it from here on.
    pub(crate) async fn naming_rights<T>(&self, done: Result<T, ApplyError>) -> Result<T, ApplyError> {
        let error = match done {
            Err(error) => error,
            done => return done,
        };
        let Some((guard, id)) = error.guard() else { return Err(error) };
        let forbidden = guard.forbids(&self.data.parents.resource, &id.resource);
        let message = access::guarded(&self.api, &forbidden).await;
        Err(error.with_right(message))
    }

    /// Reads the object, changes it and writes it; gives back the object as it is then, `None` where it is gone.
    pub(crate) async fn rewrite(
        &self,
        id: &ObjectId,
        uid: &Uid,
        writer: &Writer,
        change: impl Fn(&mut Value),
    ) -> Result<Option<Arc<Object>>, ApplyError> {
        let guard = self.data.write_guard(id, writer);
        let rewritten = self.api.rewrite(id, uid, change).await;
        let events = self.naming_rights(rewritten).await?;
        writer.accepted.note();
        self.data.observer.wrote(writer, "claim or release", id);
        Ok(observe(guard, events))
    }

    /// Carries claims out: orphans are adopted, children that no longer match are released, and owner references name the
    /// parent as it is read now.
    pub(crate) async fn claim(
        &self,
        parent: &Object,
        claims: &[ClaimedObject],
        writer: &Writer,
    ) -> Result<Claimed, ClaimError> {
        let mut claimed = Claimed { children: self.data.config.no_children(), wrote: false, error: None };
        let mut parent_exists = false;
        for ClaimedObject { resource, object, claim } in claims {
            let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
            match claim {
                Claim::Leave => {}
                Claim::Keep => claimed.children.insert(resource, whole(&id, object)?),
                Claim::Renew => {
                    let renew = |object: &mut Value| claims::renew(object, parent);
                    match self.rewrite(&id, &object.uid, writer, renew).await {
                        Ok(now) => {
                            claimed.wrote = true;
                            if let Some(now) = now {
                                claimed.children.insert(resource, now);
                            }
                        }
                        // The plan needs the child as it is now.
                        Err(error) if error.is_conflict() => return Err(error.into()),
                        Err(error) => {
                            claimed.children.insert(resource, whole(&id, object)?);
                            claimed.error.get_or_insert(error.into());
                        }
                    }
                }
                Claim::Adopt => {
                    if !parent_exists {
                        self.check_parent(parent, &id).await?;
                        parent_exists = true;
                    }
                    claimed.wrote = true;
                    let adopt = |object: &mut Value| claims::adopt(object, parent);
                    // The plan is made for the version that the API server has now.
                    if let Some(now) = self.rewrite(&id, &object.uid, writer, adopt).await? {
                        claimed.children.insert(resource, now);
                    }
                }
                Claim::Release => {
                    claimed.wrote = true;
                    let release = |object: &mut Value| claims::release(object, parent);
                    self.rewrite(&id, &object.uid, writer, release).await?;
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
    ) -> Result<Option<Arc<Object>>, ApplyError> {
        let finalizer = &self.data.config.selection.finalizer;
        self.change_finalizers(parent, writer, FinalizerChange::Add(finalizer)).await
    }

    /// The parent without the controller's finalizer; `None` where it is gone.
    pub(crate) async fn drop_finalizer(
        &self,
        parent: &Object,
        writer: &Writer,
    ) -> Result<Option<Arc<Object>>, ApplyError> {
        let is_ours = |one: &str| one == self.data.config.selection.finalizer;
        self.change_finalizers(parent, writer, FinalizerChange::Remove(&is_ours)).await
    }

    async fn change_finalizers(
        &self,
        parent: &Object,
        writer: &Writer,
        change: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, ApplyError> {
        let id = self.data.parent_id(parent);
        let guard = self.data.write_guard(&id, writer);
        let events = self.api.change_finalizers(&id, parent, change).await?;
        writer.accepted.note();
        self.data.observer.wrote(writer, "finalizers", &id);
        Ok(observe(guard, events))
    }

    /// Reads the parent before it gets a child: the one in the store may be long gone.
    async fn check_parent(&self, parent: &Object, orphan: &ObjectId) -> Result<(), ClaimError> {
        match self.api.read(&self.data.parent_id(parent)).await? {
            Some(now) if now.uid == parent.uid && !now.deleting => Ok(()),
            _ => Err(ClaimError::ParentGone { id: orphan.clone() }),
        }
    }
}

/// Children are read before they are claimed.
fn whole(id: &ObjectId, child: &CachedObject) -> Result<Arc<Object>, ClaimError> {
    child.whole().cloned().ok_or_else(|| ClaimError::Unread { id: id.clone() })
}

/// Passes the answer of a write to the store; gives back the object as it was written last.
fn observe(guard: Option<WriteGuard>, events: Vec<CacheEvent>) -> Option<Arc<Object>> {
    let written = events.iter().rev().find_map(|event| match event {
        CacheEvent::Wrote(object) => Some(Arc::clone(object)),
        _ => None,
    });
    if let Some(guard) = guard {
        guard.answered(events);
    }
    written
}
