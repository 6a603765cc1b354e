use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Response};
use metahook_core::api::server_objects::SEED;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::fake;

fn there(version: &str) -> ReferenceState {
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","resourceVersion":"{version}"}}}}"#
    );
    ReferenceState::There(Arc::new(Object::parse(&json, None).unwrap()))
}

#[test]
fn a_broken_watch_changes_nothing_that_was_seen() {
    let broken = ReferenceState::Unreadable("forbidden".into());
    assert!(!there("1").is_changed_by(&broken));
    assert!(ReferenceState::NotYet.is_changed_by(&broken) && ReferenceState::Missing.is_changed_by(&broken));
    assert!(!broken.is_changed_by(&broken), "and once");
}

#[test]
fn the_same_version_listed_again_is_no_change() {
    assert!(
        !there("1").is_changed_by(&there("1"))
            && !ReferenceState::Missing.is_changed_by(&ReferenceState::Missing)
    );
    assert!(there("1").is_changed_by(&there("2")) && there("1").is_changed_by(&ReferenceState::Missing));
}

/// Mounts and credentials are read so.
#[tokio::test(start_paused = true)]
async fn the_servers_own_secret_is_not_read_for_a_hook() {
    let api = fake::answering(|_| None);
    let watches = ObjectWatches::new(api);
    let name = Reference { kind: ReferenceKind::Secret, namespace: "n".to_owned(), name: SEED.to_owned() };
    let account = ServiceAccountRef { namespace: "n".to_owned(), name: "a".to_owned() };
    for reader in [None, Some(&account)] {
        let mut follower = watches.follow(reader, &name);
        follower.changed().await;
        assert!(matches!(follower.now(), ReferenceState::Unreadable(why) if &*why == OWN));
    }
}

/// The object as an account sees it, whose right to it is taken away and granted again.
#[tokio::test(start_paused = true)]
async fn what_an_account_may_no_longer_read_is_gone_within_five_minutes_and_comes_back() {
    let granted = Arc::new(AtomicBool::new(true));
    let allowed = Arc::clone(&granted);
    let api = fake::answering(move |request| {
        let query = request.uri().query().unwrap_or_default();
        let body = match (request.method(), query.contains("watch=")) {
            (&Method::GET, true) => String::new(),
            (&Method::GET, false) => r#"{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"namespace":"n","name":"s","uid":"u","resourceVersion":"1"}}]}"#.to_owned(),
            _ => json!({"status": {"allowed": allowed.load(Ordering::Relaxed)}}).to_string(),
        };
        Response::builder().status(200).body(body).ok()
    });
    let name = Reference { kind: ReferenceKind::Secret, namespace: "n".to_owned(), name: "s".to_owned() };
    let account = ServiceAccountRef { namespace: "n".to_owned(), name: "a".to_owned() };
    let watches = ObjectWatches::new(api);
    let mut follower = watches.follow(Some(&account), &name);
    follower.changed().await;
    assert!(matches!(follower.now(), ReferenceState::There(_)));
    let hour = tokio::time::timeout(Duration::from_hours(1), follower.changed()).await;
    assert!(hour.is_err(), "it was granted all the time");
    granted.store(false, Ordering::Relaxed);
    let began = Instant::now();
    follower.changed().await;
    assert!(began.elapsed() <= Duration::from_mins(5), "{:?}", began.elapsed());
    let ReferenceState::TakenAway(why) = follower.now() else { panic!() };
    let says = "User \"system:serviceaccount:n:a\" cannot list resource \"secrets\" in API group \"\" in the namespace \"n\"";
    assert!(why.starts_with(says), "{why}");
    granted.store(true, Ordering::Relaxed);
    follower.changed().await;
    assert!(matches!(follower.now(), ReferenceState::There(_)));
    assert!(began.elapsed() <= Duration::from_mins(6));
}
