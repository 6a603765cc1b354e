//! Controllers of a cluster, found by their names.

use std::sync::Arc;

use metahook_core::api::ControllerKind;
use metahook_core::api::status::ControllerStatus;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use serde_json::{Value, json};

use crate::documents::{self, Document};

/// The API version of controllers.
const API_VERSION: &str = "metacontroller.k8s.io/v1alpha1";

pub(crate) const KINDS: [ControllerKind; 2] = [ControllerKind::Composite, ControllerKind::Decorator];

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error(
        "there is a CompositeController and a DecoratorController named {0:?}: name the kind, too, as in compositecontroller/{0}"
    )]
    Several(String),
    #[error("the controller {0:?} does not exist")]
    NotFound(String),
    #[error(
        "the kinds of controllers cannot be read: apply metahook's CustomResourceDefinitions, or see that you may list them"
    )]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

pub(crate) async fn resource(
    discovery: &Discovery,
    kind: ControllerKind,
) -> Result<Arc<Resource>, DiscoveryError> {
    discovery.resolve_kind(&Gvk::new(API_VERSION, kind.as_str())).await
}

/// The controller of this name, of either kind; `KIND/NAME` where there are two.
pub(crate) async fn find(api: &ApiClient, name: &str) -> Result<(ObjectId, Value), FindError> {
    find_with(api, &Discovery::new(api.clone()), name).await
}

/// The controller of this name as a document.
///
/// # Errors
/// There is none, or there are two.
pub async fn of_name(api: &ApiClient, name: &str) -> Result<Document, FindError> {
    let (id, mut value) = find(api, name).await?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(id.resource.gvk.api_version()));
        fields.insert("kind".to_owned(), json!(&*id.resource.gvk.kind));
    }
    documents::of_cluster(vec![value]).pop().ok_or_else(|| FindError::NotFound(name.to_owned()))
}

/// The controller of this name, with the kinds that are known already.
pub(crate) async fn find_with(
    api: &ApiClient,
    discovery: &Discovery,
    name: &str,
) -> Result<(ObjectId, Value), FindError> {
    let (kind, name) = name.split_once('/').map_or((None, name), |(kind, name)| (Some(kind), name));
    let mut found = Vec::new();
    for one in KINDS {
        let resource = resource(discovery, one).await?;
        if kind.is_some_and(|kind| !is_named(&resource, kind)) {
            continue;
        }
        let id = ObjectId { resource, key: Key::new("", name) };
        found.extend(api.read_as(&id).await?.map(|controller| (id, controller)));
    }
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(FindError::NotFound(name.to_owned())),
        (Some(one), true) => Ok(one),
        (Some(_), false) => Err(FindError::Several(name.to_owned())),
    }
}

/// Status that a server wrote about a controller; nothing where it has said nothing yet.
pub(crate) fn status(controller: &Value) -> ControllerStatus {
    let status = controller.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}

/// Whether a word is the plural name of a kind, with or without its group, or the kind itself.
pub(crate) fn is_named(resource: &Resource, word: &str) -> bool {
    let is = |name: &str| name.eq_ignore_ascii_case(word);
    is(&resource.plural) || is(&resource.gvk.kind) || is(&full_name(resource))
}

/// The plural name with the group, as kubectl takes it.
pub(crate) fn full_name(resource: &Resource) -> String {
    full_plural(&resource.plural, &resource.gvk.group)
}

/// A plural name with its group, as kubectl takes it.
pub(crate) fn full_plural(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// A digest without the prefix that a status has.
pub(crate) fn plain(digest: &str) -> String {
    digest.strip_prefix("sha256:").unwrap_or(digest).to_owned()
}
