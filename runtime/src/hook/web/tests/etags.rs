//! A webhook that gives its answers tags is asked with them, and may leave out what it answered before.

use super::*;
use crate::memory::MemoryBudget;

fn kept(tag: &str, body: &str) -> Arc<KeptAnswer> {
    Arc::new(KeptAnswer { tag: tag.as_bytes().into(), body: body.as_bytes().into() })
}

fn memory() -> Reservation {
    Reservation::default()
}

/// Asks where one connection gives these answers; the webhook keeps answers where `etag` says so.
async fn tagged(
    etag: Value,
    sent: Option<Arc<KeptAnswer>>,
    memory: &Reservation,
    answers: Vec<Vec<u8>>,
) -> (Result<WebAnswer, WebError>, Vec<String>) {
    let (at, served) = server(vec![answers]).await;
    let spec = json!({ "url": "http://hook.example/sync", "timeout": "1m", "etag": etag });
    let webhook = webhook(spec, &Metrics::new(|| 0), at).unwrap();
    let answer = webhook.call("{}".into(), sent, memory).await;
    (answer, served.await.unwrap().0)
}

fn enabled() -> Value {
    json!({ "enabled": true })
}

fn answer(bytes: &str, tag: Option<&str>) -> WebAnswer {
    WebAnswer { bytes: bytes.into(), tag: tag.map(|tag| tag.as_bytes().into()) }
}

#[tokio::test]
async fn an_answer_comes_with_the_tag_to_keep_it_under() {
    for (etag, headers, expected) in [
        (enabled(), "etag: W/\"a b\"\r\n", Some("W/\"a b\"")),
        (enabled(), "ETag:   no quotes \r\n", Some("no quotes")),
        (enabled(), "", None),
        (enabled(), "etag:\r\n", None),
        (json!({}), "etag: \"a\"\r\n", None),
        (json!({ "enabled": false }), "etag: \"a\"\r\n", None),
    ] {
        let (answered, requests) = tagged(etag, None, &memory(), vec![http("200 OK", headers, "{}")]).await;
        assert_eq!(answered.unwrap(), answer("{}", expected), "{headers}");
        assert!(!requests[0].contains("if-none-match"), "{requests:?}");
    }
}

#[tokio::test]
async fn a_webhook_with_nothing_new_to_say_leaves_the_body_out() {
    for status in ["304 Not Modified", "412 Precondition Failed"] {
        let (answered, requests) =
            tagged(enabled(), Some(kept("W/\"a b\"", "kept")), &memory(), vec![http(status, "", "")]).await;
        assert_eq!(answered.unwrap(), answer("kept", None));
        assert!(requests[0].contains("\r\nif-none-match: W/\"a b\"\r\n"), "{requests:?}");
    }
}

#[tokio::test]
async fn a_new_answer_counts_in_place_of_the_kept_one() {
    let sent = Some(kept("old", "kept"));
    for (headers, expected) in [("etag: new\r\n", Some("new")), ("", None)] {
        let answers = vec![http("200 OK", headers, "fresh")];
        let (answered, _) = tagged(enabled(), sent.clone(), &memory(), answers).await;
        assert_eq!(answered.unwrap(), answer("fresh", expected));
    }
    let (answered, _) = tagged(enabled(), sent, &memory(), vec![http("500 E", "etag: new\r\n", "why")]).await;
    assert_eq!(answered.unwrap_err().category(), "HookStatus");
}

#[tokio::test]
async fn the_tag_goes_along_with_redirects() {
    let moved = http("302 Found", "location: /other\r\n", "");
    let answers = vec![moved, http("304 Not Modified", "", "")];
    let (answered, requests) = tagged(enabled(), Some(kept("a", "kept")), &memory(), answers).await;
    assert_eq!(answered.unwrap(), answer("kept", None));
    assert!(requests[1].starts_with("GET /other ") && requests[1].contains("\r\nif-none-match: a\r\n"));
}

#[tokio::test]
async fn the_copy_of_a_kept_answer_is_charged() {
    let controller = Arc::from("c");
    let budget = MemoryBudget::new(8 << 20);
    let reserved = budget.reserve(&controller, 1 << 20).await.unwrap();
    let body = "x".repeat(3 << 20);
    let unchanged = || vec![http("304 Not Modified", "", "")];
    let (answered, _) = tagged(enabled(), Some(kept("a", &body)), &reserved, unchanged()).await;
    assert_eq!(answered.unwrap().bytes.len(), body.len());
    assert!(reserved.most_used() >= 3 << 20);
    let (answered, _) =
        tagged(enabled(), Some(kept("a", &"x".repeat(9 << 20))), &reserved, unchanged()).await;
    assert_eq!(answered.unwrap_err().category(), "MemoryShort");
}
