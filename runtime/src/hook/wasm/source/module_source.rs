//! Modules as ConfigMaps hold them, under one key or in parts that an index names: followed, so that a changed one is
//! loaded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::hook::ModuleRef;
use metahook_core::api::packed::{Index, IndexError, PART_KEY, index_key};
use metahook_core::api::reason::ConditionReason;
use metahook_core::text::shorten;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::module::{Digest, Module, ModuleError, Runtime};
use crate::cluster::object_watch::{Follower, Kind, Known, ObjectWatches, Reference, any_changed};
use crate::sync::lock;

/// Bytes are tried again this much after their last refusal is forgotten.
const SOON: Duration = Duration::from_secs(10);

/// The modules that running controllers name, each followed once.
pub(crate) struct StoredModules {
    objects: Arc<ObjectWatches>,
    runtime: Arc<Runtime>,
    followed: Mutex<BTreeMap<ModuleRef, Weak<Stored>>>,
}

/// One of them. Whoever holds it keeps it followed.
pub(crate) struct Stored {
    state: watch::Receiver<ModuleState>,
    _task: AbortOnDropHandle<()>,
}

/// The last good module, and what is wrong with the one that should be called.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModuleState {
    pub(crate) module: Option<Arc<Module>>,
    pub(crate) problem: Option<StoredError>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoredError {
    #[error(
        "there is no ConfigMap {namespace}/{name}: create it, for example with `kubectl -n {namespace} create configmap {name} --from-file={key}=MODULE.wasm`"
    )]
    NoConfigMap { namespace: String, name: String, key: String },
    #[error("the ConfigMap {namespace}/{name} has no key {key:?} in binaryData or data; it has {found}")]
    NoKey { namespace: String, name: String, key: String, found: String },
    #[error(
        "the ConfigMap {namespace}/{name} has both {key:?}, a module, and {:?}, the index of one: remove one of the keys",
        index_key(key)
    )]
    TwoModules { namespace: String, name: String, key: String },
    #[error("the {name} cannot be read: {message}")]
    Unreadable { name: Reference, message: Arc<str> },
    #[error("ConfigMap {namespace}/{name}, key {:?}: {source}", index_key(key))]
    Index { namespace: String, name: String, key: String, source: IndexError },
    #[error(
        "there is no {part}, part {} of {count} of the module in ConfigMap {of}: apply all that `metahook pack` wrote",
        number + 1
    )]
    NoPart { part: Reference, number: usize, count: usize, of: String },
    #[error(
        "the {part}, a part of the module in ConfigMap {of}, has no binaryData.{PART_KEY}: pack it again"
    )]
    EmptyPart { part: Reference, of: String },
    #[error("ConfigMap {namespace}/{name}, key {key}: {source}")]
    Module {
        namespace: String,
        name: String,
        key: String,
        /// Where the bytes could be unpacked.
        found: Option<String>,
        source: Box<ModuleError>,
    },
    #[error(
        "ConfigMap {namespace}/{name}, key {key}: the module's digest is {found}, and the spec pins {pinned}: update the pin or put the module back"
    )]
    Pinned { namespace: String, name: String, key: String, found: String, pinned: String },
    #[error(
        "ConfigMap {namespace}/{name}: the parts make a module of {size} bytes with the digest {found}, and the index says {wanted}: pack it again"
    )]
    Mixed { namespace: String, name: String, size: usize, found: String, wanted: String },
}

impl StoredError {
    /// The reason of the condition `ModulesLoaded`.
    pub(crate) fn reason(&self) -> ConditionReason {
        match self {
            Self::NoConfigMap { .. } => ConditionReason::ConfigMapNotFound,
            Self::NoKey { .. } => ConditionReason::KeyNotFound,
            Self::TwoModules { .. } => ConditionReason::KeysConflict,
            Self::Unreadable { .. } => ConditionReason::ConfigMapUnreadable,
            Self::Index { .. } => ConditionReason::IndexInvalid,
            Self::NoPart { .. } | Self::EmptyPart { .. } => ConditionReason::PartNotFound,
            Self::Module { .. } => ConditionReason::ModuleInvalid,
            Self::Pinned { .. } | Self::Mixed { .. } => ConditionReason::DigestMismatch,
        }
    }

    /// The digest of the module that is not loaded, where it is known.
    pub(crate) fn refused(&self) -> Option<&str> {
        match self {
            Self::Module { found, .. } => found.as_deref(),
            Self::Pinned { found, .. } | Self::Mixed { found, .. } => Some(found),
            Self::NoConfigMap { .. }
            | Self::NoKey { .. }
            | Self::TwoModules { .. }
            | Self::Unreadable { .. }
            | Self::Index { .. }
            | Self::NoPart { .. }
            | Self::EmptyPart { .. } => None,
        }
    }

    /// When the same bytes are worth another try, though nobody changed them: a busy machine may have been why.
    fn again(&self) -> Option<Duration> {
        match self {
            Self::Module { source, .. } => {
                Some(source.holds_for()).filter(|pause| *pause != Duration::MAX).map(|pause| pause + SOON)
            }
            _ => None,
        }
    }
}

impl StoredModules {
    pub(crate) fn new(objects: Arc<ObjectWatches>, runtime: Arc<Runtime>) -> Self {
        Self { objects, runtime, followed: Mutex::default() }
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    pub(crate) fn follow(&self, what: &ModuleRef) -> Arc<Stored> {
        let mut followed = lock(&self.followed);
        followed.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = followed.get(what).and_then(Weak::upgrade) {
            return known;
        }
        let (sender, state) = watch::channel(ModuleState::default());
        let loader = Loader::new(Arc::clone(&self.objects), Arc::clone(&self.runtime), what.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(loader.run(sender)));
        let new = Arc::new(Stored { state, _task: task });
        followed.insert(what.clone(), Arc::downgrade(&new));
        new
    }
}

impl Stored {
    pub(crate) fn state(&self) -> watch::Receiver<ModuleState> {
        self.state.clone()
    }
}

/// What has to be there before a module can be loaded.
enum Stage {
    /// Something is not known yet.
    Wait,
    /// The bytes as they are stored, and what an index says they are.
    Complete(Vec<u8>, Option<Index>),
    /// The index names the module that is loaded already.
    Same(Arc<Module>),
}

/// What a ConfigMap holds under a key.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Plain(Vec<u8>),
    Packed(Index),
}

struct Loader {
    objects: Arc<ObjectWatches>,
    runtime: Arc<Runtime>,
    what: ModuleRef,
    map: Follower,
    /// Followed only until the module is loaded.
    parts: BTreeMap<String, Follower>,
}

impl Loader {
    fn new(objects: Arc<ObjectWatches>, runtime: Arc<Runtime>, what: ModuleRef) -> Self {
        let map = objects.follow(what.reader.as_ref(), &config_map(&what.namespace, &what.name));
        Self { objects, runtime, what, map, parts: BTreeMap::new() }
    }

    async fn run(mut self, state: watch::Sender<ModuleState>) {
        loop {
            let now = state.borrow().module.clone();
            let loaded = match self.stage(now.as_ref()) {
                Ok(Stage::Wait) => None,
                Ok(Stage::Complete(stored, index)) => Some(self.load(stored, index).await),
                Ok(Stage::Same(module)) => Some(Ok(module)),
                Err(problem) => Some(Err(problem)),
            };
            if let Some(Ok(_)) = loaded {
                self.parts.clear();
            }
            let again = loaded.as_ref().and_then(|loaded| loaded.as_ref().err()?.again());
            if let Some(loaded) = loaded {
                publish(&state, loaded);
            }
            let changed = any_changed([&mut self.map].into_iter().chain(self.parts.values_mut()));
            match again {
                None => changed.await,
                // Either way it is looked at again.
                Some(pause) => drop(tokio::time::timeout(pause, changed).await),
            }
        }
    }

    fn stage(&mut self, now: Option<&Arc<Module>>) -> Result<Stage, StoredError> {
        let what = &self.what;
        let (namespace, name, key) = (what.namespace.clone(), what.name.clone(), what.key.clone());
        let content = match self.map.now() {
            Known::NotYet => return Ok(Stage::Wait),
            Known::Missing => return Err(StoredError::NoConfigMap { namespace, name, key }),
            Known::Unreadable(message) => {
                return Err(StoredError::Unreadable { name: config_map(&namespace, &name), message });
            }
            Known::There(map) => content(what, map.json(), self.runtime.largest())?,
        };
        let index = match content {
            Content::Plain(bytes) => return Ok(Stage::Complete(bytes, None)),
            Content::Packed(index) => index,
        };
        if let Some(pinned) = self.what.sha256.clone().filter(|pinned| *pinned != index.sha256) {
            return Err(StoredError::Pinned { namespace, name, key, found: index.sha256, pinned });
        }
        match now.filter(|module| module.digest.hex() == index.sha256) {
            Some(module) => Ok(Stage::Same(Arc::clone(module))),
            None => self.join(index),
        }
    }

    /// The bytes of all parts, one after the other.
    fn join(&mut self, index: Index) -> Result<Stage, StoredError> {
        self.parts.retain(|name, _| index.parts.contains(name));
        let (mut stored, mut waits) = (Vec::new(), false);
        for (number, name) in index.parts.iter().enumerate() {
            let part = config_map(&self.what.namespace, name);
            let follow = || self.objects.follow(self.what.reader.as_ref(), &part);
            let known = self.parts.entry(name.clone()).or_insert_with(follow).now();
            let of = || format!("{}/{}", self.what.namespace, self.what.name);
            match known {
                Known::NotYet => waits = true,
                Known::Missing => {
                    return Err(StoredError::NoPart { part, number, count: index.parts.len(), of: of() });
                }
                Known::Unreadable(message) => return Err(StoredError::Unreadable { name: part, message }),
                Known::There(map) => {
                    let bytes =
                        read(&part, map.json())?.binary_data.and_then(|mut data| data.remove(PART_KEY));
                    stored.extend(bytes.ok_or_else(|| StoredError::EmptyPart { part, of: of() })?.0);
                }
            }
        }
        Ok(if waits { Stage::Wait } else { Stage::Complete(stored, Some(index)) })
    }

    async fn load(&self, stored: Vec<u8>, index: Option<Index>) -> Result<Arc<Module>, StoredError> {
        let ModuleRef { namespace, name, key, sha256, reader: _ } = self.what.clone();
        let refused = |source, found| StoredError::Module {
            namespace: namespace.clone(),
            name: name.clone(),
            key: key.clone(),
            found,
            source: Box::new(source),
        };
        let bytes = self.runtime.unpack(stored).await.map_err(|source| refused(source, None))?;
        let (found, size) = (Digest::of(&bytes).hex(), bytes.len());
        if let Some(index) =
            index.filter(|index| index.sha256 != found || u64::try_from(size) != Ok(index.size))
        {
            let wanted = format!("{} bytes with {}", index.size, index.sha256);
            return Err(StoredError::Mixed { namespace, name, size, found, wanted });
        }
        if let Some(pinned) = sha256.filter(|pinned| *pinned != found) {
            return Err(StoredError::Pinned { namespace, name, key, found, pinned });
        }
        self.runtime.load(bytes).await.map_err(|source| refused(source, Some(found)))
    }
}

fn publish(state: &watch::Sender<ModuleState>, loaded: Result<Arc<Module>, StoredError>) {
    state.send_if_modified(|state| match loaded {
        Ok(module) => {
            let same =
                state.problem.is_none() && state.module.as_ref().is_some_and(|m| m.digest == module.digest);
            *state = ModuleState { module: Some(module), problem: None };
            !same
        }
        Err(problem) => {
            let same = state.problem.as_ref() == Some(&problem);
            state.problem = Some(problem);
            !same
        }
    });
}

fn config_map(namespace: &str, name: &str) -> Reference {
    Reference { kind: Kind::ConfigMap, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn read(name: &Reference, json: &str) -> Result<ConfigMap, StoredError> {
    serde_json::from_str(json)
        .map_err(|error| StoredError::Unreadable { name: name.clone(), message: error.to_string().into() })
}

/// What is under the key: in `binaryData`, else in `data`; or the index of a packed module.
fn content(what: &ModuleRef, json: &str, most: u64) -> Result<Content, StoredError> {
    let (namespace, name, key) = (what.namespace.clone(), what.name.clone(), what.key.clone());
    let map = read(&config_map(&namespace, &name), json)?;
    let (mut binary, mut text) = (map.binary_data.unwrap_or_default(), map.data.unwrap_or_default());
    let index = text.remove(&index_key(&key));
    let plain = binary.remove(&key).map(|bytes| bytes.0);
    match (plain.or_else(|| text.remove(&key).map(String::into_bytes)), index) {
        (Some(bytes), None) => Ok(Content::Plain(bytes)),
        (Some(_), Some(_)) => Err(StoredError::TwoModules { namespace, name, key }),
        (None, Some(index)) => Index::parse(&index, most)
            .map(Content::Packed)
            .map_err(|source| StoredError::Index { namespace, name, key, source }),
        (None, None) => {
            let keys: Vec<_> = binary.into_keys().chain(text.into_keys()).collect();
            let found =
                if keys.is_empty() { "no keys at all".to_owned() } else { shorten(&keys.join(", "), 300) };
            Err(StoredError::NoKey { namespace, name, key, found })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hook(json: &str) -> Result<Content, String> {
        let (namespace, name, key) = ("n".to_owned(), "m".to_owned(), "hook.wasm".to_owned());
        let what = ModuleRef { namespace, name, key, sha256: None, reader: None };
        content(&what, json, 1 << 20).map_err(|error| error.to_string())
    }

    #[test]
    fn bytes_come_from_binary_data_and_else_from_data() {
        let both = r#"{"binaryData":{"hook.wasm":"AGFzbQ=="},"data":{"hook.wasm":"text"}}"#;
        assert_eq!(hook(both), Ok(Content::Plain(b"\0asm".to_vec())));
        assert_eq!(hook(r#"{"data":{"hook.wasm":"text"}}"#), Ok(Content::Plain(b"text".to_vec())));
    }

    #[test]
    fn a_missing_key_names_those_that_are_there() {
        assert_eq!(
            hook(r#"{"binaryData":{"a.wasm":""},"data":{"b":""}}"#).unwrap_err(),
            "the ConfigMap n/m has no key \"hook.wasm\" in binaryData or data; it has a.wasm, b"
        );
        assert!(hook("{}").unwrap_err().ends_with("it has no keys at all"));
    }

    #[test]
    fn an_index_names_the_parts_and_stands_alone() {
        let index = Index::of("m", &"0".repeat(64), 1000, 2);
        let text = json!(index).to_string();
        let map = |extra: serde_json::Value| {
            json!({"data": {"hook.wasm.json": text}, "binaryData": extra}).to_string()
        };
        assert_eq!(hook(&map(json!({}))), Ok(Content::Packed(index)));
        assert_eq!(
            hook(&map(json!({"hook.wasm": "AGFzbQ=="}))).unwrap_err(),
            "the ConfigMap n/m has both \"hook.wasm\", a module, and \"hook.wasm.json\", the index of one: remove one of the keys"
        );
        assert_eq!(
            hook(r#"{"data":{"hook.wasm.json":"{}"}}"#).unwrap_err(),
            "ConfigMap n/m, key \"hook.wasm.json\": it is not the JSON of an index (missing field `sha256` at line 1 column 2): write it with `metahook pack`"
        );
    }
}
