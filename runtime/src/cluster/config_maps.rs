//! ConfigMaps that metahook writes: of packed modules, and of records.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use metahook_core::object::id::{Key, ObjectId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::api_client::{Answers, ApiClient};
use crate::cluster::named_objects::ReferenceKind;
use crate::cluster::objects::{Precondition, RequestError, RequestErrorKind};
use crate::cluster::paths::segment;

/// Most ConfigMaps that are read.
const MAX_LISTED: usize = 1000;

pub fn config_map_id(key: &Key) -> ObjectId {
    ObjectId { resource: ReferenceKind::ConfigMap.resource().into(), key: key.clone() }
}

pub async fn read_config_map(api: &ApiClient, key: &Key) -> Result<Option<ConfigMap>, RequestError> {
    api.read_as(&config_map_id(key)).await
}

/// The `ConfigMap`s of a namespace that have a label.
pub(crate) async fn labelled_config_maps(
    api: &ApiClient,
    namespace: &str,
    label: [&str; 2],
) -> Result<Vec<ConfigMap>, RequestError> {
    listed(Answers::Page, api, namespace, &with_label(label)).await
}

/// Lists the metadata of a ConfigMap: an account that may watch it may list it.
pub(crate) async fn named_metadata(api: &ApiClient, key: &Key) -> Result<Option<ObjectMeta>, RequestError> {
    let query = format!("fieldSelector=metadata.name%3D{}&", segment(&key.name));
    Ok(metadata(api, &key.namespace, &query).await?.pop())
}

/// The metadata of the ConfigMaps of a namespace that have a label: what they hold may be large.
pub(crate) async fn labelled_metadata(
    api: &ApiClient,
    namespace: &str,
    label: [&str; 2],
) -> Result<Vec<ObjectMeta>, RequestError> {
    metadata(api, namespace, &with_label(label)).await
}

async fn metadata(api: &ApiClient, namespace: &str, query: &str) -> Result<Vec<ObjectMeta>, RequestError> {
    #[derive(Deserialize)]
    struct Item {
        metadata: ObjectMeta,
    }
    let items = listed::<Item>(Answers::Metadata, api, namespace, query).await?;
    Ok(items.into_iter().map(|item| item.metadata).collect())
}

fn with_label([label, value]: [&str; 2]) -> String {
    format!("labelSelector={}%3D{}&", segment(label), segment(value))
}

async fn listed<T: DeserializeOwned>(
    answers: Answers,
    api: &ApiClient,
    namespace: &str,
    query: &str,
) -> Result<Vec<T>, RequestError> {
    let resource = ReferenceKind::ConfigMap.resource();
    let items = api.list_as(answers, &resource, namespace, query, MAX_LISTED).await?;
    let all = items.iter().map(|item| serde_json::from_str(item.get())).collect::<Result<_, _>>();
    all.map_err(|error| RequestError::of_list(&resource, namespace, RequestErrorKind::from(error)))
}

/// Makes it; one of its name that is there stays.
pub(crate) async fn create_config_map(
    api: &ApiClient,
    key: &Key,
    map: &ConfigMap,
) -> Result<(), RequestError> {
    api.create::<Value>(&config_map_id(key), &json!(map), "metahook").await.map(drop)
}

/// Changes its metadata by a merge patch; `false` where it is gone.
pub(crate) async fn change_config_map(
    api: &ApiClient,
    key: &Key,
    patch: &Value,
) -> Result<bool, RequestError> {
    Ok(api.merge::<Value>(&config_map_id(key), patch).await?.is_some())
}

/// Deletes it as it is now: what another server makes of it meanwhile stays. One that is gone already is as good.
pub async fn delete_config_map(api: &ApiClient, key: &Key) -> Result<(), RequestError> {
    let Some(ConfigMap { metadata, .. }) = read_config_map(api, key).await? else { return Ok(()) };
    let uid = metadata.uid.unwrap_or_default();
    let seen = Precondition { uid: &uid, version: metadata.resource_version.as_deref() };
    api.delete(&config_map_id(key), &seen).await.map(drop)
}
