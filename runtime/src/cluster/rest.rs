//! One request and its answer, as bytes; and where objects live.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use metahook_core::object::id::{Key, Resource};
use serde::Deserialize;

/// No write or read of a single object takes this long on a healthy API server.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct Rest {
    client: Client,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

/// There was no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("the request could not be built")]
    Request(#[source] http::Error),
    #[error("the request failed")]
    Send(#[source] kube::Error),
    #[error("the answer broke off")]
    Body(#[source] kube::Error),
    #[error("the answer is not UTF-8")]
    Text(#[source] std::string::FromUtf8Error),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
}

impl Rest {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Unreachable> {
        self.send(Method::GET, path, None).await
    }

    /// Sends JSON; every status is an answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Answer, Unreachable> {
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.map_or_else(Body::empty, |text| Body::from(text.into_bytes())))
            .map_err(Unreachable::Request)?;
        let exchange = async {
            let (head, body) = self
                .client
                .send(request)
                .await
                .map_err(Unreachable::Send)?
                .into_parts();
            let body = body.collect().await.map_err(Unreachable::Body)?.to_bytes();
            let body = String::from_utf8(body.into()).map_err(Unreachable::Text)?;
            Ok(Answer {
                status: head.status,
                body,
            })
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .map_err(|_elapsed| Unreachable::Timeout)?
    }
}

impl Answer {
    /// What the API server says about a refusal, in one line.
    pub(crate) fn message(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            message: String,
        }
        let status: Result<Status, _> = serde_json::from_str(&self.body);
        let text = status.map_or_else(|_| self.body.chars().take(300).collect(), |status| status.message);
        format!("{} ({})", text, self.status.as_u16())
    }
}

/// The path of one object.
pub(crate) fn object_path(resource: &Resource, key: &Key) -> String {
    format!("{}/{}", list_path(resource, &key.namespace), key.name)
}

/// The path of a resource's objects in a namespace; in the cluster where it is empty.
pub(crate) fn list_path(resource: &Resource, namespace: &str) -> String {
    let root = version_path(&resource.gvk.group, &resource.gvk.version);
    match (resource.namespaced, namespace) {
        (true, namespace) if !namespace.is_empty() => {
            format!("{root}/namespaces/{namespace}/{}", resource.plural)
        }
        _ => format!("{root}/{}", resource.plural),
    }
}

pub(crate) fn version_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}
