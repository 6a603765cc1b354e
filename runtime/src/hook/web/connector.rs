//! Connections to webhooks, with TLS or without; their lookup and handshake are measured.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;
use tower::Service;

use crate::telemetry::webhooks::{Moment, WebMeter};

tokio::task_local! {
    /// The exchange for which a connection is made.
    static EXCHANGE: Exchange;
}

struct Exchange {
    start: Instant,
    meter: Arc<WebMeter>,
}

/// Measures the connections that are made while `exchange` runs.
pub(super) fn measured<F: Future>(meter: &Arc<WebMeter>, exchange: F) -> impl Future<Output = F::Output> {
    EXCHANGE.scope(Exchange { start: Instant::now(), meter: Arc::clone(meter) }, exchange)
}

fn record(moment: Moment) {
    // A connection outlives its exchange where that found another connection meanwhile.
    EXCHANGE
        .try_with(|exchange| exchange.meter.connecting(moment, exchange.start.elapsed()))
        .unwrap_or_default();
}

/// The connections of one webhook, kept for the next exchange.
pub(super) enum Connections {
    Plain(Client<HttpConnector<Resolver>, Full<Bytes>>),
    Tls(Client<Tls, Full<Bytes>>),
}

type Tls = Then<HttpsConnector<Then<HttpConnector<Resolver>>>>;

impl Connections {
    pub(super) fn plain(resolver: Resolver) -> Self {
        Self::Plain(client().build(tcp(resolver)))
    }

    /// Trusts the certificates of the system.
    ///
    /// # Errors
    /// The system has none.
    pub(super) fn tls(resolver: Resolver) -> io::Result<Self> {
        let tls = HttpsConnectorBuilder::new().with_native_roots()?.https_only().enable_http1();
        let tls = tls.wrap_connector(Then(tcp(resolver), Moment::TlsStart));
        Ok(Self::Tls(client().build(Then(tls, Moment::TlsDone))))
    }

    pub(super) fn send(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

fn client() -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new());
    builder
}

fn tcp(resolver: Resolver) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
}

/// A resolver of host names.
#[derive(Clone)]
pub(super) enum Resolver {
    /// The system's.
    System(GaiResolver),
    /// One address for all names.
    #[cfg(test)]
    At(SocketAddr),
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pending<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            record(Moment::DnsStart);
            let found: Vec<_> = match resolver {
                Self::System(mut system) => system.call(name).await?.collect(),
                #[cfg(test)]
                Self::At(address) => vec![address],
            };
            record(Moment::DnsDone);
            Ok(found.into_iter())
        })
    }
}

/// A connector that records when it has connected.
#[derive(Clone)]
pub(super) struct Then<S>(S, Moment);

type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl<S> Service<Uri> for Then<S>
where
    S: Service<Uri>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pending<S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = self.0.call(uri);
        let moment = self.1;
        Box::pin(async move {
            let connection = connected.await?;
            record(moment);
            Ok(connection)
        })
    }
}
