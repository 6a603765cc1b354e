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
use hyper::body::Frame;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::client::{Body, ConfigExt, DynBody};
use kube::{Client, Config};
use metahook_core::pacing::pages::MAX_PAGE_BYTES;
use tower::util::{BoxService, option_layer};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::cluster::bounds::{self, Line, MAX_LARGE, TooLarge};
use crate::cluster::pages::{Pages, limit_of, with_limit};
use crate::cluster::proxies::Proxy;
use crate::cluster::write_gate::{GatedBody, WriteGate};
use crate::sync::lock;
use crate::telemetry::standard::{RequestCounts, method_name};

/// A list or a watch that the API server leaves unanswered for this long is asked for again, and so is a list of which no
/// further byte comes. The API server itself gives up after this long.
pub const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A watch ends after this long and is taken up again, so that one that is silent is soon known to be dead.
pub(crate) const WATCH_TIMEOUT: Duration = Duration::from_mins(3);

/// A connection on which nothing comes is probed after this long.
const KEEPALIVE: Duration = Duration::from_secs(30);

pub(super) type RawAnswer = Response<Box<DynBody>>;

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
    /// Requests of all accounts together.
    pub(super) requests: RequestCounts,
    /// Timeout of reading lists and watches.
    read_timeout: Duration,
    pages: Arc<Pages>,
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
        let service = Arc::new(Mutex::new(service));
        Self { service, user: None, requests, read_timeout, pages: Arc::default() }
    }

    pub(super) fn acting_as(&self, user: &str) -> Self {
        Self { user: Some(user.into()), ..self.clone() }
    }

    /// Client for lists and watches, which kube makes. A request that is swallowed fails.
    pub(super) fn client(&self, namespace: &str) -> Client {
        let transport = self.clone();
        let send = move |request: Request<Body>| {
            let transport = transport.clone();
            async move {
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                if is_watch { transport.watch(request).await } else { transport.list(request).await }
            }
        };
        Client::new(service_fn(send), namespace)
    }

    async fn watch(&self, request: Request<Body>) -> Result<RawAnswer, BoxError> {
        let line = Line::new(request.uri().path());
        let answer = self.begin(request).await?;
        if !answer.status().is_success() {
            return self.refused(answer).await;
        }
        // It may have nothing to tell until it ends.
        let silence = WATCH_TIMEOUT + self.read_timeout;
        Ok(answer.map(|body| read_within(silence, Some(line), body)))
    }

    /// One page of a list, of at most as many objects as it asks for; of less where they are large.
    pub(super) async fn list(&self, request: Request<Body>) -> Result<RawAnswer, BoxError> {
        let (head, _empty) = request.into_parts();
        let limit = limit_of(&head.uri);
        let mut page = self.pages.next(head.uri.path());
        loop {
            page = limit.map_or(page, |limit| page.at_most(limit));
            let room = self.pages.room(page).await;
            let mut asked = Request::from_parts(head.clone(), Body::empty());
            if limit.is_some() {
                *asked.uri_mut() = with_limit(&head.uri, page.limit())?;
            }
            let answer = self.begin(asked).await?;
            if !answer.status().is_success() {
                return self.refused(answer).await;
            }
            let smaller = limit.and_then(|_| page.smaller());
            let bound = if smaller.is_some() { MAX_PAGE_BYTES } else { MAX_LARGE };
            let (answer, body) = answer.into_parts();
            let body = read_within(self.read_timeout, None, body);
            let read = tokio::time::timeout(self.page_timeout(), bounds::read(body, bound)).await;
            let read = read.map_err(|_elapsed| Slow(self.page_timeout()))??;
            if read.is_whole {
                self.pages.learn(head.uri.path(), page, &read.bytes);
                return Ok(Response::from_parts(answer, at_once(read.bytes, room)));
            }
            let too_large = || TooLarge::new(&head.method, head.uri.path(), bound);
            page = smaller.ok_or_else(too_large)?;
        }
    }

    /// A page that comes byte by byte takes the room of others.
    fn page_timeout(&self) -> Duration {
        self.read_timeout.max(READ_TIMEOUT)
    }

    /// Sends a list or a watch, whose answer begins in time.
    async fn begin(&self, request: Request<Body>) -> Result<RawAnswer, BoxError> {
        let limit = self.read_timeout;
        tokio::time::timeout(limit, self.send(request)).await.map_err(|_elapsed| Swallowed(limit))?
    }

    async fn refused(&self, answer: RawAnswer) -> Result<RawAnswer, BoxError> {
        let (head, body) = answer.into_parts();
        let text = bounds::read_refusal(read_within(self.read_timeout, None, body)).await?;
        Ok(Response::from_parts(head, at_once(text.into_bytes(), ())))
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

#[derive(Debug, thiserror::Error)]
#[error("the API server sent no whole page of the list within {} s", .0.as_secs())]
struct Slow(Duration);

/// A body that has been read. What it holds is given back when its reader has it.
fn at_once(bytes: Vec<u8>, held: impl Send + 'static) -> Box<DynBody> {
    let frame = stream::once(async move {
        let _held = held;
        Ok(Frame::data(Bytes::from(bytes)))
    });
    Box::new(StreamBody::new(Box::pin(frame)))
}

/// The body, which ends with an error where none of its bytes come for so long, or where a line of it is too long.
fn read_within(limit: Duration, line: Option<Line>, body: Box<DynBody>) -> Box<DynBody> {
    let frames = stream::unfold(Some((body, line)), move |reading| async move {
        let (mut body, mut line) = reading?;
        match tokio::time::timeout(limit, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let read = line.as_mut().zip(frame.data_ref()).map_or(Ok(()), |(line, data)| line.read(data));
                match read {
                    Ok(()) => Some((Ok(frame), Some((body, line)))),
                    Err(too_large) => Some((Err(too_large.into()), None)),
                }
            }
            Ok(Some(Err(error))) => Some((Err(error), Some((body, line)))),
            Ok(None) => None,
            Err(_elapsed) => Some((Err(Swallowed(limit).into()), None)),
        }
    });
    Box::new(StreamBody::new(Box::pin(frames)))
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
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::StreamExt;
    use metahook_core::object::id::{Gvk, Resource};
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::cluster::api_client::ApiClient;
    use crate::cluster::rights::WatchFailure;
    use crate::cluster::watch::watch;

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

    /// An API server whose answers have this beginning and no end; counts the bytes that are read.
    fn endless(status: u16, beginning: &'static str) -> (ApiClient, Arc<AtomicU64>) {
        let read = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&read);
        let service = service_fn(move |_: Request<Body>| {
            let count = Arc::clone(&count);
            let more = stream::repeat_with(move || {
                count.fetch_add(1 << 16, Ordering::Relaxed);
                Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b' '; 1 << 16])))
            });
            let first = stream::iter([Ok(Frame::data(Bytes::from_static(beginning.as_bytes())))]);
            let body: Box<DynBody> = Box::new(StreamBody::new(first.chain(more)));
            std::future::ready(Ok(Response::builder().status(status).body(body).unwrap()))
        });
        (ApiClient::new(Transport::new(BoxService::new(service), READ_TIMEOUT), "default", None), read)
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_left_at_its_bound() {
        let (api, read) = endless(200, "{");
        let get = api.get("/api/v1/namespaces/n/configmaps/x").await;
        let large = api.get_large("/apis").await;
        let page = api.get_page("/api/v1/pods?limit=500").await;
        let written = api.send(http::Method::POST, "/api/v1/pods?a=b", &serde_json::Value::Null).await;
        for (answer, message) in [
            (get, "the answer to GET /api/v1/namespaces/n/configmaps/x has more than 12Mi"),
            (large, "the answer to GET /apis has more than 32Mi"),
            (page, "the answer to GET /api/v1/pods has more than 32Mi"),
            (written, "the answer to POST /api/v1/pods has more than 12Mi"),
        ] {
            assert_eq!(answer.err().unwrap().to_string(), message);
        }
        let mebibytes = read.load(Ordering::Relaxed) >> 20;
        // The page is asked for three times: with 16 objects, with 4 and with one.
        assert!(mebibytes <= 12 + 32 + (16 + 16 + 32) + 12, "{mebibytes} MiB");
    }

    #[tokio::test]
    async fn a_refusal_without_an_end_is_cut() {
        let (api, read) = endless(404, "no such thing");
        let answer = api.get("/x").await.unwrap();
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(answer.message(), "HTTP status 404: no such thing");
        assert!(read.load(Ordering::Relaxed) < 2 << 20);
    }

    #[tokio::test]
    async fn lists_and_watches_without_an_end_fail_by_name() {
        let pods = Resource {
            gvk: Gvk::new("v1", "Pod"),
            plural: "pods".into(),
            namespaced: true,
            has_status: true,
        };
        let (api, read) = endless(200, "{");
        let mut events = std::pin::pin!(watch(&api, &Arc::new(pods), None, None));
        let error = loop {
            match events.next().await.unwrap() {
                Ok(_) => {}
                Err(error) => break WatchFailure::of(&error).why,
            }
        };
        assert!(error.contains("the answer to GET /api/v1/pods has more than 32Mi"), "{error}");
        assert!(read.load(Ordering::Relaxed) >> 20 <= 64);

        let lines = service_fn(|_: Request<Body>| {
            let much = Bytes::from(vec![b' '; 1 << 20]);
            let frames = stream::iter([Bytes::from_static(b"\n")]).chain(stream::repeat(much));
            let frames = frames.map(|data| Ok::<_, BoxError>(Frame::data(data)));
            let body: Box<DynBody> = Box::new(StreamBody::new(frames));
            std::future::ready(Ok(Response::new(body)))
        });
        let lines = Transport::new(BoxService::new(lines), READ_TIMEOUT);
        let asked = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
        let body = lines.watch(asked).await.unwrap().into_body();
        let error = body.collect().await.err().unwrap();
        assert_eq!(error.to_string(), "the answer to GET /api/v1/pods has more than 12Mi");
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
