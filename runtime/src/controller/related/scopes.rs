//! The stores of related objects: opened by the first pass whose rules look there, closed a while after the last one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use metahook_core::object::id::{Gvr, Resource};
use metahook_core::related::rule::RelatedRule;
use metahook_core::related::scopes::{LINGER, Place};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::controller::reconcile::Reconciler;
use crate::controller::related::{RelatedError, RelatedObjects, State, Wait};
use crate::store::{Change, Store};

/// A store whose changes wake whom they concern, for as long as this is held: others may hold the store longer.
pub(crate) struct Followed {
    store: Arc<Store>,
    _task: AbortOnDropHandle<()>,
}

impl Followed {
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Reconciler {
    pub(crate) async fn namespaces(&self, at: usize) -> Result<Arc<Store>, RelatedError> {
        let known = self.relations.lock().namespaces.as_ref().map(|store| Arc::clone(store.resource()));
        let resource = if let Some(known) = known {
            known
        } else {
            let resource = self.tools.discovery.resolve(&Gvr::new("v1", "namespaces")).await;
            resource.map_err(|source| RelatedError::Kind { at, source })?
        };
        // Also where it is known: what is asked for is not closed.
        let store = self.open((resource, None));
        self.relations.lock().namespaces = Some(Arc::clone(&store));
        Ok(store)
    }

    pub(crate) fn store(&self, rule: &RelatedRule) -> Arc<Store> {
        let place = self.relations.lock().interests.place(rule);
        let store = self.open(place);
        if rule.asks_for_labels() {
            store.label();
        }
        store
    }

    /// The store of a resource, whose changes wake whom they concern.
    fn open(&self, place: Place) -> Arc<Store> {
        let mut state = self.relations.lock();
        if let Some(Followed { store, .. }) = state.places.get(&place) {
            return Arc::clone(store);
        }
        let (resource, namespace) = &place;
        let store = self.relations.stores.open_within(resource, namespace.as_ref());
        let relations = Arc::downgrade(&self.relations);
        // It ends with the place; the other one with the store's last holder, or with the controller.
        let follow = follow(Weak::clone(&relations), Arc::clone(resource), store.changes());
        let task = AbortOnDropHandle::new(tokio::spawn(self.tasks.watched(follow)));
        self.tasks.spawn(listed(relations, Arc::downgrade(&store)));
        state.places.open(place, Followed { store: Arc::clone(&store), _task: task });
        store
    }

    /// Closes places that no rule is about any longer, again and again.
    pub(crate) async fn close_places(&self) {
        let mut clock = tokio::time::interval(LINGER / 2);
        loop {
            clock.tick().await;
            self.relations.close_places();
        }
    }
}

impl RelatedObjects {
    fn close_places(&self) {
        let mut state = self.lock();
        let State { interests, places, namespaces, .. } = &mut *state;
        let selecting = namespaces.as_ref().filter(|_| interests.select_namespaces());
        let selecting = selecting.map(|store| (Arc::clone(store.resource()), None));
        let is_used = |place: &Place| interests.look_at(place) || selecting.as_ref() == Some(place);
        let closed = places.close(is_used, self.start.elapsed());
        if namespaces.as_ref().is_some_and(|store| closed.contains_key(&(Arc::clone(store.resource()), None)))
        {
            *namespaces = None;
        }
        // Stores have locks of their own.
        drop(state);
        for (resource, namespace) in closed.keys() {
            tracing::debug!(resource = %resource.gvk, namespace = namespace.as_deref(), "no rule is about these related objects any longer");
        }
    }
}

async fn follow(
    relations: Weak<RelatedObjects>,
    resource: Arc<Resource>,
    mut changes: mpsc::UnboundedReceiver<Change>,
) {
    while let Some(change) = changes.recv().await {
        let Some(relations) = relations.upgrade() else { return };
        relations.wake(&resource, &change);
    }
}

/// Wakes who waits for the first list of a store.
async fn listed(relations: Weak<RelatedObjects>, store: Weak<Store>) {
    // Held for moments only, so that a watch which never gets anywhere ends with its place.
    while let Some(held) = store.upgrade() {
        if tokio::time::timeout(Duration::from_secs(1), held.synced()).await.is_ok() {
            if let Some(relations) = relations.upgrade() {
                relations.over(&Wait::Listed(held.resource().gvr()));
            }
            return;
        }
    }
}

/// Waits a little for the first list of a store. Who finds it unfinished is woken by its end.
pub(crate) async fn filled(at: usize, store: &Store) -> Result<(), RelatedError> {
    const STEP: Duration = Duration::from_millis(100);
    const STEPS: u32 = 20;
    for _ in 0..STEPS {
        if tokio::time::timeout(STEP, store.synced()).await.is_ok() {
            return Ok(());
        }
        if let Some(trouble) = store.trouble() {
            return Err(RelatedError::NotListed { at, trouble });
        }
    }
    Err(RelatedError::NotSynced { at })
}
