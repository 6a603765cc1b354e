//! Tokens of users, for what asks who they are without the API server between: the one of a kubeconfig, or one of a
//! ServiceAccount that is made for a few minutes.

use std::path::Path;

use http::Method;
use metahook_core::api::policy::ServiceAccountRef;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::cluster::api_client::{ApiClient, ConnectError, Unreachable, config};
use crate::cluster::paths::segment;

/// Seconds; the shortest time that the API server gives.
const TOKEN_LIFETIME: u32 = 600;

/// For whom a token is made: the API server itself does not take it.
pub(crate) const AUDIENCE: &str = "metahook";

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error(transparent)]
    Kubeconfig(#[from] ConnectError),
    #[error("tokenFile of the kubeconfig: {0} cannot be read")]
    File(String, #[source] std::io::Error),
    #[error(
        "the API server makes no token of the ServiceAccount {account}: {why}. Name the file of a token by --token-file: kubectl create token NAME prints one of a ServiceAccount"
    )]
    Refused { account: String, why: String },
}

/// The token that a kubeconfig has; `None` where its user has a certificate, or a program that makes tokens.
///
/// # Errors
/// The kubeconfig cannot be read.
pub async fn of_kubeconfig(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Option<String>, TokenError> {
    let user = config(kubeconfig, context).await?.auth_info;
    let given = user.token.map(|token| token.expose_secret().to_owned());
    let token = match (given, user.token_file) {
        (Some(token), _) => Some(token),
        (None, Some(file)) => {
            let read = std::fs::read_to_string(&file);
            Some(read.map_err(|error| TokenError::File(file, error))?)
        }
        (None, None) => None,
    };
    Ok(token.map(|token| token.trim().to_owned()))
}

impl ApiClient {
    /// A token of a ServiceAccount, for ten minutes.
    ///
    /// # Errors
    /// The API server makes none.
    pub async fn token_of(&self, account: &ServiceAccountRef) -> Result<String, TokenError> {
        let ServiceAccountRef { namespace, name } = account;
        let path =
            format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", segment(namespace), segment(name));
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": TOKEN_LIFETIME, "audiences": [AUDIENCE] },
        });
        let answer = self.send(Method::POST, &path, &question).await?;
        let refused = |why: String| TokenError::Refused { account: format!("{namespace}/{name}"), why };
        if !answer.status.is_success() {
            return Err(refused(answer.message()));
        }
        let made: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let token = made.pointer("/status/token").and_then(Value::as_str);
        token.map(str::to_owned).ok_or_else(|| refused("its answer has none".to_owned()))
    }
}
