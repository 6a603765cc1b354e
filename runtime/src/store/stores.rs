//! Stores in use, by resource and namespace: who opens one shares it with the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::cache::Cache;
use metahook_core::object::cached::MAX_UNSEEN_BYTES;
use metahook_core::object::id::{Gvr, Resource};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::budget::{CacheBudget, HeldPlace};
use super::feed::Fed;
use super::{Lists, State, Store};
use crate::cluster::api_client::ApiClient;
use crate::sync::lock;

/// All stores in use.
pub(crate) struct Stores {
    api: ApiClient,
    /// The account of a controller, with whose rights they are read.
    account: Option<Arc<str>>,
    budget: CacheBudget,
    open: Mutex<BTreeMap<StoreKey, Weak<Store>>>,
}

/// A resource, in one namespace or in all.
type StoreKey = (Gvr, Option<Arc<str>>);

impl Stores {
    /// Stores without a bound.
    #[cfg(test)]
    pub(crate) fn new(api: ApiClient) -> Self {
        Self::within(api, CacheBudget::new(None))
    }

    /// Stores that together with others hold as many bytes as the budget has.
    pub(crate) fn within(api: ApiClient, budget: CacheBudget) -> Self {
        Self { api, account: None, budget, open: Mutex::default() }
    }

    /// Stores where `api` acts as an account: objects that it may no longer list are shown no longer. They share the
    /// budget of these stores.
    pub(crate) fn of_account(&self, api: ApiClient, account: &ServiceAccountRef) -> Self {
        let account = format!("{}/{}", account.namespace, account.name);
        Self { account: Some(account.into()), ..Self::within(api, self.budget.clone()) }
    }

    /// The budget of these stores and all others of the server.
    pub(crate) fn budget(&self) -> &CacheBudget {
        &self.budget
    }

    /// The store of a resource; the first call starts its watch.
    pub(crate) fn open(&self, resource: &Arc<Resource>) -> Arc<Store> {
        self.open_within(resource, None)
    }

    /// The store of one namespace alone, where the right to see the others may be missing.
    pub(crate) fn open_within(&self, resource: &Arc<Resource>, namespace: Option<&Arc<str>>) -> Arc<Store> {
        let store = self.open_with(resource, namespace, Cache::default(), false);
        store.keep_whole();
        store
    }

    /// The store of a resource without which the server does nothing: it never gives way.
    pub(crate) fn open_to_stay(&self, resource: &Arc<Resource>) -> Arc<Store> {
        self.open_with(resource, None, Cache::default(), true)
    }

    /// The store of a resource for a holder that looks for children alone: large objects that are no controller's may
    /// be held by their metadata.
    pub(crate) fn open_for_children(&self, resource: &Arc<Resource>) -> Arc<Store> {
        self.open_with(resource, None, Cache::cutting(MAX_UNSEEN_BYTES), false)
    }

    /// `cache`: what a new store begins with. `must_stay`: a new store never gives way.
    fn open_with(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&Arc<str>>,
        cache: Cache,
        must_stay: bool,
    ) -> Arc<Store> {
        let place = (resource.gvr(), namespace.cloned());
        let mut open = lock(&self.open);
        open.retain(|_, store| store.strong_count() > 0);
        let existing = open.get(&place).and_then(Weak::upgrade);
        // A kind that was taken away and came back with another scope is another resource.
        if let Some(store) = existing.filter(|store| store.resource == *resource && !store.has_ended()) {
            return store;
        }
        let (account, namespace) = (self.account.clone(), namespace.cloned());
        let held = HeldPlace { resource: Arc::clone(resource), namespace: namespace.clone(), account };
        let account = self.budget.open(held, must_stay);
        let gives_way = account.gives_way();
        let store = Arc::new(Store {
            resource: Arc::clone(resource),
            namespace: namespace.clone(),
            state: Mutex::new(State::new(cache, self.api.server_objects(resource), account)),
            restores: self.api.restores.clone(),
            api: self.api.clone(),
            lists: Lists::new(),
            of_account: self.account.is_some(),
            ended: watch::Sender::new(false),
            task: OnceLock::new(),
        });
        let fed = Fed { resource: Arc::clone(resource), namespace, api: self.api.clone() };
        let task =
            tokio::spawn(fed.follow(Arc::downgrade(&store), Arc::clone(&store.lists.relist), gives_way));
        store.task.get_or_init(|| AbortOnDropHandle::new(task));
        open.insert(place, Arc::downgrade(&store));
        store
    }
}
