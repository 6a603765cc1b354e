//! HTTP to the API server: connections, rights, time-outs of the lists and watches that kube makes, and the delay that a busy
//! server asks for with `Retry-After`.

#[cfg(test)]
mod tests;

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

use crate::cluster::bounds::{self, End, Line, MAX_LARGE, TooLarge};
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
            let smaller = limit.and_then(|_| page.smaller());
            let bound = if smaller.is_some() { MAX_PAGE_BYTES } else { MAX_LARGE };
            let mut room = self.pages.room(page, bound).await;
            let mut asked = Request::from_parts(head.clone(), Body::empty());
            if limit.is_some() {
                *asked.uri_mut() = with_limit(&head.uri, page.limit())?;
            }
            let answer = self.begin(asked).await?;
            if !answer.status().is_success() {
                return self.refused(answer).await;
            }
            let (answer, body) = answer.into_parts();
            let body = read_within(self.read_timeout, None, body);
            let read = bounds::read_with_room(body, bound, |bytes| room.has(bytes));
            let read = tokio::time::timeout(self.page_timeout(), read).await;
            let read = read.map_err(|_elapsed| Slow(self.page_timeout()))??;
            let too_large = || TooLarge::new(&head.method, head.uri.path(), bound);
            page = match read.end {
                End::Whole => {
                    self.pages.learn(head.uri.path(), page, &read.bytes);
                    return Ok(Response::from_parts(answer, at_once(read.bytes, room)));
                }
                End::NoRoom(bytes) => page.with_more_room(bytes),
                End::TooLarge => smaller.ok_or_else(too_large)?,
            };
            // The request may end before this page has come.
            self.pages.expect(head.uri.path(), page);
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
