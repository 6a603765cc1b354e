//! Operations of a plan carried out: one request each, and what its answer means for the store.

use http::StatusCode;
use kube::core::ObjectMeta;
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::reconcile::ports::{WriteError, WriteErrorCause};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::api_client::{Answer, ApiClient, Unreachable};
use crate::cluster::objects::{
    Precondition, RequestError, RequestErrorKind, WriteOptions, accepted, is_taken, object,
};

/// Every write carries the name that Metacontroller's writes carry, and asks for warnings about unknown fields.
pub(super) const OPTIONS: WriteOptions<'_> = WriteOptions::by("metacontroller");

/// Result of an operation that was carried out.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// Events for the store.
    pub(crate) events: Vec<CacheEvent>,
    /// Warnings of the API server, about the object as it was sent.
    pub(crate) warnings: Vec<String>,
}

impl From<RequestError> for WriteError {
    fn from(error: RequestError) -> Self {
        let cause = match error.kind() {
            RequestErrorKind::Exists(_) => WriteErrorCause::Taken,
            RequestErrorKind::Unobserved => WriteErrorCause::Unobserved,
            RequestErrorKind::Ungranted(_) => WriteErrorCause::Ungranted,
            _ => WriteErrorCause::Other,
        };
        Self { id: error.id().clone(), cause, retry: error.retry(), source: Box::new(error) }
    }
}

impl From<Vec<CacheEvent>> for Carried {
    fn from(events: Vec<CacheEvent>) -> Self {
        Self { events, warnings: Vec::new() }
    }
}

impl ApiClient {
    /// Carries one operation out.
    pub(crate) async fn carry_out(&self, op: &Op) -> Result<Carried, RequestError> {
        let id = op.id();
        let done = match op {
            Op::Create { body, .. } => self.create_child(id, body, None).await,
            Op::Replace { body, .. } => {
                self.replaced(id, body, self.request_replace(id, body, OPTIONS).await).await
            }
            Op::Status { body, .. } => {
                self.replaced(id, body, self.request_replace_status(id, body, OPTIONS).await).await
            }
            Op::Delete { uid, .. } => self.delete_child(id, uid).await.map(|(known, _)| known.into()),
            Op::Recreate { uid, body, manager, .. } => self.recreate(id, uid, body, manager.as_deref()).await,
            Op::Apply { over: Some((uid, _)), body, manager, .. } => {
                self.apply_over(id, uid, body, manager).await
            }
            Op::Apply { over: None, body, manager, .. } => self.create_child(id, body, Some(manager)).await,
            Op::HandOver { uid, manager, .. } => self.hand_over(id, uid, manager).await,
            // The core decides about the result of a dry run: see `dry_run`.
            Op::DryRun { .. } => Ok(Carried::default()),
        };
        done.map_err(|why| RequestError::new(op.verb(), id, why))
    }

    async fn create_child(
        &self,
        id: &ObjectId,
        body: &Value,
        manager: Option<&str>,
    ) -> Result<Carried, RequestErrorKind> {
        match self.make(id, body, manager).await? {
            Some(known) => Ok(known),
            None => Err(self.taken(id, body).await?),
        }
    }

    /// `None` where the name is taken.
    async fn make(
        &self,
        id: &ObjectId,
        body: &Value,
        manager: Option<&str>,
    ) -> Result<Option<Carried>, RequestErrorKind> {
        if let Some(manager) = manager {
            return self.apply_new(id, body, manager).await;
        }
        let answer = self.request_create(id, body, OPTIONS).await?;
        if is_taken(&answer) { Ok(None) } else { wrote(id, &answer).map(Some) }
    }

    /// Result of the answer to the replacement of an object, or of its status.
    async fn replaced(
        &self,
        id: &ObjectId,
        body: &Value,
        answer: Result<Answer, Unreachable>,
    ) -> Result<Carried, RequestErrorKind> {
        let answer = answer?;
        // The object, or only its status subresource?
        if answer.status == StatusCode::NOT_FOUND && self.is_gone(id).await? {
            let uid = body.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            return Ok(gone(id, &Uid::new(uid)).into());
        }
        wrote(id, &answer)
    }

    pub(super) async fn is_gone(&self, id: &ObjectId) -> Result<bool, Unreachable> {
        Ok(self.request_get(id).await?.status == StatusCode::NOT_FOUND)
    }

    async fn recreate(
        &self,
        id: &ObjectId,
        uid: &Uid,
        body: &Value,
        manager: Option<&str>,
    ) -> Result<Carried, RequestErrorKind> {
        let (mut events, finished) = self.delete_child(id, uid).await?;
        let mut warnings = Vec::new();
        if finished {
            // A finalizer may still hold the name: then the watch event of the deletion starts the next reconcile.
            let made = self.make(id, body, manager).await?.unwrap_or_default();
            events.extend(made.events);
            warnings = made.warnings;
        }
        Ok(Carried { events, warnings })
    }

    /// Deletes just the object that was seen; `true` when it is gone already.
    async fn delete_child(
        &self,
        id: &ObjectId,
        uid: &Uid,
    ) -> Result<(Vec<CacheEvent>, bool), RequestErrorKind> {
        let answer = self.request_delete(id, &Precondition::of(uid)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok((gone(id, uid), true));
        }
        accepted(&answer)?;
        Ok((vec![CacheEvent::Deleting(id.key.clone(), uid.clone())], is_final(&answer.body)))
    }
}

/// The object that was to be written is not there any longer.
pub(super) fn gone(id: &ObjectId, uid: &Uid) -> Vec<CacheEvent> {
    vec![CacheEvent::Missing(id.key.clone(), uid.clone())]
}

/// The answer to a write.
pub(super) fn wrote(id: &ObjectId, answer: &Answer) -> Result<Carried, RequestErrorKind> {
    let events = vec![CacheEvent::Wrote(object(id, answer)?.into())];
    Ok(Carried { events, warnings: answer.warnings.clone() })
}

/// The answer to a write over the object with this uid, which is inside.
pub(super) fn wrote_over(id: &ObjectId, uid: &Uid, answer: &Answer) -> Result<Carried, RequestErrorKind> {
    if answer.status == StatusCode::NOT_FOUND { Ok(gone(id, uid).into()) } else { wrote(id, answer) }
}

/// Whether the answer to a deletion says that the object is gone: a `Status` instead of the object, or an object
/// that nothing holds any longer.
fn is_final(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Deleted {
        kind: String,
        #[serde(default)]
        metadata: ObjectMeta,
    }
    serde_json::from_str(body).is_ok_and(|Deleted { kind, metadata }| {
        let is_held = metadata.finalizers.is_some_and(|finalizers| !finalizers.is_empty());
        kind == "Status" || (metadata.deletion_grace_period_seconds == Some(0) && !is_held)
    })
}

/// Tries of one rewrite, while other clients write the same object.
pub(super) const MAX_TRIES: usize = 4;

impl ApiClient {
    /// Events for the store: the object as written, or that this one is gone. An object that `change` leaves as
    /// it is is not written.
    pub(crate) async fn rewrite(
        &self,
        id: &ObjectId,
        uid: &Uid,
        change: impl Fn(&mut Value),
    ) -> Result<Vec<CacheEvent>, RequestError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(now) = self.read(id).await?.filter(|now| now.uid == *uid) else {
                return Ok(gone(id, uid));
            };
            let before = now.value().map_err(|error| RequestError::new("read", id, error.into()))?;
            let mut body = before.clone();
            change(&mut body);
            if body == before {
                return Ok(vec![CacheEvent::Wrote(now.into())]);
            }
            match self.carry_out(&Op::Replace { id: id.clone(), body }).await {
                Err(error) if error.is_conflict() && tries < MAX_TRIES => {}
                done => return done.map(|done| done.events),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_final_when_nothing_holds_the_object() {
        assert!(is_final(r#"{"kind":"Status","metadata":{}}"#));
        assert!(is_final(r#"{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":0}}"#));
        assert!(!is_final(r#"{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":30}}"#));
        assert!(!is_final(
            r#"{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":0,"finalizers":["x"]}}"#
        ));
        assert!(!is_final("nonsense"));
    }
}
