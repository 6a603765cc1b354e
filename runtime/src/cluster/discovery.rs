//! Which resources the API server serves now: plural to kind, scope, status subresource.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;
use metahook_core::json::lists::Lists;
use metahook_core::object::id::{Gvk, Gvr, Resource};
use metahook_core::reconcile::outcome::Retry;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::{Answer, ApiClient, Unreachable, version_path};
use crate::cluster::openapi::OpenApi;
use crate::cluster::watch::{Scope, watch as watch_resource};
use crate::error_chain::error_chain;
use crate::sync::lock;

pub(crate) struct Discovery {
    rest: ApiClient,
    /// By apiVersion. Emptied when a CustomResourceDefinition changes and once per interval.
    known: Mutex<BTreeMap<String, Arc<Vec<Arc<Resource>>>>>,
    changed: watch::Sender<()>,
    published: OpenApi,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error(
        "the API server serves no {0}: install its CustomResourceDefinition, or correct apiVersion and resource (the plural, lower case)"
    )]
    NotServed(Gvr),
    #[error(
        "the API server serves no kind {0}: install its CustomResourceDefinition, or correct apiVersion and kind"
    )]
    NoKind(Gvk),
    #[error("the API server refuses to tell what it serves: {0}")]
    Refused(String),
    #[error("the API server could not be asked what it serves")]
    Unreachable(#[source] Unreachable),
    #[error("the API server's answer is no list of resources")]
    Answer(#[source] serde_json::Error),
}

impl DiscoveryError {
    /// How a pass that needs the kind is taken up again.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Unreachable(error) => error.busy().map_or(Retry::Loud, Retry::After),
            Self::NotServed(_) | Self::NoKind(_) | Self::Refused(_) | Self::Answer(_) => Retry::Loud,
        }
    }

    /// It was asked for, and there is no such kind.
    pub(crate) fn is_not_served(&self) -> bool {
        match self {
            Self::NotServed(_) | Self::NoKind(_) => true,
            Self::Refused(_) | Self::Unreachable(_) | Self::Answer(_) => false,
        }
    }
}

impl Discovery {
    pub(crate) fn new(rest: ApiClient) -> Self {
        Self {
            published: OpenApi::new(rest.clone()),
            rest,
            known: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// What is published about the lists of a kind.
    pub(crate) async fn lists(&self, gvk: &Gvk) -> Arc<Lists> {
        self.published.lists(gvk).await
    }

    /// Becomes ready when something may be served that was not before, or the other way round.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) async fn resolve(&self, gvr: &Gvr) -> Result<Arc<Resource>, DiscoveryError> {
        let found = self.find(&gvr.api_version(), |resource| resource.plural == gvr.resource).await?;
        found.ok_or_else(|| DiscoveryError::NotServed(gvr.clone()))
    }

    pub(crate) async fn resolve_kind(&self, gvk: &Gvk) -> Result<Arc<Resource>, DiscoveryError> {
        let found = self.find(&gvk.api_version(), |resource| resource.gvk == *gvk).await?;
        found.ok_or_else(|| DiscoveryError::NoKind(gvk.clone()))
    }

    /// Whether a CustomResourceDefinition says what the kind is.
    pub(crate) async fn is_custom(&self, resource: &Resource) -> Result<bool, DiscoveryError> {
        let Resource { gvk, plural, .. } = resource;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let path = format!("{definitions}/{plural}.{}", gvk.group);
        let answer = self.rest.get(&path).await.map_err(DiscoveryError::Unreachable)?;
        Ok(answer.status.is_success())
    }

    async fn find(
        &self,
        api_version: &str,
        is_it: impl Fn(&Resource) -> bool,
    ) -> Result<Option<Arc<Resource>>, DiscoveryError> {
        let find = |known: &[Arc<Resource>]| known.iter().find(|resource| is_it(resource)).cloned();
        let known = lock(&self.known).get(api_version).cloned();
        if let Some(found) = known.and_then(|known| find(&known)) {
            return Ok(Some(found));
        }
        let version = Gvk::new(api_version, "");
        let path = version_path(&version.group, &version.version);
        let answer = self.rest.get(&path).await.map_err(DiscoveryError::Unreachable)?;
        let Some(fresh) = parse(&answer, api_version)?.map(Arc::new) else {
            return Ok(None);
        };
        let mut known = lock(&self.known);
        known.insert(api_version.to_owned(), Arc::clone(&fresh));
        Ok(find(&fresh))
    }

    /// Keeps the knowledge fresh until `stop`: CustomResourceDefinitions tell at once, aggregated APIs once per interval.
    pub(crate) async fn keep_fresh(&self, interval: Duration, stop: CancellationToken) {
        let crds = Arc::new(Resource {
            gvk: Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            plural: "customresourcedefinitions".into(),
            namespaced: false,
            has_status: true,
        });
        let mut events = std::pin::pin!(watch_resource(self.rest.client(), &crds, &Scope::All));
        let mut clock = tokio::time::interval(interval);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = clock.tick() => {}
                event = events.next() => {
                    if let Some(Err(error)) = event {
                        tracing::warn!(error = error_chain(&error), "the watch of CustomResourceDefinitions broke");
                    }
                }
            }
            lock(&self.known).clear();
            self.published.refresh();
            self.changed.send_replace(());
        }
    }
}

/// `None`: the API server serves nothing of that version.
fn parse(answer: &Answer, api_version: &str) -> Result<Option<Vec<Arc<Resource>>>, DiscoveryError> {
    #[derive(Deserialize)]
    struct List {
        resources: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        name: String,
        kind: String,
        namespaced: bool,
    }
    match answer.status {
        StatusCode::NOT_FOUND => return Ok(None),
        status if !status.is_success() => return Err(DiscoveryError::Refused(answer.message())),
        _ => {}
    }
    let list: List = serde_json::from_str(&answer.body).map_err(DiscoveryError::Answer)?;
    let has_status =
        |name: &str| list.resources.iter().any(|other| other.name.strip_suffix("/status") == Some(name));
    let whole = list.resources.iter().filter(|item| !item.name.contains('/'));
    let all = whole
        .map(|item| {
            Arc::new(Resource {
                gvk: Gvk::new(api_version, &item.kind),
                plural: item.name.as_str().into(),
                namespaced: item.namespaced,
                has_status: has_status(&item.name),
            })
        })
        .collect();
    Ok(Some(all))
}
