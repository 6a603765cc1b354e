//! Tests of leader election at the API server: who leads, how a leader ends, what is logged then.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, Response};
use serde_json::json;

use super::*;
use crate::cluster::fake::{self, Requests};
use crate::cluster::suspension::testing::suspend;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases";

fn gate() -> WriteGate {
    WriteGate::standby(Candidate { identity: "a".to_owned(), lease: Key::new("n", "l") })
}

fn held_by(holder: &str) -> String {
    json!({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": holder}}).to_string()
}

/// Takes part in an election where the Lease is missing, and is `a`'s once it is made.
fn election(requests: &Requests, renewals: Option<u16>) -> (LeaderElection, WriteGate) {
    let is_made = AtomicBool::new(false);
    let api = fake::recording(requests, move |request| {
        let status = match *request.method() {
            Method::GET if is_made.load(Ordering::Relaxed) => Some(200),
            Method::GET => Some(404),
            Method::POST => {
                is_made.store(true, Ordering::Relaxed);
                Some(201)
            }
            _ => renewals,
        };
        status.and_then(|status| Response::builder().status(status).body(held_by("a")).ok())
    });
    let gate = gate();
    let api = api.gated(gate.clone());
    (LeaderElection::new(&api, gate.candidate().unwrap()), gate)
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewals_are_not_answered_ends_at_its_deadline() {
    for answer in [None, Some(500), Some(409)] {
        let (election, gate) = election(&Requests::default(), answer);
        let lost = tokio::spawn(election.run(CancellationToken::new()));
        gate.opened().await;
        let start = Instant::now();
        assert!(gate.is_open());
        let lost = lost.await.unwrap().unwrap_err().to_string();
        let why = "leader election lost: the Lease was not renewed within 10 s, so another server may lead; ";
        assert!(lost.starts_with(why), "{answer:?}: {lost}");
        assert_eq!(start.elapsed().as_secs(), 10, "{answer:?}");
        assert!(!gate.is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_another_server_holds_ends_and_names_it() {
    let is_made = AtomicBool::new(false);
    let api = fake::answering(move |request| {
        let (status, holder) = match *request.method() {
            Method::GET if is_made.load(Ordering::Relaxed) => (200, "b"),
            Method::GET => (404, ""),
            Method::POST => {
                is_made.store(true, Ordering::Relaxed);
                (201, "a")
            }
            _ => (409, ""),
        };
        Response::builder().status(status).body(held_by(holder)).ok()
    });
    let gate = gate();
    let election = LeaderElection::new(&api.gated(gate.clone()), gate.candidate().unwrap());
    let lost = election.run(CancellationToken::new()).await.unwrap_err().to_string();
    let why = "leader election lost: b holds the Lease, and leads; ";
    assert!(lost.starts_with(why) && !gate.is_open(), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_machine_was_suspended_past_its_lease_ends() {
    let (election, gate) = election(&Requests::default(), Some(200));
    let leads = tokio::spawn(election.run(CancellationToken::new()));
    gate.opened().await;
    suspend(Duration::from_secs(5));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(gate.is_open() && !leads.is_finished(), "it renewed in time");
    suspend(Duration::from_secs(11));
    assert!(!gate.is_open());
    let start = Instant::now();
    assert!(leads.await.unwrap().is_err());
    assert!(start.elapsed() <= Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_its_lease_and_gives_it_up_at_the_end() {
    let (requests, end) = (Requests::default(), CancellationToken::new());
    let (election, gate) = election(&requests, Some(200));
    let (leads, start) = (tokio::spawn(election.run(end.clone())), Instant::now());
    gate.opened().await;
    assert_eq!(start.elapsed().as_secs(), 16, "a holder that did not notice its deletion has ended");
    let first = requests.take();
    assert!(first.iter().take(9).all(|request| *request == format!("GET {LEASES}/l")), "{first:?}");
    assert_eq!(first.get(9..), Some([format!("POST {LEASES}")].as_slice()));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(gate.is_open());
    assert_eq!(requests.take(), vec![format!("PUT {LEASES}/l"); 30]);
    end.cancel();
    assert!(leads.await.unwrap().is_ok() && !gate.is_open());
    assert_eq!(requests.take(), [format!("PUT {LEASES}/l")], "it has no holder any more");
}

/// The API server carries out a renewal whose answer never comes: the version that is released is another one.
#[tokio::test(start_paused = true)]
async fn a_lease_is_given_up_after_a_renewal_that_the_end_interrupts() {
    let (requests, end, renewals) = (Requests::default(), CancellationToken::new(), AtomicUsize::new(0));
    let interrupt = end.clone();
    let api = fake::recording(&requests, move |request| {
        let status = match (request.method(), renewals.load(Ordering::Relaxed)) {
            (&Method::PUT, nth) => {
                renewals.store(nth + 1, Ordering::Relaxed);
                match nth {
                    0 => {
                        interrupt.cancel();
                        return None;
                    }
                    1 => 409,
                    _ => 200,
                }
            }
            (&Method::GET, 0) => 404,
            _ => 200,
        };
        Response::builder().status(status).body(held_by("a")).ok()
    });
    let gate = gate();
    let election = LeaderElection::new(&api.gated(gate.clone()), gate.candidate().unwrap());
    assert!(election.run(end).await.is_ok());
    let lease = format!("{LEASES}/l");
    let (read, write) = (format!("GET {lease}"), format!("PUT {lease}"));
    let expected = [&read, &format!("POST {LEASES}"), &write, &write, &read, &write];
    let sent = requests.take();
    // It reads until there has been no Lease for 15 s.
    assert!(sent.iter().take(8).all(|request| *request == read), "{sent:?}");
    assert_eq!(sent.iter().skip(8).collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_may_not_use_leases_stands_by_until_it_ends() {
    let requests = Requests::default();
    let api = fake::recording(&requests, |_| {
        let body = json!({"message": "forbidden"}).to_string();
        Response::builder().status(403).body(body).ok()
    });
    let (gate, end) = (gate(), CancellationToken::new());
    let election = LeaderElection::new(&api.gated(gate.clone()), gate.candidate().unwrap());
    let stands_by = tokio::spawn(election.run(end.clone()));
    assert!(tokio::time::timeout(Duration::from_hours(1), gate.opened()).await.is_err());
    assert!((1700..1900).contains(&requests.take().len()), "every two seconds");
    end.cancel();
    assert!(stands_by.await.unwrap().is_ok() && requests.take().is_empty());
}
