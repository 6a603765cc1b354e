//! Statuses against a scripted API server: written once, tried again, put right, left behind.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::status::DeletionStatus;
use metahook_core::children::deletion_brake::Census;
use metahook_core::hash::Fingerprint;
use metahook_core::object::id::Resource;
use metahook_core::object::selector::Selector;
use tokio::sync::oneshot;

use super::*;
use crate::cluster::fake;
use crate::controller::reconcile::testing::{context, resource};
use crate::controller::runner::report::Reporter;
use crate::store::Stores;

fn controller() -> Object {
    stored(1, "a", &json!({}))
}

/// The controller in a version, with a label and a status.
fn stored(version: u64, team: &str, status: &serde_json::Value) -> Object {
    let metadata =
        json!({"name": "c", "uid": "u", "resourceVersion": version.to_string(), "labels": {"team": team}});
    let controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": metadata, "status": status,
    });
    Object::parse(&controller.to_string(), None).unwrap()
}

/// A reporter over this API server.
fn reporter(api: ApiClient, stop: &CancellationToken) -> Reporter {
    reporter_and_store(api, stop).0
}

fn reporter_and_store(api: ApiClient, stop: &CancellationToken) -> (Reporter, Arc<Store>) {
    let (context, store) = context_and_store(api);
    (Reporter::start(&context, Arc::clone(&store), &controller(), stop.clone()), store)
}

fn context_and_store(api: ApiClient) -> (Context, Arc<Store>) {
    let controller = controller();
    let resource = Resource {
        gvk: controller.gvk.clone(),
        plural: "compositecontrollers".into(),
        namespaced: false,
        has_status: true,
    };
    let store = Stores::new(api.clone()).open(&Arc::new(resource));
    store.observe_write(vec![CacheEvent::Applied(controller)]);
    let hosting = Hosting::Server(Selector::parse("team=a").unwrap());
    (Context { hosting, ..context(api) }, store)
}

/// The number of statuses that a server writes to a controller that leaves its selection with this status, the last one
/// that it wrote being another or the same.
async fn writes_to_one_that_leaves(wrote: serde_json::Value, left_with: &serde_json::Value) -> usize {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let api = fake::answering(move |request| {
        if *request.method() != http::Method::PUT {
            return None;
        }
        let number = counted.fetch_add(1, Ordering::Relaxed) as u64;
        let team = if number == 0 { "a" } else { "b" };
        Some(http::Response::new(stored(2 + 2 * number, team, &wrote).json().to_owned()))
    });
    let stop = CancellationToken::new();
    let (reporter, store) = reporter_and_store(api, &stop);
    reporter.change(|report| report.counts.parents = 3);
    while writes.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(WRITE_DELAY).await;
    }
    store.observe_write(vec![CacheEvent::Applied(stored(3, "b", left_with))]);
    stop.cancel();
    reporter.ended().await;
    writes.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_leaves_the_selection_says_so_where_no_other_server_has_it() {
    let status = |reason: &str| {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": reason, "message": "", "lastTransitionTime": "t",
        });
        json!({"observedGeneration": 0, "conditions": [ready], "parents": 3})
    };
    let ours = status("Running");
    assert_eq!(writes_to_one_that_leaves(ours.clone(), &ours).await, 2);
    assert_eq!(writes_to_one_that_leaves(ours, &status("ParentsFailing")).await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_another_server_says_of_a_controller_that_this_one_has_is_put_right() {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let of = |reason: &str| {
        let ready = json!({
            "type": "Ready", "status": "False", "reason": reason, "message": "", "lastTransitionTime": "t",
        });
        json!({"conditions": [ready]})
    };
    let (ours, theirs) = (of("InvalidSpec"), of("NotSelected"));
    let api = fake::answering(move |request| {
        if *request.method() != http::Method::PUT {
            return None;
        }
        let number = counted.fetch_add(1, Ordering::Relaxed) as u64;
        Some(http::Response::new(stored(2 + 2 * number, "a", &ours).json().to_owned()))
    });
    let stop = CancellationToken::new();
    let (reporter, store) = reporter_and_store(api, &stop);
    reporter.change(|report| report.counts.parents = 3);
    tokio::time::sleep(2 * REWRITE_INTERVAL).await;
    let before = writes.load(Ordering::Relaxed);
    store.observe_write(vec![CacheEvent::Applied(stored(3, "a", &theirs))]);
    tokio::time::sleep(2 * REWRITE_INTERVAL).await;
    assert_eq!((before, writes.load(Ordering::Relaxed)), (1, 2));
    stop.cancel();
    reporter.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_of_which_nothing_changes_is_never_older_than_five_minutes() {
    let writes = Arc::new(std::sync::Mutex::new(vec![Instant::now()]));
    let seen = Arc::clone(&writes);
    let api = fake::answering(move |request| {
        if *request.method() != http::Method::PUT {
            return None;
        }
        let mut writes = seen.lock().unwrap();
        writes.push(Instant::now());
        let ready = json!({
            "type": "Ready", "status": "Unknown", "reason": "NotYetKnown", "message": "", "lastTransitionTime": "t",
        });
        let status = json!({"conditions": [ready], "lastSeen": format!("write {}", writes.len())});
        Some(http::Response::new(stored(1 + writes.len() as u64, "a", &status).json().to_owned()))
    });
    let stop = CancellationToken::new();
    let reporter = reporter(api, &stop);
    let hour = Instant::now() + Duration::from_hours(1);
    tokio::time::sleep_until(hour).await;
    let writes: Vec<_> = writes.lock().unwrap().iter().copied().chain([hour]).collect();
    assert!(writes.windows(2).all(|pair| pair[1] - pair[0] <= LAST_SEEN_INTERVAL), "{writes:?}");
    assert!(writes.len() < 25, "too many writes: {writes:?}");
    stop.cancel();
    reporter.ended().await;
}

/// The writes of a status after a change that is followed by the end at once.
async fn last_writes(change: impl FnOnce(&mut Report)) -> usize {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let api = fake::answering(move |request| {
        let is_write = *request.method() == http::Method::PUT;
        is_write.then(|| counted.fetch_add(1, Ordering::Relaxed));
        None
    });
    let stop = CancellationToken::new();
    let reporter = reporter(api, &stop);
    reporter.change(change);
    stop.cancel();
    reporter.ended().await;
    writes.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_status_that_may_not_be_written_is_told_once_and_written_soon_after_the_grant() {
    let (events, refused) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (is_granted, written) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let seen = (Arc::clone(&events), Arc::clone(&refused), Arc::clone(&is_granted), Arc::clone(&written));
    let api = fake::answering(move |request| {
        let (status, message) = match (request.method().as_str(), seen.2.load(Ordering::Relaxed)) {
            ("POST", _) => {
                seen.0.fetch_add(1, Ordering::Relaxed);
                (201, "")
            }
            ("PUT", false) => {
                seen.1.fetch_add(1, Ordering::Relaxed);
                (403, "x is forbidden: User \"u\" cannot update resource \"compositecontrollers/status\"")
            }
            ("PUT", true) => {
                seen.3.store(true, Ordering::Relaxed);
                (200, "")
            }
            _ => return None,
        };
        let mut body: serde_json::Value = serde_json::from_str(controller().json()).unwrap();
        body["message"] = json!(message);
        http::Response::builder().status(status).body(body.to_string()).ok()
    });
    let stop = CancellationToken::new();
    let reporter = reporter(api, &stop);
    reporter.change(|report| report.counts.parents = 3);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let tries = refused.load(Ordering::Relaxed);
    assert!((10..30).contains(&tries), "{tries}");
    assert_eq!(events.load(Ordering::Relaxed), 1, "told once");
    is_granted.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(written.load(Ordering::Relaxed));
    stop.cancel();
    reporter.ended().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_deletions_are_written_before_the_end_and_nothing_else() {
    let deletions = DeletionStatus { deleted: Some(3), ..DeletionStatus::default() };
    assert_eq!(last_writes(|report| report.deletions = deletions).await, 1);
    assert_eq!(last_writes(|report| report.counts.parents = 3).await, 0);
}

/// Deletions that a reconcile reserves, on a server that answers writes of the status like this: whether they may be carried
/// out, the writes until then, and those of another reconcile with the same deletions.
async fn recorded(answers: &'static [u16]) -> (bool, usize, usize) {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let api = fake::answering(move |request| {
        if *request.method() != http::Method::PUT {
            return None;
        }
        let number = counted.fetch_add(1, Ordering::Relaxed);
        let condition = json!({"type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "t"});
        let status = json!({"conditions": [condition], "deletions": {"accepted": "a", "deleted": 3}});
        let version = u64::try_from(number).ok()? + 2;
        let mut body: serde_json::Value = serde_json::from_str(stored(version, "a", &status).json()).ok()?;
        body["message"] = json!("x is forbidden: User \"u\" cannot update resource \"y\"");
        let answer = answers.get(number).or(answers.last()).copied()?;
        http::Response::builder().status(answer).body(body.to_string()).ok()
    });
    let stop = CancellationToken::new();
    let reporter = reporter(api, &stop);
    let brake = reporter.brake(BrakeLimits::default());
    let id = ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", "x") };
    brake.with(|brake, now| {
        for version in [b"a", b"b"] {
            let census = |_: &_| Census { parents: [id.clone()].into(), children: 30 };
            brake.version_changed(Fingerprint::of(version), now, census);
        }
        let uids = ["1", "2", "3"].map(Uid::new);
        let deletions: Vec<_> = uids.iter().map(|uid| (&id, uid)).collect();
        assert_eq!(brake.let_through(&id, Fingerprint::of(b"b"), &deletions, now), Ok(()));
    });
    let is_recorded = brake.record().await.is_ok();
    let before = writes.load(Ordering::Relaxed);
    assert_eq!(reporter.shared().borrow().deletions.deleted, Some(3));
    assert_eq!(brake.record().await.is_ok(), is_recorded);
    let again = writes.load(Ordering::Relaxed) - before;
    drop(brake);
    stop.cancel();
    reporter.ended().await;
    (is_recorded, before, again)
}

/// A writer of what the report says, and the way to it of reconciles that delete.
fn writer(api: ApiClient) -> (watch::Sender<Report>, mpsc::UnboundedSender<RecordRequest>) {
    let (context, store) = context_and_store(api);
    let (records, requests) = mpsc::unbounded_channel();
    let report = watch::Sender::new(Report::default());
    let writer = StatusWriter::new(&context, store, &controller(), requests);
    tokio::spawn(writer.run(report.subscribe(), CancellationToken::new()));
    (report, records)
}

/// A reconcile has its deletions recorded.
async fn deletes(records: &mpsc::UnboundedSender<RecordRequest>) {
    let (request, recorded) = oneshot::channel();
    records.send(request).unwrap();
    recorded.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn reconciles_that_delete_do_not_keep_a_status_from_being_tried_again() {
    let (is_granted, is_written) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let seen = (Arc::clone(&is_granted), Arc::clone(&is_written));
    let api = fake::answering(move |request| {
        if *request.method() != http::Method::PUT {
            return None;
        }
        let is_granted = seen.0.load(Ordering::Relaxed);
        seen.1.store(is_granted, Ordering::Relaxed);
        let mut body: serde_json::Value = serde_json::from_str(controller().json()).ok()?;
        body["message"] = json!("x is forbidden: User \"u\" cannot update resource \"y\"");
        http::Response::builder().status(if is_granted { 200 } else { 403 }).body(body.to_string()).ok()
    });
    let (report, records) = writer(api);
    let delete_for = async |seconds: u64| {
        for _ in 0..20 * seconds {
            deletes(&records).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    report.send_modify(|report| report.counts.parents = 3);
    delete_for(30).await;
    assert!(!is_written.load(Ordering::Relaxed));
    is_granted.store(true, Ordering::Relaxed);
    delete_for(10).await;
    assert!(is_written.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn what_changes_after_many_deletions_is_written_soon() {
    let puts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&puts);
    let api = fake::answering(move |request| {
        if *request.method() != http::Method::PUT {
            return None;
        }
        let number = counted.fetch_add(1, Ordering::Relaxed);
        let ready = json!({"type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "t"});
        Some(http::Response::new(stored(2 + number, "a", &json!({"conditions": [ready]})).json().to_owned()))
    });
    let (report, records) = writer(api);
    for parents in 0..200 {
        report.send_modify(|report| report.counts.parents = parents);
        tokio::time::sleep(WRITE_DELAY / 4).await;
        deletes(&records).await;
    }
    let before = puts.load(Ordering::Relaxed);
    assert!(before >= 200, "{before}");
    report.send_modify(|report| report.counts.parents = 1000);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(puts.load(Ordering::Relaxed), before + 1);
}

#[tokio::test(start_paused = true)]
async fn deletions_are_carried_out_once_the_status_has_their_number() {
    assert_eq!(recorded(&[200]).await, (true, 1, 0));
    assert_eq!(recorded(&[409, 409, 200]).await, (true, 3, 0), "another client wrote at the same time");
    assert_eq!(recorded(&[403]).await, (true, 1, 0), "the server may not write it");
    assert_eq!(recorded(&[422]).await, (false, 1, 1));
}
