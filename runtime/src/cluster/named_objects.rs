//! ConfigMaps and Secrets by name: those of packed modules, and the one with the key of hooks' random numbers.

use http::{Method, StatusCode};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use metahook_core::object::id::Key;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::api_client::{Answer, ApiClient, SERVER_SIDE_APPLY, Unreachable, list_path, object_path};
use crate::cluster::object_watch::Kind;
use crate::telemetry::error_chain;

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
    #[error(
        "the Secret {namespace}/{SEED} has no key {SEED_FIELD:?} of {SEED_LENGTH} bytes: delete it, and a new one is made"
    )]
    NoSeed { namespace: String },
}

const SEED: &str = "metahook-seed";
const SEED_FIELD: &str = "seed";
const SEED_LENGTH: usize = 32;

/// Key of hooks' random numbers.
pub(crate) type SeedKey = [u8; SEED_LENGTH];

impl ApiClient {
    pub(crate) async fn read_config_map(&self, key: &Key) -> Result<Option<ConfigMap>, ConfigMapError> {
        let read = async {
            let answer = self.get(&object_path(&Kind::ConfigMap.resource(), key)).await?;
            if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { object(&answer).map(Some) }
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
        let path = object_path(&Kind::ConfigMap.resource(), key);
        let path = format!("{path}?fieldManager={manager}&force=true");
        let applied = self.patch(SERVER_SIDE_APPLY, &path, body).await.map_err(Why::from);
        applied.and_then(|answer| object(&answer)).map_err(|why| ConfigMapError {
            verb: "apply",
            key: key.clone(),
            why,
        })
    }

    /// One that is gone already is as good.
    pub(crate) async fn delete_config_map(&self, key: &Key) -> Result<(), ConfigMapError> {
        let path = object_path(&Kind::ConfigMap.resource(), key);
        let why = match self.send(Method::DELETE, &path, None).await {
            Ok(Answer { status, .. }) if status.is_success() || status == StatusCode::NOT_FOUND => {
                return Ok(());
            }
            Ok(answer) => Why::Refused(answer.message()),
            Err(error) => error.into(),
        };
        Err(ConfigMapError { verb: "delete", key: key.clone(), why })
    }

    /// The installation's key of hooks' random numbers: the first server makes the Secret and all read it. Where that is not
    /// allowed, one that this server forgets when it ends: hooks answer the same way as long as it runs.
    pub(crate) async fn seed_key(&self) -> Result<SeedKey, getrandom::Error> {
        let mut fresh = SeedKey::default();
        getrandom::fill(&mut fresh)?;
        Ok(self.stored_seed_key(fresh).await.unwrap_or_else(|error| {
            tracing::warn!(error = error_chain(&error), "the Secret {SEED} cannot be used: hooks that ask for random numbers get others after a restart; let the server get and create Secrets in its namespace");
            fresh
        }))
    }

    async fn stored_seed_key(&self, fresh: SeedKey) -> Result<SeedKey, Why> {
        let namespace = self.client.default_namespace();
        let secrets = Kind::Secret.resource();
        let path = object_path(&secrets, &Key::new(namespace, SEED));
        let found = self.get(&path).await?;
        if found.status != StatusCode::NOT_FOUND {
            return key_in(&found, namespace);
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": SEED, "namespace": namespace},
            "immutable": true,
            "data": {SEED_FIELD: ByteString(fresh.to_vec())},
        });
        let made = self.send(Method::POST, &list_path(&secrets, namespace), Some(&secret)).await?;
        match made.status {
            // Another server was faster.
            StatusCode::CONFLICT => key_in(&self.get(&path).await?, namespace),
            status if status.is_success() => Ok(fresh),
            _ => Err(Why::Refused(made.message())),
        }
    }
}

fn object<T: DeserializeOwned>(answer: &Answer) -> Result<T, Why> {
    if !answer.status.is_success() {
        return Err(Why::Refused(answer.message()));
    }
    Ok(serde_json::from_str(&answer.body)?)
}

fn key_in(answer: &Answer, namespace: &str) -> Result<SeedKey, Why> {
    let secret: Secret = object(answer)?;
    let bytes = secret.data.and_then(|mut data| data.remove(SEED_FIELD)).unwrap_or_default();
    bytes.0.try_into().map_err(|_other_length| Why::NoSeed { namespace: namespace.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: StatusCode, body: &str) -> Answer {
        Answer { status, body: body.to_owned() }
    }

    #[test]
    fn a_key_is_read_and_anything_else_is_said() {
        let good = json!({"data": {SEED_FIELD: ByteString(vec![7; 32])}}).to_string();
        assert_eq!(key_in(&answer(StatusCode::OK, &good), "n").unwrap(), [7; 32]);
        let short = json!({"data": {SEED_FIELD: ByteString(vec![7; 31])}}).to_string();
        let error = key_in(&answer(StatusCode::OK, &short), "n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the Secret n/metahook-seed has no key \"seed\" of 32 bytes: delete it, and a new one is made"
        );
        let refused = key_in(&answer(StatusCode::FORBIDDEN, r#"{"message":"no"}"#), "n").unwrap_err();
        assert_eq!(refused.to_string(), "no (403)");
    }
}
