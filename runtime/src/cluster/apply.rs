//! One operation of a plan carried out: one request, and what its answer means for the store.

use http::{Method, StatusCode};
use metahook_core::index::Event;
use metahook_core::object::id::{Key, ObjectId, Uid};
use metahook_core::object::{Object, ObjectError};
use metahook_core::plan::Op;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rest::{Answer, Rest, Unreachable, list_path, object_path};

/// Every write carries the name that Metacontroller's writes carry.
const FIELD_MANAGER: &str = "fieldManager=metacontroller";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// Somebody else was faster; an event is on its way.
    #[error("{verb} {id}: it has changed meanwhile: {message}")]
    Conflict {
        verb: &'static str,
        id: ObjectId,
        message: String,
    },
    #[error(
        "create {id}: an object of that name exists already and is not this parent's: delete it or choose another name"
    )]
    Exists { id: ObjectId },
    #[error("{verb} {id}: {message}")]
    Refused {
        verb: &'static str,
        id: ObjectId,
        message: String,
    },
    #[error("{verb} {id}")]
    Unreachable {
        verb: &'static str,
        id: ObjectId,
        source: Unreachable,
    },
    #[error("{verb} {id}: the answer is no object")]
    Answer {
        verb: &'static str,
        id: ObjectId,
        source: ObjectError,
    },
}

/// What the store is told of an answer.
type Known = Vec<Event>;

impl Rest {
    /// Carries one operation out.
    pub(crate) async fn carry_out(&self, op: &Op) -> Result<Known, ApplyError> {
        let verb = op.verb();
        match op {
            Op::Create { id, body } => self.create(verb, id, body).await,
            Op::Replace { id, body } => {
                self.put(
                    verb,
                    id,
                    &format!("{}?{FIELD_MANAGER}", object_path(&id.resource, &id.key)),
                    body,
                )
                .await
            }
            Op::Status { id, body } => {
                self.put(
                    verb,
                    id,
                    &format!("{}/status?{FIELD_MANAGER}", object_path(&id.resource, &id.key)),
                    body,
                )
                .await
            }
            Op::Delete { id, uid } => Ok(self.delete(verb, id, uid).await?.0),
            Op::Recreate { id, uid, body } => {
                let (mut known, finished) = self.delete(verb, id, uid).await?;
                if finished {
                    match self.create(verb, id, body).await {
                        // Final or not, somebody holds the name still: the deletion's event starts the next pass.
                        Err(ApplyError::Exists { .. }) => {}
                        other => known.extend(other?),
                    }
                }
                Ok(known)
            }
        }
    }

    /// Reads one object as it is now.
    pub(crate) async fn read(&self, id: &ObjectId) -> Result<Option<Object>, ApplyError> {
        let answer = self
            .ask("read", id, Method::GET, &object_path(&id.resource, &id.key), None)
            .await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            _ => object("read", id, &answer).map(Some),
        }
    }

    async fn create(&self, verb: &'static str, id: &ObjectId, body: &Value) -> Result<Known, ApplyError> {
        let path = format!("{}?{FIELD_MANAGER}", list_path(&id.resource, &id.key.namespace));
        let answer = self
            .ask(verb, id, Method::POST, &path, Some(body.to_string()))
            .await?;
        match answer.status {
            StatusCode::CONFLICT => Err(ApplyError::Exists { id: id.clone() }),
            _ => Ok(vec![Event::Wrote(object(verb, id, &answer)?)]),
        }
    }

    async fn put(
        &self,
        verb: &'static str,
        id: &ObjectId,
        path: &str,
        body: &Value,
    ) -> Result<Known, ApplyError> {
        let answer = self
            .ask(verb, id, Method::PUT, path, Some(body.to_string()))
            .await?;
        match answer.status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Err(ApplyError::Conflict {
                verb,
                id: id.clone(),
                message: answer.message(),
            }),
            _ => Ok(vec![Event::Wrote(object(verb, id, &answer)?)]),
        }
    }

    /// Deletes just the object that was seen; `true` when it is gone already.
    async fn delete(
        &self,
        verb: &'static str,
        id: &ObjectId,
        uid: &Uid,
    ) -> Result<(Known, bool), ApplyError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid.as_str()},
            // Some kinds leave their own children behind by default.
            "propagationPolicy": "Background",
        });
        let path = object_path(&id.resource, &id.key);
        let answer = self
            .ask(verb, id, Method::DELETE, &path, Some(options.to_string()))
            .await?;
        let (key, uid): (Key, Uid) = (id.key.clone(), uid.clone());
        match answer.status {
            StatusCode::NOT_FOUND => Ok((vec![Event::Missing(key, uid)], true)),
            StatusCode::CONFLICT => Err(ApplyError::Conflict {
                verb,
                id: id.clone(),
                message: answer.message(),
            }),
            _ if answer.status.is_success() => {
                let finished = is_final(&answer.body);
                Ok((vec![Event::Deleting(key, uid)], finished))
            }
            _ => Err(refused(verb, id, &answer)),
        }
    }

    async fn ask(
        &self,
        verb: &'static str,
        id: &ObjectId,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Answer, ApplyError> {
        self.send(method, path, body)
            .await
            .map_err(|source| ApplyError::Unreachable {
                verb,
                id: id.clone(),
                source,
            })
    }
}

fn object(verb: &'static str, id: &ObjectId, answer: &Answer) -> Result<Object, ApplyError> {
    if !answer.status.is_success() {
        return Err(refused(verb, id, answer));
    }
    Object::parse(&answer.body, Some(&id.resource.gvk)).map_err(|source| ApplyError::Answer {
        verb,
        id: id.clone(),
        source,
    })
}

fn refused(verb: &'static str, id: &ObjectId, answer: &Answer) -> ApplyError {
    ApplyError::Refused {
        verb,
        id: id.clone(),
        message: answer.message(),
    }
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
        assert!(is_final(
            r#"{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":0}}"#
        ));
        assert!(!is_final(
            r#"{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":30}}"#
        ));
        assert!(!is_final(
            r#"{"kind":"Pod","metadata":{"deletionGracePeriodSeconds":0,"finalizers":["x"]}}"#
        ));
        assert!(!is_final("nonsense"));
    }
}
