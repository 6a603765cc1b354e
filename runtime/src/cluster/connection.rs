//! Connection to the API server: a kubeconfig file, the environment's, or a Pod's service account; requests go out on the
//! task that makes them, since a `kube::Client` has one task for all, which costs each request two changes of tasks.

use std::future::poll_fn;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use kube::Config;
use kube::client::ClientBuilder;
use kube::client::{Body, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use metahook_core::api::account::ServiceAccountRef;
use metahook_core::pacing::rate_limiter::Rate;
use tower::layer::layer_fn;
use tower::util::BoxService;
use tower::{BoxError, Service};

use crate::cluster::api_client::ApiClient;
use crate::error_chain::error_chain;
use crate::sync::lock;

pub(super) type Answer = Response<Box<DynBody>>;

/// What answers requests: ours, or those of a ServiceAccount that the API server is asked to take us for.
#[derive(Clone)]
pub(crate) struct Transport {
    /// Held only while a request is handed to it. It is ready at once, or has failed: nobody waits here for long.
    service: Arc<Mutex<BoxService<Request<Body>, Answer, BoxError>>>,
    user: Option<Arc<str>>,
}

/// The groups of a ServiceAccount are added by the API server, so that no right to name groups is needed.
const IMPERSONATE: &str = "impersonate-user";

impl Transport {
    pub(super) fn new(service: BoxService<Request<Body>, Answer, BoxError>) -> Self {
        Self { service: Arc::new(Mutex::new(service)), user: None }
    }

    pub(super) fn acting_as(&self, account: &ServiceAccountRef) -> Self {
        Self { service: Arc::clone(&self.service), user: Some(account.user().into()) }
    }

    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Answer, BoxError> {
        if let Some(user) = &self.user {
            // Never as ourselves instead.
            request.headers_mut().insert(IMPERSONATE, HeaderValue::from_str(user)?);
        }
        let mut request = Some(request);
        let answer = poll_fn(|context| {
            let mut service = lock(&self.service);
            ready!(service.poll_ready(context))?;
            // It is taken once: whoever is ready is not polled again.
            request
                .take()
                .map_or(Poll::Pending, |request| Poll::Ready(Ok::<_, BoxError>(service.call(request))))
        });
        answer.await?.await
    }
}

/// For watches, which kube makes.
impl Service<Request<Body>> for Transport {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let direct = self.clone();
        async move { direct.send(request).await }.boxed()
    }
}

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
    Unreachable(#[source] crate::cluster::api_client::Unreachable),
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
pub(crate) async fn wait_until_reachable(rest: &ApiClient) -> Result<(), ConnectError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match rest.get("/api").await {
            Ok(_) => return Ok(()),
            Err(error) if tries == 6 => return Err(ConnectError::Unreachable(error)),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), tries, "the API server does not answer yet");
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
    }
}
