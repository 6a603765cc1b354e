//! Watches of single ConfigMaps and Secrets: one for each object and account, as long as a follower holds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use futures_util::{FutureExt, StreamExt};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::cache::CacheEvent;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Resource};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::api_client::ApiClient;
use crate::cluster::watch::watch as watch_resource;
use crate::sync::lock;
use crate::telemetry::error_chain;

/// All objects that are followed at the moment. Nothing else of their kinds is asked for, so that a right to just these
/// (`resourceNames`) suffices.
pub(crate) struct ObjectWatches {
    api: ApiClient,
    watched: Mutex<BTreeMap<WatchKey, Weak<Watched>>>,
}

/// The account that reads, and the object.
type WatchKey = (Option<ServiceAccountRef>, Reference);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

/// State of a watched object.
#[derive(Debug, Clone, Default)]
pub(crate) enum Known {
    #[default]
    NotYet,
    Missing,
    There(Arc<Object>),
    /// It has never been seen, for this reason.
    Unreadable(Arc<str>),
}

struct Watched {
    known: watch::Receiver<Known>,
    _task: AbortOnDropHandle<()>,
}

/// One object as one of its users sees it; its watch ends with the last of them.
pub(crate) struct Follower {
    known: watch::Receiver<Known>,
    _watched: Arc<Watched>,
}

impl ObjectWatches {
    pub(crate) fn new(api: ApiClient) -> Self {
        Self { api, watched: Mutex::default() }
    }

    /// `reader`: whose rights it is read with; ours where there is none.
    pub(crate) fn follow(&self, reader: Option<&ServiceAccountRef>, name: &Reference) -> Follower {
        let mut all = lock(&self.watched);
        all.retain(|_, watched| watched.strong_count() > 0);
        let key = (reader.cloned(), name.clone());
        let watched = all.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (sender, known) = watch::channel(Known::NotYet);
            let api = reader.map_or_else(|| self.api.clone(), |reader| self.api.acting_as(reader));
            let task = tokio::spawn(feed(api, name.clone(), sender));
            let watched = Arc::new(Watched { known, _task: AbortOnDropHandle::new(task) });
            all.insert(key, Arc::downgrade(&watched));
            watched
        });
        Follower { known: watched.known.clone(), _watched: watched }
    }
}

impl Follower {
    /// The current state; [`Follower::changed`] waits for the next one.
    pub(crate) fn now(&mut self) -> Known {
        self.known.borrow_and_update().clone()
    }

    /// One that a test feeds.
    #[cfg(test)]
    pub(crate) fn fed_by(known: &watch::Sender<Known>) -> Self {
        let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let watched = Arc::new(Watched { known: known.subscribe(), _task: task });
        Self { known: known.subscribe(), _watched: watched }
    }

    pub(crate) async fn changed(&mut self) {
        if self.known.changed().await.is_err() {
            // Its task lives as long as we hold it; if it panicked, nothing is learned any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until one of them changes; for ever where there are none.
pub(crate) async fn any_changed<'a>(followers: impl Iterator<Item = &'a mut Follower>) {
    let waits: Vec<_> = followers.map(|follower| follower.changed().boxed()).collect();
    if waits.is_empty() {
        std::future::pending::<()>().await;
    }
    futures_util::future::select_all(waits).await;
}

async fn feed(api: ApiClient, name: Reference, known: watch::Sender<Known>) {
    let resource = Arc::new(name.kind.resource());
    let watch = watch_resource(&api, &resource, Some(&name.namespace), Some(&name.name));
    let mut events = std::pin::pin!(watch);
    let mut listed = false;
    while let Some(event) = events.next().await {
        if let Ok(CacheEvent::ListBegins) = event {
            listed = false;
        }
        listed |= matches!(event, Ok(CacheEvent::Listed(_)));
        let found = match event {
            Ok(CacheEvent::ListEnds) if listed => continue,
            Ok(CacheEvent::ListEnds | CacheEvent::Deleted(_)) => Known::Missing,
            Ok(CacheEvent::Listed(object) | CacheEvent::Applied(object)) => Known::There(Arc::new(object)),
            // The others are events of our own writes, which no watch sends.
            Ok(
                CacheEvent::ListBegins
                | CacheEvent::Wrote(_)
                | CacheEvent::Deleting(..)
                | CacheEvent::Missing(..),
            ) => continue,
            Err(error) => Known::Unreadable(error_chain(&error).into()),
        };
        known.send_if_modified(|known| {
            let news = known.is_changed_by(&found);
            if news {
                *known = found;
            }
            news
        });
    }
}

impl Known {
    fn is_changed_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::There(one), Self::There(other)) => one.uid != other.uid || one.version != other.version,
            // A watch that breaks says nothing about an object that was seen.
            (Self::There(_), Self::Unreadable(_)) | (Self::Missing, Self::Missing) => false,
            (Self::Unreadable(one), Self::Unreadable(other)) => one != other,
            (Self::NotYet | Self::Missing | Self::There(_) | Self::Unreadable(_), _) => true,
        }
    }
}

impl Kind {
    pub(super) fn resource(self) -> Resource {
        let plural = match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        };
        Resource {
            gvk: Gvk::new("v1", &self.to_string()),
            plural: plural.into(),
            namespaced: true,
            has_status: false,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

/// As messages name it: `ConfigMap hello/hook`.
impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(version: &str) -> Known {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","resourceVersion":"{version}"}}}}"#
        );
        Known::There(Arc::new(Object::parse(&json, None).unwrap()))
    }

    #[test]
    fn a_broken_watch_changes_nothing_that_was_seen() {
        let broken = Known::Unreadable("forbidden".into());
        assert!(!there("1").is_changed_by(&broken));
        assert!(Known::NotYet.is_changed_by(&broken) && Known::Missing.is_changed_by(&broken));
        assert!(!broken.is_changed_by(&broken), "and once");
    }

    #[test]
    fn the_same_version_listed_again_is_no_change() {
        assert!(!there("1").is_changed_by(&there("1")) && !Known::Missing.is_changed_by(&Known::Missing));
        assert!(there("1").is_changed_by(&there("2")) && there("1").is_changed_by(&Known::Missing));
    }
}
