//! Own writes: those under way, and deletions whose end has not been seen yet.
//!
//! A watch event may come before the answer to the write that caused it. So an event of an object that is being written waits for
//! that answer, which says whose change it is. The end of an object that a reconcile deleted counts as that reconcile's change.

use std::collections::BTreeMap;
use std::sync::Arc;

use metahook_core::cache::{CacheEvent, ObjectChange};
use metahook_core::object::id::{Key, Resource, Uid};

use crate::store::Store;
use crate::sync::lock;

/// Deletions that are remembered; the end of one that is forgotten counts as another client's.
const MAX_DELETIONS: usize = 4096;

/// An object changed, and whose write it was if it was one of ours.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) object: ObjectChange,
    pub(crate) by: Option<Writer>,
}

/// The reconcile that wrote: which hosted controller, for which parent of which kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) controller: Uid,
    pub(crate) parents: Arc<Resource>,
    pub(crate) parent: Key,
}

/// A write of one of the objects, until its answer has come or will not.
pub(crate) struct WriteGuard {
    pub(super) store: Arc<Store>,
    pub(super) key: Key,
    pub(super) by: Writer,
}

impl WriteGuard {
    /// Takes the answer in.
    pub(crate) fn answered(self, events: Vec<CacheEvent>) {
        let mut state = lock(&self.store.state);
        for event in events {
            state.own_writes.learn(&self.key, &event, &self.by);
            state.apply(event, Some(&self.by));
        }
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.store.state);
        for change in state.own_writes.end(&self.key) {
            state.tell(&change);
        }
    }
}

/// The writes under way and the changes that wait for their answers, and the deletions whose end has not been seen.
#[derive(Default)]
pub(super) struct OwnWrites {
    under_way: BTreeMap<Key, UnderWay>,
    deleted: BTreeMap<Uid, Writer>,
}

#[derive(Default)]
struct UnderWay {
    writes: usize,
    waiting: Vec<Change>,
}

impl OwnWrites {
    /// The cluster was restored: what was deleted may be there again, and go by another's hand.
    pub(super) fn forget_deletions(&mut self) {
        self.deleted.clear();
    }

    pub(super) fn begin(&mut self, key: &Key) {
        self.under_way.entry(key.clone()).or_default().writes += 1;
    }

    /// A change from the watch: the change, with its writer where that is known, unless it has to wait.
    pub(super) fn sort(&mut self, object: ObjectChange) -> Option<Change> {
        let by = gone(&object).and_then(|uid| self.deleted.remove(uid));
        let change = Change { object, by };
        let under_way = change.object.key().and_then(|key| self.under_way.get_mut(key));
        match under_way {
            Some(under_way) if change.by.is_none() => {
                under_way.waiting.push(change);
                None
            }
            _ => Some(change),
        }
    }

    /// Marks the changes that waited for this answer.
    pub(super) fn learn(&mut self, key: &Key, answer: &CacheEvent, by: &Writer) {
        let mut waiting = self.under_way.get_mut(key).into_iter().flat_map(|one| &mut one.waiting);
        match answer {
            CacheEvent::Wrote(object) => {
                let same = |change: &&mut Change| {
                    let after = change.object.after.as_ref();
                    after.is_some_and(|seen| seen.uid == object.uid && seen.version == object.version)
                };
                waiting.filter(same).for_each(|change| change.by = Some(by.clone()));
            }
            CacheEvent::Deleting(_, uid) => match waiting.find(|change| gone(&change.object) == Some(uid)) {
                Some(change) => change.by = Some(by.clone()),
                None => self.remember(uid, by),
            },
            CacheEvent::ListBegins
            | CacheEvent::Listed(_)
            | CacheEvent::ListEnds
            | CacheEvent::Applied(_)
            | CacheEvent::Read(_)
            | CacheEvent::Deleted(_)
            | CacheEvent::Missing(..)
            | CacheEvent::Restored => {}
        }
    }

    /// A write has ended, with or without success. The last one releases the changes that waited.
    pub(super) fn end(&mut self, key: &Key) -> Vec<Change> {
        let Some(under_way) = self.under_way.get_mut(key) else { return Vec::new() };
        under_way.writes = under_way.writes.saturating_sub(1);
        if under_way.writes > 0 {
            return Vec::new();
        }
        self.under_way.remove(key).map(|ended| ended.waiting).unwrap_or_default()
    }

    fn remember(&mut self, uid: &Uid, by: &Writer) {
        if self.deleted.len() >= MAX_DELETIONS {
            self.deleted.pop_first();
        }
        self.deleted.insert(uid.clone(), by.clone());
    }
}

/// Which object is no longer there.
fn gone(change: &ObjectChange) -> Option<&Uid> {
    change.before.as_ref().filter(|_| change.after.is_none()).map(|before| &before.uid)
}

#[cfg(test)]
mod tests {
    use metahook_core::cache::waiting_changes::WaitingChange;
    use metahook_core::object::Object;

    use super::*;
    use crate::store::Stores;
    use crate::store::listeners::ObjectChanges;
    use crate::store::tests::config_maps;

    fn store() -> (Arc<Store>, Arc<ObjectChanges>) {
        // Its watch never answers.
        let store = Stores::new(crate::cluster::fake::answering(|_| None)).open(&config_maps());
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
        let (controller, parent) = (Uid::new("c"), Key::new("n", "p"));
        Writer { controller, parents: config_maps(), parent }
    }

    fn watched(store: &Store, event: CacheEvent) {
        lock(&store.state).apply(event, None);
    }

    /// Whether the next changes are our own, as far as listeners were sent them.
    fn sent(changes: &ObjectChanges) -> Vec<bool> {
        let by = |change| match change {
            WaitingChange::Of(_, by) => by == Some(writer()),
            WaitingChange::Forgotten(..) => panic!("few changes are remembered"),
        };
        std::iter::from_fn(|| changes.try_next()).map(by).collect()
    }

    #[tokio::test]
    async fn an_event_that_comes_before_the_answer_to_its_write_is_our_own() {
        let (store, changes) = store();
        let key = Key::new("n", "a");
        let writing = store.writing(&key, &writer());
        watched(&store, CacheEvent::Applied(object("1", 5)));
        watched(&store, CacheEvent::Applied(object("1", 6)));
        assert!(sent(&changes).is_empty(), "its writer is unknown yet");
        assert!(store.get(&key).is_some(), "but what is there can be seen");
        writing.answered(vec![CacheEvent::Wrote(object("1", 5).into())]);
        assert_eq!(sent(&changes), [true, false], "the second one is another client's");
        watched(&store, CacheEvent::Applied(object("1", 7)));
        assert_eq!(sent(&changes), [false], "nothing is held any more");
    }

    #[tokio::test]
    async fn what_came_while_a_write_failed_is_another_clients() {
        let (store, changes) = store();
        let (one, another) =
            (store.writing(&Key::new("n", "a"), &writer()), store.writing(&Key::new("n", "a"), &writer()));
        watched(&store, CacheEvent::Applied(object("1", 5)));
        drop(one);
        assert!(sent(&changes).is_empty());
        drop(another);
        assert_eq!(sent(&changes), [false]);
    }

    #[tokio::test]
    async fn the_end_of_an_object_that_we_deleted_is_our_own_whenever_it_comes() {
        let (store, changes) = store();
        let key = Key::new("n", "a");
        watched(&store, CacheEvent::Applied(object("1", 1)));
        store.writing(&key, &writer()).answered(vec![CacheEvent::Deleting(key.clone(), Uid::new("1"))]);
        watched(&store, CacheEvent::Deleted(object("1", 2)));
        assert_eq!(sent(&changes), [false, true, true], "its beginning, its marking, its end");

        watched(&store, CacheEvent::Applied(object("2", 3)));
        let writing = store.writing(&key, &writer());
        watched(&store, CacheEvent::Deleted(object("2", 4)));
        writing.answered(vec![CacheEvent::Deleting(key.clone(), Uid::new("2"))]);
        assert_eq!(sent(&changes), [false, true], "also before the answer");

        watched(&store, CacheEvent::Applied(object("3", 5)));
        watched(&store, CacheEvent::Deleted(object("3", 6)));
        assert_eq!(sent(&changes), [false, false], "another client's deletion is none of ours");
    }
}
