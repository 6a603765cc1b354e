//! What waits for the listeners of a store, which may be slow: changes bounded by bytes, or keys, each at most once.

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

/// Every change, in order.
pub(crate) struct ObjectChanges {
    waiting: Mutex<WaitingChanges<Writer>>,
    added: Notify,
}

/// The objects that changed, each once however often it did.
#[derive(Default)]
pub(crate) struct ChangedKeys {
    waiting: Mutex<WaitingKeys>,
    added: Notify,
}

#[derive(Default)]
struct WaitingKeys {
    order: VecDeque<Key>,
    all: BTreeSet<Key>,
}

impl Default for ObjectChanges {
    fn default() -> Self {
        Self { waiting: Mutex::new(WaitingChanges::new(MAX_BYTES)), added: Notify::new() }
    }
}

impl Listener for ObjectChanges {
    fn observe(&self, change: &Change) {
        lock(&self.waiting).push(change.object.clone(), change.by.clone());
        self.added.notify_one();
    }
}

impl Listener for ChangedKeys {
    fn observe(&self, change: &Change) {
        self.extend(change.object.key().cloned());
    }
}

impl ObjectChanges {
    /// For one listener.
    pub(crate) async fn next(&self) -> WaitingChange<Writer> {
        // There may always be a next one.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.try_next() {
                Some(next) => return next,
                None => self.added.notified().await,
            }
        }
    }

    /// Bytes of what waits.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        lock(&self.waiting).bytes()
    }

    pub(super) fn try_next(&self) -> Option<WaitingChange<Writer>> {
        lock(&self.waiting).pop()
    }
}

impl ChangedKeys {
    pub(super) fn extend(&self, keys: impl IntoIterator<Item = Key>) {
        let mut waiting = lock(&self.waiting);
        for key in keys {
            if waiting.all.insert(key.clone()) {
                waiting.order.push_back(key);
            }
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// For one listener.
    pub(crate) async fn next(&self) -> Key {
        tokio::task::coop::consume_budget().await;
        loop {
            match self.try_next() {
                Some(key) => return key,
                None => self.added.notified().await,
            }
        }
    }

    fn try_next(&self) -> Option<Key> {
        let mut waiting = lock(&self.waiting);
        let key = waiting.order.pop_front()?;
        waiting.all.remove(&key);
        Some(key)
    }
}
