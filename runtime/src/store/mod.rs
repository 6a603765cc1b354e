//! What is known of the cluster: one watch and one index per resource, shared by all who look at it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::StreamExt;
use metahook_core::index::{Event, Index, Touched};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, ObjectId, Resource, Uid};
use metahook_core::object::selector::Selector;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::cluster::rest::Rest;
use crate::cluster::watch::{Scope, watch as watch_resource};
use crate::told::told;

/// All stores that somebody uses at the moment.
pub(crate) struct Stores {
    rest: Rest,
    open: Mutex<BTreeMap<Place, Weak<Store>>>,
}

/// A resource, in one namespace or in all.
type Place = (Gvr, Option<Arc<str>>);

/// The objects of one resource. Its watch ends with the last one who holds it.
pub(crate) struct Store {
    resource: Arc<Resource>,
    state: Mutex<State>,
    synced: watch::Sender<bool>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct State {
    index: Index,
    listeners: Vec<mpsc::UnboundedSender<Change>>,
    /// Why nothing could be listed so far.
    trouble: Option<String>,
}

/// An object changed, and whose write it was if it was one of ours.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) touched: Touched,
    pub(crate) by: Option<Writer>,
}

/// The pass that wrote: which hosted controller, for which parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) controller: Uid,
    pub(crate) parent: Key,
}

impl Stores {
    pub(crate) fn new(rest: Rest) -> Self {
        Self { rest, open: Mutex::default() }
    }

    /// The store of a resource; its watch is started by the first who asks.
    pub(crate) fn open(&self, resource: &Arc<Resource>) -> Arc<Store> {
        self.open_within(resource, None)
    }

    /// The same for one namespace alone, where the right to see the others may be missing.
    pub(crate) fn open_within(&self, resource: &Arc<Resource>, namespace: Option<&Arc<str>>) -> Arc<Store> {
        let place = (resource.gvr(), namespace.cloned());
        let mut open = lock(&self.open);
        open.retain(|_, store| store.strong_count() > 0);
        let existing = open.get(&place).and_then(Weak::upgrade);
        // A kind that was taken away and came back with another scope is another resource.
        if let Some(store) = existing.filter(|store| store.resource == *resource) {
            return store;
        }
        let store = Arc::new(Store {
            resource: Arc::clone(resource),
            state: Mutex::default(),
            synced: watch::Sender::new(false),
            task: Mutex::default(),
        });
        let scope = namespace.map_or(Scope::All, |namespace| Scope::Within(namespace.to_string()));
        let of = (Arc::clone(resource), scope);
        let task = tokio::spawn(follow(Arc::downgrade(&store), of, self.rest.clone()));
        *lock(&store.task) = Some(task.abort_handle());
        open.insert(place, Arc::downgrade(&store));
        store
    }
}

impl Store {
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Takes in what an answer to our own write says.
    pub(crate) fn absorb(&self, events: Vec<Event>, by: Option<&Writer>) {
        let mut state = lock(&self.state);
        for event in events {
            state.apply(event, by);
        }
    }

    /// Everything there is now, as if it had just appeared, and from then on every change.
    ///
    /// Unbounded, because what comes out of it are keys of a queue that holds each at most once.
    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = lock(&self.state);
        for object in state.index.all() {
            let touched = Touched { before: None, after: Some(Arc::clone(object)) };
            // The receiver is still in our hands: this cannot fail.
            sender.send(Change { touched, by: None }).unwrap_or_default();
        }
        state.listeners.push(sender);
        receiver
    }

    /// Every change from now on; unbounded as above.
    pub(crate) fn changes(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.state).listeners.push(sender);
        receiver
    }

    /// Whether everything there is has been listed once.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(crate) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        // An error means that the sender is gone, and it lives as long as we do.
        drop(synced.wait_for(|synced| *synced).await);
    }

    /// Why the resource cannot be listed, as long as it never could.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.state).trouble.clone()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        lock(&self.state).index.get(key).cloned()
    }

    pub(crate) fn candidates(
        &self,
        parent: &Uid,
        namespace: &str,
        selector: Option<&Selector>,
    ) -> Vec<Arc<Object>> {
        lock(&self.state).index.candidates(parent, namespace, selector)
    }

    /// A look at the whole index; short, because everybody else waits meanwhile.
    pub(crate) fn view<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&lock(&self.state).index)
    }
}

impl State {
    fn apply(&mut self, event: Event, by: Option<&Writer>) {
        for touched in self.index.apply(event) {
            let change = Change { touched, by: by.cloned() };
            self.listeners.retain(|listener| listener.send(change.clone()).is_ok());
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// Feeds a store from its watch for as long as somebody holds it.
async fn follow(store: Weak<Store>, (resource, scope): (Arc<Resource>, Scope), rest: Rest) {
    let mut events = std::pin::pin!(watch_resource(rest.client(), &resource, &scope));
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let Some(store) = store.upgrade() else { return };
                tracing::warn!(resource = %resource.gvk, error = told(&error), "a watch broke; it is taken up again");
                if !*store.synced.borrow() {
                    lock(&store.state).trouble =
                        Some(format!("{} cannot be listed: {}", resource.gvk, told(&error)));
                }
                continue;
            }
        };
        let complete = matches!(event, Event::ListEnds);
        let doubtful = {
            let Some(store) = store.upgrade() else { return };
            let mut state = lock(&store.state);
            state.apply(event, None);
            if complete { state.index.doubtful() } else { Vec::new() }
        };
        look_again(&store, &resource, &rest, doubtful).await;
        if complete && let Some(store) = store.upgrade() {
            store.synced.send_replace(true);
        }
    }
}

/// Reads the objects that only our own writes told of and that a complete list did not name.
async fn look_again(store: &Weak<Store>, resource: &Arc<Resource>, rest: &Rest, doubtful: Vec<Arc<Object>>) {
    for object in doubtful {
        let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
        let found = rest.read(&id).await;
        let Some(store) = store.upgrade() else { return };
        let mut state = lock(&store.state);
        match found {
            Ok(Some(now)) if now.uid == object.uid => state.apply(Event::Applied(now), None),
            Ok(_) => state.apply(Event::Missing(object.key.clone(), object.uid.clone()), None),
            Err(error) => tracing::debug!(error = told(&error), "a doubtful object could not be read"),
        }
    }
}

/// A panic while the lock was held is a failed pass; the values inside are whole after each event.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
