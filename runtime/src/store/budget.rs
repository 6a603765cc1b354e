//! Account of what all stores hold, over which `metahook_core::cache::budget` decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::cache::budget::{CacheAccounts, CacheFigures, StoreId, TooLarge};
use metahook_core::object::id::Resource;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::sync::lock;

/// Place that one store holds: the objects of a resource in one namespace or in all, as an account may read them;
/// `None` is the server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldPlace {
    pub(super) resource: Arc<Resource>,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) account: Option<Arc<str>>,
}

/// The bytes that all stores of a server may hold together.
#[derive(Clone)]
pub(crate) struct CacheBudget(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    started: Instant,
}

struct State {
    accounts: CacheAccounts<HeldPlace>,
    /// Signal to each store whether it is to give way.
    told: BTreeMap<StoreId, watch::Sender<bool>>,
}

/// The account of one store; it is closed when it is dropped.
pub(super) struct Account {
    budget: CacheBudget,
    id: StoreId,
}

impl CacheBudget {
    /// `None`: any number of bytes.
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let state = State { accounts: CacheAccounts::new(bytes), told: BTreeMap::new() };
        Self(Arc::new(Shared { state: Mutex::new(state), started: Instant::now() }))
    }

    pub(crate) fn figures(&self) -> CacheFigures {
        self.with(|state, _| {
            let mut held = BTreeMap::new();
            for (place, bytes) in state.accounts.all() {
                *held.entry(place.resource.gvk.to_string()).or_default() += bytes;
            }
            CacheFigures { held, budget: state.accounts.budget() }
        })
    }

    /// The account of a store that holds nothing yet. `must_stay`: the store never gives way.
    pub(super) fn open(&self, place: HeldPlace, must_stay: bool) -> Account {
        let id = self.with(|state, now| {
            let id = state.accounts.open(place, must_stay, now);
            state.told.insert(id, watch::Sender::new(false));
            id
        });
        Account { budget: self.clone(), id }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.0.started.elapsed();
        act(&mut lock(&self.0.state), now)
    }
}

impl Account {
    /// The store holds so many bytes now.
    pub(super) fn holds(&self, bytes: usize) {
        self.budget.with(|state, now| {
            for store in state.accounts.change(self.id, bytes as u64, now) {
                if let Some(told) = state.told.get(&store) {
                    told.send_replace(true);
                }
            }
        });
    }

    /// The store has dropped what it held.
    pub(super) fn emptied(&self) {
        self.budget.with(|state, _| {
            state.accounts.emptied(self.id);
            if let Some(told) = state.told.get(&self.id) {
                told.send_replace(false);
            }
        });
    }

    pub(super) fn listed(&self) {
        self.budget.with(|state, now| state.accounts.listed(self.id, now));
    }

    /// Becomes true when the store is to give way.
    pub(super) fn gives_way(&self) -> watch::Receiver<bool> {
        self.budget.with(|state, _| {
            let told = state.told.get(&self.id).map(watch::Sender::subscribe);
            told.unwrap_or_else(|| watch::Sender::new(false).subscribe())
        })
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.budget.with(|state, _| state.accounts.is_leaving(self.id))
    }

    pub(super) fn may_list(&self) -> bool {
        self.budget.with(|state, now| state.accounts.may_list(self.id, now))
    }

    pub(super) fn too_large(&self) -> Option<TooLarge> {
        self.budget.with(|state, _| state.accounts.too_large(self.id))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.with(|state, now| {
            state.accounts.close(self.id, now);
            state.told.remove(&self.id);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Response;
    use metahook_core::cache::{Cache, CacheEvent};
    use metahook_core::object::Object;
    use metahook_core::object::id::Key;

    use super::*;
    use crate::cluster::fake;
    use crate::store::tests::{config_maps, is_watch, until};
    use crate::store::{Store, Stores};

    const MIB: usize = 1 << 20;

    fn map(name: usize, bytes: usize) -> String {
        let text = "x".repeat(bytes);
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"m-{name}","uid":"{name}","resourceVersion":"5"}},"data":{{"k":"{text}"}}}}"#
        )
    }

    /// Stores with a budget of 10 MiB. The list has so many pages of one object of a MiB. Gives the number of pages that were asked for.
    fn stores(pages: &Arc<AtomicUsize>) -> (Stores, CacheBudget, Arc<AtomicUsize>) {
        let (pages, asked) = (Arc::clone(pages), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        let api = fake::answering(move |request| {
            if is_watch(request) {
                return None;
            }
            let query = request.uri().query().unwrap_or_default();
            let page = query.split('&').find_map(|field| field.strip_prefix("continue=")?.parse().ok());
            let (page, pages) = (page.unwrap_or(0_usize), pages.load(Ordering::Relaxed));
            counted.fetch_add(1, Ordering::Relaxed);
            let next = if page + 1 < pages { (page + 1).to_string() } else { String::new() };
            let item = if pages == 0 { String::new() } else { map(page, MIB) };
            Some(Response::new(format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9","continue":"{next}"}},"items":[{item}]}}"#
            )))
        });
        let budget = CacheBudget::new(Some(10 * MIB as u64));
        (Stores::within(api, budget.clone()), budget, asked)
    }

    fn held(budget: &CacheBudget) -> u64 {
        budget.figures().held.values().sum()
    }

    fn applied(store: &Store, name: usize, bytes: usize) {
        let object = Object::parse(&map(name, bytes), None).unwrap();
        lock(&store.state).apply(CacheEvent::Applied(object), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_list_without_an_end_is_left_at_the_budget_and_read_again_later() {
        let pages = Arc::new(AtomicUsize::new(usize::MAX));
        let (stores, budget, asked) = stores(&pages);
        let store = stores.open(&config_maps());
        until(|| store.too_large().is_some()).await;
        until(|| held(&budget) == 0).await;
        let first = asked.load(Ordering::Relaxed);
        assert!(first <= 12, "{first} pages");
        assert!(!store.is_synced() && !store.has_ended() && store.view(Cache::is_empty));
        let message = store.trouble().unwrap();
        let says = "v1 ConfigMap: 11Mi of its objects were in memory when all caches exceeded 10Mi";
        assert!(message.starts_with(says), "{message}");
        until(|| asked.load(Ordering::Relaxed) > first).await;
        assert!(store.too_large().is_some(), "while it is listed again, too");
        pages.store(3, Ordering::Relaxed);
        store.synced().await;
        assert_eq!((store.too_large(), store.view(Cache::len)), (None, 3));
        assert_eq!(held(&budget), store.view(Cache::bytes) as u64);
        drop(store);
        assert_eq!(held(&budget), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_of_a_store_that_is_too_large_names_its_namespace() {
        let (stores, _, _) = stores(&Arc::new(AtomicUsize::new(usize::MAX)));
        let store = stores.open_within(&config_maps(), Some(&"m".into()));
        until(|| store.too_large().is_some()).await;
        let message = store.too_large().unwrap();
        assert!(message.starts_with("v1 ConfigMap in the namespace m: 11Mi of its objects "), "{message}");
        assert_eq!(store.trouble(), Some(message));
    }

    /// Reconciles may read it: an emptied store would look as if all objects were gone.
    #[tokio::test(start_paused = true)]
    async fn a_listed_store_that_gives_way_keeps_its_objects_until_its_last_holder_leaves() {
        let pages = Arc::new(AtomicUsize::new(3));
        let (stores, budget, _) = stores(&pages);
        let (store, small) =
            (stores.open(&config_maps()), stores.open_within(&config_maps(), Some(&"m".into())));
        store.synced().await;
        pages.store(0, Ordering::Relaxed);
        small.synced().await;
        for name in 3..10 {
            applied(&store, name, MIB);
        }
        store.gave_way().await;
        assert_eq!(store.view(Cache::len), 10);
        assert!(store.get(&Key::new("n", "m-0")).is_some() && store.too_large().is_some());
        assert!(!small.has_ended() && small.too_large().is_none(), "others go on");
        let next = stores.open(&config_maps());
        assert!(!Arc::ptr_eq(&store, &next) && !next.is_synced() && next.too_large().is_some());
        assert!(held(&budget) > 10 * MIB as u64);
        drop(store);
        assert!(held(&budget) < 4 * MIB as u64);
        next.synced().await;
        assert_eq!((next.too_large(), next.view(Cache::len)), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_has_to_stay_never_gives_way() {
        let (stores, budget, _) = stores(&Arc::new(AtomicUsize::new(20)));
        let store = stores.open_to_stay(&config_maps());
        store.synced().await;
        assert_eq!((store.view(Cache::len), store.too_large()), (20, None));
        assert!(held(&budget) > 20 * MIB as u64);
    }
}
