//! The servers that are looked into, at their inspection address: how they are reached, and the token that they are shown.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::trace::TracedObject;
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::objects::RequestError;
use metahook_server::cluster::tokens::{self, TokenError};
use metahook_server::sync::lock;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio_util::task::AbortOnDropHandle;

/// The port of `--inspection-address` in the manifests.
const PORT: u16 = 9797;

const FLAG: &str = "inspection-address";

/// The label of the server's Pods.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "metacontroller");

/// How long the server, and `kubectl` before it, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of what `kubectl` says of errors that are kept.
const MAX_SAID: usize = 4096;

/// A token is shown this long: the API server makes it for ten minutes.
const MAX_TOKEN_AGE: Duration = Duration::from_mins(5);

/// Bytes of an answer.
const MAX_ANSWER: usize = 32 << 20;

/// Who looks into servers, and which ones.
pub struct Inspector {
    pub api: ApiClient,
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// The address of the server; its Pods are looked for in their namespace when absent.
    pub address: Option<String>,
    pub server_namespace: String,
    /// The token to be known by.
    pub token: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Server(#[from] ServerError),
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "no Pod with the label {}={} runs in the namespace {namespace:?}: name the server's namespace by --server-namespace, or forward a port and name it by --server",
        LABEL.0,
        LABEL.1
    )]
    NoPod { namespace: String },
    #[error(
        "kubectl does not forward a port of the Pod {pod}: {why}; forward one yourself, and name it by --server"
    )]
    Forward { pod: String, why: String },
    #[error(
        "the server at {address} does not answer: {why}; it has to run with --inspection-address, and be as new as this command"
    )]
    Unreachable { address: String, why: String },
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
    #[error("the server is older than this command: it answers that {0}")]
    Old(String),
    #[error("what the server answers is not of this version: {0}")]
    Answer(String),
    #[error(
        "--server: a token is shown there, so it has to be on localhost: write an address like 127.0.0.1:{PORT}, not {0:?}"
    )]
    Address(String),
}

/// What servers are asked.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) path: &'a str,
    pub(crate) object: &'a TracedObject,
    /// Further fields of the query.
    pub(crate) more: &'a [(&'static str, String)],
}

/// The servers that are asked: one of them leads, or each hosts other controllers.
#[derive(Default)]
pub(crate) struct Servers(Vec<Reached>);

impl Servers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A server as it is reached. A drop ends the forwarding of its port.
struct Reached {
    /// The uid of its Pod; empty where its address was given.
    pod: String,
    address: String,
    account: ServiceAccountRef,
    forwarded: Option<Forwarded>,
    /// The token that it was shown last, and since when there is this token.
    token: Option<(String, Instant)>,
}

impl ServerError {
    /// The next request gets the same answer.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Old(_)
                | Self::Refused {
                    status: StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST | StatusCode::CONFLICT,
                    ..
                }
        )
    }
}

/// A `kubectl` that forwards a port. Two tasks read its output as long as it runs: it ends at the first write that no process reads.
struct Forwarded {
    _child: Child,
    /// What it says of errors.
    said: Arc<Mutex<String>>,
}

impl Inspector {
    /// Reaches the servers that are not reached yet, and lets go of those whose Pods are gone. Why one is not reached.
    pub(crate) async fn reach(&self, servers: &mut Servers) -> Result<Option<ServerError>, InspectError> {
        if let Some(address) = &self.address {
            if servers.0.is_empty() {
                servers.0.push(self.named(address)?);
            }
            return Ok(None);
        }
        let (pods, mut failed) = (self.pods().await?, None);
        servers.0.retain(|reached| pods.iter().any(|pod| uid(pod) == reached.pod));
        for pod in pods {
            if servers.0.iter().any(|reached| reached.pod == uid(&pod)) {
                continue;
            }
            match self.forward(&pod).await {
                Ok(reached) => servers.0.push(reached),
                Err(error) => failed = Some(error),
            }
        }
        if servers.0.is_empty() && failed.is_none() {
            failed = Some(ServerError::NoPod { namespace: self.server_namespace.clone() });
        }
        Ok(failed)
    }

    /// Answers of all servers that are reached, and why one did not answer. One that is cut off has to be reached anew.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        servers: &mut Servers,
        question: Question<'_>,
    ) -> (Vec<T>, Option<InspectError>) {
        let (mut answers, mut failed) = (Vec::new(), None);
        for mut server in std::mem::take(&mut servers.0) {
            match self.ask_one(&mut server, question).await {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    let is_cut_off = !matches!(
                        error,
                        InspectError::Server(ServerError::Refused { .. } | ServerError::Old(_))
                    );
                    failed = Some(error);
                    if is_cut_off {
                        continue;
                    }
                }
            }
            servers.0.push(server);
        }
        (answers, failed)
    }

    /// Answers of all servers, also of those that are not reached yet.
    pub(crate) async fn reach_and_ask<T: DeserializeOwned>(
        &self,
        servers: &mut Servers,
        question: Question<'_>,
    ) -> Result<(Vec<T>, Option<InspectError>), InspectError> {
        let unreached = self.reach(servers).await?;
        let (answers, failed) = self.ask(servers, question).await;
        Ok((answers, failed.or(unreached.map(InspectError::from))))
    }

    async fn ask_one<T: DeserializeOwned>(
        &self,
        server: &mut Reached,
        question: Question<'_>,
    ) -> Result<T, InspectError> {
        let known = server.token.take().filter(|(_, since)| since.elapsed() < MAX_TOKEN_AGE);
        let (token, since) = match known {
            Some(known) => known,
            None => (self.token(&server.account).await?, Instant::now()),
        };
        let answer = ask(server, &token, question).await?;
        server.token = Some((token, since));
        Ok(answer)
    }

    fn named(&self, address: &str) -> Result<Reached, ServerError> {
        let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        // A token is shown there.
        let host = plain.rsplit_once(':').map(|(host, _port)| host);
        if !host.is_some_and(|host| ["localhost", "127.0.0.1", "[::1]"].contains(&host)) {
            return Err(ServerError::Address(address.to_owned()));
        }
        let account = self.account("metacontroller");
        Ok(Reached { pod: String::new(), address: plain.to_owned(), account, forwarded: None, token: None })
    }

    fn account(&self, name: &str) -> ServiceAccountRef {
        ServiceAccountRef { namespace: self.server_namespace.clone(), name: name.to_owned() }
    }

    /// The Pods of servers that run.
    async fn pods(&self) -> Result<Vec<Value>, InspectError> {
        let gvk = Gvk::new("v1", "Pod");
        let pods = Resource { gvk, plural: "pods".into(), namespaced: true, has_status: true };
        let pods = self.api.list_labelled(&pods, &self.server_namespace, LABEL).await?;
        let pods = pods.iter().filter_map(|pod| pod.value().ok());
        Ok(pods
            .filter(|pod| pod.pointer("/status/phase").and_then(Value::as_str) == Some("Running"))
            .collect())
    }

    /// Has `kubectl` forward a port of this machine to the Pod.
    async fn forward(&self, pod: &Value) -> Result<Reached, ServerError> {
        let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let failed = |why: String| ServerError::Forward { pod: name.to_owned(), why };
        let mut command = Command::new("kubectl");
        command.args(["port-forward", "--address=127.0.0.1", "--namespace", &self.server_namespace]);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        if let Some(context) = &self.context {
            command.args(["--context", context]);
        }
        command.arg(format!("pod/{name}")).arg(format!(":{}", port(pod)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (Some(out), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("it has no output".to_owned()));
        };
        let said = Arc::new(Mutex::new(String::new()));
        let heard = tokio::spawn(hear(BufReader::new(errors), Arc::clone(&said)));
        let mut out = BufReader::new(out).lines();
        let first = tokio::time::timeout(ANSWER_TIMEOUT, out.next_line()).await;
        // "Forwarding from 127.0.0.1:43211 -> 9797"
        let line = first.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let Some(address) = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")) else {
            child.start_kill().unwrap_or_default();
            drop(tokio::time::timeout(ANSWER_TIMEOUT, heard).await);
            return Err(failed(lock(&said).trim().to_owned()));
        };
        tokio::spawn(async move { while let Ok(Some(_)) = out.next_line().await {} });
        let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("default");
        Ok(Reached {
            pod: uid(pod).to_owned(),
            address: address.to_owned(),
            account: self.account(account),
            forwarded: Some(Forwarded { _child: child, said }),
            token: None,
        })
    }

    /// The token that was given, that of the kubeconfig, or one of the server's ServiceAccount, which is good for nothing else.
    async fn token(&self, account: &ServiceAccountRef) -> Result<String, InspectError> {
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

/// Keeps the first lines of what a program says of errors, and reads the others.
async fn hear(mut errors: BufReader<ChildStderr>, said: Arc<Mutex<String>>) {
    let mut line = String::new();
    while errors.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
        let mut said = lock(&said);
        if said.len() < MAX_SAID {
            said.push_str(&line);
        }
        drop(said);
        line.clear();
    }
}

fn uid(pod: &Value) -> &str {
    pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// The port of a Pod's `--inspection-address`.
fn port(pod: &Value) -> u16 {
    let lists = ["/spec/containers/0/args", "/spec/containers/0/command"].map(|list| pod.pointer(list));
    let words = lists.into_iter().flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let words: Vec<_> = words.map(|word| word.trim_start_matches('-')).collect();
    let apart = words.iter().zip(words.iter().skip(1)).filter(|(flag, _)| **flag == FLAG);
    let given = words.iter().filter_map(|word| word.strip_prefix(FLAG)?.strip_prefix('='));
    let addresses = given.chain(apart.map(|(_, address)| *address));
    addresses.filter_map(|address| address.rsplit(':').next()?.parse().ok()).next_back().unwrap_or(PORT)
}

async fn ask<T: DeserializeOwned>(
    server: &Reached,
    token: &str,
    question: Question<'_>,
) -> Result<T, ServerError> {
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, exchange(&server.address, token, question)).await;
    let unreachable = async |why: String| {
        // kubectl says why at the same moment.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let said = server.forwarded.as_ref().map(|forwarded| lock(&forwarded.said).trim().to_owned());
        let said = said.filter(|said| !said.is_empty()).map_or_else(String::new, |said| format!(" ({said})"));
        ServerError::Unreachable { address: server.address.clone(), why: why + &said }
    };
    let (status, body) = match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(unreachable(error).await),
        Err(_elapsed) => {
            let why = format!("nothing came within {} s", ANSWER_TIMEOUT.as_secs());
            return Err(unreachable(why).await);
        }
    };
    if status != StatusCode::OK {
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = said.get("message").and_then(Value::as_str);
        let message = message.map_or_else(|| status.to_string(), str::to_owned);
        if status == StatusCode::NOT_FOUND {
            return Err(ServerError::Old(message));
        }
        return Err(ServerError::Refused { status, message });
    }
    serde_json::from_slice(&body).map_err(|error| ServerError::Answer(error.to_string()))
}

async fn exchange(
    address: &str,
    token: &str,
    Question { path, object, more }: Question<'_>,
) -> Result<(StatusCode, Bytes), String> {
    let text = |error: &dyn std::error::Error| metahook_core::error_chain(error);
    let stream = TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("group", &object.group)
        .append_pair("resource", &object.resource)
        .append_pair("kind", &object.kind)
        .append_pair("namespace", &object.namespace)
        .append_pair("name", &object.name)
        .extend_pairs(more)
        .finish();
    let request = Request::get(format!("{path}?{query}"))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_of_a_pod_is_that_of_its_arguments() {
        let pod = |args: Value| json!({ "spec": { "containers": [{ "args": args }] } });
        assert_eq!(port(&pod(json!(["serve", "--inspection-address=127.0.0.1:7"]))), 7);
        assert_eq!(port(&pod(json!(["-inspection-address", "localhost:8"]))), 8);
        assert_eq!(port(&pod(json!(["serve"]))), PORT);
    }
}
