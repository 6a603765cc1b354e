//! The client that brings spans to the collector, over the connections that webhooks have: proxies and TLS are the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::SpansError;
use super::settings::CollectorSettings;
use super::warnings::Warnings;
use crate::hook::web::{Pool, Pools};

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;

pub(super) struct CollectorClient {
    pool: Pool,
    pools: Arc<Pools>,
    timeout: Duration,
    /// The SDK sends from a thread of its own, which has no runtime.
    runtime: Handle,
    warnings: Warnings,
}

impl CollectorClient {
    pub(super) fn new(settings: &CollectorSettings, pools: &Arc<Pools>) -> Result<Self, SpansError> {
        let pem = settings.certificate()?;
        let pool = pools.trusting_pem(pem.as_deref()).map_err(SpansError::Tls)?;
        let (timeout, runtime) = (settings.timeout, Handle::current());
        Ok(Self { pool, pools: Arc::clone(pools), timeout, runtime, warnings: Warnings::default() })
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
            Ok(answer) => self.warnings.warn(&format!("its answer has the status {}", answer.status())),
            Err(error) => self.warnings.warn(&crate::telemetry::error_chain(&**error)),
        }
        answer
    }
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CollectorClient(..)")
    }
}
