//! Discovery: the resources that the API server serves now, and what it publishes about the lists of a kind.

mod names;
mod open_api;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;
use metahook_core::cache::CacheEvent;
use metahook_core::cache::redefinitions::Redefinitions;
use metahook_core::json::lists::Lists;
use metahook_core::object::id::{Gvk, Gvr, Resource, join_api_version};
use metahook_core::one_line;
use metahook_core::reconcile::outcome::Retry;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::{Answer, ApiClient, Unreachable};
use crate::cluster::paths::version_path;
use crate::cluster::rights::WatchFailure;
use crate::cluster::watch::watch as watch_resource;
use crate::sync::lock;

pub(crate) use open_api::OpenApi;

pub struct Discovery {
    api: ApiClient,
    /// Kinds by apiVersion. Emptied when a CustomResourceDefinition changes and once per interval.
    known: Mutex<BTreeMap<String, Arc<Vec<Arc<Resource>>>>>,
    changed: watch::Sender<()>,
    /// Published schemas.
    pub(crate) published: OpenApi,
}

#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error(
        "the API server serves no {0}: install its CustomResourceDefinition, or correct apiVersion and resource (the plural, lower case)"
    )]
    NotServed(Gvr),
    #[error(
        "the API server serves no kind {0}: install its CustomResourceDefinition, or correct apiVersion and kind"
    )]
    NoKind(Gvk),
    #[error(
        "the API server cannot tell whether it serves {kind}: discovery of {api_version} fails ({why}); see `kubectl get apiservice {api_service}`"
    )]
    Unavailable {
        /// The kind with its apiVersion.
        kind: String,
        api_version: String,
        api_service: String,
        why: String,
    },
    #[error("the API server refuses to tell whether it serves {kind}: {why}")]
    Refused { kind: String, why: String },
    #[error("the API server could not be asked what it serves")]
    Unreachable(#[source] Unreachable),
}

impl DiscoveryError {
    /// A version without a list of its resources. The core group has no server of its own, and a right that is missing is no
    /// failure.
    fn unread(
        answer: &Answer,
        (group, version): (&str, &str),
        asked: &impl fmt::Display,
        why: String,
    ) -> Self {
        let kind = asked.to_string();
        if group.is_empty() || answer.status.is_client_error() {
            return Self::Refused { kind, why };
        }
        let (api_version, api_service) = (join_api_version(group, version), format!("{version}.{group}"));
        Self::Unavailable { kind, api_version, api_service, why }
    }

    /// How a reconcile that needs the kind is retried.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Unreachable(error) => error.retry(),
            Self::NotServed(_) | Self::NoKind(_) | Self::Unavailable { .. } | Self::Refused { .. } => {
                Retry::WithEvent
            }
        }
    }

    /// The API server could not be asked.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }

    /// Whether the API server was asked, and gave no list of what it serves: of an aggregated API mostly, whose server
    /// fails.
    /// See <https://github.com/kubernetes/kubernetes/issues/65005>.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Refused { .. })
    }

    /// Whether the API server was asked for the kind, and there is no such kind.
    pub fn is_not_served(&self) -> bool {
        matches!(self, Self::NotServed(_) | Self::NoKind(_))
    }
}

impl Discovery {
    pub fn new(api: ApiClient) -> Self {
        Self {
            published: OpenApi::new(api.clone()),
            api,
            known: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Becomes ready when something may be served that was not before, or the other way round.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Facts that the API server publishes about the lists of a kind.
    pub async fn lists(&self, gvk: &Gvk) -> Arc<Lists> {
        self.published.lists(gvk).await
    }

    pub async fn resolve(&self, gvr: &Gvr) -> Result<Arc<Resource>, DiscoveryError> {
        let version = (&*gvr.group, &*gvr.version);
        let found = self.find(version, gvr, |resource| resource.plural == gvr.resource).await?;
        found.ok_or_else(|| DiscoveryError::NotServed(gvr.clone()))
    }

    /// The kind in this version, or in another one where this one is no longer served.
    pub async fn resolve_any_version(&self, gvr: &Gvr) -> Result<Arc<Resource>, DiscoveryError> {
        let error = match self.resolve(gvr).await {
            Err(error) if error.is_not_served() => error,
            resolved => return resolved,
        };
        for version in self.versions(&gvr.group).await? {
            match self.resolve(&Gvr { version: version.into(), ..gvr.clone() }).await {
                Err(error) if error.is_not_served() => {}
                resolved => return resolved,
            }
        }
        Err(error)
    }

    /// The versions of a group, the preferred one first; none of the core group, which has one.
    async fn versions(&self, group: &str) -> Result<Vec<String>, DiscoveryError> {
        #[derive(Deserialize)]
        struct Group {
            versions: Vec<Version>,
        }
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let answer =
            self.api.get_large(&format!("/apis/{group}")).await.map_err(DiscoveryError::Unreachable)?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let Group { versions } =
            read(&answer).map_err(|why| DiscoveryError::Refused { kind: group.to_owned(), why })?;
        Ok(versions.into_iter().map(|one| one.version).collect())
    }

    pub async fn resolve_kind(&self, gvk: &Gvk) -> Result<Arc<Resource>, DiscoveryError> {
        let version = (&*gvk.group, &*gvk.version);
        let found = self.find(version, gvk, |resource| resource.gvk == *gvk).await?;
        found.ok_or_else(|| DiscoveryError::NoKind(gvk.clone()))
    }

    /// Whether a CustomResourceDefinition says what the kind is.
    pub async fn is_custom(&self, resource: &Resource) -> Result<bool, DiscoveryError> {
        let Resource { gvk, plural, .. } = resource;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let path = format!("{definitions}/{plural}.{}", gvk.group);
        let answer = self.api.get_large(&path).await.map_err(DiscoveryError::Unreachable)?;
        Ok(answer.status.is_success())
    }

    async fn find(
        &self,
        (group, version): (&str, &str),
        asked: &impl fmt::Display,
        is_it: impl Fn(&Resource) -> bool,
    ) -> Result<Option<Arc<Resource>>, DiscoveryError> {
        let api_version = join_api_version(group, version);
        let find = |known: &[Arc<Resource>]| known.iter().find(|resource| is_it(resource)).cloned();
        let known = lock(&self.known).get(&api_version).cloned();
        if let Some(found) = known.and_then(|known| find(&known)) {
            return Ok(Some(found));
        }
        let answer =
            self.api.get_large(&version_path(group, version)).await.map_err(DiscoveryError::Unreachable)?;
        let unread = |why| DiscoveryError::unread(&answer, (group, version), asked, why);
        let fresh = parse(&answer, &api_version).map_err(unread)?;
        let Some(fresh) = fresh.map(Arc::new) else {
            return Ok(None);
        };
        let mut known = lock(&self.known);
        known.insert(api_version, Arc::clone(&fresh));
        Ok(find(&fresh))
    }

    /// Keeps the knowledge fresh until `stop`: changes of CustomResourceDefinitions count at once, those of aggregated APIs once per interval.
    pub(crate) async fn keep_fresh(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let crds = Arc::new(Resource {
            gvk: Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            plural: "customresourcedefinitions".into(),
            namespaced: false,
            has_status: true,
        });
        let mut events = std::pin::pin!(watch_resource(&self.api, &crds, None, None));
        let mut clock = tokio::time::interval(interval);
        let (start, mut redefinitions) = (Instant::now(), Redefinitions::default());
        loop {
            let due = redefinitions.next();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(start + due.unwrap_or_default()), if due.is_some() => {
                    while let Some(name) = redefinitions.take_due(start.elapsed()) {
                        self.api.redefined.note(&name);
                    }
                    continue;
                }
                _ = clock.tick() => {}
                event = events.next() => match event {
                    Some(Ok(CacheEvent::Listed(definition) | CacheEvent::Applied(definition))) => {
                        redefinitions.observe(&definition.key.name, definition.generation, start.elapsed());
                    }
                    Some(Ok(CacheEvent::Deleted(definition))) => redefinitions.forget(&definition.key.name),
                    Some(Err(error)) => {
                        tracing::warn!(error = WatchFailure::of(&error).why, "the watch of CustomResourceDefinitions broke");
                    }
                    _ => {}
                },
            }
            lock(&self.known).clear();
            self.published.refresh();
            self.changed.send_replace(());
        }
    }
}

/// Content of the answer, or why it has none, in one line.
fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, String> {
    if !answer.status.is_success() {
        return Err(one_line(&answer.message()).into_owned());
    }
    serde_json::from_str(&answer.body).map_err(|error| format!("the answer is no list: {error}"))
}

/// `None`: the API server serves nothing of that version.
fn parse(answer: &Answer, api_version: &str) -> Result<Option<Vec<Arc<Resource>>>, String> {
    // Not the types of Kubernetes, for which every field may be absent: `{}` serves nothing, and would be believed.
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
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let list: List = read(answer)?;
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
