//! The client that brings spans to the collector, over the connections that webhooks have: proxies and TLS are the same.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{CollectorSettings, SpansError};
use crate::hook::web::{Pool, Pools};
use crate::sync::lock;

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;

/// A collector that fails is reported this often.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

pub(super) struct CollectorClient {
    pool: Pool,
    pools: Arc<Pools>,
    timeout: Duration,
    /// The SDK sends from a thread of its own, which has no runtime.
    runtime: Handle,
    last_warning: Mutex<Option<Instant>>,
}

impl CollectorClient {
    pub(super) fn new(settings: &CollectorSettings, pools: &Arc<Pools>) -> Result<Self, SpansError> {
        let read = |path: &std::path::PathBuf| {
            std::fs::read(path).map_err(|error| SpansError::Tls(format!("{}: {error}", path.display())))
        };
        let pem = settings.certificate.as_ref().map(read).transpose()?;
        let pool = pools.trusting_pem(pem.as_deref()).map_err(SpansError::Tls)?;
        let (timeout, runtime) = (settings.timeout, Handle::current());
        Ok(Self { pool, pools: Arc::clone(pools), timeout, runtime, last_warning: Mutex::default() })
    }

    fn warn(&self, why: &str) {
        let mut last = lock(&self.last_warning);
        if last.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            *last = Some(Instant::now());
            tracing::warn!(why, "spans were not sent to the collector (OTEL_EXPORTER_OTLP_ENDPOINT)");
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (pool, bound) = (Arc::clone(&self.pool), self.timeout);
        let mut request = request.map(Full::new);
        if let Some(authorization) = self.pools.proxy_authorization(request.uri()) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        let exchange = async move {
            let (head, body) = pool.request(request).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        let exchange = self.runtime.spawn(async move { timeout(bound, exchange).await });
        let answer = match exchange.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_late)) => Err(format!("no answer within {} ms", bound.as_millis()).into()),
            Err(stopped) => Err(stopped.into()),
        };
        match &answer {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => self.warn(&format!("its answer has the status {}", answer.status())),
            Err(error) => self.warn(&crate::telemetry::error_chain(&**error)),
        }
        answer
    }
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CollectorClient(..)")
    }
}
