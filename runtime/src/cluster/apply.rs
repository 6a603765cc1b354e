//! One operation of a plan carried out: one request, and what its answer means for the store.

use http::{Method, StatusCode};
use metahook_core::index::Event;
use metahook_core::object::id::{ObjectId, Uid};
use metahook_core::object::{Object, ObjectError};
use metahook_core::plan::Op;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rest::{Answer, Rest, Unreachable, list_path, object_path};

/// Every write carries the name that Metacontroller's writes carry.
const FIELD_MANAGER: &str = "fieldManager=metacontroller";

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
enum Why {
    #[error("it has changed meanwhile: {0}")]
    Conflict(String),
    #[error(
        "an object of that name exists already and is not this parent's: delete it or choose another name"
    )]
    Exists,
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[from] ObjectError),
}

impl ApplyError {
    /// An object of that name exists already.
    pub(crate) fn is_taken_name(&self) -> bool {
        matches!(self.why, Why::Exists)
    }

    /// Somebody else was faster; an event is on its way.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.why, Why::Conflict(_))
    }
}

impl Rest {
    /// Carries one operation out and returns what the store is to be told of it.
    pub(crate) async fn carry_out(&self, op: &Op) -> Result<Vec<Event>, ApplyError> {
        let id = op.id();
        let done = match op {
            Op::Create { body, .. } => self.create(id, body).await,
            Op::Replace { body, .. } => self.put(&object_path(&id.resource, &id.key), id, body).await,
            Op::Status { body, .. } => {
                self.put(&format!("{}/status", object_path(&id.resource, &id.key)), id, body).await
            }
            Op::Delete { uid, .. } => self.delete(id, uid).await.map(|(known, _)| known),
            Op::Recreate { uid, body, .. } => self.recreate(id, uid, body).await,
        };
        done.map_err(|why| ApplyError { verb: op.verb(), id: Box::new(id.clone()), why })
    }

    /// Reads one object as it is now.
    pub(crate) async fn read(&self, id: &ObjectId) -> Result<Option<Object>, ApplyError> {
        let read = async {
            let answer = self.get(&object_path(&id.resource, &id.key)).await?;
            if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { object(id, &answer).map(Some) }
        };
        read.await.map_err(|why| ApplyError { verb: "read", id: Box::new(id.clone()), why })
    }

    async fn create(&self, id: &ObjectId, body: &Value) -> Result<Vec<Event>, Why> {
        let path = format!("{}?{FIELD_MANAGER}", list_path(&id.resource, &id.key.namespace));
        let answer = self.send(Method::POST, &path, Some(body.to_string())).await?;
        match (answer.status, answer.reason().as_str()) {
            (StatusCode::CONFLICT, "AlreadyExists") => Err(Why::Exists),
            (StatusCode::CONFLICT, _) => Err(Why::Conflict(answer.message())),
            _ => Ok(vec![Event::Wrote(object(id, &answer)?)]),
        }
    }

    async fn put(&self, path: &str, id: &ObjectId, body: &Value) -> Result<Vec<Event>, Why> {
        let answer =
            self.send(Method::PUT, &format!("{path}?{FIELD_MANAGER}"), Some(body.to_string())).await?;
        match answer.status {
            StatusCode::CONFLICT => Err(Why::Conflict(answer.message())),
            // The object, or only its status subresource?
            StatusCode::NOT_FOUND if self.is_gone(id).await? => Ok(gone(id, body)),
            _ => Ok(vec![Event::Wrote(object(id, &answer)?)]),
        }
    }

    async fn is_gone(&self, id: &ObjectId) -> Result<bool, Why> {
        Ok(self.get(&object_path(&id.resource, &id.key)).await?.status == StatusCode::NOT_FOUND)
    }

    async fn recreate(&self, id: &ObjectId, uid: &Uid, body: &Value) -> Result<Vec<Event>, Why> {
        let (mut known, finished) = self.delete(id, uid).await?;
        if finished {
            match self.create(id, body).await {
                // Final or not, somebody holds the name still: the deletion's event starts the next pass.
                Err(Why::Exists) => {}
                other => known.extend(other?),
            }
        }
        Ok(known)
    }

    /// Deletes just the object that was seen; `true` when it is gone already.
    async fn delete(&self, id: &ObjectId, uid: &Uid) -> Result<(Vec<Event>, bool), Why> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid.as_str()},
            // Some kinds leave their own children behind by default.
            "propagationPolicy": "Background",
        });
        let path = object_path(&id.resource, &id.key);
        let answer = self.send(Method::DELETE, &path, Some(options.to_string())).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok((vec![Event::Missing(id.key.clone(), uid.clone())], true)),
            StatusCode::CONFLICT => Err(Why::Conflict(answer.message())),
            status if status.is_success() => {
                Ok((vec![Event::Deleting(id.key.clone(), uid.clone())], is_final(&answer.body)))
            }
            _ => Err(Why::Refused(answer.message())),
        }
    }
}

/// The object that was to be written is not there any longer.
fn gone(id: &ObjectId, body: &Value) -> Vec<Event> {
    let uid = body.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    vec![Event::Missing(id.key.clone(), Uid::new(uid))]
}

fn object(id: &ObjectId, answer: &Answer) -> Result<Object, Why> {
    if !answer.status.is_success() {
        return Err(Why::Refused(answer.message()));
    }
    Ok(Object::parse(&answer.body, Some(&id.resource.gvk))?)
}

/// Whether the answer to a deletion says that the object is gone: a `Status` instead of the object, or an object
/// that nothing holds any longer.
fn is_final(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Deleted {
        kind: String,
        #[serde(default)]
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        deletion_grace_period_seconds: Option<i64>,
        #[serde(default)]
        finalizers: Vec<String>,
    }
    serde_json::from_str::<Deleted>(body).is_ok_and(|deleted| {
        deleted.kind == "Status"
            || (deleted.metadata.deletion_grace_period_seconds == Some(0)
                && deleted.metadata.finalizers.is_empty())
    })
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
