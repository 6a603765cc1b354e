//! Caches of the cluster: one watch and one cache per resource, shared by all controllers.
//!
//! The answer to an own write enters the cache at once, by the same door as a watch event. It wakes every parent that it concerns
//! except the one whose reconcile wrote it, which comes again by itself. The event that repeats the answer is then old.
//! See <https://github.com/GoogleCloudPlatform/metacontroller/issues/201>.
//!
//! Most large objects of a cluster are nobody's children, and no hook is ever shown them. A store that is opened for children alone
//! holds them by their metadata. As soon as somebody needs whole objects of the kind, it lists them anew.
//!
//! All stores share a budget of bytes. A store that has to give way before its first list was complete drops what it holds, and
//! lists again later. One that was read by reconciles stays as it was, without a watch, until its last holder leaves: an emptied
//! one would look as if all objects were gone. The feed tells its holders, and the next one who opens the place gets a new store.

pub(crate) mod budget;
pub(crate) mod change_queue;
mod feed;
pub(crate) mod listeners;
mod own_writes;
mod stores;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use metahook_core::api::server_objects::ServerObjects;
use metahook_core::cache::watch_breaks::{BREAK_TIMEOUT, MAX_BREAKS};
use metahook_core::cache::{Cache, CacheEvent};
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Key, ObjectId, Resource, Uid};
use metahook_core::object::selector::Selector;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::api_client::ApiClient;
use crate::cluster::objects::RequestError;
use crate::cluster::restores::Restores;
use crate::sync::lock;
use budget::Account;
use change_queue::ChangeQueue;
use listeners::{ChangedKeys, Listener, ObjectChanges};
use own_writes::OwnWrites;
pub(crate) use own_writes::{Change, WriteGuard, Writer};
pub(crate) use stores::Stores;

/// The objects of one resource. Its watch ends with its last holder.
pub(crate) struct Store {
    pub(crate) resource: Arc<Resource>,
    namespace: Option<Arc<str>>,
    state: Mutex<State>,
    restores: Restores,
    api: ApiClient,
    lists: Lists,
    of_account: bool,
    /// The store gave way after its first list: it has no watch any more.
    ended: watch::Sender<bool>,
    /// Feeds it; set once.
    task: OnceLock<AbortOnDropHandle<()>>,
}

/// Lists of a store: the last one that was complete, and the next one where one is needed.
struct Lists {
    /// `None`: not everything has been listed yet.
    synced: watch::Sender<Option<Synced>>,
    /// Everything has to be listed anew.
    relist: Arc<Notify>,
    /// Since when the store waits for the list that makes it synced.
    opened: Mutex<Instant>,
}

/// A list that was complete: after so many restores of the cluster, and whether all objects were held whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Synced {
    restores: u64,
    whole: bool,
}

struct State {
    cache: Cache,
    account: Account,
    /// Everything there is was listed once, so that reconciles may have read it.
    was_listed: bool,
    /// Never in the cache, which is all that hooks are shown.
    hidden: ServerObjects,
    own_writes: OwnWrites,
    listeners: Vec<Weak<dyn Listener>>,
    trouble: Option<Trouble>,
}

/// The watch broke, so often in a row, without an event since.
struct Trouble {
    why: String,
    times: u32,
    last: Instant,
}

/// A first list that takes longer is told.
const SLOW_LIST: Duration = Duration::from_secs(10);

impl Store {
    /// To be called before one of the objects is written.
    pub(crate) fn writing(self: &Arc<Self>, key: &Key, by: &Writer) -> WriteGuard {
        lock(&self.state).own_writes.begin(key);
        WriteGuard { store: Arc::clone(self), key: key.clone(), by: by.clone() }
    }

    /// Takes in the answer to a write that no reconcile made.
    pub(crate) fn observe_write(&self, events: Vec<CacheEvent>) {
        let mut state = lock(&self.state);
        for event in events {
            state.apply(event, None);
        }
    }

    /// The keys of all objects there are now, and from then on of all that change.
    pub(crate) fn listen(&self) -> Arc<ChangedKeys> {
        let keys = Arc::new(ChangedKeys::default());
        let mut state = lock(&self.state);
        keys.extend(state.cache.all().map(|object| object.key.clone()));
        state.listeners.push(listener(&keys));
        keys
    }

    /// Every change from now on, as long as it is held.
    pub(crate) fn changes(&self) -> Arc<ObjectChanges> {
        let changes = Arc::new(ObjectChanges::default());
        lock(&self.state).listeners.push(listener(&changes));
        changes
    }

    /// Every change from now on by labels alone, as long as it is held, for a listener that may be slow.
    pub(crate) fn queued_changes(&self) -> Arc<ChangeQueue> {
        let queue = Arc::new(ChangeQueue::default());
        lock(&self.state).listeners.push(listener(&queue));
        queue
    }

    /// Whether everything there is has been listed once, and after a restore of the cluster once more.
    pub(crate) fn is_synced(&self) -> bool {
        let whole = self.keeps_whole();
        *self.lists.synced.borrow() >= Some(Synced { restores: self.restores.count(), whole })
    }

    /// Waits until the store is synced, or until it has given way.
    pub(crate) async fn synced(&self) {
        let whole = self.keeps_whole();
        let mut synced = self.lists.synced.subscribe();
        let is_enough =
            |synced: &Option<Synced>| *synced >= Some(Synced { restores: self.restores.count(), whole });
        let mut ended = self.ended();
        // An error means that the sender is gone, and it lives as long as we do.
        tokio::select! {
            is_synced = synced.wait_for(is_enough) => drop(is_synced),
            has_ended = ended.wait_for(|ended| *ended) => drop(has_ended),
        }
    }

    /// Becomes true when the store gives way after its first list; it is closed with the store.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the store gives way after its first list. Its holders leave it then: it is no longer fed.
    pub(crate) async fn gave_way(&self) {
        drop(self.ended().wait_for(|ended| *ended).await);
    }

    /// Why the store gave way, or why it cannot be filled: its objects are too large together.
    pub(crate) fn too_large(&self) -> Option<String> {
        let too_large = lock(&self.state).account.too_large()?;
        let kind = &self.resource.gvk;
        Some(match &self.namespace {
            Some(namespace) => format!("{kind} in the namespace {namespace}: {too_large}"),
            None => format!("{kind}: {too_large}"),
        })
    }

    fn keeps_whole(&self) -> bool {
        lock(&self.state).cache.keeps_whole()
    }

    /// From now on all objects are held whole. Until those that were not are listed anew, the store is not synced.
    fn keep_whole(&self) {
        let mut state = lock(&self.state);
        if state.cache.keeps_whole() {
            return;
        }
        state.cache.keep_whole();
        let is_whole = state.cache.all().all(|object| object.whole().is_some());
        drop(state);
        self.lists.synced.send_modify(|synced| match synced {
            Some(synced) if is_whole => synced.whole = true,
            _ => self.lists.relist.notify_one(),
        });
        *lock(&self.lists.opened) = Instant::now();
    }

    /// Reads a child that is not held whole. It is from then on, until it goes.
    pub(crate) async fn read_whole(&self, child: &CachedObject) -> Result<(), RequestError> {
        let (key, uid) = (child.key.clone(), child.uid.clone());
        let found =
            self.api.read(&ObjectId { resource: Arc::clone(&self.resource), key: key.clone() }).await?;
        let event = found.map_or(CacheEvent::Missing(key, uid), |now| CacheEvent::Read(Arc::new(now)));
        lock(&self.state).apply(event, None);
        Ok(())
    }

    /// Why the resource cannot be listed, or cannot be watched any more.
    pub(crate) fn trouble(&self) -> Option<String> {
        if let Some(too_large) = self.too_large() {
            return Some(too_large);
        }
        let (kind, is_synced) = (&self.resource.gvk, self.is_synced());
        match (&lock(&self.state).trouble, is_synced) {
            (Some(trouble), false) => Some(format!("{kind} cannot be listed: {}", trouble.why)),
            (None, false) if lock(&self.lists.opened).elapsed() >= SLOW_LIST => {
                Some(format!("{kind} cannot be listed: no list within {} s", SLOW_LIST.as_secs()))
            }
            (Some(Trouble { why, times: MAX_BREAKS.., last }), true) if last.elapsed() < BREAK_TIMEOUT => {
                Some(format!("{kind} cannot be watched: {why}"))
            }
            (Some(_) | None, _) => None,
        }
    }

    /// The object, whole or by its metadata.
    pub(crate) fn held(&self, key: &Key) -> Option<CachedObject> {
        lock(&self.state).cache.get(key).cloned()
    }

    /// The object, where it is held whole.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        lock(&self.state).cache.get(key)?.whole().cloned()
    }

    pub(crate) fn candidates(
        &self,
        parent: &Uid,
        namespace: &str,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        lock(&self.state).cache.candidates(parent, namespace, selector)
    }

    /// From now on objects are found by their labels without a walk over the others.
    pub(crate) fn label(&self) {
        lock(&self.state).cache.label();
    }

    /// The cluster was restored: its next list alone counts.
    fn begin_anew(&self) {
        let mut state = lock(&self.state);
        state.own_writes.forget_deletions();
        state.apply(CacheEvent::Restored, None);
        *lock(&self.lists.opened) = Instant::now();
    }

    /// Reads the whole cache under its lock: keep it short.
    pub(crate) fn view<T>(&self, read: impl FnOnce(&Cache) -> T) -> T {
        read(&lock(&self.state).cache)
    }
}

fn listener<T: Listener + 'static>(one: &Arc<T>) -> Weak<dyn Listener> {
    let one: Arc<dyn Listener> = Arc::<T>::clone(one);
    Arc::downgrade(&one)
}

impl Lists {
    fn new() -> Self {
        Self { synced: watch::Sender::new(None), relist: Arc::default(), opened: Mutex::new(Instant::now()) }
    }
}

impl State {
    fn new(cache: Cache, hidden: ServerObjects, account: Account) -> Self {
        let (own_writes, listeners) = (OwnWrites::default(), Vec::new());
        Self { cache, account, was_listed: false, hidden, own_writes, listeners, trouble: None }
    }

    fn broke(&mut self, why: String, resource: &Resource) {
        let times = self.trouble.as_ref().map_or(0, |before| before.times).saturating_add(1);
        // A user reads of it once, and not of what passes by itself.
        if times == MAX_BREAKS {
            tracing::warn!(resource = %resource.gvk, error = why, "a watch keeps breaking; it is tried until it works");
        }
        self.trouble = Some(Trouble { why, times, last: Instant::now() });
    }

    fn apply(&mut self, event: CacheEvent, by: Option<&Writer>) {
        if event.key().is_some_and(|key| self.hidden.has(key)) {
            return;
        }
        let changes = self.cache.apply(event);
        self.account.holds(self.cache.bytes());
        for object in changes {
            let change = match by {
                Some(by) => Some(Change { object, by: Some(by.clone()) }),
                None => self.own_writes.sort(object),
            };
            if let Some(change) = change {
                self.tell(&change);
            }
        }
    }

    fn tell(&mut self, change: &Change) {
        self.listeners
            .retain(|listener| listener.upgrade().map(|listener| listener.observe(change)).is_some());
    }
}
