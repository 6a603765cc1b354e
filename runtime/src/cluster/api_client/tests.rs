//! Tests of the client of the API server.

use http::{Response, StatusCode};
use metahook_core::object::id::Key;
use metahook_core::reconcile::api_warnings::MAX_WARNINGS;
use metahook_core::reconcile::outcome::Retry;

use super::*;
use crate::cluster::fake;
use crate::cluster::write_gate::Candidate;

#[tokio::test]
async fn a_pods_service_account_comes_before_the_kubeconfig_of_its_home() {
    let config = |host: &str| Config::new(format!("https://{host}").parse().unwrap());
    let infer = async |environment: Option<&str>, in_cluster: Option<&str>| {
        let elsewhere = async { Ok::<_, ()>(config("elsewhere")) };
        let found = infer(environment.map(OsStr::new), in_cluster.map(config), elsewhere).await;
        found.unwrap().cluster_url.host().unwrap().to_owned()
    };
    assert_eq!(infer(None, Some("pod")).await, "pod");
    assert_eq!(infer(Some(""), Some("pod")).await, "pod");
    assert_eq!(infer(Some("/file"), Some("pod")).await, "elsewhere");
    assert_eq!(infer(None, None).await, "elsewhere");
}

#[test]
fn bodies_that_are_read_as_yaml_are_written_for_it() {
    let text = Value::from("\u{2028}");
    assert_eq!(print(SERVER_SIDE_APPLY, &text).unwrap(), br#""\u2028""#);
    assert_eq!(print(JSON_PATCH, &text).unwrap(), "\"\u{2028}\"".as_bytes());
}

#[tokio::test]
async fn a_busy_api_server_is_no_refusal() {
    for (status, header, seconds) in
        [(429, None, 1), (429, Some("7"), 7), (503, Some("0"), 1), (429, Some("1000000000"), 120)]
    {
        let api = fake::answering(move |_| {
            let mut answer = Response::builder().status(status);
            if let Some(header) = header {
                answer = answer.header("retry-after", header);
            }
            Some(answer.body("{}".to_owned()).unwrap())
        });
        let error = api.get("/api").await.err().unwrap();
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(seconds)), "{error}");
    }
    let api = fake::answering(|_| Response::builder().status(503).body("{}".to_owned()).ok());
    assert_eq!(api.get("/api").await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn so_many_warnings_of_an_answer_are_read() {
    for (sent, read) in [(0, 0), (1, 1), (MAX_WARNINGS, MAX_WARNINGS), (MAX_WARNINGS + 1, MAX_WARNINGS)] {
        let api = fake::answering(move |_| {
            let answer =
                |answer: http::response::Builder, nth| answer.header("warning", format!("299 - \"{nth}\""));
            (0..sent).fold(Response::builder(), answer).body("{}".to_owned()).ok()
        });
        let warnings = api.get("/api").await.unwrap().warnings;
        assert_eq!(warnings, (0..read).map(|nth| nth.to_string()).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn writes_are_sent_while_the_gate_is_open_and_reads_always() {
    let requests = fake::Requests::default();
    let candidate = Candidate { identity: "a".to_owned(), lease: Key::new("n", "l") };
    let gate = WriteGate::standby(candidate);
    let api = fake::recording(&requests, |_| Some(Response::new("{}".to_owned()))).gated(gate.clone());
    let account = ServiceAccountRef { namespace: "n".to_owned(), name: "s".to_owned() };
    let sent = async |api: &ApiClient| {
        let body = Value::Null;
        let write = api.send(Method::DELETE, "/x", &body).await.is_ok();
        let patch = api.patch(JSON_PATCH, "/x", &body).await;
        let is_kept = patch.is_err_and(|error| matches!(error, Unreachable::NotLeading(_)));
        assert_eq!(write, !is_kept);
        assert!(api.get("/x").await.is_ok());
        requests.take().len()
    };
    assert_eq!((sent(&api).await, sent(&api.acting_as(&account)).await), (1, 1));
    assert_eq!(sent(&api.for_leases()).await, 3);
    gate.extend(Instant::now() + Duration::from_secs(10));
    assert_eq!((sent(&api).await, sent(&api.acting_as(&account)).await), (3, 3));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!((sent(&api).await, sent(&api.acting_as(&account)).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waited_for_the_rate_limit_until_the_gate_was_closed_is_not_sent() {
    let requests = fake::Requests::default();
    let gate = WriteGate::standby(Candidate { identity: "a".to_owned(), lease: Key::new("n", "l") });
    let mut api = fake::recording(&requests, |_| Some(Response::new("{}".to_owned()))).gated(gate.clone());
    let limiter = Mutex::new(RateLimiter::new(Rate { per_second: 0.05, burst: 1 }));
    api.limit = Some(Arc::new(Limit { start: Instant::now(), limiter }));
    gate.extend(Instant::now() + Duration::from_secs(10));
    assert!(api.send(Method::POST, "/x", &Value::Null).await.is_ok());
    let late = api.send(Method::POST, "/x", &Value::Null).await;
    assert!(matches!(late, Err(Unreachable::NotLeading(_))));
    assert_eq!(requests.take(), ["POST /x"]);
}
