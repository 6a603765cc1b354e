//! Cluster as it is: objects that are listed when they are first needed, and stay as they were then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use metahook_core::api::server_objects::ServerObjects;
use metahook_core::cache::{Cache, CacheEvent};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, ObjectId, Resource};
use metahook_core::related::rule::{Finds, RelatedRule};
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::dry_run_client::DryRunClient;
use metahook_server::cluster::objects::RequestError;
use metahook_server::sync::lock;
use tokio::sync::OnceCell;

use crate::render::related::{namespaces, select};

/// The names of namespaces; the empty name stands for all.
type Namespaces = BTreeSet<String>;

/// Objects of a kind that are listed once.
type Listing = Arc<OnceCell<Arc<Cache>>>;

#[derive(Debug, thiserror::Error)]
pub(super) enum FindRelatedError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

pub(super) struct Live {
    pub(super) client: DryRunClient,
    pub(super) discovery: Discovery,
    /// Objects of the declared kinds of children and of revisions, listed before the first reconcile.
    pub(super) children: BTreeMap<Arc<Resource>, Arc<Cache>>,
    listings: Mutex<BTreeMap<(Arc<Resource>, Namespaces), Listing>>,
}

impl Live {
    pub(super) fn new(client: DryRunClient) -> Self {
        let discovery = Discovery::new(client.api().clone());
        let (children, listings) = Default::default();
        Self { client, discovery, children, listings }
    }

    /// The resource of a name in the API.
    pub(super) async fn resolve(&self, gvr: &Gvr) -> Result<Arc<Resource>, DiscoveryError> {
        self.discovery.resolve(gvr).await
    }

    /// Lists the children of these kinds. `namespaces`: those that have any.
    pub(super) async fn list_children(
        &mut self,
        kinds: &[Arc<Resource>],
        namespaces: &Namespaces,
    ) -> Result<(), RequestError> {
        for kind in kinds {
            let cache = self.listed(kind, namespaces).await?;
            self.children.insert(Arc::clone(kind), cache);
        }
        Ok(())
    }

    /// An object of any list that was read.
    pub(super) fn known(&self, id: &ObjectId) -> Option<Arc<Object>> {
        let of = |cache: &Cache| cache.get(&id.key)?.whole().cloned();
        let listings = lock(&self.listings);
        let of_kind = listings.iter().filter(|((kind, _), _)| *kind == id.resource);
        of_kind.filter_map(|(_, listing)| listing.get()).find_map(|cache| of(cache))
    }

    /// The kinds of all lists that were read.
    pub(super) fn kinds(&self) -> Vec<Gvr> {
        lock(&self.listings).keys().map(|(kind, _)| kind.gvr()).collect()
    }

    /// A namespace, where namespaces were listed.
    pub(super) fn namespace(&self, name: &str) -> Option<Arc<Object>> {
        let listings = lock(&self.listings);
        let mut lists = listings.iter().filter(|((kind, _), _)| kind.gvr() == namespaces());
        lists.find_map(|(_, listing)| listing.get()?.get(&Key::new("", name))?.whole().cloned())
    }

    /// The objects that a rule finds.
    pub(super) async fn find(&self, rule: &RelatedRule) -> Result<Vec<Arc<Object>>, FindRelatedError> {
        let mut found: Vec<Arc<str>> = Vec::new();
        let everywhere = || Namespaces::from([String::new()]);
        if let Some(selector) = rule.namespace_selector() {
            let resource = self.resolve(&namespaces()).await?;
            let all = RelatedRule { resource: Arc::clone(&resource), finds: Finds::matching(selector) };
            let matching = select(&*self.listed(&resource, &everywhere()).await?, &all, &[]);
            found.extend(matching.iter().map(|namespace| Arc::clone(&namespace.key.name)));
        }
        let place = rule.reach().map_or_else(everywhere, |namespace| [namespace.to_string()].into());
        let cache = self.listed(&rule.resource, &place).await?;
        Ok(select(&cache, rule, &found))
    }

    /// The objects of a kind in these namespaces, but those that servers keep for themselves, which no hook sees.
    async fn listed(
        &self,
        kind: &Arc<Resource>,
        namespaces: &Namespaces,
    ) -> Result<Arc<Cache>, RequestError> {
        let namespaces = if kind.namespaced { namespaces.clone() } else { [String::new()].into() };
        let key = (Arc::clone(kind), namespaces.clone());
        let listing = Arc::clone(lock(&self.listings).entry(key).or_default());
        let hidden = ServerObjects::of(kind, None);
        let list = || async {
            let mut cache = Cache::default();
            for namespace in &namespaces {
                for object in self.client.api().list_objects_in(kind, namespace).await? {
                    if !hidden.has(&object.key) {
                        cache.apply(CacheEvent::Wrote(Arc::new(object)));
                    }
                }
            }
            Ok::<_, RequestError>(Arc::new(cache))
        };
        listing.get_or_try_init(list).await.cloned()
    }
}
