//! HTTP server of `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::telemetry::error_chain;
use crate::telemetry::metrics::{self, Metrics};

#[derive(Debug, thiserror::Error)]
#[error("{flag}: {address} cannot be listened on: choose another, or 0 for none")]
pub struct ListenError {
    flag: &'static str,
    address: SocketAddr,
    source: std::io::Error,
}

/// `flag` is the one that asked for this address.
pub(crate) async fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listener = match TcpListener::bind(address).await {
        // A machine without IPv6.
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    listener.map_err(|source| ListenError { flag, address, source })
}

/// Answers until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    page: impl Fn(&str) -> Response<String> + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) {
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
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (page, stop) = (page.clone(), stop.clone());
        let answers = service_fn(move |request: Request<Incoming>| {
            let answer = page(request.uri().path());
            async move { Ok::<_, Infallible>(answer) }
        });
        tokio::spawn(async move {
            // A slow or silent client is cut off after the 30 s that hyper gives a request's head.
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answers);
            tokio::select! {
                () = stop.cancelled() => {}
                served = served => if let Err(error) = served {
                    tracing::debug!(error = error_chain(&error), "a connection broke off");
                }
            }
        });
    }
}

/// Whether the server lives, and whether it knows what to host.
pub(crate) fn probe(path: &str, ready: bool) -> Response<String> {
    match (path, ready) {
        ("/healthz", _) | ("/readyz", true) => text(StatusCode::OK, "ok"),
        ("/readyz", false) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "the controllers have not been listed yet")
        }
        _ => text(StatusCode::NOT_FOUND, "there is /healthz and /readyz"),
    }
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

fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<String> {
    let mut page = Response::new(text);
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    page
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::watch;

    use super::*;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    #[tokio::test]
    async fn the_server_lives_at_once_and_is_ready_later() {
        let probes = bind("--x", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = probes.local_addr().unwrap();
        let (ready, stop) = (watch::Sender::new(false), CancellationToken::new());
        let known = ready.subscribe();
        let served = tokio::spawn(serve(probes, move |path| probe(path, *known.borrow()), stop.clone()));
        assert_eq!(ask(address, "/healthz").await, "HTTP/1.1 200 OK");
        assert_eq!(ask(address, "/readyz").await, "HTTP/1.1 503 Service Unavailable");
        ready.send_replace(true);
        assert_eq!(ask(address, "/readyz").await, "HTTP/1.1 200 OK");
        assert_eq!(ask(address, "/").await, "HTTP/1.1 404 Not Found");
        stop.cancel();
        served.await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = bind("--x", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let error = bind("--x", first.local_addr().unwrap()).await.err().unwrap();
        assert!(error.to_string().starts_with("--x: 127.0.0.1:"));
    }
}
