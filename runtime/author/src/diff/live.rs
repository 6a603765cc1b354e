//! Cluster as it is: objects that are listed when they are first needed, and stay as they were then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metahook_core::cache::{Cache, CacheEvent};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Resource};
use metahook_core::related::rule::{Finds, RelatedRule};
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use metahook_server::cluster::trial::Trial;
use metahook_server::sync::lock;
use tokio::sync::OnceCell;

use crate::render::related::{namespaces, select};

/// A kind, and the namespace that is listed; all where it is empty.
type Listed = (Arc<Resource>, String);

pub(super) struct Live {
    pub(super) trial: Trial,
    pub(super) discovery: Discovery,
    /// The only namespace of the parents, where all are in one.
    pub(super) namespace: Option<String>,
    /// Objects of the declared kinds of children and of revisions, listed before the first reconcile.
    pub(super) children: BTreeMap<Arc<Resource>, Arc<Cache>>,
    related: Mutex<BTreeMap<Listed, Arc<OnceCell<Arc<Cache>>>>>,
}

impl Live {
    pub(super) fn new(trial: Trial) -> Self {
        let discovery = Discovery::new(trial.api().clone());
        let (namespace, children, related) = Default::default();
        Self { trial, discovery, namespace, children, related }
    }

    /// The resource of a name in the API.
    pub(super) async fn resolve(&self, gvr: &Gvr) -> Result<Arc<Resource>, DiscoveryError> {
        self.discovery.resolve(gvr).await
    }

    /// Lists the children of these kinds.
    pub(super) async fn list_children(&mut self, kinds: &[Arc<Resource>]) -> Result<(), RequestError> {
        for kind in kinds {
            let namespace = self.namespace.as_deref().filter(|_| kind.namespaced).unwrap_or_default();
            let cache = self.listed(kind, namespace).await?;
            self.children.insert(Arc::clone(kind), cache);
        }
        Ok(())
    }

    /// The objects that a rule finds.
    pub(super) async fn find(&self, rule: &RelatedRule) -> Result<Vec<Arc<Object>>, RequestError> {
        let mut found: Vec<Arc<str>> = Vec::new();
        if let Some(selector) = rule.namespace_selector()
            && let Ok(resource) = self.resolve(&namespaces()).await
        {
            let all = RelatedRule { resource: Arc::clone(&resource), finds: Finds::matching(selector) };
            let matching = select(&*self.listed(&resource, "").await?, &all, &[]);
            found.extend(matching.iter().map(|namespace| Arc::clone(&namespace.key.name)));
        }
        let place = rule.reach().map(ToString::to_string).unwrap_or_default();
        let cache = self.listed(&rule.resource, &place).await?;
        Ok(select(&cache, rule, &found))
    }

    async fn listed(&self, kind: &Arc<Resource>, namespace: &str) -> Result<Arc<Cache>, RequestError> {
        let key = (Arc::clone(kind), namespace.to_owned());
        let cell = Arc::clone(lock(&self.related).entry(key).or_default());
        let list = || async {
            let mut cache = Cache::default();
            for object in self.trial.api().list_objects_in(kind, namespace).await? {
                cache.apply(CacheEvent::Wrote(Arc::new(object)));
            }
            Ok::<_, RequestError>(Arc::new(cache))
        };
        cell.get_or_try_init(list).await.cloned()
    }
}
