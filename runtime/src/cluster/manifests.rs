//! Objects as an author's commands write them: read, applied, given back and deleted, with the API server's own words where it
//! refuses.

use http::{Method, StatusCode};
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Resource};
use serde_json::{Value, json};

use crate::cluster::api_client::{Answer, ApiClient, SERVER_SIDE_APPLY, Unreachable};
use crate::cluster::lists::ListError;
use crate::cluster::paths::{list_path, object_path};

#[derive(Debug, thiserror::Error)]
#[error("{verb} {what}")]
pub struct ManifestError {
    verb: &'static str,
    what: String,
    #[source]
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("{0}")]
    Refused(String),
    #[error("there is no namespace {0}: create it with `kubectl create namespace {0}`")]
    NoNamespace(String),
    #[error("another client changed it meanwhile: {0}")]
    Conflict(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[from] serde_json::Error),
}

impl ManifestError {
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.why, Why::Conflict(_))
    }
}

/// The object as it is now; `None` where it does not exist.
pub(crate) async fn read(api: &ApiClient, id: &ObjectId) -> Result<Option<Value>, ManifestError> {
    let read = async {
        let answer = api.get(&object_path(&id.resource, &id.key)).await?;
        if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { object(id, &answer).map(Some) }
    };
    read.await.map_err(|why| ManifestError { verb: "read", what: id.to_string(), why })
}

/// Server-side apply, also of fields that another manager owns; the object as it is then.
pub(crate) async fn apply(
    api: &ApiClient,
    id: &ObjectId,
    body: &Value,
    manager: &str,
) -> Result<Value, ManifestError> {
    let path = object_path(&id.resource, &id.key);
    let path = format!("{path}?fieldManager={manager}&force=true&fieldValidation=Strict");
    let applied = async { object(id, &api.patch(SERVER_SIDE_APPLY, &path, body).await?) };
    applied.await.map_err(|why| ManifestError { verb: "apply", what: id.to_string(), why })
}

/// Puts the object in the place of the version that it carries.
pub(crate) async fn replace(
    api: &ApiClient,
    id: &ObjectId,
    body: &Value,
    manager: &str,
) -> Result<Value, ManifestError> {
    let path = format!("{}?fieldManager={manager}", object_path(&id.resource, &id.key));
    let replaced = async { object(id, &api.send(Method::PUT, &path, body).await?) };
    replaced.await.map_err(|why| ManifestError { verb: "replace", what: id.to_string(), why })
}

/// Deletes the object that was seen, and no other one of its name; `false`: it is gone already.
pub(crate) async fn delete(api: &ApiClient, id: &ObjectId, seen: &Value) -> Result<bool, ManifestError> {
    let uid = seen.pointer("/metadata/uid").cloned().unwrap_or_default();
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": { "uid": uid },
    });
    let deleted = async {
        let answer = api.send(Method::DELETE, &object_path(&id.resource, &id.key), &options).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        object(id, &answer).map(|_deleted| true)
    };
    deleted.await.map_err(|why| ManifestError { verb: "delete", what: id.to_string(), why })
}

/// All objects of a kind, page by page.
pub(crate) async fn list(api: &ApiClient, resource: &Resource) -> Result<Vec<Object>, ManifestError> {
    let items = api.list(&list_path(resource, ""), usize::MAX).await;
    let items = items.map_err(|error| {
        let why = match error {
            ListError::Refused(answer) => Why::Refused(answer.message()),
            ListError::Unreachable(error) => error.into(),
            ListError::Answer(error) => error.into(),
        };
        ManifestError { verb: "list", what: resource.plural.to_string(), why }
    })?;
    // What is no object carries no finalizers of ours.
    Ok(items.iter().filter_map(|item| Object::parse(item.get(), Some(&resource.gvk)).ok()).collect())
}

fn object(id: &ObjectId, answer: &Answer) -> Result<Value, Why> {
    match answer.status {
        status if status.is_success() => Ok(serde_json::from_str(&answer.body)?),
        StatusCode::CONFLICT => Err(Why::Conflict(answer.message())),
        StatusCode::NOT_FOUND if is_namespace(answer, &id.key.namespace) => {
            Err(Why::NoNamespace(id.key.namespace.to_string()))
        }
        _ => Err(Why::Refused(answer.message())),
    }
}

/// The API server misses the namespace, and not the kind.
fn is_namespace(answer: &Answer, namespace: &str) -> bool {
    !namespace.is_empty() && answer.message().contains(&format!("namespaces \"{namespace}\" not found"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Response;
    use metahook_core::object::id::{Gvk, Key};

    use super::*;
    use crate::cluster::fake::{self, Requests};
    use crate::telemetry::error_chain;

    fn id() -> ObjectId {
        let gvk = Gvk::new("v1", "ConfigMap");
        let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false };
        ObjectId { resource: Arc::new(resource), key: Key::new("n", "m") }
    }

    fn answering(status: u16, body: &Value) -> ApiClient {
        let body = body.to_string();
        fake::answering(move |_| Response::builder().status(status).body(body.clone()).ok())
    }

    #[tokio::test]
    async fn refusals_name_the_object_and_what_to_do() {
        let refused = async |status: u16, message: &str| {
            let api = answering(status, &json!({ "message": message }));
            let error = apply(&api, &id(), &json!({}), "m").await.unwrap_err();
            (error.is_conflict(), error_chain(&error))
        };
        assert_eq!(
            refused(404, "namespaces \"n\" not found").await,
            (
                false,
                "apply ConfigMap n/m: there is no namespace n: create it with `kubectl create namespace n`"
                    .to_owned()
            )
        );
        assert!(refused(409, "x").await.0);
        let (_, forbidden) = refused(403, "User \"a\" cannot patch configmaps").await;
        assert!(forbidden.starts_with("apply ConfigMap n/m: User \"a\" cannot patch"), "{forbidden}");
    }

    #[tokio::test]
    async fn only_the_object_that_was_seen_is_deleted() {
        let requests = Requests::default();
        let api = fake::recording(&requests, |_| Response::builder().status(404).body("{}".to_owned()).ok());
        assert!(!delete(&api, &id(), &json!({ "metadata": { "uid": "u" } })).await.unwrap());
        assert!(read(&api, &id()).await.unwrap().is_none());
        let path = "/api/v1/namespaces/n/configmaps/m";
        assert_eq!(requests.take(), [format!("DELETE {path}"), format!("GET {path}")]);
    }

    #[tokio::test]
    async fn lists_are_read_to_their_end() {
        let api = fake::answering(|request| {
            let is_next = request.uri().query().is_some_and(|query| query.contains("continue=c"));
            let (name, next) = if is_next { ("b", "") } else { ("a", "c") };
            let item =
                json!({ "metadata": { "name": name, "namespace": "n", "uid": "u", "resourceVersion": "1" } });
            let list = json!({ "items": [item, {}], "metadata": { "continue": next } });
            Some(Response::new(list.to_string()))
        });
        let all = list(&api, &id().resource).await.unwrap();
        assert_eq!(all.iter().map(|object| &*object.key.name).collect::<Vec<_>>(), ["a", "b"]);
    }
}
