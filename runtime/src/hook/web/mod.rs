//! Hooks that are webhooks: one POST, one answer, within the webhook's time.
//!
//! Anything but an answer with status 200 is an error, except that being told to wait is none. Whether an answer depends on its
//! request alone is not known, so a webhook is never pure.

mod connector;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use metahook_core::api::SpecError;
use metahook_core::api::endpoint::WebhookTarget;
use metahook_core::api::units::print_bytes;
use metahook_core::shorten;
use tokio::time::{Instant, timeout};

use crate::cluster::transport::{MAX_WEBHOOK_DELAY, busy};
use crate::memory::{MemoryShort, Reservation};
use crate::telemetry::error_chain;
use crate::telemetry::metrics::WebMeter;
use connector::{Connections, Resolver, measured};

/// Bytes of an answer.
const MAX_ANSWER: usize = 32 << 20;

/// Bytes of an answer with another status than 200.
const MAX_ERROR_BODY: usize = 1024;

/// A webhook that can be called.
pub(crate) struct Webhook {
    target: WebhookTarget,
    uri: Uri,
    connections: Connections,
    meter: Arc<WebMeter>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebError {
    #[error("the webhook at {host} asks to be called again in {}s", after.as_secs())]
    Busy { host: String, after: Duration },
    #[error("the webhook at {host} answered with an unsupported status code: {code} body: {body}")]
    Status { host: String, code: u16, body: String },
    #[error("the webhook at {host} did not answer within {}s (webhook.timeout)", budget.as_secs_f64())]
    Timeout { host: String, budget: Duration },
    #[error("the webhook at {host} cannot be reached: {why}")]
    Connect { host: String, why: String },
    #[error("the exchange with the webhook at {host} broke off: {why}")]
    Broken { host: String, why: String },
    #[error(transparent)]
    MemoryShort(#[from] MemoryShort),
    #[error(
        "the webhook at {host} answered with more than {}: make it answer with less",
        print_bytes(MAX_ANSWER as u64)
    )]
    TooLong { host: String },
}

impl WebError {
    /// One word, for metrics and for the controller's status.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "HookBusy",
            Self::Status { .. } => "HookStatus",
            Self::Timeout { .. } => "HookTimeout",
            Self::Connect { .. } => "HookConnect",
            Self::Broken { .. } => "HookBroken",
            Self::MemoryShort(_) => "MemoryShort",
            Self::TooLong { .. } => "HookOutput",
        }
    }

    /// The delay that a busy webhook asks for, which is no failure.
    pub(crate) fn busy(&self) -> Option<Duration> {
        if let Self::Busy { after, .. } = self { Some(*after) } else { None }
    }
}

impl Webhook {
    /// # Errors
    /// The target's URL is invalid, or the system has no certificates for TLS.
    pub(crate) fn new(target: &WebhookTarget, meter: Arc<WebMeter>) -> Result<Self, SpecError> {
        Self::resolving(target, meter, Resolver::System(GaiResolver::new()))
    }

    fn resolving(
        target: &WebhookTarget,
        meter: Arc<WebMeter>,
        resolver: Resolver,
    ) -> Result<Self, SpecError> {
        let invalid = |why: String| SpecError::new(&target.field, why);
        let uri: Uri =
            target.url.parse().map_err(|error| invalid(format!("{:?} is no URL: {error}", target.url)))?;
        let connections = match uri.scheme_str() {
            Some("https") => Connections::tls(resolver).map_err(|error| {
                invalid(format!("the system has no certificates to trust: {}", error_chain(&error)))
            })?,
            _ => Connections::plain(resolver),
        };
        Ok(Self { target: target.clone(), uri, connections, meter })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// There is no complete answer with status 200 within the webhook's time.
    pub(crate) async fn call(&self, request: Bytes, memory: &Reservation) -> Result<Vec<u8>, WebError> {
        let _in_flight = self.meter.begin();
        let budget = self.target.timeout;
        let exchange = measured(&self.meter, self.exchange(request, memory));
        timeout(budget, exchange).await.map_err(|_late| WebError::Timeout { host: self.host(), budget })?
    }

    async fn exchange(&self, body: Bytes, memory: &Reservation) -> Result<Vec<u8>, WebError> {
        let start = Instant::now();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = self.connections.send(request).await.map_err(|error| {
            let host = self.host();
            let why = error_chain(&error);
            if error.is_connect() { WebError::Connect { host, why } } else { WebError::Broken { host, why } }
        })?;
        let (head, body) = answer.into_parts();
        self.meter.answered(head.status, start.elapsed());
        if let Some(after) = busy(head.status, &head.headers, MAX_WEBHOOK_DELAY) {
            return Err(WebError::Busy { host: self.host(), after });
        }
        if head.status != StatusCode::OK {
            let body = error_body(body).await;
            return Err(WebError::Status { host: self.host(), code: head.status.as_u16(), body });
        }
        self.whole(body, memory).await
    }

    /// The whole body of an answer, as far as there is memory for it.
    async fn whole(&self, mut body: Incoming, memory: &Reservation) -> Result<Vec<u8>, WebError> {
        let said = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if said > MAX_ANSWER {
            return Err(WebError::TooLong { host: self.host() });
        }
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let broken =
                |error: hyper::Error| WebError::Broken { host: self.host(), why: error_chain(&error) };
            let data = frame.map_err(broken)?.into_data().unwrap_or_default();
            let (needed, capacity) = (whole.len() + data.len(), whole.capacity());
            if needed > MAX_ANSWER {
                return Err(WebError::TooLong { host: self.host() });
            }
            if needed > capacity {
                // As much as the answer says that it has, once a part of it came, and twice as much where it says nothing.
                let wanted = needed.max(said.min(16 * needed)).max((2 * capacity).min(MAX_ANSWER));
                memory.charge(wanted - capacity)?;
                whole.reserve_exact(wanted - whole.len());
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole)
    }

    fn host(&self) -> String {
        self.target.place().to_owned()
    }
}

/// The beginning of a body, as far as it comes.
async fn error_body(mut body: Incoming) -> String {
    let mut said = Vec::new();
    while said.len() <= MAX_ERROR_BODY
        && let Some(Ok(frame)) = body.frame().await
    {
        said.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    shorten(&String::from_utf8_lossy(&said), MAX_ERROR_BODY)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use metahook_core::api::hook::HookName;
    use metahook_core::api::webhook;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// Answers each connection's requests with these texts; then keeps the connection open, or closes it if there were no
    /// texts. Returns the requests.
    async fn server(
        connections: Vec<Vec<String>>,
    ) -> (SocketAddr, JoinHandle<(Vec<String>, Vec<TcpStream>)>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let mut requests = Vec::new();
            let mut open = Vec::new();
            for answers in connections {
                let (mut stream, _) = listener.accept().await.unwrap();
                for answer in &answers {
                    requests.push(request(&mut stream).await);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                open.extend((!answers.is_empty()).then_some(stream));
            }
            (requests, open)
        });
        (address, served)
    }

    async fn request(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        let mut byte = [0];
        while !text.ends_with("\r\n\r\n") {
            stream.read_exact(&mut byte).await.unwrap();
            text.push(byte[0].into());
        }
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        text + &String::from_utf8(body).unwrap()
    }

    fn http(status: &str, headers: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
    }

    fn webhook(spec: Value, metrics: &Metrics, at: SocketAddr) -> Result<Webhook, SpecError> {
        let spec: webhook::Webhook = serde_json::from_value(spec).unwrap();
        let target = spec.check("spec.hooks.sync.webhook").unwrap();
        let meter = metrics.webhook("CompositeController", "c", HookName::Sync, &target.url);
        Webhook::resolving(&target, meter, Resolver::At(at))
    }

    async fn answered(answer: &str) -> Result<Vec<u8>, WebError> {
        let (at, _served) = server(vec![vec![answer.to_owned()]]).await;
        let spec = json!({ "url": "http://hook.example/x?secret", "timeout": "300ms" });
        webhook(spec, &Metrics::new(|| 0), at).unwrap().call("{}".into(), &Reservation::default()).await
    }

    #[tokio::test]
    async fn a_service_gets_one_post_and_its_connection_is_kept() {
        let answer = http("200 OK", "", r#"{"children":[]}"#);
        let (at, served) = server(vec![vec![answer.clone(), answer]]).await;
        let metrics = Metrics::new(|| 0);
        let spec =
            json!({ "service": { "name": "s", "namespace": "n", "port": at.port() }, "path": "/sync" });
        let webhook = webhook(spec, &metrics, at).unwrap();
        for request in [r#"{"parent":1}"#, r#"{"parent":2}"#] {
            assert_eq!(
                webhook.call(request.into(), &Reservation::default()).await.unwrap(),
                br#"{"children":[]}"#
            );
        }
        let (requests, _open) = served.await.unwrap();
        let expected = format!(
            "POST /sync HTTP/1.1\r\ncontent-type: application/json\r\nhost: s.n:{}\r\ncontent-length: 12\r\n\r\n{{\"parent\":1}}",
            at.port()
        );
        assert_eq!(requests[0], expected);
        assert!(requests[1].ends_with(r#"{"parent":2}"#));

        let labels = format!(
            r#"controller_name="c",controller_type="CompositeController",url="http://s.n:{}/sync""#,
            at.port()
        );
        let text = metrics.text();
        for line in [
            format!(r#"metacontroller_sync_requests_total{{{labels},code="200",method="post"}} 2"#),
            format!(
                r#"metacontroller_sync_request_duration_histogram_seconds_count{{{labels},method="post"}} 2"#
            ),
            format!(
                r#"metacontroller_sync_request_duration_histogram_seconds_bucket{{le="10.0",{labels},method="post"}} 2"#
            ),
            // One connection was made, and its host looked up.
            format!(
                r#"metacontroller_sync_dns_duration_histogram_seconds_count{{{labels},event="dns_done"}} 1"#
            ),
            format!(
                r#"metacontroller_sync_tls_duration_histogram_seconds_count{{{labels},event="tls_handshake_start"}} 0"#
            ),
            format!("metacontroller_sync_in_flight_requests{{{labels}}} 0"),
            "# EOF".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        drop(webhook);
        assert!(!metrics.text().contains("metacontroller_"), "{}", metrics.text());
    }

    #[tokio::test]
    async fn only_200_is_an_answer() {
        for status in [
            "201 Created",
            "202 Accepted",
            "204 No Content",
            "301 Moved",
            "304 Not Modified",
            "412 P",
            "500 E",
        ] {
            let error = answered(&http(status, "location: http://elsewhere/\r\n", "why")).await.unwrap_err();
            assert_eq!(error.category(), "HookStatus");
            let (code, _) = status.split_once(' ').unwrap();
            let says = format!(
                "the webhook at hook.example answered with an unsupported status code: {code} body: "
            );
            assert!(error.to_string().starts_with(&says), "{error}");
        }
        let long = answered(&http("503 Gone", "", &"x".repeat(100_000))).await.unwrap_err().to_string();
        assert!(long.contains("503 body: xxx") && long.len() < 1200 && long.ends_with('…'), "{long}");
    }

    #[tokio::test]
    async fn a_busy_webhook_decides_about_the_delay() {
        for (answer, seconds) in [
            // Its body never comes.
            ("HTTP/1.1 429 Busy\r\nretry-after: 7\r\ncontent-length: 5\r\n\r\n".to_owned(), 7),
            (http("429 Busy", "", ""), 1),
            (http("429 Busy", "retry-after: soon\r\n", ""), 1),
            (http("503 Busy", "retry-after: 120\r\n", ""), 120),
        ] {
            assert_eq!(
                answered(&answer).await.unwrap_err().busy(),
                Some(Duration::from_secs(seconds)),
                "{answer}"
            );
        }
        assert_eq!(answered(&http("503 Busy", "", "")).await.unwrap_err().busy(), None);
    }

    #[tokio::test]
    async fn the_timeout_bounds_head_and_body() {
        for slow in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}"] {
            let error = answered(slow).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "the webhook at hook.example did not answer within 0.3s (webhook.timeout)"
            );
        }
    }

    #[tokio::test]
    async fn a_broken_exchange_is_an_error() {
        let (at, _served) = server(vec![vec![]]).await;
        let spec = json!({ "url": "http://hook.example/" });
        let metrics = Metrics::new(|| 0);
        let error = webhook(spec.clone(), &metrics, at)
            .unwrap()
            .call("{}".into(), &Reservation::default())
            .await
            .unwrap_err();
        assert_eq!(error.category(), "HookBroken", "{error}");
        let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
        let error = webhook(spec, &metrics, closed)
            .unwrap()
            .call("{}".into(), &Reservation::default())
            .await
            .unwrap_err();
        assert_eq!(error.category(), "HookConnect", "{error}");
        assert!(error.to_string().contains("hook.example cannot be reached: "), "{error}");
    }

    #[tokio::test]
    async fn an_answer_beyond_the_bound_is_not_read() {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MAX_ANSWER + 1);
        let error = answered(&head).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the webhook at hook.example answered with more than 32Mi: make it answer with less"
        );
    }
}
