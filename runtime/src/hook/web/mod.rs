//! Hooks that are webhooks: one POST, one answer, within the webhook's time.
//!
//! An answer with another status than 200 is an error, but for the one that asks to wait and the one that says that an earlier
//! answer still holds. [`RedirectPolicy`] decides which redirects are followed. Whether an answer depends on its request alone
//! is not known, so a webhook is never pure.

mod answer;
mod connector;
mod pools;
mod redirect;
#[cfg(test)]
mod tests;
mod tls;
mod trust;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, PROXY_AUTHORIZATION,
    USER_AGENT,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use metahook_core::api::SpecError;
use metahook_core::api::endpoint::{EtagPolicy, WebhookTarget};
use metahook_core::api::units::print_bytes;
use metahook_core::api::url::Credentials;
use metahook_core::hook::etag::{self, AnswerSource, KeptAnswer};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::cluster::named_objects::ObjectWatches;
use crate::cluster::transport::{MAX_WEBHOOK_DELAY, busy};
use crate::memory::{MemoryShort, Reservation};
use crate::telemetry::error_chain;
use crate::telemetry::metrics::WebMeter;
use crate::telemetry::reconcile_span;
use answer::BodyError;
use connector::measured;
pub(crate) use pools::Pool;
pub use pools::Pools;
pub use redirect::RedirectPolicy;
use redirect::{Hop, MAX_REDIRECTS};
use trust::TrustSource;
pub(crate) use trust::{TrustError, TrustState};

/// The trace that a request belongs to, by W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const OUR_NAME: &str = concat!("metahook/", env!("CARGO_PKG_VERSION"));

/// A request on a connection that closes within this time is sent once more.
const MAX_REPEAT_DELAY: Duration = Duration::from_secs(1);

/// A server that closes its idle connections closes several at once.
const MAX_REPEATS: usize = 3;

/// A webhook that can be called.
pub struct Webhook {
    target: WebhookTarget,
    uri: Uri,
    trust: TrustSource,
    pools: Arc<Pools>,
    meter: Arc<WebMeter>,
}

/// Message that is sent, again at each redirect.
struct Message {
    body: Bytes,
    /// The answer that the webhook need not repeat.
    kept: Option<Arc<KeptAnswer>>,
}

/// An answer, and the tag to keep it under.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WebAnswer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tag: Option<Box<[u8]>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
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
        "the webhook at {host} answered with more than {} (--max-webhook-answer): make it answer with less, or raise the flag",
        print_bytes(*max as u64)
    )]
    TooLong { host: String, max: usize },
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
    /// The target's URL is invalid.
    pub(crate) fn new(
        target: &WebhookTarget,
        objects: &ObjectWatches,
        pools: &Arc<Pools>,
        meter: Arc<WebMeter>,
    ) -> Result<Self, SpecError> {
        let trust = TrustSource::follow(target, objects, pools);
        Self::with(target, trust, pools, meter)
    }

    /// Without a cluster.
    ///
    /// # Errors
    /// Its certificates or credentials are objects of a cluster.
    pub fn alone(
        target: &WebhookTarget,
        pools: &Arc<Pools>,
        meter: Arc<WebMeter>,
    ) -> Result<Self, SpecError> {
        if let Some(key) = target.trust.keys().first() {
            let problem = "is an object of the cluster, and is not read here: take it out of a copy of the controller, and give the webhook in the copy a URL that needs none";
            return Err(SpecError::new(key.field.clone(), problem));
        }
        let from_url = target.credentials.as_ref().map(Credentials::basic);
        let trust = TrustSource::of(&target.trust, from_url, BTreeMap::new(), pools);
        Self::with(target, trust, pools, meter)
    }

    fn with(
        target: &WebhookTarget,
        trust: TrustSource,
        pools: &Arc<Pools>,
        meter: Arc<WebMeter>,
    ) -> Result<Self, SpecError> {
        let invalid = |why: String| SpecError::new(&target.field, why);
        let uri: Uri =
            target.url.parse().map_err(|error| invalid(format!("{:?} is no URL: {error}", target.url)))?;
        let (target, pools) = (target.clone(), Arc::clone(pools));
        Ok(Self { target, uri, trust, pools, meter })
    }

    /// Changes of its certificates and credentials, where it has some; the present state counts as the first.
    pub(crate) fn trust(&self) -> Option<watch::Receiver<TrustState>> {
        let mut changes = self.trust.state.clone();
        changes.mark_changed();
        (!self.target.trust.is_empty()).then_some(changes)
    }

    /// How its answers are kept, where they are.
    pub(crate) fn etag(&self) -> Option<EtagPolicy> {
        self.target.etag
    }

    /// Sends a request and waits for the answer. `kept`: an earlier answer, which the webhook need not repeat.
    ///
    /// # Errors
    /// There is no complete answer with status 200 within the webhook's time, nor one that stands for the kept one.
    pub(crate) async fn call(
        &self,
        request: Bytes,
        kept: Option<Arc<KeptAnswer>>,
        memory: &Reservation,
    ) -> Result<WebAnswer, WebError> {
        let _in_flight = self.meter.begin();
        let budget = self.target.timeout;
        let message = Message { body: request, kept };
        let exchange = measured(&self.meter, self.exchange(&message, memory));
        timeout(budget, exchange).await.map_err(|_late| WebError::Timeout { host: self.host(), budget })?
    }

    async fn exchange(&self, message: &Message, memory: &Reservation) -> Result<WebAnswer, WebError> {
        let (answer, is_own) = self.follow(message).await?;
        let (head, body) = answer.into_parts();
        if let Some(after) = busy(head.status, &head.headers, MAX_WEBHOOK_DELAY) {
            return Err(WebError::Busy { host: self.host(), after });
        }
        let tag = head.headers.get(ETAG).map(HeaderValue::as_bytes);
        match etag::source(head.status.as_u16(), tag, message.kept.as_ref()) {
            AnswerSource::Own(tag) => {
                let bytes = answer::whole(&head.headers, body, self.pools.max_answer, memory).await;
                let bytes = bytes.map_err(|error| self.broken_body(error))?;
                // The error about an answer that is no JSON quotes its beginning, which may be what its author must not see.
                if !is_own && !bytes.trim_ascii_start().starts_with(b"{") {
                    let why = "the answer that its redirect led to is no JSON object".to_owned();
                    return Err(WebError::Broken { host: self.host(), why });
                }
                Ok(WebAnswer { bytes, tag: tag.filter(|_| self.target.etag.is_some()).map(Into::into) })
            }
            AnswerSource::Kept(kept) => {
                memory.charge(kept.body.len())?;
                Ok(WebAnswer { bytes: kept.body.to_vec(), tag: None })
            }
            AnswerSource::Refused => {
                // What another place says is no answer of the webhook, and may be what its author must not see.
                let body = if is_own { answer::beginning(&head.headers, body).await } else { String::new() };
                Err(WebError::Status { host: self.host(), code: head.status.as_u16(), body })
            }
        }
    }

    fn broken_body(&self, error: BodyError) -> WebError {
        let host = self.host();
        match error {
            BodyError::TooLong => WebError::TooLong { host, max: self.pools.max_answer },
            BodyError::MemoryShort(short) => short.into(),
            BodyError::Broken(error) => WebError::Broken { host, why: error_chain(&error) },
            BodyError::Packed(error) => {
                WebError::Broken { host, why: format!("its gzip cannot be unpacked: {error}") }
            }
        }
    }

    /// Sends the request, and what redirects ask for; returns the first answer that is none, and whether it comes from where
    /// the spec says.
    async fn follow(&self, message: &Message) -> Result<(Response<Incoming>, bool), WebError> {
        let trusted = self.trust.state.borrow().trusted.clone().ok_or_else(|| {
            let why = "its certificates and credentials are not known".to_owned();
            WebError::Connect { host: self.host(), why }
        })?;
        let mut hop = Hop::first(self.uri.clone());
        for _ in 0..=MAX_REDIRECTS {
            let start = Instant::now();
            let is_own = (hop.uri.scheme(), hop.uri.authority()) == (self.uri.scheme(), self.uri.authority());
            let pool = match (hop.with_credentials, is_own) {
                (true, true) => &trusted.pool,
                (true, false) => &trusted.redirected,
                (false, _) => &trusted.elsewhere,
            };
            let request = || self.request(&hop, message, trusted.authorization.as_ref());
            let answer = send(pool, request).await;
            let answer = answer.map_err(|error| {
                let host = self.host();
                let why = error_chain(&error);
                if error.is_connect() {
                    WebError::Connect { host, why }
                } else {
                    WebError::Broken { host, why }
                }
            })?;
            self.meter.answered(answer.status(), start.elapsed());
            let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            match hop.next(answer.status(), location, self.pools.redirects) {
                None => return Ok((answer, hop.is_first)),
                Some(next) => hop = next.map_err(|why| WebError::Broken { host: self.host(), why })?,
            }
        }
        let why = format!("it redirects more than {MAX_REDIRECTS} times");
        Err(WebError::Broken { host: self.host(), why })
    }

    fn request(
        &self,
        hop: &Hop,
        message: &Message,
        authorization: Option<&HeaderValue>,
    ) -> Request<Full<Bytes>> {
        let is_post = hop.method == Method::POST;
        let body = if is_post { Full::new(message.body.clone()) } else { Full::default() };
        let mut request = Request::new(body);
        *request.method_mut() = hop.method.clone();
        *request.uri_mut() = hop.uri.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if is_post {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(kept) = &message.kept
            && let Ok(tag) = HeaderValue::from_bytes(&kept.tag)
        {
            headers.insert(IF_NONE_MATCH, tag);
        }
        if let Some(authorization) = authorization.filter(|_| hop.with_credentials) {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(authorization) = self.pools.proxy_authorization(&hop.uri) {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        if let Some(parent) = reconcile_span::current().and_then(|span| span.traceparent()) {
            headers.insert(TRACEPARENT, parent);
        }
        request
    }

    fn host(&self) -> String {
        self.target.place().to_owned()
    }
}

/// Sends a request; once more where the server closes an idle connection in the moment in which the request takes it, which shows
/// at once. A webhook that breaks off later may do so because of the request.
/// See <https://github.com/knative/pkg/issues/1509>.
async fn send(
    pool: &Pool,
    request: impl Fn() -> Request<Full<Bytes>>,
) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
    let start = Instant::now();
    let mut answer = pool.request(request()).await;
    for _ in 0..MAX_REPEATS {
        if start.elapsed() >= MAX_REPEAT_DELAY || !answer.as_ref().err().is_some_and(was_closed) {
            break;
        }
        let next = pool.request(request()).await;
        if next.as_ref().err().is_some_and(|error| !was_closed(error)) {
            // The first error says more.
            break;
        }
        answer = next;
    }
    answer
}

/// Whether the server closed the connection before its answer began.
fn was_closed(error: &hyper_util::client::legacy::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    source.is_some_and(|error| {
        let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        error.is_incomplete_message() || io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionReset)
    })
}
