use metahook_core::object::id::Gvk;

use super::*;

fn store() -> (Arc<Store>, mpsc::UnboundedReceiver<Change>) {
    let gvk = Gvk::new("v1", "ConfigMap");
    let resource = Resource { gvk, plural: "configmaps".into(), namespaced: true, has_status: false };
    let store = Store {
        resource: Arc::new(resource),
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
    Writer { controller: Uid::new("c"), parent: Key::new("n", "p") }
}

fn watched(store: &Store, event: Event) {
    lock(&store.state).apply(event, None);
}

/// Whether the next changes are our own, as far as they have been told.
fn told(changes: &mut mpsc::UnboundedReceiver<Change>) -> Vec<bool> {
    std::iter::from_fn(|| changes.try_recv().ok()).map(|change| change.by == Some(writer())).collect()
}

#[test]
fn an_event_that_comes_before_the_answer_to_its_write_is_our_own() {
    let (store, mut changes) = store();
    let key = Key::new("n", "a");
    let writing = store.writing(&key, &writer());
    watched(&store, Event::Applied(object("1", 5)));
    watched(&store, Event::Applied(object("1", 6)));
    assert!(told(&mut changes).is_empty(), "nobody knows yet whose it is");
    assert!(store.get(&key).is_some(), "but what is there can be seen");
    writing.answered(vec![Event::Wrote(object("1", 5).into())]);
    assert_eq!(told(&mut changes), [true, false], "the second one is somebody else's");
    watched(&store, Event::Applied(object("1", 7)));
    assert_eq!(told(&mut changes), [false], "nothing is held any more");
}

#[test]
fn what_came_while_a_write_failed_is_somebody_elses() {
    let (store, mut changes) = store();
    let (one, another) =
        (store.writing(&Key::new("n", "a"), &writer()), store.writing(&Key::new("n", "a"), &writer()));
    watched(&store, Event::Applied(object("1", 5)));
    drop(one);
    assert!(told(&mut changes).is_empty());
    drop(another);
    assert_eq!(told(&mut changes), [false]);
}

#[test]
fn the_end_of_an_object_that_we_deleted_is_our_own_whenever_it_comes() {
    let (store, mut changes) = store();
    let key = Key::new("n", "a");
    watched(&store, Event::Applied(object("1", 1)));
    store.writing(&key, &writer()).answered(vec![Event::Deleting(key.clone(), Uid::new("1"))]);
    watched(&store, Event::Deleted(object("1", 2)));
    assert_eq!(told(&mut changes), [false, true, true], "its beginning, its marking, its end");

    watched(&store, Event::Applied(object("2", 3)));
    let writing = store.writing(&key, &writer());
    watched(&store, Event::Deleted(object("2", 4)));
    writing.answered(vec![Event::Deleting(key.clone(), Uid::new("2"))]);
    assert_eq!(told(&mut changes), [false, true], "also before the answer");

    watched(&store, Event::Applied(object("3", 5)));
    watched(&store, Event::Deleted(object("3", 6)));
    assert_eq!(told(&mut changes), [false, false], "somebody else's deletion is none of ours");
}
