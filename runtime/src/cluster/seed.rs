//! The installation's key for hooks' random numbers: a Secret that the first server makes and all read.

use http::{Method, StatusCode};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use metahook_core::object::id::{Gvk, Key, Resource};
use serde_json::json;

use crate::cluster::api_client::{Answer, ApiClient, Unreachable, list_path, object_path};
use crate::error_chain::error_chain;

const NAME: &str = "metahook-seed";
const FIELD: &str = "seed";
const KEY_LENGTH: usize = 32;

/// The bytes of a key.
pub(crate) type SeedKey = [u8; KEY_LENGTH];

#[derive(Debug, thiserror::Error)]
enum SeedError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{0}")]
    Refused(String),
    #[error(
        "the Secret {namespace}/{NAME} has no key {FIELD:?} of {KEY_LENGTH} bytes: delete it, and a new one is made"
    )]
    Malformed { namespace: String },
}

/// The key, made if it is not there yet. Where that is not allowed, one that this server forgets when it ends: hooks
/// answer the same way as long as it runs.
pub(crate) async fn read_or_make(api: &ApiClient) -> Result<SeedKey, getrandom::Error> {
    let mut fresh = SeedKey::default();
    getrandom::fill(&mut fresh)?;
    Ok(settle_on(api, fresh).await.unwrap_or_else(|error| {
        tracing::warn!(error = error_chain(&error), "the Secret {NAME} cannot be used: hooks that ask for random numbers get others after a restart; let the server get and create Secrets in its namespace");
        fresh
    }))
}

async fn settle_on(api: &ApiClient, fresh: SeedKey) -> Result<SeedKey, SeedError> {
    let namespace = api.client().default_namespace().to_owned();
    let secrets = Resource {
        gvk: Gvk::new("v1", "Secret"),
        plural: "secrets".into(),
        namespaced: true,
        has_status: false,
    };
    let path = object_path(&secrets, &Key::new(&namespace, NAME));
    let found = api.get(&path).await?;
    if found.status != StatusCode::NOT_FOUND {
        return key_in(&found, namespace);
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "immutable": true,
        "data": {FIELD: ByteString(fresh.to_vec())},
    });
    let made = api.send(Method::POST, &list_path(&secrets, &namespace), Some(&secret)).await?;
    match made.status {
        // Another server was faster.
        StatusCode::CONFLICT => key_in(&api.get(&path).await?, namespace),
        status if status.is_success() => Ok(fresh),
        _ => Err(SeedError::Refused(made.message())),
    }
}

fn key_in(answer: &Answer, namespace: String) -> Result<SeedKey, SeedError> {
    if !answer.status.is_success() {
        return Err(SeedError::Refused(answer.message()));
    }
    let secret: Secret = serde_json::from_str(&answer.body).unwrap_or_default();
    let bytes = secret.data.and_then(|mut data| data.remove(FIELD)).map(|bytes| bytes.0).unwrap_or_default();
    bytes.try_into().map_err(|_other_length| SeedError::Malformed { namespace })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: StatusCode, body: &str) -> Answer {
        Answer { status, body: body.to_owned() }
    }

    #[test]
    fn a_key_is_read_and_anything_else_is_said() {
        let good = json!({"data": {FIELD: ByteString(vec![7; 32])}}).to_string();
        assert_eq!(key_in(&answer(StatusCode::OK, &good), "n".into()).unwrap(), [7; 32]);
        let short = json!({"data": {FIELD: ByteString(vec![7; 31])}}).to_string();
        let error = key_in(&answer(StatusCode::OK, &short), "n".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the Secret n/metahook-seed has no key \"seed\" of 32 bytes: delete it, and a new one is made"
        );
        let refused = key_in(&answer(StatusCode::FORBIDDEN, r#"{"message":"no"}"#), "n".into()).unwrap_err();
        assert_eq!(refused.to_string(), "no (403)");
    }
}
