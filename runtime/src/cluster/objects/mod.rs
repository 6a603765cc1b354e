//! Objects at the API server, a request per verb, and one error that names verb, object and cause.

mod error;
#[cfg(test)]
mod tests;

use std::fmt;

use http::{Method, StatusCode};
use metahook_core::object::Object;
use metahook_core::object::id::{ObjectId, Resource, Uid};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cluster::api_client::{Answer, ApiClient, DRY_RUN, MERGE_PATCH, SERVER_SIDE_APPLY, Unreachable};
use crate::cluster::paths::{list_path, object_path, segment};

pub use error::RequestError;
pub(crate) use error::{RequestErrorKind, WAY_OUT};

/// Options in the query of a write.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteOptions<'a> {
    manager: &'a str,
    validation: &'static str,
    force: Option<bool>,
    dry_run: bool,
}

impl<'a> WriteOptions<'a> {
    /// The API server warns of fields that it does not know.
    pub(super) const fn by(manager: &'a str) -> Self {
        Self { manager, validation: "Warn", force: None, dry_run: false }
    }

    /// The API server refuses fields that it does not know.
    pub(super) const fn strict(self) -> Self {
        Self { validation: "Strict", ..self }
    }

    /// For server-side apply: whether fields of other managers are taken over.
    pub(super) const fn force(self, force: bool) -> Self {
        Self { force: Some(force), ..self }
    }

    /// Nothing is stored.
    pub(super) const fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }
}

impl fmt::Display for WriteOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fieldManager={}&fieldValidation={}", segment(self.manager), self.validation)?;
        if let Some(force) = self.force {
            write!(f, "&force={force}")?;
        }
        if self.dry_run { write!(f, "&{DRY_RUN}") } else { Ok(()) }
    }
}

/// The object that a deletion is about: another one of its name stays.
#[derive(Debug)]
pub struct Precondition<'a> {
    pub(crate) uid: &'a str,
    /// `None`: whatever has been written to it meanwhile.
    pub(crate) version: Option<&'a str>,
}

/// The requests, whose answers callers read by themselves.
impl ApiClient {
    pub(super) async fn request_get(&self, id: &ObjectId) -> Result<Answer, Unreachable> {
        self.get(&object_path(&id.resource, &id.key)).await
    }

    pub(super) async fn request_create(
        &self,
        id: &ObjectId,
        body: &Value,
        options: WriteOptions<'_>,
    ) -> Result<Answer, Unreachable> {
        let path = format!("{}?{options}", list_path(&id.resource, &id.key.namespace));
        self.send(Method::POST, &path, body).await
    }

    pub(super) async fn request_replace(
        &self,
        id: &ObjectId,
        body: &Value,
        options: WriteOptions<'_>,
    ) -> Result<Answer, Unreachable> {
        let path = format!("{}?{options}", object_path(&id.resource, &id.key));
        self.send(Method::PUT, &path, body).await
    }

    pub(super) async fn request_replace_status(
        &self,
        id: &ObjectId,
        body: &Value,
        options: WriteOptions<'_>,
    ) -> Result<Answer, Unreachable> {
        let path = format!("{}/status?{options}", object_path(&id.resource, &id.key));
        self.send(Method::PUT, &path, body).await
    }

    /// `kind`: the content type of the patch.
    pub(super) async fn request_patch(
        &self,
        id: &ObjectId,
        kind: &str,
        body: &Value,
        options: WriteOptions<'_>,
    ) -> Result<Answer, Unreachable> {
        let path = format!("{}?{options}", object_path(&id.resource, &id.key));
        self.patch(kind, &path, body).await
    }

    /// Some kinds leave their own children behind by default: they go in the background.
    pub(super) async fn request_delete(
        &self,
        id: &ObjectId,
        seen: &Precondition<'_>,
    ) -> Result<Answer, Unreachable> {
        let preconditions = match seen.version {
            Some(version) => json!({ "uid": seen.uid, "resourceVersion": version }),
            None => json!({ "uid": seen.uid }),
        };
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        });
        self.send(Method::DELETE, &object_path(&id.resource, &id.key), &options).await
    }
}

impl ApiClient {
    /// The object as it is now; `None` where it does not exist.
    pub async fn read_as<T: DeserializeOwned>(&self, id: &ObjectId) -> Result<Option<T>, RequestError> {
        let read = async {
            let answer = self.request_get(id).await?;
            if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { body(&answer).map(Some) }
        };
        read.await.map_err(|kind| RequestError::new("read", id, kind))
    }

    /// The object as reconciles see it; `None` where it does not exist.
    pub async fn read(&self, id: &ObjectId) -> Result<Option<Object>, RequestError> {
        let answer = self.request_get(id).await.map_err(RequestErrorKind::from);
        answer.and_then(|answer| found(id, &answer)).map_err(|kind| RequestError::new("read", id, kind))
    }

    /// Makes the object; `None` where there is one of its name.
    pub(super) async fn create<T: DeserializeOwned>(
        &self,
        id: &ObjectId,
        object: &Value,
        manager: &str,
    ) -> Result<Option<T>, RequestError> {
        let created = async {
            let answer = self.request_create(id, object, WriteOptions::by(manager)).await?;
            if is_taken(&answer) { Ok(None) } else { body(&answer).map(Some) }
        };
        created.await.map_err(|kind| RequestError::new("create", id, kind))
    }

    /// Puts the object in the place of the version that it carries. One that is gone has changed, too.
    pub async fn replace<T: DeserializeOwned>(
        &self,
        id: &ObjectId,
        object: &Value,
        manager: &str,
    ) -> Result<T, RequestError> {
        let replaced = async {
            let answer = self.request_replace(id, object, WriteOptions::by(manager)).await?;
            match answer.status {
                StatusCode::NOT_FOUND => Err(RequestErrorKind::Conflict(answer.message())),
                _ => body(&answer),
            }
        };
        replaced.await.map_err(|kind| RequestError::new("replace", id, kind))
    }

    /// Server-side apply, also of fields that another manager owns; the object as it is then. A field that the API server does
    /// not know is refused.
    pub async fn apply<T: DeserializeOwned>(
        &self,
        id: &ObjectId,
        object: &Value,
        manager: &str,
    ) -> Result<T, RequestError> {
        let options = WriteOptions::by(manager).strict().force(true);
        let applied = async {
            let answer = self.request_patch(id, SERVER_SIDE_APPLY, object, options).await?;
            let namespace = &id.key.namespace;
            if answer.status == StatusCode::NOT_FOUND && is_about_namespace(&answer, namespace) {
                return Err(RequestErrorKind::NoNamespace(namespace.to_string()));
            }
            body(&answer)
        };
        applied.await.map_err(|kind| RequestError::new("apply", id, kind))
    }

    /// Changes an object by a JSON merge patch; `None` where it does not exist.
    pub async fn merge<T: DeserializeOwned>(
        &self,
        id: &ObjectId,
        patch: &Value,
    ) -> Result<Option<T>, RequestError> {
        let merged = async {
            let options = WriteOptions::by("metahook").strict();
            let answer = self.request_patch(id, MERGE_PATCH, patch, options).await?;
            if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { body(&answer).map(Some) }
        };
        merged.await.map_err(|kind| RequestError::new("patch", id, kind))
    }

    /// Deletes the object that was seen; `false` where it is gone already.
    pub async fn delete(&self, id: &ObjectId, seen: &Precondition<'_>) -> Result<bool, RequestError> {
        let deleted = async {
            let answer = self.request_delete(id, seen).await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Ok(false);
            }
            accepted(&answer).map(|()| true)
        };
        deleted.await.map_err(|kind| RequestError::new("delete", id, kind))
    }

    /// The objects of a namespace that a label selector such as `app in (a,b)` selects.
    pub async fn list_selected(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Object>, RequestError> {
        let query = format!("labelSelector={}&", segment(selector));
        Ok(objects(resource, &self.list(resource, namespace, &query, usize::MAX).await?))
    }

    /// All objects of a kind, page by page.
    pub async fn list_objects(&self, resource: &Resource) -> Result<Vec<Object>, RequestError> {
        self.list_objects_in(resource, "").await
    }

    /// The objects of a kind in a namespace, or in all, page by page.
    pub async fn list_objects_in(
        &self,
        resource: &Resource,
        namespace: &str,
    ) -> Result<Vec<Object>, RequestError> {
        Ok(objects(resource, &self.list(resource, namespace, "", usize::MAX).await?))
    }
}

/// Callers look for finalizers, names of modules or Pods: an item that is no object has none of them.
fn objects(resource: &Resource, items: &[Box<RawValue>]) -> Vec<Object> {
    items.iter().filter_map(|item| Object::parse(item.get(), Some(&resource.gvk)).ok()).collect()
}

/// The API server misses the namespace, and not the kind.
fn is_about_namespace(answer: &Answer, namespace: &str) -> bool {
    !namespace.is_empty() && answer.message().contains(&format!("namespaces \"{namespace}\" not found"))
}

/// Whether an object was not made since there is one of its name.
pub(super) fn is_taken(answer: &Answer) -> bool {
    answer.status == StatusCode::CONFLICT && answer.reason() == "AlreadyExists"
}

pub(super) fn accepted(answer: &Answer) -> Result<(), RequestErrorKind> {
    if answer.status.is_success() { Ok(()) } else { Err(RequestErrorKind::of_refusal(answer)) }
}

pub(super) fn body<T: DeserializeOwned>(answer: &Answer) -> Result<T, RequestErrorKind> {
    accepted(answer)?;
    Ok(serde_json::from_str(&answer.body)?)
}

pub(super) fn object(id: &ObjectId, answer: &Answer) -> Result<Object, RequestErrorKind> {
    accepted(answer)?;
    Ok(Object::parse(&answer.body, Some(&id.resource.gvk))?)
}

/// The object of an answer to a read; `None` where it does not exist.
pub(super) fn found(id: &ObjectId, answer: &Answer) -> Result<Option<Object>, RequestErrorKind> {
    if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { object(id, answer).map(Some) }
}

impl<'a> Precondition<'a> {
    /// The object with this manifest, whatever has been written to it since.
    pub fn seen(object: &'a Value) -> Self {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        Self { uid, version: None }
    }

    /// This object and no other one, whatever has been written to it since.
    pub(crate) fn of(uid: &'a Uid) -> Self {
        Self { uid: uid.as_str(), version: None }
    }
}
