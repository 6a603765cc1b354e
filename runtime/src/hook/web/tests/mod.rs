//! A webhook is called over real connections: what it is asked, what is made of its answers, how it is reached.

mod etags;
mod trusted;
mod urls;
mod ways;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::api::url::Credentials;
use metahook_core::api::webhook;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::connector::Resolver;
use super::*;
use crate::cluster::proxies::Proxies;
use crate::telemetry::metrics::Metrics;

/// Bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;

/// Answers each connection's requests with these texts; then keeps the connection open, or closes it if there were no
/// texts. Returns the requests.
async fn server(connections: Vec<Vec<Vec<u8>>>) -> (SocketAddr, JoinHandle<(Vec<String>, Vec<TcpStream>)>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        let mut open = Vec::new();
        for answers in connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in &answers {
                requests.push(request(&mut stream).await);
                stream.write_all(answer).await.unwrap();
            }
            open.extend((!answers.is_empty()).then_some(stream));
        }
        (requests, open)
    });
    (address, served)
}

async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).await.unwrap();
        text.push(byte[0].into());
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    text + &String::from_utf8(body).unwrap()
}

fn http(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn pools(at: SocketAddr) -> Arc<Pools> {
    Pools::with(Resolver::At(at), Proxies::of(None), MAX_ANSWER, RedirectPolicy::Any)
}

/// Its certificates and credentials are in the spec alone.
fn reached(target: &WebhookTarget, pools: &Arc<Pools>, meter: Arc<WebMeter>) -> Result<Webhook, SpecError> {
    let from_url = target.credentials.as_ref().map(Credentials::basic);
    let trust = TrustSource::of(&target.trust, from_url, BTreeMap::new(), pools);
    Webhook::with(target, trust, pools, meter)
}

fn webhook(spec: Value, metrics: &Metrics, at: SocketAddr) -> Result<Webhook, SpecError> {
    let spec: webhook::Webhook = serde_json::from_value(spec).unwrap();
    let target = spec.check("spec.hooks.sync.webhook").unwrap();
    let meter = metrics.webhook("CompositeController", "c", HookName::Sync, &target.url);
    reached(&target, &pools(at), meter)
}

impl Webhook {
    /// Without an earlier answer.
    async fn ask(&self, request: &'static str) -> Result<Vec<u8>, WebError> {
        let answer = self.call(request.into(), None, &Reservation::default()).await;
        answer.map(|answer| answer.bytes)
    }
}

async fn answered(answer: impl Into<Vec<u8>>) -> Result<Vec<u8>, WebError> {
    let (at, _served) = server(vec![vec![answer.into()]]).await;
    let spec = json!({ "url": "http://hook.example/x?secret", "timeout": "300ms" });
    webhook(spec, &Metrics::new(|| 0), at).unwrap().ask("{}").await
}

#[tokio::test]
async fn a_service_gets_one_post_and_its_connection_is_kept() {
    let answer = http("200 OK", "", r#"{"children":[]}"#);
    let (at, served) = server(vec![vec![answer.clone(), answer]]).await;
    let metrics = Metrics::new(|| 0);
    let spec = json!({ "service": { "name": "s", "namespace": "n", "port": at.port() }, "path": "/sync" });
    let webhook = webhook(spec, &metrics, at).unwrap();
    for request in [r#"{"parent":1}"#, r#"{"parent":2}"#] {
        assert_eq!(webhook.ask(request).await.unwrap(), br#"{"children":[]}"#);
    }
    let (requests, _open) = served.await.unwrap();
    let expected = format!(
        "POST /sync HTTP/1.1\r\nuser-agent: metahook/{}\r\naccept-encoding: gzip\r\ncontent-type: application/json\r\nhost: s.n:{}\r\ncontent-length: 12\r\n\r\n{{\"parent\":1}}",
        env!("CARGO_PKG_VERSION"),
        at.port()
    );
    assert_eq!(requests[0], expected);
    assert!(requests[1].ends_with(r#"{"parent":2}"#));

    let labels = format!(
        r#"controller_name="c",controller_type="CompositeController",url="http://s.n:{}/sync""#,
        at.port()
    );
    let text = metrics.text();
    for line in [
        format!(r#"metacontroller_sync_requests_total{{{labels},code="200",method="post"}} 2"#),
        format!(
            r#"metacontroller_sync_request_duration_histogram_seconds_count{{{labels},method="post"}} 2"#
        ),
        format!(
            r#"metacontroller_sync_request_duration_histogram_seconds_bucket{{le="10.0",{labels},method="post"}} 2"#
        ),
        // One connection was made, and its host looked up.
        format!(r#"metacontroller_sync_dns_duration_histogram_seconds_count{{{labels},event="dns_done"}} 1"#),
        format!(
            r#"metacontroller_sync_tls_duration_histogram_seconds_count{{{labels},event="tls_handshake_start"}} 0"#
        ),
        format!("metacontroller_sync_in_flight_requests{{{labels}}} 0"),
        "# EOF".to_owned(),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    drop(webhook);
    assert!(!metrics.text().contains("metacontroller_"), "{}", metrics.text());
}

#[tokio::test]
async fn only_200_is_an_answer() {
    for status in
        ["201 Created", "202 Accepted", "204 No Content", "301 Moved", "304 Not Modified", "412 P", "500 E"]
    {
        let error = answered(http(status, "", "why")).await.unwrap_err();
        assert_eq!(error.category(), "HookStatus");
        let (code, _) = status.split_once(' ').unwrap();
        let says =
            format!("the webhook at hook.example answered with an unsupported status code: {code} body: ");
        assert!(error.to_string().starts_with(&says), "{error}");
    }
    let long = answered(http("503 Gone", "", "x".repeat(100_000))).await.unwrap_err().to_string();
    assert!(long.contains("503 body: xxx") && long.len() < 1200 && long.ends_with('…'), "{long}");
}

#[tokio::test]
async fn a_busy_webhook_decides_about_the_delay() {
    for (answer, seconds) in [
        // Its body never comes.
        (b"HTTP/1.1 429 Busy\r\nretry-after: 7\r\ncontent-length: 5\r\n\r\n".to_vec(), 7),
        (http("429 Busy", "", ""), 1),
        (http("429 Busy", "retry-after: soon\r\n", ""), 1),
        (http("503 Busy", "retry-after: 120\r\n", ""), 120),
    ] {
        assert_eq!(
            answered(answer.clone()).await.unwrap_err().busy(),
            Some(Duration::from_secs(seconds)),
            "{answer:?}"
        );
    }
    assert_eq!(answered(http("503 Busy", "", "")).await.unwrap_err().busy(), None);
}

#[tokio::test]
async fn the_timeout_bounds_head_and_body() {
    for slow in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}"] {
        let error = answered(slow).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the webhook at hook.example did not answer within 0.3s (webhook.timeout)"
        );
    }
}

#[tokio::test]
async fn a_broken_exchange_is_an_error() {
    let (at, _served) = server(vec![vec![]]).await;
    let spec = json!({ "url": "http://hook.example/" });
    let metrics = Metrics::new(|| 0);
    let error = webhook(spec.clone(), &metrics, at).unwrap().ask("{}").await.unwrap_err();
    assert_eq!(error.category(), "HookBroken", "{error}");
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let error = webhook(spec, &metrics, closed).unwrap().ask("{}").await.unwrap_err();
    assert_eq!(error.category(), "HookConnect", "{error}");
    assert!(error.to_string().contains("hook.example cannot be reached: "), "{error}");
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_not_read() {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MAX_ANSWER + 1);
    let error = answered(head).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the webhook at hook.example answered with more than 1Mi (--max-webhook-answer): make it answer with less, or raise the flag"
    );
    let longest = "x".repeat(MAX_ANSWER);
    assert_eq!(answered(http("200 OK", "", &longest)).await.unwrap().len(), MAX_ANSWER);
}
