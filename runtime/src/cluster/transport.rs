//! HTTP to the API server: connections, rights, time-outs of the lists and watches that kube makes, and the delay that a busy
//! server asks for with `Retry-After`.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::client::{Body, ConfigExt, DynBody};
use kube::{Client, Config};
use tower::util::{BoxService, option_layer};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::cluster::proxies::Proxy;
use crate::cluster::write_gate::{GatedBody, WriteGate};
use crate::sync::lock;
use crate::telemetry::standard::{RequestCounts, method_name};

/// A list or a watch that the API server leaves unanswered for this long is asked for again, and so is a list of which no
/// further byte comes. The API server itself gives up after this long.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A watch ends after this long and is taken up again, so that one that is silent is soon known to be dead.
pub(crate) const WATCH_TIMEOUT: Duration = Duration::from_mins(3);

/// A connection on which nothing comes is probed after this long.
const KEEPALIVE: Duration = Duration::from_secs(30);

type RawAnswer = Response<Box<DynBody>>;

type HttpService = BoxService<Request<Body>, RawAnswer, BoxError>;

/// Without kube's retries: one operation is one request, and the queue decides when to try again.
fn service(config: &Config, proxy: Option<&Proxy>) -> Result<HttpService, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    match proxy {
        None => layers(config, config.rustls_https_connector_with_connector(tcp)?),
        Some(proxy) => layers(config, config.rustls_https_connector_with_connector(proxy.tunnel(tcp))?),
    }
}

fn layers<C>(config: &Config, connector: C) -> Result<HttpService, kube::Error>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, GatedBody<Body>>(connector);
    // Each write has a body, which is sent last of all: credentials and a connection may have been waited for.
    let client = client.map_request(|request: Request<Body>| {
        let gate = request.extensions().get::<WriteGate>().cloned();
        request.map(|body| GatedBody { body, gate })
    });
    let service = config.extra_headers_layer()?.layer(client.map_err(BoxError::from));
    let service = option_layer(config.auth_layer()?).layer(service);
    let service = config.base_uri_layer().layer(service);
    let boxed = |answer: Response<hyper::body::Incoming>| {
        answer.map(|body| -> Box<DynBody> { Box::new(body.map_err(BoxError::from)) })
    };
    Ok(service.map_response(boxed).map_err(BoxError::from).boxed())
}

/// Requests sent on the task that makes them: a `kube::Client` has one task for all, which costs each request two changes of
/// tasks. With the server's own rights, or with those of a ServiceAccount by impersonation.
#[derive(Clone)]
pub(super) struct Transport {
    /// Locked only while it takes a request: it is ready at once, or has failed.
    service: Arc<Mutex<HttpService>>,
    user: Option<Arc<str>>,
    /// Of all accounts together.
    pub(super) requests: RequestCounts,
    /// Of lists and watches.
    read_timeout: Duration,
}

/// The groups of a ServiceAccount are added by the API server, so that no right to name groups is needed.
const IMPERSONATE: &str = "impersonate-user";

impl Transport {
    pub(super) fn connect(
        config: &Config,
        proxy: Option<&Proxy>,
        read_timeout: Duration,
    ) -> Result<Self, kube::Error> {
        let url = &config.cluster_url;
        let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
        let requests = RequestCounts::new(&format!("{}:{port}", url.host().unwrap_or_default()));
        Ok(Self { requests, ..Self::new(service(config, proxy)?, read_timeout) })
    }

    pub(super) fn new(service: HttpService, read_timeout: Duration) -> Self {
        let requests = RequestCounts::default();
        Self { service: Arc::new(Mutex::new(service)), user: None, requests, read_timeout }
    }

    pub(super) fn acting_as(&self, user: &str) -> Self {
        Self { user: Some(user.into()), ..self.clone() }
    }

    /// For lists and watches, which kube makes. A request that is swallowed fails.
    pub(super) fn client(&self, namespace: &str) -> Client {
        let transport = self.clone();
        let send = move |request: Request<Body>| {
            let transport = transport.clone();
            async move {
                let limit = transport.read_timeout;
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let answer = tokio::time::timeout(limit, transport.send(request)).await;
                let answer = answer.map_err(|_elapsed| Swallowed(limit))??;
                // A watch may have nothing to tell until it ends.
                let silence = if is_watch { WATCH_TIMEOUT + limit } else { limit };
                Ok::<_, BoxError>(answer.map(|body| read_within(silence, body)))
            }
        };
        Client::new(service_fn(send), namespace)
    }

    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<RawAnswer, BoxError> {
        if let Some(user) = &self.user {
            // Never as ourselves instead.
            request.headers_mut().insert(IMPERSONATE, HeaderValue::from_str(user)?);
        }
        let method = method_name(request.method());
        let answer = self.exchange(request).await;
        self.requests.count(method, answer.as_ref().ok().map(Response::status));
        answer
    }

    async fn exchange(&self, request: Request<Body>) -> Result<RawAnswer, BoxError> {
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

#[derive(Debug, thiserror::Error)]
#[error("nothing came from the API server within {} s", .0.as_secs())]
struct Swallowed(Duration);

/// The body, which ends with an error where none of its bytes come for so long.
fn read_within(
    limit: Duration,
    body: Box<DynBody>,
) -> impl hyper::body::Body<Data = Bytes, Error = BoxError> {
    let frames = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout(limit, body.frame()).await {
            Ok(frame) => frame.map(|frame| (frame, Some(body))),
            Err(_elapsed) => Some((Err(Swallowed(limit).into()), None)),
        }
    });
    StreamBody::new(frames)
}

/// Sooner would be a hot loop.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// A longer delay is not believed: of the API server, on which everything waits, and of a webhook, on which its own parents
/// wait.
pub(crate) const MAX_API_DELAY: Duration = Duration::from_mins(2);
pub(crate) const MAX_WEBHOOK_DELAY: Duration = Duration::from_hours(1);

/// How long a server that answers like this wants to be left alone, if it does; at most `longest`.
pub(crate) fn busy(status: StatusCode, headers: &HeaderMap, longest: Duration) -> Option<Duration> {
    let later = headers.get(RETRY_AFTER);
    let busy = status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::SERVICE_UNAVAILABLE && later.is_some());
    let delay = || retry_after(later.and_then(|value| value.to_str().ok()), Timestamp::now());
    busy.then(|| delay().clamp(MIN_DELAY, longest))
}

/// Reads `Retry-After`: a date, rounded up to whole seconds from now, or a number of seconds. What says neither, or
/// nothing that lies ahead, means soon.
fn retry_after(header: Option<&str>, now: Timestamp) -> Duration {
    let text = header.unwrap_or_default().trim();
    let seconds = match rfc2822::parse(text) {
        Ok(date) => {
            let nanos = date.timestamp().as_nanosecond().saturating_sub(now.as_nanosecond());
            u64::try_from(nanos.max(0).unsigned_abs().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
        }
        Err(_) => text.parse().unwrap_or_default(),
    };
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_proxy_makes_a_tunnel_to_the_api_server() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut config = Config::new("https://api.example:6443".parse().unwrap());
        let proxy = format!("http://user:secret@{}", listener.local_addr().unwrap());
        config.proxy_url = Some(proxy.parse().unwrap());
        let proxy = Proxy::of_config(&config).unwrap();
        let transport = Transport::connect(&config, proxy.as_ref(), READ_TIMEOUT).unwrap();
        let asked = async {
            let mut stream = listener.accept().await.unwrap().0;
            let (mut text, mut byte) = (String::new(), [0]);
            while !text.ends_with("\r\n\r\n") {
                stream.read_exact(&mut byte).await.unwrap();
                text.push(byte[0].into());
            }
            text
        };
        let send = transport.send(Request::get("/api").body(Body::empty()).unwrap());
        let (asked, answer) = tokio::join!(asked, send);
        assert!(answer.is_err(), "the proxy hung up");
        assert!(asked.starts_with("CONNECT api.example:6443 "), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic dXNlcjpzZWNyZXQ="), "{asked}");
    }

    fn seconds(header: Option<&str>) -> u64 {
        let now: Timestamp = "2026-11-21T08:00:00.25Z".parse().unwrap();
        retry_after(header, now).clamp(MIN_DELAY, MAX_WEBHOOK_DELAY).as_secs()
    }

    #[test]
    fn a_number_is_seconds_and_a_date_is_rounded_up() {
        assert_eq!(seconds(Some("7")), 7);
        assert_eq!(seconds(Some(" 120 ")), 120);
        assert_eq!(seconds(Some("Sat, 21 Nov 2026 08:00:05 GMT")), 5);
        assert_eq!(seconds(Some("Sat, 21 Nov 2026 09:00:00 UTC")), 3600);
    }

    #[test]
    fn what_does_not_lie_ahead_is_soon() {
        for header in [
            None,
            Some(""),
            Some("0"),
            Some("-5"),
            Some("soon"),
            Some("1.5"),
            Some("99999999999999999999999"),
            Some("Sat, 21 Nov 2026 08:00:00 GMT"),
            Some("Sat, 21 Nov 2015 08:00:00 GMT"),
        ] {
            assert_eq!(seconds(header), 1, "{header:?}");
        }
    }

    #[test]
    fn what_asks_for_ages_is_not_believed() {
        for header in ["3601", "1000000000", "18446744073709551615", "Thu, 31 Dec 9998 00:00:00 GMT"] {
            assert_eq!(seconds(Some(header)), 3600, "{header}");
            let headers = [(RETRY_AFTER, header.parse().unwrap())].into_iter().collect();
            let delay = busy(StatusCode::TOO_MANY_REQUESTS, &headers, MAX_API_DELAY);
            assert_eq!(delay, Some(MAX_API_DELAY), "{header}");
        }
        assert_eq!(seconds(Some("3600")), 3600);
    }
}
