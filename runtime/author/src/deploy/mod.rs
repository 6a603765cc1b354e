//! Bundles on a cluster: what `metahook apply` writes and waits for, and what `metahook delete` takes away.

pub(crate) mod apply;
pub(crate) mod delete;
pub mod modules;
pub mod packed;
mod ready;

use std::sync::Arc;
use std::time::Duration;

use metahook_core::bundle::{self, Bundle, BundleError, ModulePlace};
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::object::{Object, ObjectError};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::pack::{PackError, PackTarget};
use crate::progress::Progress;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::definitions::DefinitionError;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use packed::ApplyPackedError;

/// Owner of the fields that are applied; modules are those of `metahook pack`.
pub(crate) const FIELD_MANAGER: &str = "metahook";

/// How often a cluster is looked at that does not tell of its changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// A status is no older than this: the server writes one that keeps changing every ten seconds.
const MAX_STATUS_AGE: Duration = Duration::from_secs(12);

/// A kind is served this long after its definition is established at the latest.
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    #[error("{0}")]
    Bundle(String, #[source] BundleError),
    #[error("{object}")]
    Kind { object: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{kind} {name} has no namespaces, and names the namespace {namespace:?}: leave it out")]
    NoNamespace { kind: String, name: String, namespace: String },
    #[error("{0}")]
    Place(String, #[source] PackError),
    #[error(
        "{user} needs a module in the ConfigMap {map}, which is neither among the files nor in the cluster: build it, or name its file with --module {map}=PATH"
    )]
    NoModule { user: String, map: String },
    #[error(
        "{user} needs a script in the ConfigMap {map}, which is neither among the files nor in the cluster: put the file {key} beside the files, or name it with --module {map}=PATH"
    )]
    NoScript { user: String, map: String, key: String },
    #[error("{}", path.display())]
    ReadModule { path: std::path::PathBuf, source: std::io::Error },
    #[error("{}", path.display())]
    Pack { path: std::path::PathBuf, source: PackError },
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Applied(#[from] ApplyPackedError),
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error("{object} is not ready after {}: {why}", seconds(*after))]
    NotReady { object: String, after: Duration, why: String },
    #[error("{object} is not ready, and waiting does not help: {why}")]
    Refused { object: String, why: String },
    #[error("{object} runs, and its parents fail: {why}")]
    Fails { object: String, why: String },
    #[error("{object} is ready, and parents among these files fail: {why}")]
    SomeFail { object: String, why: String },
    #[error("{object} is still there after {}: {why}", seconds(*after))]
    NotGone { object: String, after: Duration, why: String },
    #[error("{0} as the API server has it")]
    Object(String, #[source] ObjectError),
    #[error("the controller's finalizers")]
    Finalizers(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

impl DeployError {
    /// Nothing was asked of the cluster.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Bundle(..) | Self::Place(..) | Self::ReadModule { .. } | Self::Pack { .. } | Self::Print(_)
        )
    }
}

/// A cluster, and where objects go that name no namespace.
pub struct Deployment {
    pub api: ApiClient,
    pub namespace: String,
    pub timeout: Duration,
    pub progress: Progress,
}

impl Deployment {
    /// Where an object is, and the object with its namespace. Kinds of the bundle's own definitions may take a moment.
    async fn place(&self, object: &Value, bundle: &Bundle) -> Result<(ObjectId, Value), DeployError> {
        let kind = bundle::gvk(object);
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let resource = self.resource(&kind, bundle).await.map_err(|error| DeployError::Kind {
            object: format!("{} {name}", kind.kind),
            source: error.into(),
        })?;
        let given = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let namespace = match (resource.namespaced, given) {
            (true, "") => self.namespace.as_str(),
            (true, given) => given,
            (false, "") => "",
            (false, given) => {
                let (kind, name, namespace) = (kind.kind.to_string(), name.to_owned(), given.to_owned());
                return Err(DeployError::NoNamespace { kind, name, namespace });
            }
        };
        let id = ObjectId { resource: Arc::clone(&resource), key: Key::new(namespace, name) };
        let mut object = written_by_authors(object);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
            && resource.namespaced
        {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        Ok((id, object))
    }

    async fn resource(&self, kind: &Gvk, bundle: &Bundle) -> Result<Arc<Resource>, DiscoveryError> {
        let is_defined = bundle.defines(kind);
        let start = Instant::now();
        loop {
            // What was asked before is remembered, and here it may change.
            match Discovery::new(self.api.clone()).resolve_kind(kind).await {
                Err(error) if error.is_not_served() && is_defined && start.elapsed() < SERVED_TIMEOUT => {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
                found => return found,
            }
        }
    }
}

/// The object of a file without what only a cluster writes: a file that was read from one has these fields, and server-side apply
/// refuses the first.
pub(crate) fn written_by_authors(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// An object as the API server has it.
fn parsed(id: &ObjectId, stored: &Value) -> Result<Object, DeployError> {
    Object::parse(&stored.to_string(), Some(&id.resource.gvk))
        .map_err(|source| DeployError::Object(id.to_string(), source))
}

fn config_map(place: &ModulePlace) -> Result<PackTarget, DeployError> {
    let ModulePlace { namespace, name, key, .. } = place.clone();
    let packed = PackTarget { name, namespace, key };
    packed.check().map_err(|why| DeployError::Place(format!("{}/{}", place.namespace, place.name), why))?;
    Ok(packed)
}
