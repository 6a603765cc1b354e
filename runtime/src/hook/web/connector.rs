//! Connections to webhooks: found by name, with TLS or without, and watched while they are made.

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
    /// The exchange that a connection is made for.
    static EXCHANGE: Exchange;
}

struct Exchange {
    start: Instant,
    meter: Arc<WebMeter>,
}

/// Makes known that connections are made for `exchange` while it runs.
pub(super) fn watched<F: Future>(meter: &Arc<WebMeter>, exchange: F) -> impl Future<Output = F::Output> {
    EXCHANGE.scope(Exchange { start: Instant::now(), meter: Arc::clone(meter) }, exchange)
}

fn passed(moment: Moment) {
    // A connection that is made for an exchange which found another one meanwhile is nobody's.
    EXCHANGE
        .try_with(|exchange| exchange.meter.connecting(moment, exchange.start.elapsed()))
        .unwrap_or_default();
}

/// Connections that are kept for the next exchange, and those that are made.
pub(super) enum Connections {
    Plain(Client<HttpConnector<Resolver>, Full<Bytes>>),
    Tls(Client<Tls, Full<Bytes>>),
}

type Tls = Then<HttpsConnector<Then<HttpConnector<Resolver>>>>;

impl Connections {
    pub(super) fn plain(resolver: Resolver) -> Self {
        Self::Plain(client().build(tcp(resolver)))
    }

    /// Trusts whom the system trusts.
    ///
    /// # Errors
    /// The system trusts nobody.
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

/// Finds hosts.
#[derive(Clone)]
pub(super) enum Resolver {
    /// As the system does.
    System(GaiResolver),
    /// All in one place.
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
            passed(Moment::DnsStart);
            let found: Vec<_> = match resolver {
                Self::System(mut system) => system.call(name).await?.collect(),
                #[cfg(test)]
                Self::At(address) => vec![address],
            };
            passed(Moment::DnsDone);
            Ok(found.into_iter())
        })
    }
}

/// Tells when it has connected.
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
        let (connected, moment) = (self.0.call(uri), self.1);
        Box::pin(async move {
            let connection = connected.await?;
            passed(moment);
            Ok(connection)
        })
    }
}
