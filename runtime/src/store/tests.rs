use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use metahook_core::object::id::Gvk;

use crate::cluster::fake;
use crate::store::*;

fn config_maps() -> Arc<Resource> {
    let gvk = Gvk::new("v1", "ConfigMap");
    Arc::new(Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false })
}

fn store() -> (Arc<Store>, mpsc::UnboundedReceiver<Change>) {
    let store = Store {
        resource: config_maps(),
        state: Mutex::default(),
        synced: watch::Sender::new(true),
        task: Mutex::default(),
    };
    let store = Arc::new(store);
    let changes = store.changes();
    (store, changes)
}

fn object(uid: &str, version: u64) -> Object {
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"a","uid":"{uid}","resourceVersion":"{version}"}}}}"#
    );
    Object::parse(&json, None).unwrap()
}

fn writer() -> Writer {
    Writer { controller: Uid::new("c"), parents: config_maps(), parent: Key::new("n", "p") }
}

fn watched(store: &Store, event: CacheEvent) {
    lock(&store.state).apply(event, None);
}

/// Whether the next changes are our own, as far as listeners were sent them.
fn sent(changes: &mut mpsc::UnboundedReceiver<Change>) -> Vec<bool> {
    std::iter::from_fn(|| changes.try_recv().ok()).map(|change| change.by == Some(writer())).collect()
}

#[test]
fn an_event_that_comes_before_the_answer_to_its_write_is_our_own() {
    let (store, mut changes) = store();
    let key = Key::new("n", "a");
    let writing = store.writing(&key, &writer());
    watched(&store, CacheEvent::Applied(object("1", 5)));
    watched(&store, CacheEvent::Applied(object("1", 6)));
    assert!(sent(&mut changes).is_empty(), "its writer is unknown yet");
    assert!(store.get(&key).is_some(), "but what is there can be seen");
    writing.answered(vec![CacheEvent::Wrote(object("1", 5).into())]);
    assert_eq!(sent(&mut changes), [true, false], "the second one is another client's");
    watched(&store, CacheEvent::Applied(object("1", 7)));
    assert_eq!(sent(&mut changes), [false], "nothing is held any more");
}

#[test]
fn what_came_while_a_write_failed_is_somebody_elses() {
    let (store, mut changes) = store();
    let (one, another) =
        (store.writing(&Key::new("n", "a"), &writer()), store.writing(&Key::new("n", "a"), &writer()));
    watched(&store, CacheEvent::Applied(object("1", 5)));
    drop(one);
    assert!(sent(&mut changes).is_empty());
    drop(another);
    assert_eq!(sent(&mut changes), [false]);
}

#[test]
fn the_end_of_an_object_that_we_deleted_is_our_own_whenever_it_comes() {
    let (store, mut changes) = store();
    let key = Key::new("n", "a");
    watched(&store, CacheEvent::Applied(object("1", 1)));
    store.writing(&key, &writer()).answered(vec![CacheEvent::Deleting(key.clone(), Uid::new("1"))]);
    watched(&store, CacheEvent::Deleted(object("1", 2)));
    assert_eq!(sent(&mut changes), [false, true, true], "its beginning, its marking, its end");

    watched(&store, CacheEvent::Applied(object("2", 3)));
    let writing = store.writing(&key, &writer());
    watched(&store, CacheEvent::Deleted(object("2", 4)));
    writing.answered(vec![CacheEvent::Deleting(key.clone(), Uid::new("2"))]);
    assert_eq!(sent(&mut changes), [false, true], "also before the answer");

    watched(&store, CacheEvent::Applied(object("3", 5)));
    watched(&store, CacheEvent::Deleted(object("3", 6)));
    assert_eq!(sent(&mut changes), [false, false], "another client's deletion is none of ours");
}

fn answer(status: u16, body: &str) -> Option<Response<String>> {
    Response::builder().status(status).body(body.to_owned()).ok()
}

fn forbidden() -> Option<Response<String>> {
    answer(
        403,
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no right","reason":"Forbidden","code":403}"#,
    )
}

fn list() -> Option<Response<String>> {
    answer(200, r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}"#)
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().unwrap_or_default().contains("watch=")
}

/// Until it is so; the clock is none of ours.
async fn until(so: impl Fn() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(10), wait).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn trouble_is_reported_while_it_lasts_before_the_first_list_and_after() {
    let lists = Arc::new(AtomicUsize::new(0));
    let watches = Arc::new(AtomicUsize::new(0));
    let counted = (Arc::clone(&lists), Arc::clone(&watches));
    // Five lists and eight watches fail; the ninth stays open.
    let api = fake::answering(move |request| {
        if is_watch(request) {
            if counted.1.fetch_add(1, Ordering::Relaxed) < 8 { forbidden() } else { None }
        } else if counted.0.fetch_add(1, Ordering::Relaxed) < 5 {
            forbidden()
        } else {
            list()
        }
    });
    let store = Stores::new(api).open(&config_maps());
    until(|| store.trouble().is_some_and(|why| why.contains("ConfigMap cannot be listed"))).await;
    store.synced().await;
    assert_eq!(store.trouble(), None, "it could be listed");
    until(|| store.trouble().is_some_and(|why| why.contains("cannot be watched"))).await;
    until(|| watches.load(Ordering::Relaxed) == 9).await;
    until(|| store.trouble().is_none()).await;
    assert_eq!(lists.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_once_is_no_trouble() {
    let watches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&watches);
    let api = fake::answering(move |request| match is_watch(request) {
        true if counted.fetch_add(1, Ordering::Relaxed) == 0 => forbidden(),
        true => None,
        false => list(),
    });
    let store = Stores::new(api).open(&config_maps());
    until(|| watches.load(Ordering::Relaxed) == 2).await;
    assert_eq!(store.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_leave_a_store_deaf() {
    let lists = AtomicUsize::new(0);
    let api = fake::answering(move |request| {
        assert!(lists.fetch_add(1, Ordering::Relaxed) > 0, "a bug");
        if is_watch(request) { None } else { list() }
    });
    Stores::new(api).open(&config_maps()).synced().await;
}
