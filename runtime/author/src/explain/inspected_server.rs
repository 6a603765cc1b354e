//! The server that is asked: its address or its Pod, and the token that it is shown.

use std::process::Stdio;
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::trace::{Explained, TracedObject};
use metahook_server::cluster::tokens;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{ExplainError, Explainer};

/// The port that `--inspection-address` has in the manifests.
const PORT: u16 = 9998;

/// The label of the server's Pods.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "metacontroller");

/// How long the server, and `kubectl` before it, may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Bytes of an answer.
const MAX_ANSWER: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("there is no Pod with the label {}={} in the namespace {namespace:?}: name the server's by --server-namespace, or its address by --server", LABEL.0, LABEL.1)]
    NoPod { namespace: String },
    #[error(
        "kubectl does not forward a port of the Pod {pod}: {why}; forward one yourself, and name it by --server"
    )]
    Forward { pod: String, why: String },
    #[error(
        "the server at {address} does not answer: {why}; it has to run with --inspection-address, and be as new as this command"
    )]
    Unreachable { address: String, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("what the server answers is not of this version: {0}")]
    Answer(String),
    #[error("--server: write an address like 127.0.0.1:{PORT}, not {0:?}")]
    Address(String),
}

/// A way to the server, which ends when it is dropped.
struct Way {
    address: String,
    account: ServiceAccountRef,
    _forwarded: Option<Child>,
}

impl Explainer {
    pub(super) async fn ask(&self, object: &TracedObject) -> Result<Explained, ExplainError> {
        let ways = match &self.address {
            Some(address) => vec![self.named(address)?],
            None => self.pods().await?,
        };
        let mut last = None;
        // Of several Pods one leads; the others have no traces.
        for way in ways {
            let token = self.token(&way.account).await?;
            let explained = ask(&way, &token, object).await?;
            if !explained.reconciles.is_empty() {
                return Ok(explained);
            }
            last = Some(explained);
        }
        let none = ServerError::NoPod { namespace: self.server_namespace.clone() };
        last.ok_or_else(|| none.into())
    }

    fn named(&self, address: &str) -> Result<Way, ServerError> {
        let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        if plain.is_empty() || plain.contains('/') || !plain.contains(':') {
            return Err(ServerError::Address(address.to_owned()));
        }
        Ok(Way { address: plain.to_owned(), account: self.account(None), _forwarded: None })
    }

    /// The ServiceAccount of the server, as its manifests name it unless a Pod says otherwise.
    fn account(&self, of_pod: Option<&str>) -> ServiceAccountRef {
        let name = of_pod.unwrap_or("metacontroller").to_owned();
        ServiceAccountRef { namespace: self.server_namespace.clone(), name }
    }

    async fn pods(&self) -> Result<Vec<Way>, ExplainError> {
        let gvk = Gvk::new("v1", "Pod");
        let pods = Resource { gvk, plural: "pods".into(), namespaced: true, has_status: true };
        let mut ways = Vec::new();
        for pod in self.api.list_labelled(&pods, &self.server_namespace, LABEL).await? {
            let name = pod.key.name.to_string();
            let pod = pod.value().unwrap_or_default();
            if pod.pointer("/status/phase").and_then(Value::as_str) != Some("Running") {
                continue;
            }
            let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str);
            let (address, forwarded) = self.forward(&name).await?;
            ways.push(Way { address, account: self.account(account), _forwarded: Some(forwarded) });
        }
        Ok(ways)
    }

    /// Has `kubectl` forward a port of this machine to the Pod.
    async fn forward(&self, pod: &str) -> Result<(String, Child), ServerError> {
        let failed = |why: String| ServerError::Forward { pod: pod.to_owned(), why };
        let mut command = Command::new("kubectl");
        command.args(["port-forward", "--namespace", &self.server_namespace]);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        if let Some(context) = &self.context {
            command.args(["--context", context]);
        }
        command.arg(format!("pod/{pod}")).arg(format!(":{PORT}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (Some(out), Some(mut said)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("it has no output".to_owned()));
        };
        let mut line = String::new();
        let mut out = BufReader::new(out);
        let first = tokio::time::timeout(PATIENCE, out.read_line(&mut line)).await;
        if first.is_err() {
            return Err(failed(format!("it said nothing within {} s", PATIENCE.as_secs())));
        }
        // "Forwarding from 127.0.0.1:43211 -> 9998"
        if let Some(address) = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")) {
            return Ok((address.to_owned(), child));
        }
        let mut why = String::new();
        drop(tokio::time::timeout(PATIENCE, said.read_to_string(&mut why)).await);
        Err(failed(why.trim().to_owned()))
    }

    /// The token that was given, that of the kubeconfig, or one of the server's ServiceAccount, which whoever may make one is
    /// allowed more with than by this.
    async fn token(&self, account: &ServiceAccountRef) -> Result<String, ExplainError> {
        if let Some(token) = &self.token {
            return Ok(token.clone());
        }
        let own = tokens::of_kubeconfig(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        match own {
            Some(token) => Ok(token),
            None => Ok(self.api.token_of(account).await?),
        }
    }
}

async fn ask(way: &Way, token: &str, object: &TracedObject) -> Result<Explained, ServerError> {
    let asked = tokio::time::timeout(PATIENCE, exchange(way, token, object)).await;
    let unreachable = |why: String| ServerError::Unreachable { address: way.address.clone(), why };
    let (status, body) = match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(unreachable(error)),
        Err(_elapsed) => return Err(unreachable(format!("nothing came within {} s", PATIENCE.as_secs()))),
    };
    if status != StatusCode::OK {
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = said.get("message").and_then(Value::as_str);
        return Err(ServerError::Refused(message.map_or_else(|| status.to_string(), str::to_owned)));
    }
    serde_json::from_slice(&body).map_err(|error| ServerError::Answer(error.to_string()))
}

async fn exchange(way: &Way, token: &str, object: &TracedObject) -> Result<(StatusCode, Bytes), String> {
    let text = |error: &dyn std::error::Error| metahook_core::error_chain(error);
    let stream = TcpStream::connect(&way.address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    tokio::spawn(connection);
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("group", &object.group)
        .append_pair("resource", &object.resource)
        .append_pair("kind", &object.kind)
        .append_pair("namespace", &object.namespace)
        .append_pair("name", &object.name)
        .finish();
    let request = Request::get(format!("/v1/reconciles?{query}"))
        .header(HOST, "localhost")
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| text(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| text(&*error))?;
    Ok((status, body.to_bytes()))
}
