//! Key of hooks' random numbers, and of what the server keeps on disk: a Secret that the first server makes.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use metahook_core::api::server_objects::SEED;
use metahook_core::object::id::{Key, ObjectId};
use serde_json::json;

use crate::cluster::api_client::ApiClient;
use crate::cluster::named_objects::ReferenceKind;
use crate::cluster::objects::RequestError;
use crate::telemetry::error_chain;

#[derive(Debug, thiserror::Error)]
enum KeyError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(
        "the Secret {namespace}/{SEED} has no key {SEED_FIELD:?} of {SEED_LENGTH} bytes: delete it, and a new one is made"
    )]
    NoSeed { namespace: String },
}

const SEED_FIELD: &str = "seed";
const SEED_LENGTH: usize = 32;

/// Key of hooks' random numbers, and of what the server keeps on disk.
pub(crate) type SeedKey = [u8; SEED_LENGTH];

/// The installation's key; `lasting`: the next server has it, too.
pub(crate) struct InstallationKey {
    pub(crate) key: SeedKey,
    pub(crate) lasting: bool,
}

impl InstallationKey {
    /// One that is forgotten with this server.
    pub(crate) fn fresh() -> Result<Self, getrandom::Error> {
        let mut key = SeedKey::default();
        getrandom::fill(&mut key)?;
        Ok(Self { key, lasting: false })
    }
}

/// The first server makes the Secret and all read it. Where that is not allowed, the key is one that this server forgets
/// when it ends: hooks answer the same way as long as it runs.
pub(crate) async fn installation_key(api: &ApiClient) -> Result<InstallationKey, getrandom::Error> {
    let fresh = InstallationKey::fresh()?;
    match stored_key(api, fresh.key).await {
        Ok(key) => Ok(InstallationKey { key, lasting: true }),
        Err(error) => {
            tracing::warn!(
                error = error_chain(&error),
                "the Secret {SEED} cannot be used: hooks that ask for random numbers get others after a restart, and compiled modules are not kept; let the server get and create Secrets in its namespace"
            );
            Ok(fresh)
        }
    }
}

async fn stored_key(api: &ApiClient, fresh: SeedKey) -> Result<SeedKey, KeyError> {
    let namespace = api.client.default_namespace();
    let id = ObjectId { resource: ReferenceKind::Secret.resource().into(), key: Key::new(namespace, SEED) };
    if let Some(secret) = api.read_as(&id).await? {
        return key_in(secret, namespace);
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SEED, "namespace": namespace},
        "immutable": true,
        "data": {SEED_FIELD: ByteString(fresh.to_vec())},
    });
    match api.create::<Secret>(&id, &secret, "metahook").await? {
        Some(_ours) => Ok(fresh),
        // Another server was faster.
        None => key_in(api.read_as(&id).await?.unwrap_or_default(), namespace),
    }
}

fn key_in(secret: Secret, namespace: &str) -> Result<SeedKey, KeyError> {
    let bytes = secret.data.and_then(|mut data| data.remove(SEED_FIELD)).unwrap_or_default();
    bytes.0.try_into().map_err(|_other_length| KeyError::NoSeed { namespace: namespace.to_owned() })
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::cluster::fake;

    #[tokio::test]
    async fn a_key_is_read_and_anything_else_is_an_error() {
        let read = async |status: u16, body: serde_json::Value| {
            let api =
                fake::answering(move |_| Response::builder().status(status).body(body.to_string()).ok());
            stored_key(&api, [1; 32]).await.map_err(|error| error_chain(&error))
        };
        let secret = |length| json!({"data": {SEED_FIELD: ByteString(vec![7; length])}});
        assert_eq!(read(200, secret(32)).await, Ok([7; 32]));
        let short = read(200, secret(31)).await.unwrap_err();
        assert!(
            short.ends_with("has no key \"seed\" of 32 bytes: delete it, and a new one is made"),
            "{short}"
        );
        let refused = read(403, json!({"message": "no"})).await.unwrap_err();
        assert!(refused.starts_with("read Secret ") && refused.ends_with("/metahook-seed: no"), "{refused}");
    }
}
