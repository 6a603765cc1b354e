//! Operations of a plan carried out: one request each, and what its answer means for the store.

use http::{Method, StatusCode};
use kube::core::ObjectMeta;
use metahook_core::api::access::OwnerGuard;
use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::object::{Object, ObjectError};
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{WriteError, WriteErrorCause};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::api_client::{Answer, ApiClient, Unreachable};
use crate::cluster::paths::{list_path, object_path};
use crate::cluster::rights;

/// Every write carries the name that Metacontroller's writes carry, and asks for warnings about unknown fields.
pub(super) const FIELD_MANAGER: &str = "fieldManager=metacontroller&fieldValidation=Warn";

/// What became of an operation that was carried out.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// For the store.
    pub(crate) events: Vec<CacheEvent>,
    /// Of the API server, about the object as it was sent.
    pub(crate) warnings: Vec<String>,
}

/// An operation that was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {id}")]
pub(crate) struct ApplyError {
    verb: &'static str,
    id: Box<ObjectId>,
    #[source]
    why: Why,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    #[error("it has changed meanwhile: {0}")]
    Conflict(String),
    #[error("an object of that name exists already: {0}; delete it or choose another name")]
    Exists(String),
    #[error("it is this parent's, and has not been observed yet")]
    Unobserved,
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Ungranted(String),
    #[error("it can be neither updated in place nor recreated, so it is left as it is: {0}")]
    Unmakable(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[from] ObjectError),
}

/// What a user can do who wants an object deleted that cannot be made anew.
pub(super) const WAY_OUT: &str = "; to have it deleted all the same";

impl ApplyError {
    pub(super) fn new(verb: &'static str, id: &ObjectId, why: Why) -> Self {
        Self { verb, id: Box::new(id.clone()), why }
    }

    /// A right is missing.
    pub(crate) fn is_ungranted(&self) -> bool {
        matches!(self.why, Why::Ungranted(_))
    }

    /// The guard of owner references that refused it, and the object.
    pub(crate) fn guard(&self) -> Option<(OwnerGuard, &ObjectId)> {
        let (Why::Refused(message) | Why::Unmakable(message)) = &self.why else { return None };
        Some((OwnerGuard::of(message)?, &self.id))
    }

    /// The same, with a message that names the right that the guard asks for.
    pub(crate) fn with_right(mut self, message: String) -> Self {
        self.why = match self.why {
            Why::Unmakable(before) => {
                let way_out = before.find(WAY_OUT).and_then(|at| before.get(at..)).unwrap_or_default();
                Why::Unmakable(message + way_out)
            }
            _ => Why::Ungranted(message),
        };
        self
    }

    /// How the reconcile is retried. Neither a conflict with another client nor a busy API server is worth an Event: the
    /// watch event of the other write is on its way.
    pub(crate) fn retry(&self) -> Retry {
        match &self.why {
            Why::Conflict(_) | Why::Unobserved => Retry::Quiet,
            Why::Unreachable(error) => error.retry(),
            Why::Exists(_) | Why::Refused(_) | Why::Ungranted(_) | Why::Unmakable(_) | Why::Answer(_) => {
                Retry::Loud
            }
        }
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.retry() == Retry::Quiet
    }
}

impl From<ApplyError> for WriteError {
    fn from(error: ApplyError) -> Self {
        let cause = match error.why {
            Why::Exists(_) => WriteErrorCause::Taken,
            Why::Unobserved => WriteErrorCause::Unobserved,
            Why::Ungranted(_) => WriteErrorCause::Ungranted,
            _ => WriteErrorCause::Other,
        };
        Self { id: (*error.id).clone(), cause, retry: error.retry(), source: Box::new(error) }
    }
}

impl From<Vec<CacheEvent>> for Carried {
    fn from(events: Vec<CacheEvent>) -> Self {
        Self { events, warnings: Vec::new() }
    }
}

impl ApiClient {
    /// Carries one operation out.
    pub(crate) async fn carry_out(&self, op: &Op) -> Result<Carried, ApplyError> {
        let id = op.id();
        let done = match op {
            Op::Create { body, .. } => self.create(id, body, None).await,
            Op::Replace { body, .. } => self.put(&object_path(&id.resource, &id.key), id, body).await,
            Op::Status { body, .. } => {
                self.put(&format!("{}/status", object_path(&id.resource, &id.key)), id, body).await
            }
            Op::Delete { uid, .. } => self.delete(id, uid).await.map(|(known, _)| known.into()),
            Op::Recreate { uid, body, manager, .. } => self.recreate(id, uid, body, manager.as_deref()).await,
            Op::Apply { over: Some((uid, _)), body, manager, .. } => {
                self.apply_over(id, uid, body, manager).await
            }
            Op::Apply { over: None, body, manager, .. } => self.create(id, body, Some(manager)).await,
            Op::HandOver { uid, manager, .. } => self.hand_over(id, uid, manager).await,
            // The core decides about the result of a dry run: see `dry_run`.
            Op::Probe { .. } => Ok(Carried::default()),
        };
        done.map_err(|why| ApplyError::new(op.verb(), id, why))
    }

    /// Reads one object as it is now.
    pub(crate) async fn read(&self, id: &ObjectId) -> Result<Option<Object>, ApplyError> {
        let answer = self.get(&object_path(&id.resource, &id.key)).await.map_err(Why::from);
        answer.and_then(|answer| found(id, &answer)).map_err(|why| ApplyError::new("read", id, why))
    }

    async fn create(&self, id: &ObjectId, body: &Value, manager: Option<&str>) -> Result<Carried, Why> {
        match self.make(id, body, manager).await? {
            Some(known) => Ok(known),
            None => Err(self.taken(id, body).await?),
        }
    }

    /// `None` where the name is taken.
    async fn make(&self, id: &ObjectId, body: &Value, manager: Option<&str>) -> Result<Option<Carried>, Why> {
        if let Some(manager) = manager {
            return self.apply_new(id, body, manager).await;
        }
        let path = format!("{}?{FIELD_MANAGER}", list_path(&id.resource, &id.key.namespace));
        let answer = self.send(Method::POST, &path, body).await?;
        if answer.status == StatusCode::CONFLICT && answer.reason() == "AlreadyExists" {
            return Ok(None);
        }
        wrote(id, &answer).map(Some)
    }

    async fn put(&self, path: &str, id: &ObjectId, body: &Value) -> Result<Carried, Why> {
        let answer = self.send(Method::PUT, &format!("{path}?{FIELD_MANAGER}"), body).await?;
        // The object, or only its status subresource?
        if answer.status == StatusCode::NOT_FOUND && self.is_gone(id).await? {
            let uid = body.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            return Ok(gone(id, &Uid::new(uid)).into());
        }
        wrote(id, &answer)
    }

    pub(super) async fn is_gone(&self, id: &ObjectId) -> Result<bool, Why> {
        Ok(self.get(&object_path(&id.resource, &id.key)).await?.status == StatusCode::NOT_FOUND)
    }

    async fn recreate(
        &self,
        id: &ObjectId,
        uid: &Uid,
        body: &Value,
        manager: Option<&str>,
    ) -> Result<Carried, Why> {
        let (mut events, finished) = self.delete(id, uid).await?;
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
    async fn delete(&self, id: &ObjectId, uid: &Uid) -> Result<(Vec<CacheEvent>, bool), Why> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid.as_str()},
            // Some kinds leave their own children behind by default.
            "propagationPolicy": "Background",
        });
        let path = object_path(&id.resource, &id.key);
        let answer = self.send(Method::DELETE, &path, &options).await?;
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

fn accepted(answer: &Answer) -> Result<(), Why> {
    match answer.status {
        StatusCode::CONFLICT => Err(Why::Conflict(answer.message())),
        status if status.is_success() => Ok(()),
        status => {
            let message = answer.message();
            let is_ungranted = rights::is_ungranted(status.as_u16(), &message);
            Err(if is_ungranted { Why::Ungranted(message) } else { Why::Refused(message) })
        }
    }
}

pub(super) fn object(id: &ObjectId, answer: &Answer) -> Result<Object, Why> {
    accepted(answer)?;
    Ok(Object::parse(&answer.body, Some(&id.resource.gvk))?)
}

/// The answer to a read.
pub(super) fn found(id: &ObjectId, answer: &Answer) -> Result<Option<Object>, Why> {
    if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { object(id, answer).map(Some) }
}

/// The answer to a write.
pub(super) fn wrote(id: &ObjectId, answer: &Answer) -> Result<Carried, Why> {
    let events = vec![CacheEvent::Wrote(object(id, answer)?.into())];
    Ok(Carried { events, warnings: answer.warnings.clone() })
}

/// The answer to a write over the object with this uid, which is inside.
pub(super) fn wrote_over(id: &ObjectId, uid: &Uid, answer: &Answer) -> Result<Carried, Why> {
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
    ) -> Result<Vec<CacheEvent>, ApplyError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(now) = self.read(id).await?.filter(|now| now.uid == *uid) else {
                return Ok(gone(id, uid));
            };
            let before = now.value().map_err(|error| ApplyError::new("read", id, error.into()))?;
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
    use metahook_core::object::id::{Gvk, Key, Resource};

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

    #[test]
    fn a_refusal_of_a_guard_of_owner_references_names_the_right() {
        let refused = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil> (403)";
        let gvk = Gvk::new("v1", "ConfigMap");
        let plural = "configmaps".into();
        let resource = Resource { gvk, plural, namespaced: true, has_status: false };
        let id = ObjectId { resource: resource.into(), key: Key::new("n", "c") };
        let named = |why| {
            let error = ApplyError::new("create", &id, why);
            error.guard().is_some().then(|| error.with_right("User \"u\" cannot x".to_owned()))
        };
        let error = named(Why::Refused(refused.to_owned())).unwrap();
        assert!(error.is_ungranted(), "it is tried again as soon as other rights");
        assert_eq!(error.why.to_string(), "User \"u\" cannot x");
        let error = named(Why::Unmakable(format!("{refused}{WAY_OUT}, agree"))).unwrap();
        assert!(error.why.to_string().ends_with("cannot x; to have it deleted all the same, agree"));
        assert!(named(Why::Refused("exceeded quota: q".to_owned())).is_none());
        assert!(named(Why::Conflict(refused.to_owned())).is_none());
    }
}
