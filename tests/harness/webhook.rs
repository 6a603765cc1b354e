//! A webhook as users write them: an HTTP server, over TLS where a test wants it so, that answers what the test says and
//! keeps what it was asked.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::pki::Authority;
use crate::wait::{PATIENCE, until};

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// `POST`.
    pub method: String,
    /// With the query, if there is one.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Null where it is no JSON.
    pub body: Value,
    /// The body as it came.
    pub bytes: Bytes,
    pub at: Instant,
}

/// Answer of the webhook.
#[derive(Debug, Clone)]
#[must_use]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    delay: Duration,
}

/// Stops answering when it is dropped.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

type Program = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

struct Shared {
    tls: Option<TlsAcceptor>,
    program: Mutex<Program>,
    asked: Mutex<Vec<Asked>>,
}

impl Answer {
    /// 200 with a body.
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), delay: Duration::ZERO }
    }

    /// A status without a body.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::text("") }
    }

    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Not at once.
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body.clone()));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::IM_A_TEAPOT);
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// 200 with JSON.
impl From<Value> for Answer {
    fn from(body: Value) -> Self {
        Self::text(body.to_string()).with_header("content-type", "application/json")
    }
}

impl Webhook {
    /// Answers on a free port of this machine as `program` says.
    pub async fn serve(program: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Result<Self> {
        Self::listen(None, Arc::new(program)).await
    }

    /// Serves over TLS. Whoever is to trust it has to trust an authority made for it alone, whose certificate is
    /// written to this file.
    pub async fn serve_tls(
        authority: &Path,
        program: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let signs = Authority::new()?;
        fs::write(authority, signs.certificate()).context("cannot write an authority's certificate")?;
        let tls = signs.server("webhook", &["127.0.0.1"])?.acceptor()?;
        Self::listen(Some(tls), Arc::new(program)).await
    }

    async fn listen(tls: Option<TlsAcceptor>, program: Program) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port for a webhook")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { tls, program: Mutex::new(program), asked: Mutex::default() });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// Answers always the same.
    pub async fn answering(answer: impl Into<Answer>) -> Result<Self> {
        let answer = answer.into();
        Self::serve(move |_| answer.clone()).await
    }

    /// From now on answers as `program` says.
    pub fn program(&self, program: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        *lock(&self.shared.program) = Arc::new(program);
    }

    /// From now on answers always the same.
    pub fn answer(&self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.program(move |_| answer.clone());
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// How many requests there were so far.
    pub fn count(&self) -> usize {
        lock(&self.shared.asked).len()
    }

    /// Waits for a request that is as `is` wants it.
    pub async fn until_asked(&self, what: &str, is: impl Fn(&Asked) -> bool) -> Result<Asked> {
        until(&format!("the webhook is asked: {what}"), PATIENCE, || async {
            let asked = lock(&self.shared.asked);
            let last = || match asked.last() {
                Some(last) => format!("{} requests, the last is {last:?}", asked.len()),
                None => "no request".to_owned(),
            };
            Ok(asked.iter().find(|asked| is(asked)).cloned().ok_or_else(last))
        })
        .await
    }

    /// Waits for so many more requests.
    pub async fn until_asked_again(&self, times: usize) -> Result<()> {
        let before = self.count();
        until(&format!("{times} more requests to the webhook"), PATIENCE, || async {
            let more = self.count() - before;
            Ok(if more >= times { Ok(()) } else { Err(format!("{more} more")) })
        })
        .await
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new(); // they end with it
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, Arc::clone(&shared)));
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    match &shared.tls {
        None => exchanges(stream, shared).await,
        Some(tls) => {
            // A client that does not trust us is the client's own affair.
            if let Ok(stream) = tls.accept(stream).await {
                exchanges(stream, shared).await;
            }
        }
    }
}

async fn exchanges(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let answers = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    });
    // As is one that breaks off.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answers).await);
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return Answer::status(400).response();
    };
    let bytes = body.to_bytes();
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let asked = Asked {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
        bytes,
        at: Instant::now(),
    };
    lock(&shared.asked).push(asked.clone());
    let program = Arc::clone(&lock(&shared.program));
    let answer = program(&asked);
    tokio::time::sleep(answer.delay).await;
    answer.response()
}

/// A program that panicked fails its test by itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(webhook: &Webhook, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(webhook.address()).await.unwrap();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nX-A: b\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn it_answers_as_configured_and_keeps_requests() {
        let webhook = Webhook::serve(|asked| json!({ "got": asked.body["n"] }).into()).await.unwrap();
        let answer = ask(&webhook, "/sync", r#"{"n":1}"#).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"got":1}"#), "{answer}");
        webhook.answer(Answer::text("later").with_status(429).with_header("Retry-After", "7"));
        let answer = ask(&webhook, "/finalize", "no JSON").await;
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 7"), "{answer}");
        let asked = webhook.asked();
        assert_eq!((asked[0].path.as_str(), asked[1].path.as_str()), ("/sync", "/finalize"));
        assert_eq!((asked[0].headers["x-a"].as_str(), &asked[1].body), ("b", &Value::Null));
        webhook.until_asked("finalize", |asked| asked.path == "/finalize").await.unwrap();
    }
}
