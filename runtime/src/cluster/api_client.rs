//! Client of the API server: requests and answers as bytes, and the paths of objects.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::{Body, DynBody};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::object::id::{Key, Resource};
use metahook_core::pacing::{Rate, RateLimiter};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use tower::util::BoxService;
use tower::{BoxError, Service};

use crate::retry_after::busy;
use crate::sync::lock;

/// No write or read of a single object takes this long on a healthy API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct ApiClient {
    /// For watches.
    client: Client,
    direct: Transport,
    limit: Option<Arc<Limit>>,
}

/// Rate limit that all requests but watches share.
struct Limit {
    start: Instant,
    bucket: Mutex<RateLimiter>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

/// Failure of a request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("the request's body could not be written")]
    Print(#[source] serde_json::Error),
    #[error("the request could not be built")]
    Request(#[source] http::Error),
    #[error("the request failed")]
    Send(#[source] BoxError),
    #[error("the answer broke off")]
    Body(#[source] BoxError),
    #[error("the answer is not UTF-8")]
    Text(#[source] std::string::FromUtf8Error),
    #[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
    #[error("the API server is busy and wants to be asked again after {} s", after.as_secs())]
    Busy { after: Duration },
}

impl ApiClient {
    pub(crate) fn new(client: Client, direct: Transport, rate: Option<Rate>) -> Self {
        let limit = |rate| Limit { start: Instant::now(), bucket: Mutex::new(RateLimiter::new(rate)) };
        Self { client, direct, limit: rate.map(limit).map(Arc::new) }
    }

    /// The same, with the rights of a ServiceAccount instead of ours.
    pub(crate) fn acting_as(&self, account: &ServiceAccountRef) -> Self {
        let direct = self.direct.acting_as(account);
        let client = Client::new(direct.clone(), self.client.default_namespace());
        Self { client, direct, limit: self.limit.clone() }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Unreachable> {
        self.send(Method::GET, path, None).await
    }

    /// Sends JSON; every status is an answer, but one that only asks to come later.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Unreachable> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        self.exchange(method, path, kind, body).await
    }

    /// Server-side apply.
    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Result<Answer, Unreachable> {
        self.exchange(Method::PATCH, path, "application/apply-patch+yaml", Some(body)).await
    }

    pub(crate) async fn json_patch(&self, path: &str, body: &Value) -> Result<Answer, Unreachable> {
        self.exchange(Method::PATCH, path, "application/json-patch+json", Some(body)).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Unreachable> {
        let body = body.map(serde_json::to_vec).transpose().map_err(Unreachable::Print)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.map_or_else(Body::empty, Body::from))
            .map_err(Unreachable::Request)?;
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.take()).await;
        }
        let exchange = async {
            let (head, body) = self.direct.send(request).await.map_err(Unreachable::Send)?.into_parts();
            if let Some(after) = busy(head.status, &head.headers) {
                return Err(Unreachable::Busy { after });
            }
            let body = body.collect().await.map_err(Unreachable::Body)?.to_bytes();
            let body = String::from_utf8(body.into()).map_err(Unreachable::Text)?;
            Ok(Answer { status: head.status, body })
        };
        tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_elapsed| Unreachable::Timeout)?
    }
}

impl Unreachable {
    /// When the API server wants to be asked again, if that is all it said.
    pub(crate) fn busy(&self) -> Option<Duration> {
        match self {
            Self::Busy { after } => Some(*after),
            Self::Print(_)
            | Self::Request(_)
            | Self::Send(_)
            | Self::Body(_)
            | Self::Text(_)
            | Self::Timeout => None,
        }
    }
}

impl Limit {
    fn take(&self) -> Duration {
        lock(&self.bucket).take(self.start.elapsed())
    }
}

impl Answer {
    /// The API server's word for a refusal, for example `AlreadyExists`.
    pub(crate) fn reason(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            reason: String,
        }
        serde_json::from_str(&self.body).map(|status: Status| status.reason).unwrap_or_default()
    }

    /// Message of a refusal, in one line.
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

type RawAnswer = Response<Box<DynBody>>;

/// Requests sent on the task that makes them: a `kube::Client` has one task for all, which costs each request two changes of
/// tasks. With the server's own rights, or with those of a ServiceAccount by impersonation.
#[derive(Clone)]
pub(crate) struct Transport {
    /// Locked only while it takes a request: it is ready at once, or has failed.
    service: Arc<Mutex<BoxService<Request<Body>, RawAnswer, BoxError>>>,
    user: Option<Arc<str>>,
}

/// The groups of a ServiceAccount are added by the API server, so that no right to name groups is needed.
const IMPERSONATE: &str = "impersonate-user";

impl Transport {
    pub(super) fn new(service: BoxService<Request<Body>, RawAnswer, BoxError>) -> Self {
        Self { service: Arc::new(Mutex::new(service)), user: None }
    }

    pub(super) fn acting_as(&self, account: &ServiceAccountRef) -> Self {
        Self { service: Arc::clone(&self.service), user: Some(account.user().into()) }
    }

    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<RawAnswer, BoxError> {
        if let Some(user) = &self.user {
            // Never as ourselves instead.
            request.headers_mut().insert(IMPERSONATE, HeaderValue::from_str(user)?);
        }
        let mut request = Some(request);
        let answer = poll_fn(|context| {
            let mut service = lock(&self.service);
            ready!(service.poll_ready(context))?;
            // It is taken once: a future that is ready is not polled again.
            request
                .take()
                .map_or(Poll::Pending, |request| Poll::Ready(Ok::<_, BoxError>(service.call(request))))
        });
        answer.await?.await
    }
}

/// For watches, which kube makes.
impl Service<Request<Body>> for Transport {
    type Response = RawAnswer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<RawAnswer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let direct = self.clone();
        async move { direct.send(request).await }.boxed()
    }
}

/// The path of one object.
pub(crate) fn object_path(resource: &Resource, key: &Key) -> String {
    format!("{}/{}", list_path(resource, &key.namespace), segment(&key.name))
}

/// The path of a resource's objects in a namespace; in the cluster where it is empty.
pub(crate) fn list_path(resource: &Resource, namespace: &str) -> String {
    let root = version_path(&resource.gvk.group, &resource.gvk.version);
    match (resource.namespaced, namespace) {
        (true, namespace) if !namespace.is_empty() => {
            format!("{root}/namespaces/{}/{}", segment(namespace), resource.plural)
        }
        _ => format!("{root}/{}", resource.plural),
    }
}

/// One segment of a path: whatever it holds, it stays one.
pub(super) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(char::from(byte));
            }
            other => out.extend(['%', hex(other >> 4), hex(other & 15)]),
        }
    }
    out
}

fn hex(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or_default().to_ascii_uppercase()
}

pub(crate) fn version_path(group: &str, version: &str) -> String {
    let version = segment(version);
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", segment(group)) }
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;
    use crate::cluster::fake;

    #[tokio::test]
    async fn a_busy_api_server_is_no_refusal() {
        for (status, header, seconds) in [(429, None, 1), (429, Some("7"), 7), (503, Some("0"), 1)] {
            let api = fake::answering(move |_| {
                let mut answer = Response::builder().status(status);
                if let Some(header) = header {
                    answer = answer.header("retry-after", header);
                }
                Some(answer.body("{}".to_owned()).unwrap())
            });
            let error = api.get("/api").await.err().unwrap();
            assert_eq!(error.busy(), Some(Duration::from_secs(seconds)), "{error}");
        }
        let api = fake::answering(|_| Response::builder().status(503).body("{}".to_owned()).ok());
        assert_eq!(api.get("/api").await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn a_name_never_becomes_more_than_one_segment() {
        let gvk = Gvk::new("apps/v1", "Deployment");
        let resource = Resource { gvk, plural: "deployments".into(), namespaced: true, has_status: true };
        let path = |namespace: &str, name: &str| object_path(&resource, &Key::new(namespace, name));
        assert_eq!(path("n", "a.b"), "/apis/apps/v1/namespaces/n/deployments/a.b");
        assert_eq!(path("n/x?y", "../z#%"), "/apis/apps/v1/namespaces/n%2Fx%3Fy/deployments/..%2Fz%23%25");
    }
}
