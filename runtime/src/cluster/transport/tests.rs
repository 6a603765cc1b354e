//! Tests of HTTP to the API server.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use metahook_core::object::id::{Gvk, Resource};
use tokio::io::AsyncReadExt;

use super::*;
use crate::cluster::api_client::{Answers, ApiClient};
use crate::cluster::rights::WatchFailure;
use crate::cluster::watch::watch;

#[tokio::test]
async fn a_proxy_makes_a_tunnel_to_the_api_server() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut config = Config::new("https://api.example:6443".parse().unwrap());
    let proxy = format!("http://user:secret@{}", listener.local_addr().unwrap());
    config.proxy_url = Some(proxy.parse().unwrap());
    let proxy = Proxy::of_config(&config).unwrap();
    let transport = Transport::connect(&config, proxy.as_ref(), READ_TIMEOUT).unwrap();
    let asked = async {
        let mut stream = listener.accept().await.unwrap().0;
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.ends_with("\r\n\r\n") {
            stream.read_exact(&mut byte).await.unwrap();
            text.push(byte[0].into());
        }
        text
    };
    let send = transport.send(Request::get("/api").body(Body::empty()).unwrap());
    let (asked, answer) = tokio::join!(asked, send);
    assert!(answer.is_err(), "the proxy hung up");
    assert!(asked.starts_with("CONNECT api.example:6443 "), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic dXNlcjpzZWNyZXQ="), "{asked}");
}

/// An API server whose answers have this beginning and no end; counts the bytes that are read.
fn endless(status: u16, beginning: &'static str) -> (ApiClient, Arc<AtomicU64>) {
    let read = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&read);
    let service = service_fn(move |_: Request<Body>| {
        let count = Arc::clone(&count);
        let more = stream::repeat_with(move || {
            count.fetch_add(1 << 16, Ordering::Relaxed);
            Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b' '; 1 << 16])))
        });
        let first = stream::iter([Ok(Frame::data(Bytes::from_static(beginning.as_bytes())))]);
        let body: Box<DynBody> = Box::new(StreamBody::new(first.chain(more)));
        std::future::ready(Ok(Response::builder().status(status).body(body).unwrap()))
    });
    (ApiClient::new(Transport::new(BoxService::new(service), READ_TIMEOUT), "default", None), read)
}

#[tokio::test]
async fn an_answer_without_an_end_is_left_at_its_bound() {
    let (api, read) = endless(200, "{");
    let get = api.get("/api/v1/namespaces/n/configmaps/x").await;
    let large = api.get_large("/apis").await;
    let page = api.get_as(Answers::Page, "/api/v1/pods?limit=500").await;
    let written = api.send(http::Method::POST, "/api/v1/pods?a=b", &serde_json::Value::Null).await;
    for (answer, message) in [
        (get, "the answer to GET /api/v1/namespaces/n/configmaps/x has more than 12Mi"),
        (large, "the answer to GET /apis has more than 32Mi"),
        (page, "the answer to GET /api/v1/pods has more than 32Mi"),
        (written, "the answer to POST /api/v1/pods has more than 12Mi"),
    ] {
        assert_eq!(answer.err().unwrap().to_string(), message);
    }
    let mebibytes = read.load(Ordering::Relaxed) >> 20;
    // The page is asked for three times: with 16 objects, with 4 and with one.
    assert!(mebibytes <= 12 + 32 + (16 + 16 + 32) + 12, "{mebibytes} MiB");
}

/// Each kind is listed for the first time, so that the server expects small pages.
#[tokio::test(start_paused = true)]
async fn pages_in_flight_have_48_mib_together_whatever_was_expected() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let service = service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let frames = stream::iter(0..13).then(|_| async {
            tokio::task::yield_now().await;
            Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b' '; 1 << 20])))
        });
        let body: Box<DynBody> = Box::new(StreamBody::new(Box::pin(frames)));
        std::future::ready(Ok(Response::new(body)))
    });
    let transport = Transport::new(BoxService::new(service), READ_TIMEOUT);
    let list = |nth: u32| {
        let uri = format!("/api/v1/kind-{nth}?limit=500");
        let transport = &transport;
        async move { transport.list(Request::get(uri).body(Body::empty()).unwrap()).await.unwrap() }
    };
    let mut lists: FuturesUnordered<_> = (0..8).map(list).collect();
    let mut unread = Vec::new();
    while let Ok(Some(page)) = tokio::time::timeout(READ_TIMEOUT, lists.next()).await {
        unread.push(page);
    }
    assert_eq!(unread.len(), 3, "a fourth page of 13 MiB does not fit beside three that are not read");
    for _ in 0..8 {
        let page = unread.pop().unwrap().into_body().collect().await.unwrap();
        assert_eq!(page.to_bytes().len(), 13 << 20);
        unread.extend(lists.next().await);
    }
    // Room doubles from 1 MiB to 16 MiB.
    let asked = asked.load(Ordering::Relaxed);
    assert!(lists.is_empty() && asked <= 8 * 5, "{asked} requests");
}

#[tokio::test]
async fn a_refusal_without_an_end_is_cut() {
    let (api, read) = endless(404, "no such thing");
    let answer = api.get("/x").await.unwrap();
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.message(), "HTTP status 404: no such thing");
    assert!(read.load(Ordering::Relaxed) < 2 << 20);
}

#[tokio::test]
async fn lists_and_watches_without_an_end_fail_by_name() {
    let pods =
        Resource { gvk: Gvk::new("v1", "Pod"), plural: "pods".into(), namespaced: true, has_status: true };
    let (api, read) = endless(200, "{");
    let mut events = std::pin::pin!(watch(&api, &Arc::new(pods), None, None));
    let error = loop {
        match events.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break WatchFailure::of(&error).why,
        }
    };
    assert!(error.contains("the answer to GET /api/v1/pods has more than 32Mi"), "{error}");
    assert!(read.load(Ordering::Relaxed) >> 20 <= 64);

    let lines = service_fn(|_: Request<Body>| {
        let much = Bytes::from(vec![b' '; 1 << 20]);
        let frames = stream::iter([Bytes::from_static(b"\n")]).chain(stream::repeat(much));
        let frames = frames.map(|data| Ok::<_, BoxError>(Frame::data(data)));
        let body: Box<DynBody> = Box::new(StreamBody::new(frames));
        std::future::ready(Ok(Response::new(body)))
    });
    let lines = Transport::new(BoxService::new(lines), READ_TIMEOUT);
    let asked = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
    let body = lines.watch(asked).await.unwrap().into_body();
    let error = body.collect().await.err().unwrap();
    assert_eq!(error.to_string(), "the answer to GET /api/v1/pods has more than 12Mi");
}

fn seconds(header: Option<&str>) -> u64 {
    let now: Timestamp = "2026-11-21T08:00:00.25Z".parse().unwrap();
    retry_after(header, now).clamp(MIN_DELAY, MAX_WEBHOOK_DELAY).as_secs()
}

#[test]
fn a_number_is_seconds_and_a_date_is_rounded_up() {
    assert_eq!(seconds(Some("7")), 7);
    assert_eq!(seconds(Some(" 120 ")), 120);
    assert_eq!(seconds(Some("Sat, 21 Nov 2026 08:00:05 GMT")), 5);
    assert_eq!(seconds(Some("Sat, 21 Nov 2026 09:00:00 UTC")), 3600);
}

#[test]
fn what_does_not_lie_ahead_is_soon() {
    for header in [
        None,
        Some(""),
        Some("0"),
        Some("-5"),
        Some("soon"),
        Some("1.5"),
        Some("99999999999999999999999"),
        Some("Sat, 21 Nov 2026 08:00:00 GMT"),
        Some("Sat, 21 Nov 2015 08:00:00 GMT"),
    ] {
        assert_eq!(seconds(header), 1, "{header:?}");
    }
}

#[test]
fn what_asks_for_ages_is_not_believed() {
    for header in ["3601", "1000000000", "18446744073709551615", "Thu, 31 Dec 9998 00:00:00 GMT"] {
        assert_eq!(seconds(Some(header)), 3600, "{header}");
        let headers = [(RETRY_AFTER, header.parse().unwrap())].into_iter().collect();
        let delay = busy(StatusCode::TOO_MANY_REQUESTS, &headers, MAX_API_DELAY);
        assert_eq!(delay, Some(MAX_API_DELAY), "{header}");
    }
    assert_eq!(seconds(Some("3600")), 3600);
}
