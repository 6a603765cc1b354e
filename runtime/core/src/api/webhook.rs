//! Webhook as stored: URL or service, timeout, certificates, credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::api::mount::ObjectName;
use crate::api::units;

/// A hook behind HTTP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Where to send requests; wins over `service`.
    pub url: Option<String>,
    /// How long one exchange may take, for example `10s`; 10 s when absent.
    #[serde(serialize_with = "as_go_prints_it")]
    pub timeout: Option<String>,
    /// The path below `service`.
    pub path: Option<String>,
    pub service: Option<Service>,
    pub etag: Option<Etag>,
    /// Whether unknown and repeated fields of an answer are refused; `loose` for v1, `strict` for v2 when absent.
    pub response_un_marshall_mode: Option<UnmarshallMode>,
    #[serde(flatten)]
    pub trust: Trust,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmarshallMode {
    Loose,
    Strict,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    pub name: String,
    pub namespace: String,
    pub port: Option<i32>,
    pub protocol: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Etag {
    pub enabled: Option<bool>,
    pub cache_timeout_seconds: Option<i32>,
    pub cache_cleanup_seconds: Option<i32>,
}

// Certificates and credentials of a webhook or of an endpoint. (A doc comment would take the place of theirs in the schema.)
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trust {
    pub ca_bundle: Option<CaBundle>,
    #[serde(rename = "clientTLS")]
    pub client_tls: Option<ClientTls>,
    pub authorization: Option<Authorization>,
    pub basic_auth: Option<BasicAuth>,
}

/// Settings for every webhook of one host that has no trust settings of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointConfig {
    pub host: String,
    #[serde(flatten)]
    pub trust: Trust,
}

/// Exactly one source of PEM certificates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    pub inline: Option<String>,
    pub secret_ref: Option<OptionalKeyRef>,
    pub config_map_ref: Option<OptionalKeyRef>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OptionalKeyRef {
    pub name: String,
    pub namespace: String,
    #[schemars(extend("default" = "ca.crt"))]
    pub key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    pub name: String,
    pub namespace: String,
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    pub secret_ref: ObjectName,
    #[schemars(extend("default" = "tls.crt"))]
    pub cert_key: Option<String>,
    #[schemars(extend("default" = "tls.key"))]
    pub private_key_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    #[serde(rename = "type")]
    #[schemars(extend("default" = "Bearer"))]
    pub scheme: Option<String>,
    pub secret_ref: KeyRef,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    pub secret_ref: ObjectName,
    #[schemars(extend("default" = "username"))]
    pub username_key: Option<String>,
    #[schemars(extend("default" = "password"))]
    pub password_key: Option<String>,
}

/// Hooks see a duration as Go prints it: `1m0s` for `60s`.
#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn as_go_prints_it<S: Serializer>(duration: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let printed = duration.as_deref().and_then(units::signed_duration).map(units::print_duration);
    printed.as_ref().or(duration.as_ref()).serialize(serializer)
}
