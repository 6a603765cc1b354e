//! ConfigMaps and Secrets by name: watched as long as a follower holds them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::read_access::{Lists, MAX_GRANT_AGE};
use metahook_core::cache::CacheEvent;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::access::{self, ReviewError};
use crate::cluster::api_client::ApiClient;
use crate::cluster::rights::WatchFailure;
use crate::cluster::watch::watch as watch_resource;
use crate::sync::lock;

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
    pub(crate) kind: ReferenceKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReferenceKind {
    ConfigMap,
    Secret,
}

/// State of a watched object.
#[derive(Debug, Clone, Default)]
pub(crate) enum ReferenceState {
    #[default]
    NotYet,
    Missing,
    There(Arc<Object>),
    /// The object has never been seen, for this reason.
    Unreadable(Arc<str>),
    /// The object was seen, and the account that reads it no longer may.
    TakenAway(Arc<str>),
}

struct Watched {
    known: watch::Receiver<ReferenceState>,
    _task: AbortOnDropHandle<()>,
}

/// One object as one of its users sees it; its watch ends with the last of them.
pub(crate) struct Follower {
    known: watch::Receiver<ReferenceState>,
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
            let (sender, known) = watch::channel(ReferenceState::NotYet);
            let api = reader.map_or_else(|| self.api.clone(), |reader| self.api.acting_as(reader));
            let task = tokio::spawn(feed(api, reader.cloned(), name.clone(), sender));
            let watched = Arc::new(Watched { known, _task: AbortOnDropHandle::new(task) });
            all.insert(key, Arc::downgrade(&watched));
            watched
        });
        Follower { known: watched.known.clone(), _watched: watched }
    }
}

impl Follower {
    /// The current state; [`Follower::changed`] waits for the next one.
    pub(crate) fn now(&mut self) -> ReferenceState {
        self.known.borrow_and_update().clone()
    }

    /// One that a test feeds.
    #[cfg(test)]
    pub(crate) fn fed_by(known: &watch::Sender<ReferenceState>) -> Self {
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

const OWN: &str = "it is the server's own, which no hook is shown: name another one";

async fn feed(
    api: ApiClient,
    reader: Option<ServiceAccountRef>,
    name: Reference,
    known: watch::Sender<ReferenceState>,
) {
    loop {
        let restores = api.restores.count();
        tokio::select! {
            () = feed_until_restored(&api, reader.as_ref(), &name, &known) => return,
            () = api.restores.after(restores) => {}
        }
    }
}

async fn feed_until_restored(
    api: &ApiClient,
    reader: Option<&ServiceAccountRef>,
    name: &Reference,
    known: &watch::Sender<ReferenceState>,
) {
    let resource = Arc::new(name.kind.resource());
    if api.server_objects(&resource).has(&Key::new(&name.namespace, &name.name)) {
        known.send_replace(ReferenceState::Unreadable(OWN.into()));
        return;
    }
    let refused = Notify::new();
    let Some(account) = reader else { return observe(api, &resource, name, known, &refused).await };
    let rights = Lists::named(&resource, &name.name);
    let review = || access::unreadable(api, account, &rights, Some(&name.namespace));
    loop {
        // The watch ends: what comes next is a list, with the object as it is then.
        let why = tokio::select! {
            () = observe(api, &resource, name, known, &refused) => return,
            why = taken_away(known, &refused, review) => why,
        };
        known.send_replace(ReferenceState::TakenAway(why.into()));
        while !matches!(review().await, Ok(None)) {
            tokio::time::sleep(REVIEW_DELAY).await;
        }
    }
}

/// An account without the right, or an API server that gave no answer, is asked about again after this.
const REVIEW_DELAY: Duration = Duration::from_secs(10);

/// Ends when the account that reads the object no longer may: it is asked about while the object is known, every few minutes and
/// where the API server refuses the watch.
async fn taken_away<R>(
    known: &watch::Sender<ReferenceState>,
    refused: &Notify,
    review: impl Fn() -> R,
) -> String
where
    R: Future<Output = Result<Option<String>, ReviewError>>,
{
    let mut delay = MAX_GRANT_AGE;
    loop {
        drop(tokio::time::timeout(delay, refused.notified()).await);
        delay = MAX_GRANT_AGE;
        if !matches!(*known.borrow(), ReferenceState::There(_)) {
            continue;
        }
        match review().await {
            Ok(None) => {}
            Ok(Some(why)) => return why,
            Err(_unknown) => delay = REVIEW_DELAY,
        }
    }
}

/// Follows the object; never ends.
async fn observe(
    api: &ApiClient,
    resource: &Arc<Resource>,
    name: &Reference,
    known: &watch::Sender<ReferenceState>,
    refused: &Notify,
) {
    let watch = watch_resource(api, resource, Some(&name.namespace), Some(&name.name));
    let mut events = std::pin::pin!(watch);
    let mut listed = false;
    while let Some(event) = events.next().await {
        if let Ok(CacheEvent::ListBegins) = event {
            listed = false;
        }
        listed |= matches!(event, Ok(CacheEvent::Listed(_)));
        let found = match event {
            Ok(CacheEvent::ListEnds) if listed => continue,
            Ok(CacheEvent::ListEnds | CacheEvent::Deleted(_)) => ReferenceState::Missing,
            Ok(CacheEvent::Listed(object) | CacheEvent::Applied(object)) => {
                ReferenceState::There(Arc::new(object))
            }
            // The others are events of our own writes, which no watch sends.
            Ok(
                CacheEvent::ListBegins
                | CacheEvent::Wrote(_)
                | CacheEvent::Read(_)
                | CacheEvent::Deleting(..)
                | CacheEvent::Missing(..)
                | CacheEvent::Restored,
            ) => continue,
            Err(error) => {
                let failure = WatchFailure::of(&error);
                if failure.is_ungranted {
                    refused.notify_one();
                }
                ReferenceState::Unreadable(failure.why.into())
            }
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

impl ReferenceState {
    fn is_changed_by(&self, found: &Self) -> bool {
        match (self, found) {
            // After the cluster was restored, a version may be given a second time.
            (Self::There(one), Self::There(other)) => {
                one.uid != other.uid || one.version != other.version || one.json() != other.json()
            }
            // A watch that breaks says nothing about an object that was seen.
            (Self::There(_), Self::Unreadable(_)) | (Self::Missing, Self::Missing) => false,
            (Self::Unreadable(one), Self::Unreadable(other))
            | (Self::TakenAway(one), Self::TakenAway(other)) => one != other,
            (Self::NotYet | Self::Missing | Self::There(_) | Self::Unreadable(_) | Self::TakenAway(_), _) => {
                true
            }
        }
    }
}

impl ReferenceKind {
    pub(crate) fn resource(self) -> Resource {
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

impl std::fmt::Display for ReferenceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        })
    }
}

/// The object as messages name it: `ConfigMap hello/hook`.
impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
