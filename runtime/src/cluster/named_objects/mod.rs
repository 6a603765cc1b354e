//! ConfigMaps and Secrets by name: watched as long as a follower holds them, and those of packed modules and of the seed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use http::{Method, StatusCode};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::read_access::{Lists, MAX_GRANT_AGE};
use metahook_core::api::server_objects::SEED;
use metahook_core::cache::CacheEvent;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::access::{self, ReviewError};
use crate::cluster::api_client::{Answer, ApiClient, SERVER_SIDE_APPLY, Unreachable};
use crate::cluster::lists::ListError;
use crate::cluster::paths::{list_path, object_path, segment};
use crate::cluster::rights::WatchFailure;
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
    /// It was seen, and the account that reads it no longer may.
    TakenAway(Arc<str>),
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

const OWN: &str = "it is the server's own, which no hook is shown: name another one";

async fn feed(
    api: ApiClient,
    reader: Option<ServiceAccountRef>,
    name: Reference,
    known: watch::Sender<Known>,
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
    known: &watch::Sender<Known>,
) {
    let resource = Arc::new(name.kind.resource());
    if api.server_objects(&resource).has(&Key::new(&name.namespace, &name.name)) {
        known.send_replace(Known::Unreadable(OWN.into()));
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
        known.send_replace(Known::TakenAway(why.into()));
        while !matches!(review().await, Ok(None)) {
            tokio::time::sleep(REVIEW_DELAY).await;
        }
    }
}

/// An account without the right, or an API server that gave no answer, is asked about again after this.
const REVIEW_DELAY: Duration = Duration::from_secs(10);

/// Ends when the account that reads the object no longer may: it is asked about while the object is known, every few minutes and
/// where the API server refuses the watch.
async fn taken_away<R>(known: &watch::Sender<Known>, refused: &Notify, review: impl Fn() -> R) -> String
where
    R: Future<Output = Result<Option<String>, ReviewError>>,
{
    let mut delay = MAX_GRANT_AGE;
    loop {
        drop(tokio::time::timeout(delay, refused.notified()).await);
        delay = MAX_GRANT_AGE;
        if !matches!(*known.borrow(), Known::There(_)) {
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
    known: &watch::Sender<Known>,
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
            Ok(CacheEvent::ListEnds | CacheEvent::Deleted(_)) => Known::Missing,
            Ok(CacheEvent::Listed(object) | CacheEvent::Applied(object)) => Known::There(Arc::new(object)),
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
                if WatchFailure::of(&error).is_ungranted {
                    refused.notify_one();
                }
                Known::Unreadable(error_chain(&error).into())
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

impl Known {
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

impl Kind {
    fn resource(self) -> Resource {
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

#[derive(Debug, thiserror::Error)]
#[error("{verb} ConfigMap {key}")]
pub struct ConfigMapError {
    verb: &'static str,
    key: Key,
    #[source]
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the answer cannot be read")]
    Answer(#[from] serde_json::Error),
    #[error(
        "the Secret {namespace}/{SEED} has no key {SEED_FIELD:?} of {SEED_LENGTH} bytes: delete it, and a new one is made"
    )]
    NoSeed { namespace: String },
}

impl From<ListError> for Why {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Refused(answer) => Self::Refused(answer.message()),
            ListError::Unreachable(error) => error.into(),
            ListError::Answer(error) => error.into(),
        }
    }
}

const SEED_FIELD: &str = "seed";
const SEED_LENGTH: usize = 32;

/// Key of hooks' random numbers, and of what the server keeps on disk.
pub(crate) type SeedKey = [u8; SEED_LENGTH];

/// The installation's key; `lasting`: the next server has it, too.
pub(crate) struct InstallationKey {
    pub(crate) key: SeedKey,
    pub(crate) lasting: bool,
}

pub(crate) async fn read_config_map(api: &ApiClient, key: &Key) -> Result<Option<ConfigMap>, ConfigMapError> {
    let read = async {
        let answer = api.get(&object_path(&Kind::ConfigMap.resource(), key)).await?;
        if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { object(&answer).map(Some) }
    };
    read.await.map_err(|why| ConfigMapError { verb: "read", key: key.clone(), why })
}

/// At most so many are read.
const MAX_LISTED: usize = 1000;

/// The `ConfigMap`s of a namespace that have a label.
pub(crate) async fn labelled_config_maps(
    api: &ApiClient,
    namespace: &str,
    [label, value]: [&str; 2],
) -> Result<Vec<ConfigMap>, ConfigMapError> {
    let path = list_path(&Kind::ConfigMap.resource(), namespace);
    let path = format!("{path}?labelSelector={}%3D{}", segment(label), segment(value));
    let listed = async {
        let items = api.list(&path, MAX_LISTED).await?;
        items
            .iter()
            .map(|item| serde_json::from_str(item.get()).map_err(Why::Answer))
            .collect::<Result<_, Why>>()
    };
    listed.await.map_err(|why| ConfigMapError { verb: "list", key: Key::new(namespace, ""), why })
}

/// Server-side apply, also of fields that another manager owns.
pub(crate) async fn apply_config_map(
    api: &ApiClient,
    key: &Key,
    body: &Value,
    manager: &str,
) -> Result<ConfigMap, ConfigMapError> {
    let path = object_path(&Kind::ConfigMap.resource(), key);
    let path = format!("{path}?fieldManager={manager}&force=true");
    let applied = match api.patch(SERVER_SIDE_APPLY, &path, body).await {
        Ok(answer) => object(&answer),
        Err(error) => Err(error.into()),
    };
    applied.map_err(|why| ConfigMapError { verb: "apply", key: key.clone(), why })
}

/// Deletes it as it is now: what another server makes of it meanwhile stays. One that is gone already is as good.
pub(crate) async fn delete_config_map(api: &ApiClient, key: &Key) -> Result<(), ConfigMapError> {
    let Some(ConfigMap { metadata, .. }) = read_config_map(api, key).await? else { return Ok(()) };
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
    });
    let path = object_path(&Kind::ConfigMap.resource(), key);
    let why = match api.send(Method::DELETE, &path, &options).await {
        Ok(Answer { status, .. }) if status.is_success() || status == StatusCode::NOT_FOUND => {
            return Ok(());
        }
        Ok(answer) => Why::Refused(answer.message()),
        Err(error) => error.into(),
    };
    Err(ConfigMapError { verb: "delete", key: key.clone(), why })
}

impl InstallationKey {
    /// One that is forgotten with this server.
    pub(crate) fn fresh() -> Result<Self, getrandom::Error> {
        let mut key = SeedKey::default();
        getrandom::fill(&mut key)?;
        Ok(Self { key, lasting: false })
    }
}

/// The first server makes the Secret and all read it. Where that is not allowed, the key is one that this server forgets
/// when it ends: hooks answer the same way as long as it runs.
pub(crate) async fn installation_key(api: &ApiClient) -> Result<InstallationKey, getrandom::Error> {
    let fresh = InstallationKey::fresh()?;
    match stored_key(api, fresh.key).await {
        Ok(key) => Ok(InstallationKey { key, lasting: true }),
        Err(error) => {
            tracing::warn!(
                error = error_chain(&error),
                "the Secret {SEED} cannot be used: hooks that ask for random numbers get others after a restart, and compiled modules are not kept; let the server get and create Secrets in its namespace"
            );
            Ok(fresh)
        }
    }
}

async fn stored_key(api: &ApiClient, fresh: SeedKey) -> Result<SeedKey, Why> {
    let namespace = api.client.default_namespace();
    let secrets = Kind::Secret.resource();
    let path = object_path(&secrets, &Key::new(namespace, SEED));
    let found = api.get(&path).await?;
    if found.status != StatusCode::NOT_FOUND {
        return key_in(&found, namespace);
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SEED, "namespace": namespace},
        "immutable": true,
        "data": {SEED_FIELD: ByteString(fresh.to_vec())},
    });
    let made = api.send(Method::POST, &list_path(&secrets, namespace), &secret).await?;
    match made.status {
        // Another server was faster.
        StatusCode::CONFLICT => key_in(&api.get(&path).await?, namespace),
        status if status.is_success() => Ok(fresh),
        _ => Err(Why::Refused(made.message())),
    }
}

fn object<T: DeserializeOwned>(answer: &Answer) -> Result<T, Why> {
    if !answer.status.is_success() {
        return Err(Why::Refused(answer.message()));
    }
    Ok(serde_json::from_str(&answer.body)?)
}

fn key_in(answer: &Answer, namespace: &str) -> Result<SeedKey, Why> {
    let secret: Secret = object(answer)?;
    let bytes = secret.data.and_then(|mut data| data.remove(SEED_FIELD)).unwrap_or_default();
    bytes.0.try_into().map_err(|_other_length| Why::NoSeed { namespace: namespace.to_owned() })
}
