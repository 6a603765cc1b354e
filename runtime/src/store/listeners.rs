//! Queues of a store's listeners, which may be slow: changes bounded by bytes, or keys, each at most once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;

use metahook_core::cache::waiting_changes::{WaitingChange, WaitingChanges};
use metahook_core::object::id::Key;
use tokio::sync::Notify;

use crate::store::{Change, Writer};
use crate::sync::lock;

/// Bytes of the versions that wait in one queue and that the cache no longer has: as many as some ten of the largest objects.
const MAX_BYTES: usize = 16 << 20;

/// Takes no other lock, as its store is locked.
pub(super) trait Listener: Send + Sync {
    fn observe(&self, change: &Change);
}

/// A queue for one listener.
#[derive(Default)]
pub(super) struct ListenerQueue<Q> {
    queue: Mutex<Q>,
    added: Notify,
}

/// Every change, in order.
pub(crate) struct ObjectChanges(ListenerQueue<WaitingChanges<Writer>>);

/// The objects that changed, each once however often it did.
#[derive(Default)]
pub(crate) struct ChangedKeys(ListenerQueue<WaitingKeys>);

#[derive(Default)]
struct WaitingKeys {
    order: VecDeque<Key>,
    all: BTreeSet<Key>,
}

impl<Q> ListenerQueue<Q> {
    pub(super) fn new(queue: Q) -> Self {
        Self { queue: Mutex::new(queue), added: Notify::new() }
    }

    pub(super) fn add(&self, add: impl FnOnce(&mut Q)) {
        add(&mut lock(&self.queue));
        self.added.notify_one();
    }

    pub(super) fn view<T>(&self, read: impl FnOnce(&mut Q) -> T) -> T {
        read(&mut lock(&self.queue))
    }

    /// Waits for the next one that `pop` takes.
    pub(super) async fn next<T>(&self, pop: impl Fn(&mut Q) -> Option<T>) -> T {
        // There may always be a next one.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.view(&pop) {
                Some(next) => return next,
                None => self.added.notified().await,
            }
        }
    }
}

impl Default for ObjectChanges {
    fn default() -> Self {
        Self(ListenerQueue::new(WaitingChanges::new(MAX_BYTES)))
    }
}

impl Listener for ObjectChanges {
    fn observe(&self, change: &Change) {
        self.0.add(|waiting| waiting.push(change.object.clone(), change.by.clone()));
    }
}

impl Listener for ChangedKeys {
    fn observe(&self, change: &Change) {
        self.extend(change.object.key().cloned());
    }
}

impl ObjectChanges {
    pub(crate) async fn next(&self) -> WaitingChange<Writer> {
        self.0.next(WaitingChanges::pop).await
    }

    /// Bytes of what waits.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.0.view(|waiting| waiting.bytes())
    }

    #[cfg(test)]
    pub(super) fn try_next(&self) -> Option<WaitingChange<Writer>> {
        self.0.view(WaitingChanges::pop)
    }
}

impl ChangedKeys {
    pub(super) fn extend(&self, keys: impl IntoIterator<Item = Key>) {
        self.0.add(|waiting| {
            for key in keys {
                if waiting.all.insert(key.clone()) {
                    waiting.order.push_back(key);
                }
            }
        });
    }

    pub(crate) async fn next(&self) -> Key {
        self.0.next(WaitingKeys::pop).await
    }
}

impl WaitingKeys {
    fn pop(&mut self) -> Option<Key> {
        let key = self.order.pop_front()?;
        self.all.remove(&key);
        Some(key)
    }
}
