//! Stores of related objects: opened by the first rule that needs them, closed a while after the last one.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use metahook_core::object::id::Gvr;
use metahook_core::related::related_index::{CLOSE_DELAY, StoreScope};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::controller::related::changes::follow;
use crate::controller::related::{RelatedError, RelatedObjects, State, Wait};
use crate::store::Store;

/// A store whose changes trigger parents as long as this is held; the store itself may live longer.
pub(crate) struct Followed {
    pub(super) store: Arc<Store>,
    _task: AbortOnDropHandle<()>,
}

impl RelatedObjects {
    pub(super) async fn namespaces(self: &Arc<Self>, at: usize) -> Result<Arc<Store>, RelatedError> {
        let known = self.lock().namespaces.as_ref().map(|store| Arc::clone(&store.resource));
        let resource = match known {
            Some(known) => Ok(known),
            None => self.discovery.resolve(&Gvr::new("v1", "namespaces")).await,
        };
        let resource = resource.map_err(|source| RelatedError::Kind { at, source })?;
        // Also where it is known: a store that is opened again stays open.
        let store = self.open(at, (resource, None))?;
        self.lock().namespaces = Some(Arc::clone(&store));
        Ok(store)
    }

    /// The store of a resource, with changes that trigger parents; `at` is the place of the rule that needs it.
    pub(super) fn open(self: &Arc<Self>, at: usize, place: StoreScope) -> Result<Arc<Store>, RelatedError> {
        let mut state = self.lock();
        if let Some(Followed { store, .. }) = state.scopes.get(&place) {
            return Ok(Arc::clone(store));
        }
        let (resource, namespace) = &place;
        if state.scopes.all().count() >= self.bounds.watches {
            let (kind, max) = (resource.gvk.clone(), self.bounds.watches);
            return Err(RelatedError::Watches { at, kind, max });
        }
        let store = self.stores.open_within(resource, namespace.as_ref());
        let related = Arc::downgrade(self);
        // This task ends with the scope; the other one with the store's last holder, or with the controller.
        let follow = follow(Weak::clone(&related), Arc::clone(resource), store.queued_changes());
        let task = AbortOnDropHandle::new(tokio::spawn(self.tasks.watched(follow)));
        self.tasks.spawn(listed(Weak::clone(&related), Arc::downgrade(&store)));
        self.tasks.spawn(gave_way(related, store.ended()));
        state.scopes.open(place, Followed { store: Arc::clone(&store), _task: task });
        Ok(store)
    }

    /// Closes unused stores, again and again.
    pub(crate) async fn close_scopes(&self) {
        let mut clock = tokio::time::interval(CLOSE_DELAY / 2);
        loop {
            clock.tick().await;
            self.close_unused();
        }
    }

    fn close_unused(&self) {
        let mut state = self.lock();
        let State { index, scopes, namespaces, .. } = &mut *state;
        let selecting = namespaces.as_ref().filter(|_| index.select_namespaces());
        let selecting = selecting.map(|store| (Arc::clone(&store.resource), None));
        let is_used = |place: &StoreScope| index.has_rules_for(place) || selecting.as_ref() == Some(place);
        let closed = scopes.close(is_used, self.data.elapsed());
        if namespaces.as_ref().is_some_and(|store| closed.contains_key(&(Arc::clone(&store.resource), None)))
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

impl RelatedObjects {
    /// Closes stores whose kind is no longer served. The parents with rules about it say so.
    pub(super) async fn close_unserved(&self) {
        let resources: BTreeSet<_> = {
            let state = self.lock();
            let troubled = state.scopes.all().filter(|followed| followed.store.trouble().is_some());
            troubled.map(|followed| Arc::clone(&followed.store.resource)).collect()
        };
        for resource in resources {
            let served = self.discovery.resolve(&resource.gvr()).await;
            if !served.is_err_and(|error| error.is_not_served()) {
                continue;
            }
            let (closed, parents) = {
                let mut state = self.lock();
                let closed = state.scopes.take(|followed| followed.store.resource == resource);
                (closed, state.index.parents_of(&resource))
            };
            drop(closed);
            for parent in parents {
                self.queue.add_after(parent, Duration::ZERO);
            }
        }
    }
}

impl RelatedObjects {
    /// Closes stores that gave way. The parents with rules about their kinds say so, and open new ones.
    fn close_ended(&self) {
        let (closed, parents) = {
            let mut state = self.lock();
            let State { index, scopes, namespaces, .. } = &mut *state;
            let closed = scopes.take(|followed| followed.store.has_ended());
            let selecting = namespaces.take_if(|store| store.has_ended());
            let mut parents: BTreeSet<_> =
                closed.iter().flat_map(|followed| index.parents_of(&followed.store.resource)).collect();
            if selecting.is_some() {
                parents.extend(index.selecting_parents());
            }
            // Stores have locks of their own.
            ((closed, selecting), parents)
        };
        drop(closed);
        for parent in parents {
            self.queue.add_after(parent, Duration::ZERO);
        }
    }
}

/// Closes a store when it gives way.
async fn gave_way(related: Weak<RelatedObjects>, mut ended: watch::Receiver<bool>) {
    // The sender is gone, and the wait fails, once nobody holds the store any more.
    let has_ended = ended.wait_for(|ended| *ended).await.is_ok();
    if let Some(related) = related.upgrade().filter(|_| has_ended) {
        related.close_ended();
    }
}

/// Adds the parents that wait for the first list of a store to the queue.
async fn listed(related: Weak<RelatedObjects>, store: Weak<Store>) {
    // Held for moments only, so that a watch that never succeeds ends with its scope.
    while let Some(held) = store.upgrade() {
        if tokio::time::timeout(Duration::from_secs(1), held.synced()).await.is_ok() {
            if let Some(related) = related.upgrade() {
                related.end_wait(&Wait::Listed(held.resource.gvr()));
            }
            return;
        }
    }
}

/// Waits a little for the first list of a store. Parents that do not see its end are queued at its end.
pub(super) async fn filled(at: usize, store: &Store) -> Result<(), RelatedError> {
    const CHECK_INTERVAL: Duration = Duration::from_millis(100);
    const MAX_CHECKS: u32 = 20;
    for _ in 0..MAX_CHECKS {
        if tokio::time::timeout(CHECK_INTERVAL, store.synced()).await.is_ok() {
            return Ok(());
        }
        if let Some(trouble) = store.trouble() {
            return Err(RelatedError::NotListed { at, trouble });
        }
    }
    Err(RelatedError::NotSynced { at })
}

#[cfg(test)]
mod tests {
    use http::Response;
    use metahook_core::object::id::Key;
    use metahook_core::object::selector::Selector;
    use metahook_core::related::rule::{Finds, RelatedRule, RuleScope};

    use super::*;
    use crate::cluster::fake;
    use crate::controller::reconcile::testing;

    /// The stores that are open once a kind cannot be listed, and the parents that are told.
    async fn closed(is_served: bool) -> (usize, Option<Key>) {
        let api = fake::answering(move |request| {
            let kinds = r#"{"resources":[{"name":"widgets","kind":"Widget","namespaced":true}]}"#;
            let found = is_served && request.uri().path() == "/apis/example.com/v1";
            let status = if found { 200 } else { 404 };
            Response::builder().status(status).body(if found { kinds } else { "{}" }.to_owned()).ok()
        });
        let (related, parent) = (testing::related(api), Key::new("n", "x"));
        let resource = testing::resource("example.com/v1", "Widget");
        let finds = Finds::Labels { place: RuleScope::Anywhere, labels: Selector::default() };
        let rule = RelatedRule { resource: Arc::clone(&resource), finds };
        related.lock().index.set(&parent, vec![rule]).unwrap();
        let store = related.open(0, (resource, None)).unwrap();
        while store.trouble().is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        related.close_unserved().await;
        let next = tokio::time::timeout(Duration::from_secs(1), related.queue.next()).await;
        let open = related.lock().scopes.all().count();
        (open, next.ok().flatten().map(|(key, _)| key))
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_ends_with_its_kind_and_the_parents_with_rules_about_it_are_told() {
        assert_eq!(closed(true).await, (1, None), "what is served may be listed later");
        assert_eq!(closed(false).await, (0, Some(Key::new("n", "x"))));
    }
}
