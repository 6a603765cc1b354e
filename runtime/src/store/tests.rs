//! Tests of stores: troubles of their watches, panics.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::cache::waiting_changes::WaitingChange;
use metahook_core::object::cached::MAX_UNSEEN_BYTES;
use metahook_core::object::id::Gvk;

use super::*;
use crate::cluster::fake;
use crate::cluster::transport::READ_TIMEOUT;

pub(super) fn config_maps() -> Arc<Resource> {
    let gvk = Gvk::new("v1", "ConfigMap");
    Arc::new(Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false })
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

pub(super) fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().unwrap_or_default().contains("watch=")
}

/// Until it is so; the clock is none of ours.
pub(super) async fn until(so: impl Fn() -> bool) {
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
            if counted.1.fetch_add(1, Ordering::Relaxed) < 8 { forbidden() } else { answer(200, "") }
        } else if counted.0.fetch_add(1, Ordering::Relaxed) < 5 {
            forbidden()
        } else {
            list()
        }
    });
    let metric = api.watches.clone();
    let store = Stores::new(api).open(&config_maps());
    until(|| store.trouble().is_some_and(|why| why.contains("ConfigMap cannot be listed"))).await;
    assert_eq!(metric.broken(), 1);
    store.synced().await;
    assert_eq!((store.trouble(), metric.broken()), (None, 0), "it could be listed");
    until(|| store.trouble().is_some_and(|why| why.contains("cannot be watched"))).await;
    assert_eq!(metric.broken(), 1);
    until(|| watches.load(Ordering::Relaxed) == 9).await;
    until(|| store.trouble().is_none()).await;
    assert_eq!(metric.broken(), 0);
    assert_eq!(lists.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_once_is_no_trouble() {
    let watches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&watches);
    let api = fake::answering(move |request| match is_watch(request) {
        true if counted.fetch_add(1, Ordering::Relaxed) == 0 => forbidden(),
        true => answer(200, ""),
        false => list(),
    });
    let store = Stores::new(api).open(&config_maps());
    until(|| watches.load(Ordering::Relaxed) == 2).await;
    assert_eq!(store.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_that_are_swallowed_are_asked_for_again_and_told() {
    let (lists, watches) = <(AtomicUsize, AtomicUsize)>::default();
    let api = fake::answering(move |request| {
        let counter = if is_watch(request) { &watches } else { &lists };
        let nth = counter.fetch_add(1, Ordering::Relaxed);
        if is_watch(request) { (nth > 2).then(|| answer(200, ""))? } else { (nth > 0).then(list)? }
    });
    let (start, store) = (Instant::now(), Stores::new(api).open(&config_maps()));
    let told = |what: &str| store.trouble().is_some_and(|why| why.contains(what));
    until(|| told("ConfigMap cannot be listed: no list within 10 s")).await;
    store.synced().await;
    let took = start.elapsed();
    assert!(took > READ_TIMEOUT && took < READ_TIMEOUT * 2, "{took:?}");
    until(|| told("cannot be watched") && told("nothing came from the API server within 60 s")).await;
    assert!(start.elapsed() < READ_TIMEOUT * 5, "{:?}", start.elapsed());
    until(|| store.trouble().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_leave_a_store_deaf() {
    let lists = AtomicUsize::new(0);
    let api = fake::answering(move |request| {
        assert!(lists.fetch_add(1, Ordering::Relaxed) > 0, "a bug");
        if is_watch(request) { answer(200, "") } else { list() }
    });
    Stores::new(api).open(&config_maps()).synced().await;
}

fn config_map(version: u64, data: &str) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"namespace":"n","name":"x","uid":"u","resourceVersion":"{version}"}},"data":{{"is":"{data}"}}}}"#
    )
}

fn list_of(version: u64, item: &str) -> Option<Response<String>> {
    answer(
        200,
        &format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{item}]}}"#
        ),
    )
}

/// A store whose watch tells these changes after a list with version 50, and that is asked to list again with this item.
async fn restored(told: &'static [u64], own: Option<u64>, is_noted: bool, item: String) -> (String, u64) {
    let (lists, watches) = <(AtomicUsize, AtomicUsize)>::default();
    let api = fake::answering(move |request| {
        if is_watch(request) {
            let is_first = watches.fetch_add(1, Ordering::Relaxed) == 0;
            let told = told.iter().filter(|_| is_first);
            let event = |version: &u64| {
                format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", config_map(*version, "watched"))
            };
            return answer(200, &told.map(event).collect::<String>());
        }
        match lists.fetch_add(1, Ordering::Relaxed) {
            0 => list_of(50, &config_map(50, "first")),
            _ => list_of(40, &item),
        }
    });
    let restores = api.restores.clone();
    let store = Stores::new(api).open(&config_maps());
    store.synced().await;
    if let Some(version) = own {
        let object = Object::parse(&config_map(version, "own"), None).unwrap();
        store.observe_write(vec![CacheEvent::Wrote(Arc::new(object))]);
    }
    if is_noted {
        restores.note("a test");
        assert!(!store.is_synced(), "a list of before counts no more");
    }
    until(|| restores.count() == 1 && store.is_synced()).await;
    let object = store.get(&Key::new("n", "x"));
    (object.map_or_else(|| "none".to_owned(), |object| object.json().to_owned()), restores.count())
}

#[tokio::test(start_paused = true)]
async fn a_store_begins_anew_where_versions_go_backwards() {
    let older = config_map(30, "restored");
    assert_eq!(restored(&[60, 55], None, false, older.clone()).await, (older.clone(), 1));
    assert_eq!(restored(&[], None, true, older.clone()).await, (older.clone(), 1));
    // The answer to an own write is no reason to keep an object.
    assert_eq!(restored(&[], Some(70), true, older.clone()).await, (older, 1));
    assert_eq!(restored(&[], Some(70), true, String::new()).await, ("none".to_owned(), 1));
    // Versions are given a second time.
    let other = config_map(50, "another");
    assert_eq!(restored(&[], None, true, other.clone()).await, (other, 1));
}

/// How often everything begins anew where the watch breaks after a list with version 50, and perhaps an event, and the cluster says that
/// it has this version now.
async fn restores_after_a_break(told: Option<u64>, now: u64) -> u64 {
    let watches = AtomicUsize::new(0);
    let event =
        |version| format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", config_map(version, "watched"));
    let told = told.map(event).unwrap_or_default();
    let is_asked = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&is_asked);
    let api = fake::answering(move |request| {
        if is_watch(request) {
            return match watches.fetch_add(1, Ordering::Relaxed) {
                0 => answer(200, &told),
                1 => answer(500, "broken"),
                _ => answer(200, ""),
            };
        }
        if request.uri().query() == Some("limit=1") {
            asked.fetch_add(1, Ordering::Relaxed);
            return list_of(now, "");
        }
        list_of(50, &config_map(50, "first"))
    });
    let restores = api.restores.clone();
    let store = Stores::new(api).open(&config_maps());
    store.synced().await;
    until(|| is_asked.load(Ordering::Relaxed) == 1).await;
    store.synced().await;
    until(|| store.trouble().is_none()).await;
    restores.count()
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_is_noticed_where_a_watch_broke() {
    // The API server would hold the watch until version 60, and say nothing of what is older.
    assert_eq!(restores_after_a_break(Some(60), 59).await, 1);
    assert_eq!(restores_after_a_break(Some(60), 60).await, 0);
    assert_eq!(restores_after_a_break(None, 49).await, 1);
    assert_eq!(restores_after_a_break(None, 50).await, 0);
}

fn large_map(version: u64) -> String {
    let data = "x".repeat(MAX_UNSEEN_BYTES);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"x","uid":"1","resourceVersion":"{version}"}},"data":{{"k":"{data}"}}}}"#
    )
}

/// Lists this object; gives the lists and the reads of the object so far.
fn listing(item: String) -> (ApiClient, Arc<(AtomicUsize, AtomicUsize)>) {
    let asked = Arc::new(<(AtomicUsize, AtomicUsize)>::default());
    let counted = Arc::clone(&asked);
    let api = fake::answering(move |request| {
        if is_watch(request) {
            return None;
        }
        if request.uri().path().ends_with("/x") {
            counted.1.fetch_add(1, Ordering::Relaxed);
            return answer(200, &item);
        }
        counted.0.fetch_add(1, Ordering::Relaxed);
        list_of(50, &item)
    });
    (api, asked)
}

#[tokio::test(start_paused = true)]
async fn a_store_of_children_has_large_objects_whole_once_they_are_read() {
    let (api, asked) = listing(large_map(50));
    let store = Stores::new(api).open_for_children(&config_maps());
    store.synced().await;
    let key = Key::new("n", "x");
    assert!(store.get(&key).is_none());
    let all = || store.candidates(&Uid::new("p"), "n", Some(&Selector::default()));
    let cut = all();
    assert!(cut.len() == 1 && cut[0].whole().is_none());
    store.read_whole(&cut[0]).await.unwrap();
    assert_eq!(store.get(&key).unwrap().json(), large_map(50));
    assert!(all()[0].whole().is_some());
    assert_eq!((asked.0.load(Ordering::Relaxed), asked.1.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_lists_anew_once_whole_objects_are_needed() {
    for (item, lists) in [(large_map(50), 2), (config_map(50, "small"), 1)] {
        let (api, asked) = listing(item.clone());
        let stores = Stores::new(api);
        let children = stores.open_for_children(&config_maps());
        children.synced().await;
        let changes = children.changes();
        let store = stores.open(&config_maps());
        assert!(Arc::ptr_eq(&store, &children));
        assert_eq!(store.is_synced(), lists == 1, "what is whole is listed once");
        store.synced().await;
        assert_eq!(store.get(&Key::new("n", "x")).unwrap().json(), item);
        assert_eq!(asked.0.load(Ordering::Relaxed), lists);
        assert_eq!(changes.try_next().is_some(), lists == 2);
        drop(stores.open_for_children(&config_maps()));
        assert!(store.is_synced());
    }
    let (api, asked) = listing(large_map(50));
    let store = Stores::new(api).open(&config_maps());
    store.synced().await;
    assert!(store.get(&Key::new("n", "x")).is_some() && asked.0.load(Ordering::Relaxed) == 1);
}

/// Whole objects may be asked for in the middle of a list.
#[tokio::test(start_paused = true)]
async fn a_list_that_began_before_whole_objects_were_needed_does_not_count() {
    let (api, asked) = listing(large_map(50));
    let stores = Stores::new(api);
    let children = stores.open_for_children(&config_maps());
    lock(&children.state).apply(CacheEvent::Listed(Object::parse(&large_map(49), None).unwrap()), None);
    let store = stores.open(&config_maps());
    assert!(!store.is_synced());
    store.synced().await;
    assert_eq!(store.get(&Key::new("n", "x")).unwrap().json(), large_map(50));
    assert!(asked.0.load(Ordering::Relaxed) <= 2);
}

/// Parents, children and related objects all come out of stores.
#[tokio::test(start_paused = true)]
async fn a_store_never_has_the_servers_own_objects() {
    let gvk = Gvk::new("v1", "Secret");
    let secrets = Resource { gvk, plural: "secrets".into(), namespaced: true, has_status: false };
    let secret = |name: &str, version: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"namespace":"n","name":"{name}","uid":"{name}","resourceVersion":"{version}"}}}}"#
        )
    };
    let listed = [secret("metahook-seed", "1"), secret("other", "2")].join(",");
    let list = format!(
        r#"{{"kind":"SecretList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{listed}]}}"#
    );
    let events = ["metahook-seed", "third"]
        .map(|name| format!(r#"{{"type":"MODIFIED","object":{}}}"#, secret(name, "10")));
    let events = events.join("\n") + "\n";
    let api = fake::answering(move |request| answer(200, if is_watch(request) { &events } else { &list }));
    let store = Stores::new(api).open(&Arc::new(secrets));
    let changes = store.changes();
    until(|| store.get(&Key::new("n", "third")).is_some()).await;
    let own = Object::parse(&secret("metahook-seed", "11"), None).unwrap();
    store.observe_write(vec![CacheEvent::Wrote(Arc::new(own))]);
    let names = |store: &Store| {
        store.view(|cache| cache.all().map(|object| object.key.name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(names(&store), ["other", "third"]);
    while let Some(change) = changes.try_next() {
        let WaitingChange::Of(change, _) = change else { panic!("few changes are remembered") };
        assert_ne!(change.key().map(|key| &*key.name), Some("metahook-seed"));
    }
}

/// Objects that an account may no longer list are not shown; its rules fail until it may.
#[tokio::test(start_paused = true)]
async fn a_store_of_an_account_is_not_listed_while_the_right_is_taken_away() {
    let granted = Arc::new(AtomicBool::new(true));
    let allowed = Arc::clone(&granted);
    let says = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"configmaps is forbidden: User \"a\" cannot list resource \"configmaps\""}"#;
    let broken = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"old"}}
"#;
    let ends = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&ends);
    let api = fake::answering(move |request| match (is_watch(request), allowed.load(Ordering::Relaxed)) {
        (_, false) => answer(403, says),
        (true, true) => answer(200, if ending.load(Ordering::Relaxed) { broken } else { "" }),
        (false, true) => list(),
    });
    for of_account in [true, false] {
        granted.store(true, Ordering::Relaxed);
        let account = ServiceAccountRef { namespace: "n".to_owned(), name: "a".to_owned() };
        let stores = Stores::new(api.clone());
        let stores = if of_account { stores.of_account(api.clone(), &account) } else { stores };
        ends.store(true, Ordering::Relaxed);
        let store = stores.open(&config_maps());
        store.synced().await;
        granted.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(store.is_synced(), !of_account);
        ends.store(false, Ordering::Relaxed);
        granted.store(true, Ordering::Relaxed);
        tokio::time::timeout(Duration::from_mins(1), store.synced()).await.unwrap();
    }
}
