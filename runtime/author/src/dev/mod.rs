//! Session of `metahook dev`: its controller is applied with the session's label, and left as it was found.

pub mod lines;

use metahook_core::dev::{DevError, Leaving, leaving, manifest};
use metahook_core::hosting::Session;
use metahook_core::object::id::{Gvk, Key, ObjectId};
use metahook_core::object::{Object, ObjectError};
use serde_json::Value;

use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::{Precondition, RequestError};
use metahook_server::controller::finalizer_cleanup::{
    FinalizerCleanupError, parent_kinds, take_off_finalizers,
};

/// Owner of the fields that the session writes.
const FIELD_MANAGER: &str = "metahook-dev";

/// Another client may write between our read and our write, but hardly so many times in a row.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(
        "the cluster has no {0}s of metahook: write its CustomResourceDefinitions with `metahook crds --apply`"
    )]
    NoDefinitions(&'static str),
    #[error("the controller's parents")]
    Parents(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    Refused(String, #[source] DevError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the controller as the API server has it")]
    Object(#[source] ObjectError),
    #[error("asking what the API server serves")]
    Discovery(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the controller's finalizers are not all taken off: start the same command again and end it, or such objects cannot be deleted"
    )]
    Finalizers(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A session whose controller is applied.
pub struct DevSession {
    api: ApiClient,
    session: Session,
    id: ObjectId,
    /// The controller as the API server stored it.
    applied: Value,
    pub is_new: bool,
}

/// How a session left its controller.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// The controller was gone, or another session had it.
    Nothing,
    Deleted {
        finalizers: usize,
    },
    GivenBack {
        finalizers: usize,
    },
}

impl DevSession {
    pub async fn begin(api: &ApiClient, session: Session, document: &Value) -> Result<Self, SessionError> {
        let discovery = Discovery::new(api.clone());
        let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", session.kind.as_str());
        let resource = match discovery.resolve_kind(&gvk).await {
            Err(error) if error.is_not_served() => {
                return Err(SessionError::NoDefinitions(session.kind.as_str()));
            }
            found => found.map_err(|error| SessionError::Discovery(error.into()))?,
        };
        let id = ObjectId { resource, key: Key::new("", &session.controller) };
        let found = api.read_as(&id).await?;
        let body = manifest(document, &session, found.as_ref())
            .map_err(|why| SessionError::Refused(id.to_string(), why))?;
        are_served(&discovery, &session, &body).await?;
        let applied = api.apply(&id, &body, FIELD_MANAGER).await?;
        Ok(Self { api: api.clone(), session, id, applied, is_new: found.is_none() })
    }

    pub fn id(&self) -> &ObjectId {
        &self.id
    }

    /// Leaves the controller as the session found it. No server of the session runs any more.
    pub async fn leave(&self) -> Result<Left, SessionError> {
        let spec = self.applied.get("spec").unwrap_or(&Value::Null);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let now = self.api.read_as(&self.id).await?;
            let left = match leaving(now.as_ref(), &self.session, spec) {
                Leaving::Nothing => return Ok(Left::Nothing),
                Leaving::Delete => {
                    let finalizers = self.take_off_finalizers(now.as_ref()).await?;
                    let seen = now.unwrap_or_default();
                    self.api
                        .delete(&self.id, &Precondition::seen(&seen))
                        .await
                        .map(|_| Left::Deleted { finalizers })
                }
                Leaving::GiveBack { object, keeps_finalizers } => {
                    let finalizers =
                        if keeps_finalizers { 0 } else { self.take_off_finalizers(now.as_ref()).await? };
                    self.api
                        .replace::<Value>(&self.id, &object, FIELD_MANAGER)
                        .await
                        .map(|_| Left::GivenBack { finalizers })
                }
            };
            match left {
                Err(error) if error.is_conflict() && attempts < MAX_ATTEMPTS => {}
                left => return Ok(left?),
            }
        }
    }

    async fn take_off_finalizers(&self, now: Option<&Value>) -> Result<usize, SessionError> {
        let controller = object(now.unwrap_or(&self.applied))?;
        let taken = take_off_finalizers(&self.api, self.session.kind, &controller).await;
        taken.map_err(|error: FinalizerCleanupError| SessionError::Finalizers(error.into()))
    }
}

fn object(value: &Value) -> Result<Object, SessionError> {
    Object::parse(&value.to_string(), None).map_err(SessionError::Object)
}

/// Whether there can be parents; of a decorator's kinds one is enough.
async fn are_served(discovery: &Discovery, session: &Session, body: &Value) -> Result<(), SessionError> {
    let mut named = body.clone();
    // What the API server will set, and a reader of objects asks for.
    if let Some(metadata) = named.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), "new".into());
        metadata.insert("resourceVersion".to_owned(), "0".into());
    }
    let mut missing: Option<DiscoveryError> = None;
    for parents in parent_kinds(session.kind, &object(&named)?) {
        match discovery.resolve(&parents).await {
            Ok(_) => return Ok(()),
            Err(error) => drop(missing.get_or_insert(error)),
        }
    }
    // A spec that names none is refused with its field.
    missing.map_or(Ok(()), |error| Err(SessionError::Parents(error.into())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Response};
    use metahook_core::api::ControllerKind;
    use metahook_core::object::id::Resource;
    use serde_json::json;

    use super::*;
    use metahook_server::cluster::fake;
    use metahook_server::telemetry::error_chain;

    fn session() -> Session {
        Session { name: "ann".to_owned(), kind: ControllerKind::Composite, controller: "c".to_owned() }
    }

    fn document() -> Value {
        json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": { "name": "c" },
            "spec": { "parentResource": { "apiVersion": "example.com/v1", "resource": "things" } },
        })
    }

    /// How a session starts on a cluster that serves controllers, if `ours`, and else nothing.
    async fn start(ours: bool) -> String {
        let api = fake::answering(move |request| {
            let ours_is_asked = request.uri().path() == "/apis/metacontroller.k8s.io/v1alpha1";
            let kinds = json!({ "resources": [
                { "name": "compositecontrollers", "kind": "CompositeController", "namespaced": false },
            ] });
            let (status, body) =
                if ours && ours_is_asked { (200, kinds) } else { (404, json!({ "message": "none" })) };
            assert_eq!(request.method(), Method::GET, "nothing is written");
            Response::builder().status(status).body(body.to_string()).ok()
        });
        let session = DevSession::begin(&api, session(), &document()).await;
        session.map(drop).map_or_else(|error| error_chain(&error), |()| "started".to_owned())
    }

    #[tokio::test]
    async fn what_is_missing_is_named_before_anything_is_written() {
        assert_eq!(
            start(false).await,
            "the cluster has no CompositeControllers of metahook: write its CustomResourceDefinitions with `metahook crds --apply`"
        );
        let error = start(true).await;
        assert!(
            error.starts_with("the controller's parents: the API server serves no things.v1.example.com")
                || error.contains("install its CustomResourceDefinition"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_controller_that_another_client_changes_is_read_again() {
        let (id, reads) = (document(), AtomicUsize::new(0));
        let api = fake::answering(move |request| {
            let mut now = id.clone();
            now["metadata"]["labels"] = json!({ "metahook.dev/dev": "ann" });
            now["metadata"]["annotations"] = json!({ "metahook.dev/before-dev": "{}" });
            now["metadata"]["uid"] = json!("u");
            now["metadata"]["resourceVersion"] = json!("1");
            now["spec"] = json!({ "hooks": { "finalize": {} } });
            let (status, body) = match *request.method() {
                Method::PUT if reads.load(Ordering::Relaxed) < 2 => (409, json!({})),
                Method::PUT => (200, now),
                _ => {
                    reads.fetch_add(1, Ordering::Relaxed);
                    (200, now)
                }
            };
            Response::builder().status(status).body(body.to_string()).ok()
        });
        let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController");
        let resource =
            Resource { gvk, plural: "compositecontrollers".into(), namespaced: false, has_status: true };
        let id = ObjectId { resource: Arc::new(resource), key: Key::new("", "c") };
        let dev = DevSession { api, session: session(), id, applied: json!({}), is_new: false };
        assert_eq!(dev.leave().await.unwrap(), Left::GivenBack { finalizers: 0 });
    }
}
