//! `/healthz` and `/readyz`: whether the server lives, and whether it knows what to host.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::told::told;

#[derive(Debug, thiserror::Error)]
#[error("--health-probe-bind-address: {address} cannot be listened on: choose another, or 0 for none")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

pub(crate) struct Probes {
    listener: TcpListener,
}

impl Probes {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let listener = match TcpListener::bind(address).await {
            // A machine without IPv6.
            Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        Ok(Self { listener: listener.map_err(|source| ListenError { address, source })? })
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, ready: watch::Receiver<bool>, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(error = told(&error), "a probe could not be accepted");
                    // Too many open files, most likely: not at once again.
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (ready, stop) = (ready.clone(), stop.clone());
            let answers = service_fn(move |request: Request<Incoming>| {
                let answer = answer(request.uri().path(), *ready.borrow());
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
                        tracing::debug!(error = told(&error), "a probe broke off");
                    }
                }
            });
        }
    }
}

fn answer(path: &str, ready: bool) -> Response<Full<Bytes>> {
    let (status, text) = match (path, ready) {
        ("/healthz", _) | ("/readyz", true) => (StatusCode::OK, "ok"),
        ("/readyz", false) => (StatusCode::SERVICE_UNAVAILABLE, "the controllers have not been listed yet"),
        _ => (StatusCode::NOT_FOUND, "there is /healthz and /readyz"),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

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
        let probes = Probes::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = probes.listener.local_addr().unwrap();
        let (ready, stop) = (watch::Sender::new(false), CancellationToken::new());
        let served = tokio::spawn(probes.serve(ready.subscribe(), stop.clone()));
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
        let first = Probes::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let error = Probes::bind(first.listener.local_addr().unwrap()).await.err().unwrap();
        assert!(error.to_string().starts_with("--health-probe-bind-address: 127.0.0.1:"));
    }
}
