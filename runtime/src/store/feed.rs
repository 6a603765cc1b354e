//! Feed of a store: its watch, as long as the store may hold the objects that it shows.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use metahook_core::api::units::print_bytes;
use metahook_core::cache::CacheEvent;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{ObjectId, Resource};
use tokio::sync::{Notify, watch};

use crate::cluster::api_client::ApiClient;
use crate::cluster::restores::Growing;
use crate::cluster::rights::WatchFailure;
use crate::cluster::watch::watch as watch_resource;
use crate::store::{Store, Synced};
use crate::sync::lock;
use crate::telemetry::error_chain;

/// A panic in a store's task is followed by a pause, so that a bug heats nothing.
const PANIC_DELAY: Duration = Duration::from_secs(1);

/// A store that gave way asks as often whether it may be listed again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A watch that broke waits no longer for the version of the cluster.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Place and client that a store is fed from.
pub(super) struct Fed {
    pub(super) resource: Arc<Resource>,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) api: ApiClient,
}

impl Fed {
    /// Feeds a store from its watch as long as it has a holder, also after a panic, until it gives way after its first list.
    pub(super) async fn follow(
        self,
        store: Weak<Store>,
        relist: Arc<Notify>,
        mut gives_way: watch::Receiver<bool>,
    ) {
        loop {
            if !may_list(&store).await {
                return;
            }
            let restores = self.api.restores.count();
            let redefined = self.api.redefined.next(&self.resource);
            let feed = AssertUnwindSafe(self.feed(&store, restores));
            let ended = tokio::select! {
                ended = feed.catch_unwind() => ended,
                () = self.api.restores.after(restores) => {
                    let Some(store) = store.upgrade() else { return };
                    store.begin_anew();
                    continue;
                }
                () = relist.notified() => continue,
                () = redefined => continue,
                // It is seen above. An error means that the store is gone.
                _ = gives_way.wait_for(|gives_way| *gives_way) => continue,
            };
            if ended.is_ok() {
                if store.strong_count() == 0 {
                    return;
                }
                continue;
            }
            tracing::error!(resource = %self.resource.gvk, "a store panicked: this is a bug in metahook; everything is listed again");
            tokio::time::sleep(PANIC_DELAY).await;
        }
    }

    /// `restores`: of the cluster, before.
    async fn feed(&self, store: &Weak<Store>, restores: u64) {
        let Self { resource, namespace, api } = self;
        let namespace = namespace.as_deref();
        let (mut versions, mut whole) = (Growing::default(), false);
        let mut events = std::pin::pin!(watch_resource(api, resource, namespace, None));
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    let Some(store) = store.upgrade() else { return };
                    tracing::debug!(resource = %resource.gvk, "a watch broke; it is taken up again");
                    let WatchFailure { why, is_ungranted } = WatchFailure::of(&error);
                    lock(&store.state).broke(why, resource);
                    if store.of_account && is_ungranted && store.is_synced() {
                        // Its objects stay in the cache: without them it would look as if they were gone. They are listed anew, since
                        // a watch that is taken up again does not say so.
                        store.lists.synced.send_replace(None);
                        events.set(watch_resource(api, resource, namespace, None));
                    }
                    drop(store);
                    if !is_ungranted && self.went_back(&versions).await {
                        api.restores.note(&resource.gvk.kind);
                    }
                    continue;
                }
            };
            if goes_back(&mut versions, &event) {
                api.restores.note(&resource.gvk.kind);
            }
            let complete = matches!(event, CacheEvent::ListEnds);
            let works = complete || matches!(event, CacheEvent::Applied(_) | CacheEvent::Deleted(_));
            let unconfirmed = {
                let Some(store) = store.upgrade() else { return };
                let mut state = lock(&store.state);
                if matches!(event, CacheEvent::ListBegins) {
                    whole = state.cache.keeps_whole();
                }
                state.apply(event, None);
                if works {
                    state.trouble = None;
                }
                if state.account.is_leaving() {
                    return;
                }
                state.was_listed |= complete;
                if complete { state.cache.unconfirmed() } else { Vec::new() }
            };
            confirm(store, resource, api, unconfirmed).await;
            if complete && let Some(store) = store.upgrade() {
                lock(&store.state).account.listed();
                store.lists.synced.send_replace(Some(Synced { restores, whole }));
            }
        }
    }

    /// Whether the cluster is older now than what was seen of it: a watch that is taken up again would not tell.
    async fn went_back(&self, versions: &Growing) -> bool {
        let Some(newest) = versions.last() else { return false };
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let now = self.api.cluster_version(&self.resource, namespace);
        let now = tokio::time::timeout(VERSION_TIMEOUT, now).await;
        now.ok().flatten().is_some_and(|now| now < newest)
    }
}

/// Whether this event tells an older version than one before it.
fn goes_back(versions: &mut Growing, event: &CacheEvent) -> bool {
    match event {
        CacheEvent::ListBegins => *versions = Growing::default(),
        CacheEvent::Listed(object) => versions.saw(object.version.number()),
        CacheEvent::Applied(object) | CacheEvent::Deleted(object) => {
            return versions.goes_back(object.version.number());
        }
        _ => {}
    }
    false
}

/// Waits until the store may be listed, where it gave way. False: it has ended.
async fn may_list(store: &Weak<Store>) -> bool {
    loop {
        {
            let Some(store) = store.upgrade() else { return false };
            if !store.makes_room() {
                return false;
            }
            if lock(&store.state).account.may_list() {
                return true;
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

impl Store {
    /// Gives way where it has to. False: it has ended.
    fn makes_room(&self) -> bool {
        let mut state = lock(&self.state);
        if state.account.is_leaving() {
            let (resource, bytes) = (&self.resource.gvk, print_bytes(state.cache.bytes() as u64));
            let namespace = self.namespace.as_deref();
            tracing::warn!(resource = %resource, namespace, bytes, "the caches exceed --cache-budget: the controllers of these objects stop, and try again later");
            if state.was_listed {
                self.ended.send_replace(true);
            } else {
                let emptied = state.cache.emptied();
                let before = std::mem::replace(&mut state.cache, emptied);
                drop(state);
                // It may take a while.
                drop(before);
                lock(&self.state).account.emptied();
            }
        }
        !self.has_ended()
    }
}

/// Reads the objects that only our own writes named and that are missing in a complete list.
async fn confirm(
    store: &Weak<Store>,
    resource: &Arc<Resource>,
    api: &ApiClient,
    unconfirmed: Vec<CachedObject>,
) {
    for object in unconfirmed {
        let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
        let found = api.read(&id).await;
        let Some(store) = store.upgrade() else { return };
        let mut state = lock(&store.state);
        match found {
            Ok(Some(now)) if now.uid == object.uid => state.apply(CacheEvent::Applied(now), None),
            Ok(_) => state.apply(CacheEvent::Missing(object.key.clone(), object.uid.clone()), None),
            Err(error) => tracing::debug!(error = error_chain(&error), "a doubtful object could not be read"),
        }
    }
}
