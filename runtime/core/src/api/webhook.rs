//! Webhook as stored: URL or service, timeout, certificates, credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::api::mount::ObjectName;
use crate::api::units;

/// A hook that the server calls over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Where the server sends requests. It counts before `service`.
    pub url: Option<String>,
    /// How long one request and its answer may take, for example `30s`. Default: `10s`.
    #[serde(serialize_with = "as_go_prints_it")]
    pub timeout: Option<String>,
    /// The path at `service`, for example `/sync`. `service` needs it.
    pub path: Option<String>,
    /// A Service of the cluster to which the server sends requests.
    pub service: Option<Service>,
    /// Whether the server keeps answers that have an `ETag`.
    pub etag: Option<Etag>,
    /// `strict` refuses an answer with unknown or repeated fields; with `loose` such fields have no effect. Default: `loose` for v1, `strict` for v2.
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
    /// Name of the Service.
    pub name: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Port of the Service, from 1 to 65535. Default: 80.
    pub port: Option<i32>,
    /// `http` or `https`. Default: `http`.
    pub protocol: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Etag {
    /// Whether the server keeps answers with an `ETag`. Default: false.
    pub enabled: Option<bool>,
    /// How long the server keeps an answer. Default: as long as there is room.
    pub cache_timeout_seconds: Option<i32>,
    /// How often the server removes answers that it no longer keeps. Default: `cacheTimeoutSeconds`.
    pub cache_cleanup_seconds: Option<i32>,
}

// Certificates and credentials of a webhook or of an endpoint. (A doc comment would take the place of theirs in the schema.)
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trust {
    /// Certificates that the server trusts in place of the system's: exactly one of `inline`, `secretRef` and `configMapRef`.
    pub ca_bundle: Option<CaBundle>,
    /// Certificate and private key that the server shows to the webhook.
    #[serde(rename = "clientTLS")]
    pub client_tls: Option<ClientTls>,
    /// The header `Authorization` of each request. Not together with `basicAuth`.
    pub authorization: Option<Authorization>,
    /// User and password of each request. Not together with `authorization`.
    pub basic_auth: Option<BasicAuth>,
}

/// Certificates and credentials for all webhooks of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointConfig {
    /// The host of the webhooks, with the port unless it is the scheme's own, such as `hooks.example.com:8443`.
    pub host: String,
    #[serde(flatten)]
    pub trust: Trust,
}

/// Exactly one source of PEM certificates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    /// The certificates, in PEM.
    pub inline: Option<String>,
    /// A key of a Secret with the certificates, in PEM.
    pub secret_ref: Option<OptionalKeyRef>,
    /// A key of a ConfigMap with the certificates, in PEM.
    pub config_map_ref: Option<OptionalKeyRef>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OptionalKeyRef {
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    pub namespace: String,
    /// The key that holds the certificates.
    #[schemars(extend("default" = "ca.crt"))]
    pub key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// The key that holds the value.
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    /// The Secret that holds both.
    pub secret_ref: ObjectName,
    /// The key of the certificate, in PEM.
    #[schemars(extend("default" = "tls.crt"))]
    pub cert_key: Option<String>,
    /// The key of the private key, in PEM.
    #[schemars(extend("default" = "tls.key"))]
    pub private_key_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// The word before the value.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "Bearer"))]
    pub scheme: Option<String>,
    /// The key of a Secret that holds the value, such as a token.
    pub secret_ref: KeyRef,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// The Secret that holds both.
    pub secret_ref: ObjectName,
    /// The key of the user's name.
    #[schemars(extend("default" = "username"))]
    pub username_key: Option<String>,
    /// The key of the password.
    #[schemars(extend("default" = "password"))]
    pub password_key: Option<String>,
}

/// Hooks see a duration as Go prints it: `1m0s` for `60s`.
#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn as_go_prints_it<S: Serializer>(duration: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let printed = duration.as_deref().and_then(units::signed_duration).map(units::print_duration);
    printed.as_ref().or(duration.as_ref()).serialize(serializer)
}
