//! Connections to webhooks: straight or by a proxy, with TLS or without; their lookup and handshake are measured.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::{BoxError, Service};

use crate::cluster::proxies::{Proxies, Proxy};
use crate::hook::web::tls::TlsError;
use crate::telemetry::webhooks::{DNS_DONE, DNS_START, Moment, TLS_DONE, TLS_START, WebMeter};

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

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector<Resolver>,
    tls: TlsConnector,
    proxies: Proxies,
    /// A proxy makes a tunnel for connections without TLS, too.
    by_tunnels: bool,
    /// Connections that are open.
    open: Arc<AtomicUsize>,
}

/// A connection whose answer has just been read is free again a moment later. A server that serves one connection after the
/// other would never get to a new one, so a new one is made only when none has become free for so long.
const REUSE_DELAY: Duration = Duration::from_millis(2);

/// One of the open connections, until it is dropped.
struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnection {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type TcpConnection = TokioIo<TcpStream>;

#[derive(Debug, thiserror::Error)]
#[error("by the proxy {host}")]
struct ByProxy {
    host: String,
    #[source]
    why: BoxError,
}

impl Connector {
    pub(super) fn new(resolver: Resolver, tls: Arc<ClientConfig>, proxies: Proxies) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self { tcp, tls: tls.into(), proxies, by_tunnels: false, open: Arc::default() }
    }

    /// A proxy makes a tunnel for connections without TLS, too: it may not know what is spoken on them.
    pub(super) fn by_tunnels(self) -> Self {
        Self { by_tunnels: true, ..self }
    }

    async fn connect(mut self, to: Uri) -> Result<WebConnection, BoxError> {
        if self.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(REUSE_DELAY).await;
        }
        let is_tls = to.scheme_str() == Some("https");
        let proxy = self.proxies.towards(&to)?;
        let asks_proxy = proxy.is_some() && !is_tls && !self.by_tunnels;
        let tcp = match proxy {
            None => self.tcp.call(to.clone()).await?,
            Some(proxy) => {
                self.by_proxy(&proxy, &to).await.map_err(|why| ByProxy { host: proxy.host(), why })?
            }
        };
        let open = OpenConnection::new(&self.open);
        if !is_tls {
            return Ok(WebConnection { stream: MaybeHttpsStream::Http(tcp), asks_proxy, _open: open });
        }
        record(TLS_START);
        let host = to.host().unwrap_or_default();
        let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())?;
        let stream = self.tls.connect(name, TokioIo::new(tcp)).await;
        let stream = stream.map_err(|error| TlsError::new(host, &error))?;
        record(TLS_DONE);
        Ok(WebConnection { stream: MaybeHttpsStream::Https(TokioIo::new(stream)), asks_proxy, _open: open })
    }

    async fn by_proxy(&mut self, proxy: &Proxy, to: &Uri) -> Result<TcpConnection, BoxError> {
        if self.by_tunnels || to.scheme_str() == Some("https") {
            return Ok(proxy.tunnel(self.tcp.clone()).call(to.clone()).await?);
        }
        Ok(self.tcp.call(proxy.uri().clone()).await?)
    }
}

impl Service<Uri> for Connector {
    type Response = WebConnection;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<WebConnection, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

/// A connection to a webhook, or to a proxy.
pub(crate) struct WebConnection {
    stream: MaybeHttpsStream<TcpConnection>,
    /// A proxy reads its requests, which name the whole URL.
    asks_proxy: bool,
    _open: OpenConnection,
}

impl Connection for WebConnection {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.asks_proxy)
    }
}

impl Read for WebConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for WebConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
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
