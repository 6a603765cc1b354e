//! Client of the API server: its connection, and requests and answers as bytes.

mod answer;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use kube::client::Body;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::server_objects::ServerObjects;
use metahook_core::json::yaml::to_yaml_string;
use metahook_core::object::id::Resource;
use metahook_core::pacing::{Rate, RateLimiter};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use crate::cluster::bounds::{self, End, TooLarge};
use crate::cluster::proxies::{Proxy, ProxyError};
use crate::cluster::redefined::Redefined;
use crate::cluster::restores::Restores;
use crate::cluster::transport::{MAX_API_DELAY, Transport, busy};
use crate::cluster::write_gate::{NotLeading, WriteGate};
use crate::sync::lock;
use crate::telemetry::error_chain;
use crate::telemetry::open_watches::OpenWatches;
use crate::telemetry::standard::RequestCounts;

pub use answer::Unreachable;
pub(crate) use answer::{Answer, Answers};

/// No write or read of a single object takes this long on a healthy API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct ApiClient {
    /// Client of kube, for watches.
    pub(crate) client: Client,
    transport: Transport,
    limit: Option<Arc<Limit>>,
    gate: WriteGate,
    /// The API server is asked to store nothing.
    pub(super) dry_runs_only: bool,
    /// Watches of all accounts together.
    pub(crate) watches: OpenWatches,
    pub(crate) requests: RequestCounts,
    pub(crate) restores: Restores,
    pub(crate) redefined: Redefined,
}

/// Rate limit that all requests but watches share.
struct Limit {
    start: Instant,
    limiter: Mutex<RateLimiter>,
}

/// Option in the query of a write: nothing is stored.
pub(super) const DRY_RUN: &str = "dryRun=All";

/// Content types of patches.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
/// Content type of server-side apply, whose bodies are read as YAML.
pub(super) const SERVER_SIDE_APPLY: &str = "application/apply-patch+yaml";

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    #[error(
        "there is neither a kubeconfig nor a service account: give --kubeconfig, set KUBECONFIG, or run in a Pod"
    )]
    Infer(#[source] InferConfigError),
    #[error("no client can be made of the configuration")]
    Client(#[source] kube::Error),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("the API server does not answer")]
    Unreachable(#[source] Unreachable),
}

/// How the API server is reached: by this kubeconfig, by a context of the user's own, or as the machine has it.
pub(super) async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    if let Some(path) = kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(ConnectError::Kubeconfig)?;
        return Config::from_custom_kubeconfig(file, &options).await.map_err(ConnectError::Kubeconfig);
    }
    if context.is_some() {
        return Config::from_kubeconfig(&options).await.map_err(ConnectError::Kubeconfig);
    }
    let named = std::env::var_os("KUBECONFIG");
    let found = infer(named.as_deref(), Config::incluster().ok(), Config::infer()).await;
    found.map_err(ConnectError::Infer)
}

impl ApiClient {
    /// The objects of a kind that servers make for themselves.
    pub(crate) fn server_objects(&self, kind: &Resource) -> ServerObjects {
        ServerObjects::of(kind, self.gate.candidate().map(|candidate| &candidate.lease))
    }

    /// Connects by a kubeconfig file, the environment's, or a Pod's service account. `rate`: of all requests but watches.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        rate: Option<Rate>,
        read_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        Self::connect_to((kubeconfig, None), rate, read_timeout).await
    }

    /// Connects by a context of the kubeconfig where one is named.
    pub async fn connect_to(
        (kubeconfig, context): (Option<&Path>, Option<&str>),
        rate: Option<Rate>,
        read_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let mut config = config(kubeconfig, context).await?;
        let proxy = Proxy::of_config(&config)?;
        config
            .headers
            .push((USER_AGENT, HeaderValue::from_static(concat!("metahook/", env!("CARGO_PKG_VERSION")))));
        let transport =
            Transport::connect(&config, proxy.as_ref(), read_timeout).map_err(ConnectError::Client)?;
        Ok(Self::new(transport, &config.default_namespace, rate))
    }

    pub(super) fn new(transport: Transport, namespace: &str, rate: Option<Rate>) -> Self {
        let limit = |rate| Limit { start: Instant::now(), limiter: Mutex::new(RateLimiter::new(rate)) };
        let (client, watches) = (transport.client(namespace), OpenWatches::default());
        let requests = transport.requests.clone();
        let limit = rate.map(limit).map(Arc::new);
        Self {
            client,
            transport,
            limit,
            gate: WriteGate::open(),
            dry_runs_only: false,
            watches,
            requests,
            restores: Restores::default(),
            redefined: Redefined::default(),
        }
    }

    /// The client, whose writes pass this gate alone.
    pub(crate) fn gated(self, gate: WriteGate) -> Self {
        Self { gate, ..self }
    }

    /// A client that sends each write as a dry run.
    pub(super) fn with_dry_runs_only(self) -> Self {
        Self { dry_runs_only: true, ..self }
    }

    /// The namespace of the kubeconfig, or of the Pod.
    pub fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// A client for the Lease that opens the gate: neither the gate nor the rate limit holds it up.
    pub(crate) fn for_leases(&self) -> Self {
        Self { limit: None, gate: WriteGate::open(), ..self.clone() }
    }

    pub(crate) fn gate(&self) -> &WriteGate {
        &self.gate
    }

    /// A client with the rights of a ServiceAccount instead of ours.
    pub(crate) fn acting_as(&self, account: &ServiceAccountRef) -> Self {
        let transport = self.transport.acting_as(&account.user());
        let client = transport.client(self.client.default_namespace());
        Self { client, transport, ..self.clone() }
    }

    /// Waits until the API server answers: six tries, five seconds apart.
    pub async fn wait_until_reachable(&self) -> Result<(), ConnectError> {
        for tries in 1..6 {
            let Err(error) = self.get("/api").await else { return Ok(()) };
            tracing::warn!(error = error_chain(&error), tries, "the API server does not answer yet");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        self.is_reachable().await
    }

    /// Asks once.
    pub async fn is_reachable(&self) -> Result<(), ConnectError> {
        self.get("/api").await.map(drop).map_err(ConnectError::Unreachable)
    }

    /// Reads an object, or something that is as small.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Unreachable> {
        self.get_as(Answers::Object, path).await
    }

    /// Reads what the API server says of its kinds.
    pub(super) async fn get_large(&self, path: &str) -> Result<Answer, Unreachable> {
        self.get_as(Answers::Large, path).await
    }

    /// Sends JSON; every status is an answer, but one that only asks to come later. Each write has a body: where that is sent
    /// the gate is checked last.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Answer, Unreachable> {
        let content = Content { kind: "application/json", body: Some(body) };
        Ok(self.exchange(method, path, content, Answers::Object).await?.about(body))
    }

    /// Sends a question, which changes nothing: whoever leads, it is answered.
    pub(crate) async fn ask(&self, path: &str, question: &Value) -> Result<Answer, Unreachable> {
        Self { gate: WriteGate::open(), ..self.clone() }.send(Method::POST, path, question).await
    }

    /// `kind`: the content type of the patch.
    pub(crate) async fn patch(&self, kind: &str, path: &str, body: &Value) -> Result<Answer, Unreachable> {
        let content = Content { kind, body: Some(body) };
        Ok(self.exchange(Method::PATCH, path, content, Answers::Object).await?.about(body))
    }

    /// Reads what has answers of this kind.
    pub(super) async fn get_as(&self, answers: Answers, path: &str) -> Result<Answer, Unreachable> {
        self.exchange(Method::GET, path, Content { kind: "application/json", body: None }, answers).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        Content { kind, body }: Content<'_>,
        answers: Answers,
    ) -> Result<Answer, Unreachable> {
        // All writes come through here: kube's client only lists and watches.
        let gate = (!method.is_safe()).then(|| self.gate.clone());
        let is_dry_run = gate.is_some() && self.dry_runs_only;
        let uri = if is_dry_run { dry_run_path(path) } else { Cow::Borrowed(path) };
        let body =
            body.map(|body| if is_dry_run { dry_run_body(&method, body) } else { Cow::Borrowed(body) });
        let body = body.map(|body| print(kind, &body)).transpose().map_err(Unreachable::Print)?;
        let mut request = Request::builder()
            .method(method.clone())
            .uri(&*uri)
            .header(ACCEPT, answers.accept())
            .header(CONTENT_TYPE, kind)
            .body(body.map_or_else(Body::empty, Body::from))
            .map_err(Unreachable::Request)?;
        if let Some(Limit { start, limiter }) = self.limit.as_deref() {
            let wait = lock(limiter).take(start.elapsed());
            tokio::time::sleep(wait).await;
        }
        if let Some(gate) = gate {
            if !gate.is_open() {
                return Err(NotLeading.into());
            }
            request.extensions_mut().insert(gate);
        }
        let exchange = async {
            let answer = match answers {
                Answers::Page | Answers::Metadata => self.transport.list(request).await,
                Answers::Object | Answers::First | Answers::Large => self.transport.send(request).await,
            };
            let (head, body) = answer.map_err(unanswered)?.into_parts();
            if let Some(after) = busy(head.status, &head.headers, MAX_API_DELAY) {
                return Err(Unreachable::Busy { after });
            }
            let body = if head.status.is_success() {
                let bound = answers.bound();
                let read = bounds::read(body, bound).await.map_err(Unreachable::Body)?;
                if read.end != End::Whole {
                    return Err(TooLarge::new(&method, path, bound).into());
                }
                String::from_utf8(read.bytes).map_err(Unreachable::Text)?
            } else {
                bounds::read_refusal(body).await.map_err(Unreachable::Body)?
            };
            Ok(Answer { status: head.status, body, warnings: answer::warnings(&head.headers) })
        };
        tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_elapsed| Unreachable::Timeout)?
    }
}

/// The path of a dry run.
fn dry_run_path(path: &str) -> Cow<'_, str> {
    match path.split_once('?') {
        // The API server refuses the option where it comes twice.
        Some((_, query)) if query.split('&').any(|option| option == DRY_RUN) => path.into(),
        Some(_) => format!("{path}&{DRY_RUN}").into(),
        None => format!("{path}?{DRY_RUN}").into(),
    }
}

/// The body of a dry run. Where a deletion has a body, the API server reads its options there, and ignores the query.
fn dry_run_body<'a>(method: &Method, body: &'a Value) -> Cow<'a, Value> {
    if *method != Method::DELETE {
        return Cow::Borrowed(body);
    }
    let mut options = body.as_object().cloned().unwrap_or_default();
    options.insert("dryRun".to_owned(), json!(["All"]));
    Cow::Owned(Value::Object(options))
}

/// The body of a request, and its content type.
struct Content<'a> {
    kind: &'a str,
    body: Option<&'a Value>,
}

fn unanswered(error: BoxError) -> Unreachable {
    error.downcast::<TooLarge>().map_or_else(Unreachable::Send, |too_large| (*too_large).into())
}

/// The bytes of a body of this content type.
fn print(kind: &str, body: &Value) -> Result<Vec<u8>, serde_json::Error> {
    if kind == SERVER_SIDE_APPLY { Ok(to_yaml_string(body).into_bytes()) } else { serde_json::to_vec(body) }
}

/// The way to the API server where no file is named by flag. A Pod is itself before it is the user of its image: the
/// environment's kubeconfig comes first, then the Pod's service account, then `~/.kube/config`, which `elsewhere` finds.
async fn infer<E>(
    environment: Option<&OsStr>,
    in_cluster: Option<Config>,
    elsewhere: impl Future<Output = Result<Config, E>>,
) -> Result<Config, E> {
    let is_named = environment.is_some_and(|path| !path.is_empty());
    match in_cluster {
        Some(config) if !is_named => Ok(config),
        Some(_) | None => elsewhere.await,
    }
}
