//! ConfigMaps of packed modules: read, applied and deleted by name.

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::object::id::{Gvk, Key, Resource};
use serde_json::Value;

use crate::cluster::api_client::{Answer, ApiClient, Unreachable, object_path};

#[derive(Debug, thiserror::Error)]
#[error("{verb} ConfigMap {key}")]
pub struct ConfigMapError {
    verb: &'static str,
    key: Key,
    #[source]
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[from] serde_json::Error),
}

impl ApiClient {
    pub(crate) async fn read_config_map(&self, key: &Key) -> Result<Option<ConfigMap>, ConfigMapError> {
        let read = async {
            let answer = self.get(&path(key)).await?;
            if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { config_map(&answer).map(Some) }
        };
        read.await.map_err(|why| ConfigMapError { verb: "read", key: key.clone(), why })
    }

    /// Server-side apply, also of fields that another manager owns.
    pub(crate) async fn apply_config_map(
        &self,
        key: &Key,
        body: &Value,
        manager: &str,
    ) -> Result<ConfigMap, ConfigMapError> {
        let applied = async {
            let path = format!("{}?fieldManager={manager}&force=true", path(key));
            config_map(&self.apply(&path, body).await?)
        };
        applied.await.map_err(|why| ConfigMapError { verb: "apply", key: key.clone(), why })
    }

    /// One that is gone already is as good.
    pub(crate) async fn delete_config_map(&self, key: &Key) -> Result<(), ConfigMapError> {
        let deleted = async {
            let answer = self.send(Method::DELETE, &path(key), None).await?;
            if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND {
                return Ok(());
            }
            Err(Why::Refused(answer.message()))
        };
        deleted.await.map_err(|why| ConfigMapError { verb: "delete", key: key.clone(), why })
    }
}

fn path(key: &Key) -> String {
    let gvk = Gvk::new("v1", "ConfigMap");
    object_path(&Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false }, key)
}

fn config_map(answer: &Answer) -> Result<ConfigMap, Why> {
    if !answer.status.is_success() {
        return Err(Why::Refused(answer.message()));
    }
    Ok(serde_json::from_str(&answer.body)?)
}
