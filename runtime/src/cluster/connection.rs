//! Connection to the API server: by a kubeconfig file, the environment's, or a Pod's service account.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use metahook_core::pacing::Rate;
use tower::layer::layer_fn;

use crate::cluster::api_client::{ApiClient, Transport, Unreachable};
use crate::error_chain::error_chain;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    #[error(
        "there is neither a kubeconfig nor a service account: give --kubeconfig, set KUBECONFIG, or run in a Pod"
    )]
    Infer(#[source] kube::config::InferConfigError),
    #[error("no client can be made of the configuration")]
    Client(#[source] kube::Error),
    #[error("no client can be made of the configuration: it has no service")]
    NoService,
    #[error("the API server does not answer")]
    Unreachable(#[source] Unreachable),
}

/// `rate`: of all requests but watches.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    rate: Option<Rate>,
) -> Result<ApiClient, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(ConnectError::Kubeconfig)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(ConnectError::Kubeconfig)?
        }
        None => Config::infer().await.map_err(ConnectError::Infer)?,
    };
    // One op is one request: the queue decides when to try again.
    config.default_retry = false;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(concat!("metahook/", env!("CARGO_PKG_VERSION")))));
    let kept = OnceLock::new();
    let keep = layer_fn(|service| kept.get_or_init(|| Transport::new(service)).clone());
    let client = ClientBuilder::try_from(config).map_err(ConnectError::Client)?.with_layer(&keep).build();
    // A layer is called where it is put on.
    let direct = kept.into_inner().ok_or(ConnectError::NoService)?;
    Ok(ApiClient::new(client, direct, rate))
}

/// Waits until the API server answers: six tries, five seconds apart.
pub(crate) async fn wait_until_reachable(api: &ApiClient) -> Result<(), ConnectError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match api.get("/api").await {
            Ok(_) => return Ok(()),
            Err(error) if tries == 6 => return Err(ConnectError::Unreachable(error)),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), tries, "the API server does not answer yet");
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
    }
}
