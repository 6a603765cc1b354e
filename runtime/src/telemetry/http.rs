//! HTTP server of `/healthz`, `/readyz` and `/metrics`, and what others that answer one request need.
//!
//! Probes have a thread and a runtime of their own. `/healthz` is answered there, also while the server's runtime is busy, and
//! fails when that one has not run a task for half a minute. `/readyz` is answered by a task of the server's runtime, so its
//! latency is the latency of all that the server does; so are metrics.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Handle};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::telemetry::error_chain;
use crate::telemetry::metrics::{self, Metrics};

/// Connections of one address at once. One more ends the oldest: clients that are silent hold up no probe.
const MAX_CONNECTIONS: usize = 64;
/// A connection of a probe or of an API is one request and its answer, and ends after this long.
pub(crate) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// A runtime that runs no task for this long hangs.
const MAX_SILENCE: Duration = Duration::from_secs(30);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// A server whose runtime takes longer is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("{flag}: {address} cannot be listened on: choose another, or 0 for none")]
pub struct ListenError {
    flag: &'static str,
    address: SocketAddr,
    source: std::io::Error,
}

/// `flag` is the one that asked for this address.
pub async fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listener = match TcpListener::bind(address).await {
        // A machine without IPv6.
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    listener.map_err(|source| ListenError { flag, address, source })
}

/// Answers until `stop`. A connection ends after `timeout`: answers have to come earlier.
pub async fn serve<A>(
    listener: TcpListener,
    page: impl Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    timeout: Duration,
    stop: CancellationToken,
) where
    A: Future<Output = Response<String>> + Send + 'static,
{
    let mut connections = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "a connection could not be accepted");
                // Too many open files, most likely: not at once again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.retain(|connection: &AbortOnDropHandle<()>| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            connections.pop_front();
        }
        connections.push_back(AbortOnDropHandle::new(tokio::spawn(answer(stream, page.clone(), timeout))));
        // A request that has come is answered before the next connections may end it.
        tokio::task::yield_now().await;
    }
}

/// Answers the one request of a connection.
async fn answer<A>(stream: TcpStream, page: impl Fn(Request<Incoming>) -> A, timeout: Duration)
where
    A: Future<Output = Response<String>>,
{
    let answers = service_fn(|request: Request<Incoming>| {
        let answer = page(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answers);
    match tokio::time::timeout(timeout, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = error_chain(&error), "a connection broke off"),
        Err(_elapsed) => tracing::debug!("a connection was slow or silent, and was ended"),
    }
}

/// State that probes ask for.
#[derive(Clone)]
pub(crate) struct Health {
    /// The runtime that does the server's work.
    runtime: Handle,
    heartbeat: watch::Receiver<Instant>,
    /// The API server has answered.
    ready: watch::Receiver<bool>,
}

impl Health {
    /// The health of the runtime that this is called on, which beats until `stop`.
    pub(crate) fn of_this_runtime(ready: watch::Receiver<bool>, stop: CancellationToken) -> Self {
        let (beats, heartbeat) = watch::channel(Instant::now());
        let beat = async move {
            let mut clock = tokio::time::interval(HEARTBEAT_INTERVAL);
            loop {
                clock.tick().await;
                beats.send_replace(Instant::now());
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(beat).await });
        Self { runtime: Handle::current(), heartbeat, ready }
    }

    /// Answers probes on a thread of its own, which ends at `stop`.
    pub(crate) fn serve(self, listener: TcpListener, stop: CancellationToken) -> Result<(), std::io::Error> {
        let listener = listener.into_std()?;
        let serve = move || {
            let probes = runtime::Builder::new_current_thread().enable_all().build()?;
            probes.block_on(async {
                let page =
                    move |request: Request<Incoming>| self.clone().page(request.uri().path().to_owned());
                serve(TcpListener::from_std(listener)?, page, CONNECTION_TIMEOUT, stop).await;
                Ok::<_, std::io::Error>(())
            })
        };
        std::thread::Builder::new().name("probes".to_owned()).spawn(move || {
            if let Err(error) = serve() {
                tracing::error!(error = error_chain(&error), "no probes are answered");
            }
        })?;
        Ok(())
    }

    async fn page(self, path: String) -> Response<String> {
        // With a slash at the end, too, as with Metacontroller.
        match path.strip_suffix('/').unwrap_or(&path) {
            "/healthz" => alive(self.heartbeat.borrow().elapsed()),
            "/readyz" => {
                let ready = self.runtime.spawn(async move { *self.ready.borrow() });
                match tokio::time::timeout(READY_TIMEOUT, ready).await {
                    Ok(Ok(true)) => text(StatusCode::OK, "ok"),
                    Ok(Ok(false)) => {
                        text(StatusCode::SERVICE_UNAVAILABLE, "the API server has not answered yet")
                    }
                    Ok(Err(_)) | Err(_) => {
                        text(StatusCode::SERVICE_UNAVAILABLE, "the server's runtime does not answer")
                    }
                }
            }
            _ => text(StatusCode::NOT_FOUND, "there is /healthz and /readyz"),
        }
    }
}

fn alive(silence: Duration) -> Response<String> {
    if silence <= MAX_SILENCE {
        return text(StatusCode::OK, "ok");
    }
    let problem = format!("the server's runtime has run no task for {} s", silence.as_secs());
    text(StatusCode::SERVICE_UNAVAILABLE, &problem)
}

/// Answers scrapes until `stop`.
pub(crate) async fn serve_metrics(listener: TcpListener, metrics: Metrics, stop: CancellationToken) {
    let page = move |request: Request<Incoming>| std::future::ready(scrape(request.uri().path(), &metrics));
    serve(listener, page, CONNECTION_TIMEOUT, stop).await;
}

/// Page of metrics.
pub(crate) fn scrape(path: &str, metrics: &Metrics) -> Response<String> {
    match path {
        "/metrics" => page(StatusCode::OK, metrics::CONTENT_TYPE, metrics.text()),
        _ => text(StatusCode::NOT_FOUND, "there is /metrics"),
    }
}

fn text(status: StatusCode, text: &str) -> Response<String> {
    page(status, "text/plain; charset=utf-8", text.to_owned())
}

/// An answer of this type.
pub fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<String> {
    let mut page = Response::new(text);
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    page
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// On a thread of its own: runtimes of tests are blocked.
    async fn ask(address: SocketAddr, path: &'static str) -> String {
        let ask = move || {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.lines().next().unwrap().to_owned()
        };
        tokio::task::spawn_blocking(ask).await.unwrap()
    }

    async fn probes(ready: &watch::Sender<bool>, stop: &CancellationToken) -> SocketAddr {
        let listener = bind("--x", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        Health::of_this_runtime(ready.subscribe(), stop.clone()).serve(listener, stop.clone()).unwrap();
        address
    }

    #[tokio::test]
    async fn the_server_lives_at_once_and_is_ready_later() {
        let (ready, stop) = (watch::Sender::new(false), CancellationToken::new());
        let address = probes(&ready, &stop).await;
        assert_eq!(ask(address, "/healthz").await, "HTTP/1.1 200 OK");
        assert_eq!(ask(address, "/readyz").await, "HTTP/1.1 503 Service Unavailable");
        ready.send_replace(true);
        for path in ["/readyz", "/readyz/", "/healthz/"] {
            assert_eq!(ask(address, path).await, "HTTP/1.1 200 OK", "{path}");
        }
        assert_eq!(ask(address, "/readyz//").await, "HTTP/1.1 404 Not Found");
        assert_eq!(ask(address, "/").await, "HTTP/1.1 404 Not Found");
        stop.cancel();
        while TcpStream::connect(address).is_ok() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_busy_runtime_is_alive_and_waits_with_ready() {
        let (ready, stop) = (watch::Sender::new(true), CancellationToken::new());
        let address = probes(&ready, &stop).await;
        let asked = std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().build().unwrap();
            let live = runtime.block_on(ask(address, "/healthz"));
            (live, runtime.block_on(ask(address, "/readyz")), Instant::now())
        });
        // The only thread of the runtime.
        std::thread::sleep(Duration::from_secs(1));
        let busy_until = Instant::now();
        let answers = tokio::task::spawn_blocking(|| asked.join().unwrap()).await.unwrap();
        assert_eq!((answers.0.as_str(), answers.1.as_str()), ("HTTP/1.1 200 OK", "HTTP/1.1 200 OK"));
        assert!(answers.2 > busy_until, "the server's runtime answers /readyz");
        stop.cancel();
    }

    #[test]
    fn a_runtime_that_hangs_is_told() {
        assert_eq!(alive(MAX_SILENCE).status(), StatusCode::OK);
        let hangs = alive(MAX_SILENCE + Duration::from_secs(1));
        assert_eq!(hangs.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(hangs.body(), "the server's runtime has run no task for 31 s");
    }

    #[tokio::test]
    async fn silent_connections_are_bounded_and_hold_up_no_probe() {
        let (ready, stop) = (watch::Sender::new(true), CancellationToken::new());
        let address = probes(&ready, &stop).await;
        let mut silent: Vec<_> =
            (0..=MAX_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(ask(address, "/healthz").await, "HTTP/1.1 200 OK");
        let last = silent.pop().unwrap();
        last.set_nonblocking(true).unwrap();
        assert!((&last).read(&mut [0]).is_err(), "the latest are kept");
        let ended = silent.iter_mut().take(2).map(|one| one.read(&mut [0]).unwrap());
        assert_eq!(ended.collect::<Vec<_>>(), [0, 0], "the oldest are ended");
        stop.cancel();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = bind("--x", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let error = bind("--x", first.local_addr().unwrap()).await.err().unwrap();
        assert!(error.to_string().starts_with("--x: 127.0.0.1:"));
    }
}
