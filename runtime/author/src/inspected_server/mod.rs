//! The servers that are looked into, at their inspection address: how they are reached, and the token that they are shown.

mod error;
mod port_forward;
mod request;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::trace::TracedObject;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::tokens;
use metahook_server::sync::lock;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use error::foremost;
pub use error::{InspectError, ServerError};
pub(crate) use port_forward::ServerPod;
use port_forward::{PortForward, is_inspected};

/// The port of `--inspection-address` in the manifests.
const PORT: u16 = 9797;

/// The labels that the manifests and the chart give the server's Pods.
const SELECTOR: &str = "app.kubernetes.io/name in (metacontroller,metacontroller-helm)";

/// The ServiceAccount of the manifests.
const ACCOUNT: &str = "metacontroller";

/// A token is shown this long: the API server makes it for ten minutes.
const MAX_TOKEN_AGE: Duration = Duration::from_mins(5);

/// The user that looks into servers, and the servers.
pub struct Inspector {
    pub api: ApiClient,
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// The program that forwards ports.
    pub kubectl: PathBuf,
    /// The address of the server; its Pods are looked for in their namespace when absent.
    pub address: Option<String>,
    pub server_namespace: String,
    /// The file of the user's token. It is read again and again: other programs renew tokens in files.
    pub token_file: Option<PathBuf>,
}

/// A question to servers.
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

/// A server as it is reached. A drop ends the forwarding of its port.
pub(crate) struct Reached {
    /// Its Pod; absent where its address was given.
    pod: Option<ServerPod>,
    address: String,
    forward: Option<PortForward>,
    /// The token that the server was shown last, and since when there is this token.
    token: Mutex<Option<(String, Instant)>>,
}

impl Servers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Reached {
    /// The error of a server that has not answered within the limit.
    pub(crate) fn late(&self, limit: Duration) -> ServerError {
        let server = match &self.pod {
            Some(pod) => format!("in the Pod {}", pod.name),
            None => format!("at {}", self.address),
        };
        ServerError::Late { server, seconds: limit.as_secs() }
    }

    /// The uid of its Pod.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.pod.as_ref().map(|pod| &*pod.uid)
    }
}

impl Inspector {
    /// Reaches the servers that are not reached yet, and lets go of those whose Pods are gone. Gives back the failure of one.
    pub(crate) async fn reach(&self, servers: &mut Servers) -> Result<Option<ServerError>, InspectError> {
        if let Some(address) = &self.address {
            if servers.0.is_empty() {
                servers.0.push(Self::named(address)?);
            }
            return Ok(None);
        }
        let mut pods = self.pods().await?;
        servers.0.retain(|reached| pods.iter().any(|pod| Some(&*pod.uid) == reached.uid()));
        pods.retain(|pod| servers.0.iter().all(|reached| Some(&*pod.uid) != reached.uid()));
        let mut failed = None;
        for reached in join_all(pods.iter().map(|pod| self.forward(pod))).await {
            match reached {
                Ok(reached) => servers.0.push(reached),
                Err(error) => failed = Some(error),
            }
        }
        if servers.0.is_empty() && failed.is_none() {
            failed = Some(self.no_pod());
        }
        Ok(failed)
    }

    /// Answers of all servers that are reached, and why one did not answer. One that is cut off has to be reached anew.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        servers: &mut Servers,
        question: Question<'_>,
    ) -> (Vec<T>, Option<InspectError>) {
        let asked = join_all(servers.0.iter().map(|server| self.ask_one(server, question))).await;
        let (mut answers, mut failures, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for answer in asked {
            kept.push(!matches!(&answer, Err(error) if error.is_cut_off()));
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.push(error),
            }
        }
        let mut kept = kept.into_iter();
        servers.0.retain(|_| kept.next().unwrap_or(true));
        (answers, foremost(failures))
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

    /// The answer of one server. A token that it refuses may have expired: another one is shown once.
    pub(crate) async fn ask_one<T: DeserializeOwned>(
        &self,
        server: &Reached,
        question: Question<'_>,
    ) -> Result<T, InspectError> {
        let known = lock(&server.token).clone().filter(|(_, since)| since.elapsed() < MAX_TOKEN_AGE);
        if let Some((token, _)) = known {
            let answer = request::ask(server, &token, question).await;
            if !is_unknown_user(&answer) {
                return Ok(answer?);
            }
        }
        let token = self.token(server).await?;
        *lock(&server.token) = Some((token.clone(), Instant::now()));
        let answer = request::ask(server, &token, question).await;
        if is_unknown_user(&answer) {
            *lock(&server.token) = None;
        }
        Ok(answer?)
    }

    /// The server at an address that the user gave.
    pub(crate) fn named(address: &str) -> Result<Reached, ServerError> {
        let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        // A token is shown there.
        let host = plain.rsplit_once(':').map(|(host, _port)| host);
        if !host.is_some_and(|host| ["localhost", "127.0.0.1", "[::1]"].contains(&host)) {
            return Err(ServerError::Address(address.to_owned()));
        }
        Ok(Reached { pod: None, address: plain.to_owned(), forward: None, token: Mutex::default() })
    }

    /// The Pods of servers that run. A chart may give them another label; then they have the server's flag among their arguments.
    pub(crate) async fn pods(&self) -> Result<Vec<ServerPod>, InspectError> {
        let gvk = Gvk::new("v1", "Pod");
        let pods = Resource { gvk, plural: "pods".into(), namespaced: true, has_status: true };
        let selected = self.api.list_selected(&pods, &self.server_namespace, SELECTOR).await?;
        let servers: Vec<_> = running(&selected).map(|pod| ServerPod::of(&pod)).collect();
        if !servers.is_empty() {
            return Ok(servers);
        }
        let all = self.api.list_objects_in(&pods, &self.server_namespace).await?;
        Ok(running(&all).filter(is_inspected).map(|pod| ServerPod::of(&pod)).collect())
    }

    pub(crate) fn no_pod(&self) -> ServerError {
        ServerError::NoPod { namespace: self.server_namespace.clone() }
    }

    /// Has `kubectl` forward a port of this machine to the Pod.
    pub(crate) async fn forward(&self, pod: &ServerPod) -> Result<Reached, ServerError> {
        let forward = PortForward::start(self, pod).await?;
        Ok(Reached {
            pod: Some(pod.clone()),
            address: forward.address.clone(),
            forward: Some(forward),
            token: Mutex::default(),
        })
    }

    /// The token of the file, that of the kubeconfig, or one of the server's ServiceAccount, which is good for nothing else.
    async fn token(&self, server: &Reached) -> Result<String, InspectError> {
        if let Some(file) = &self.token_file {
            let token = tokio::fs::read_to_string(file).await;
            let token = token.map_err(|error| InspectError::TokenFile(file.display().to_string(), error))?;
            return Ok(token.trim().to_owned());
        }
        let own = tokens::of_kubeconfig(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        match own {
            Some(token) => Ok(token),
            None => Ok(self.api.token_of(&self.account(server).await).await?),
        }
    }

    /// The ServiceAccount of a server. Where only an address was given, it is that of a Pod that runs, if there is one.
    async fn account(&self, server: &Reached) -> ServiceAccountRef {
        let name = match &server.pod {
            Some(pod) => Some(pod.account.clone()),
            None => self.pods().await.ok().and_then(|pods| pods.into_iter().next()).map(|pod| pod.account),
        };
        let name = name.unwrap_or_else(|| ACCOUNT.to_owned());
        ServiceAccountRef { namespace: self.server_namespace.clone(), name }
    }
}

fn running(pods: &[Object]) -> impl Iterator<Item = Value> {
    let pods = pods.iter().filter_map(|pod| pod.value().ok());
    pods.filter(|pod| pod.pointer("/status/phase").and_then(Value::as_str) == Some("Running"))
}

fn is_unknown_user<T>(answer: &Result<T, ServerError>) -> bool {
    matches!(answer, Err(ServerError::Refused { status: StatusCode::UNAUTHORIZED, .. }))
}

#[cfg(test)]
impl Inspector {
    /// An inspector whose servers are in the namespace `n`.
    pub(crate) fn for_tests(api: ApiClient) -> Self {
        Self {
            api,
            kubeconfig: None,
            context: None,
            kubectl: PathBuf::new(),
            address: None,
            server_namespace: "n".to_owned(),
            token_file: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use metahook_server::cluster::fake::answering;
    use serde_json::json;

    use super::*;

    /// A Pod with this value of the label that the manifests use.
    fn pod(name: &str, label: &str, phase: &str, argument: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "n", "name": name, "uid": name, "labels": { "app.kubernetes.io/name": label } },
            "spec": { "serviceAccountName": format!("account-of-{name}"), "containers": [{ "args": [argument] }] },
            "status": { "phase": phase },
        })
    }

    /// An inspector of a cluster with these Pods, whose API server knows the one selector.
    fn inspector(pods: Vec<Value>) -> Inspector {
        let api = answering(move |request| {
            let query = request.uri().query().unwrap_or_default();
            let selects = query.contains(
                "labelSelector=app.kubernetes.io%2Fname%20in%20%28metacontroller%2Cmetacontroller-helm%29",
            );
            let is_labelled = |pod: &&Value| {
                let label = pod["metadata"]["labels"]["app.kubernetes.io/name"].as_str();
                ["metacontroller", "metacontroller-helm"].map(Some).contains(&label)
            };
            let items: Vec<_> = pods.iter().filter(|pod| !selects || is_labelled(pod)).collect();
            Some(Response::new(json!({ "metadata": {}, "items": items }).to_string()))
        });
        Inspector::for_tests(api)
    }

    async fn found(pods: Vec<Value>) -> Vec<String> {
        inspector(pods).pods().await.unwrap().into_iter().map(|pod| pod.name).collect()
    }

    #[tokio::test]
    async fn the_pods_of_servers_are_found_by_their_label_or_by_the_flag() {
        let flag = "--inspection-address=127.0.0.1:9797";
        let others = || vec![pod("other", "web", "Running", ""), pod("renamed", "hooks", "Running", flag)];
        for label in ["metacontroller", "metacontroller-helm"] {
            let servers = [pod("server", label, "Running", ""), pod("old", label, "Succeeded", "")];
            assert_eq!(found(others().into_iter().chain(servers).collect()).await, ["server"], "{label}");
        }
        assert_eq!(found(others()).await, ["renamed"]);
        let ended = pod("old", "metacontroller", "Succeeded", flag);
        assert_eq!(found(others().into_iter().chain([ended]).collect()).await, ["renamed"]);
        assert!(found(Vec::new()).await.is_empty());
    }

    #[tokio::test]
    async fn the_account_is_that_of_the_pod_that_runs() {
        let named = Inspector::named("127.0.0.1:1").unwrap();
        let of = async |pods| inspector(pods).account(&named).await.name;
        assert_eq!(of(vec![pod("a", "metacontroller-helm", "Running", "")]).await, "account-of-a");
        assert_eq!(of(Vec::new()).await, ACCOUNT);
    }
}
