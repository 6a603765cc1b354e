//! Connections to webhooks, with TLS or without; their lookup and handshake are measured.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::Service;
use tower::util::MapResponse;

use crate::telemetry::metrics::{DNS_DONE, DNS_START, Moment, TLS_DONE, TLS_START, WebMeter};

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

/// Connectors that record when they have connected.
type Tcp = MapResponse<HttpConnector<Resolver>, fn(TcpConnection) -> TcpConnection>;
type Tls = MapResponse<HttpsConnector<Tcp>, fn(TlsConnection) -> TlsConnection>;

type TcpConnection = TokioIo<TcpStream>;
type TlsConnection = MaybeHttpsStream<TcpConnection>;

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
        let tls = tls.wrap_connector(MapResponse::new(tcp(resolver), started as fn(_) -> _));
        Ok(Self::Tls(client().build(MapResponse::new(tls, done as fn(_) -> _))))
    }

    pub(super) fn send(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

fn started(connection: TcpConnection) -> TcpConnection {
    record(TLS_START);
    connection
}

fn done(connection: TlsConnection) -> TlsConnection {
    record(TLS_DONE);
    connection
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
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            record(DNS_START);
            let found: Vec<_> = match resolver {
                Self::System(mut system) => system.call(name).await?.collect(),
                #[cfg(test)]
                Self::At(address) => vec![address],
            };
            record(DNS_DONE);
            Ok(found.into_iter())
        })
    }
}
