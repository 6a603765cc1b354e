//! Modules in ConfigMaps, under one key or in parts that an index names: followed, so that a changed one is loaded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::api::hook::ModuleRef;
use metahook_core::api::packed::{Index, PART_KEY, index_key};
use metahook_core::shorten;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::module_file::ModuleFile;
use super::module_state::{ModuleSourceError, ModuleState, publish};
use super::registry::ModuleRegistry;
use super::scripts::Caller;
use crate::cluster::named_objects::{
    Follower, ObjectWatches, Reference, ReferenceKind, ReferenceState, any_changed,
};
use crate::hook::wasm::compile::{Digest, retry_delay};
use crate::hook::wasm::run::Module;
use crate::sync::lock;

/// The sources of all running controllers' modules, each followed once.
pub(super) struct ModuleSources {
    objects: Arc<ObjectWatches>,
    pub(super) registry: Arc<ModuleRegistry>,
    followed: Mutex<BTreeMap<ModuleRef, Weak<ModuleSource>>>,
    /// Holds the module of all sources, in place of what they name.
    file: Option<PathBuf>,
}

/// One source, followed as long as it is held.
pub(super) struct ModuleSource {
    pub(super) state: watch::Receiver<ModuleState>,
    _task: AbortOnDropHandle<()>,
}

impl ModuleSources {
    pub(super) fn new(objects: Arc<ObjectWatches>, registry: Arc<ModuleRegistry>) -> Self {
        Self { objects, registry, followed: Mutex::default(), file: None }
    }

    pub(super) fn out_of_file(self, path: PathBuf) -> Self {
        Self { file: Some(path), ..self }
    }

    /// `controller`: in whose turn a script is compiled. Of several controllers with one source it is the first.
    pub(super) fn follow(&self, spec: &ModuleRef, controller: &str) -> Arc<ModuleSource> {
        let mut followed = lock(&self.followed);
        followed.retain(|_, source| source.strong_count() > 0);
        if let Some(source) = followed.get(spec).and_then(Weak::upgrade) {
            return source;
        }
        let (sender, state) = watch::channel(ModuleState::default());
        let registry = Arc::clone(&self.registry);
        let task = if let Some(path) = &self.file {
            tokio::spawn(ModuleFile::new(path.clone(), registry).run(sender))
        } else {
            tokio::spawn(
                Loader::new(Arc::clone(&self.objects), registry, spec.clone(), controller).run(sender),
            )
        };
        let task = AbortOnDropHandle::new(task);
        let source = Arc::new(ModuleSource { state, _task: task });
        followed.insert(spec.clone(), Arc::downgrade(&source));
        source
    }
}

/// The state of the objects that a module is read from.
enum Stage {
    /// An object is not known yet.
    Wait,
    /// The bytes as they are stored, with their index where they come in parts.
    Complete(Vec<u8>, Option<Index>),
    /// The index has the digest of the loaded module.
    Same(Arc<Module>),
}

/// The content of a ConfigMap under a key.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Plain(Vec<u8>),
    Packed(Index),
}

struct Loader {
    objects: Arc<ObjectWatches>,
    registry: Arc<ModuleRegistry>,
    spec: ModuleRef,
    controller: Box<str>,
    name: Arc<Reference>,
    map: Follower,
    /// Followed only until the module is loaded.
    parts: BTreeMap<String, Follower>,
}

impl Loader {
    fn new(
        objects: Arc<ObjectWatches>,
        registry: Arc<ModuleRegistry>,
        spec: ModuleRef,
        controller: &str,
    ) -> Self {
        let name = config_map(&spec.namespace, &spec.name);
        let map = objects.follow(spec.reader.as_ref(), &name);
        let controller = controller.into();
        Self { objects, registry, spec, controller, name, map, parts: BTreeMap::new() }
    }

    async fn run(mut self, state: watch::Sender<ModuleState>) {
        // In a row, of the same objects.
        let mut failures = 0;
        loop {
            let now = state.borrow().module.clone();
            if let Some(language) = self.spec.language
                && !self.registry.has_runner(language)
            {
                let language = language.as_str();
                publish(&state, Err(ModuleSourceError::RunnerNotReady { language }));
            }
            let loaded = match self.stage(now.as_ref()) {
                Ok(Stage::Wait) => None,
                Ok(Stage::Complete(stored, index)) => Some(self.load(stored, index, failures > 0).await),
                Ok(Stage::Same(module)) => Some(Ok(module)),
                Err(problem) => Some(Err(problem)),
            };
            if let Some(Ok(_)) = loaded {
                self.parts.clear();
            }
            let may_heal = matches!(&loaded, Some(Err(problem)) if problem.may_heal());
            if let Some(loaded) = loaded {
                publish(&state, loaded);
            }
            let changed = any_changed([&mut self.map].into_iter().chain(self.parts.values_mut()));
            if !may_heal {
                changed.await;
                failures = 0;
                continue;
            }
            failures += 1;
            // A change ends the delay.
            if tokio::time::timeout(retry_delay(failures), changed).await.is_ok() {
                failures = 0;
            }
        }
    }

    fn stage(&mut self, now: Option<&Arc<Module>>) -> Result<Stage, ModuleSourceError> {
        let ModuleRef { key, sha256, .. } = self.spec.clone();
        let name = || Arc::clone(&self.name);
        let content = match self.map.now() {
            ReferenceState::NotYet => return Ok(Stage::Wait),
            ReferenceState::Missing => return Err(ModuleSourceError::NoConfigMap { map: name(), key }),
            ReferenceState::Unreadable(message) => {
                return Err(ModuleSourceError::Unreadable { map: name(), message });
            }
            ReferenceState::TakenAway(message) => {
                return Err(ModuleSourceError::TakenAway { map: name(), message });
            }
            ReferenceState::There(map) => {
                content(name(), key.clone(), map.json(), self.registry.bounds.size)?
            }
        };
        let index = match content {
            Content::Plain(bytes) => return Ok(Stage::Complete(bytes, None)),
            Content::Packed(index) => index,
        };
        if let Some(pinned) = sha256.filter(|pinned| *pinned != index.sha256) {
            return Err(ModuleSourceError::Pinned { map: name(), key, found: index.sha256, pinned });
        }
        match now.filter(|module| module.digest.hex() == index.sha256) {
            Some(module) => Ok(Stage::Same(Arc::clone(module))),
            None => self.join(index),
        }
    }

    /// The bytes of all parts, one after the other.
    fn join(&mut self, index: Index) -> Result<Stage, ModuleSourceError> {
        self.parts.retain(|name, _| index.parts.contains(name));
        let (mut stored, mut waits) = (Vec::new(), false);
        for (number, name) in index.parts.iter().enumerate() {
            let part = config_map(&self.spec.namespace, name);
            let follow = || self.objects.follow(self.spec.reader.as_ref(), &part);
            let known = self.parts.entry(name.clone()).or_insert_with(follow).now();
            let map = Arc::clone(&self.name);
            match known {
                ReferenceState::NotYet => waits = true,
                ReferenceState::Missing => {
                    return Err(ModuleSourceError::NoPart { part, number, count: index.parts.len(), map });
                }
                ReferenceState::Unreadable(message) | ReferenceState::TakenAway(message) => {
                    return Err(ModuleSourceError::Unreadable { map: part, message });
                }
                ReferenceState::There(object) => {
                    let data = read(&part, object.json())?.binary_data;
                    let bytes = data.and_then(|mut data| data.remove(PART_KEY));
                    stored.extend(bytes.ok_or(ModuleSourceError::EmptyPart { part, map })?.0);
                }
            }
        }
        Ok(if waits { Stage::Wait } else { Stage::Complete(stored, Some(index)) })
    }

    async fn load(
        &self,
        stored: Vec<u8>,
        index: Option<Index>,
        is_retry: bool,
    ) -> Result<Arc<Module>, ModuleSourceError> {
        let ModuleRef { key, sha256, language, .. } = self.spec.clone();
        let map = Arc::clone(&self.name);
        let refused = |source, found| {
            let (map, key) = (Arc::clone(&map), key.clone());
            ModuleSourceError::Module { map, key, found, source: Box::new(source) }
        };
        let module = self.registry.unpack(stored).await.map_err(|source| refused(source, None))?;
        let (found, size) = (Digest::of(&module.bytes).hex(), module.bytes.len());
        if let Some(index) =
            index.filter(|index| index.sha256 != found || u64::try_from(size) != Ok(index.size))
        {
            let wanted = format!("{} bytes with {}", index.size, index.sha256);
            return Err(ModuleSourceError::Mixed { map, size, found, wanted });
        }
        if let Some(pinned) = sha256.filter(|pinned| *pinned != found) {
            return Err(ModuleSourceError::Pinned { map, key, found, pinned });
        }
        let loaded = match language {
            None => self.registry.load_for(module, is_retry).await,
            Some(language) => {
                let caller = Caller { controller: &self.controller, is_retry };
                self.registry.load_script_for(language, &key, module.bytes, caller).await
            }
        };
        loaded.map_err(|source| refused(source, Some(found)))
    }
}

fn config_map(namespace: &str, name: &str) -> Arc<Reference> {
    Arc::new(Reference {
        kind: ReferenceKind::ConfigMap,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn read(map: &Arc<Reference>, json: &str) -> Result<ConfigMap, ModuleSourceError> {
    serde_json::from_str(json).map_err(|error| ModuleSourceError::Unreadable {
        map: Arc::clone(map),
        message: error.to_string().into(),
    })
}

/// The content under the key: in `binaryData`, else in `data`; or the index of a packed module.
fn content(
    map: Arc<Reference>,
    key: String,
    json: &str,
    max_size: u64,
) -> Result<Content, ModuleSourceError> {
    let stored = read(&map, json)?;
    let (mut binary, mut text) = (stored.binary_data.unwrap_or_default(), stored.data.unwrap_or_default());
    let index = text.remove(&index_key(&key));
    let plain = binary.remove(&key).map(|bytes| bytes.0);
    match (plain.or_else(|| text.remove(&key).map(String::into_bytes)), index) {
        (Some(bytes), None) => Ok(Content::Plain(bytes)),
        (Some(_), Some(_)) => Err(ModuleSourceError::TwoModules { map, key }),
        (None, Some(index)) => Index::parse(&index, max_size)
            .map(Content::Packed)
            .map_err(|source| ModuleSourceError::Index { map, key, source }),
        (None, None) => {
            let keys: Vec<_> = binary.into_keys().chain(text.into_keys()).collect();
            let found =
                if keys.is_empty() { "no keys at all".to_owned() } else { shorten(&keys.join(", "), 300) };
            Err(ModuleSourceError::NoKey { map, key, found })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hook(json: &str) -> Result<Content, String> {
        content(config_map("n", "m"), "hook.wasm".to_owned(), json, 1 << 20)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn bytes_come_from_binary_data_and_else_from_data() {
        let both = r#"{"binaryData":{"hook.wasm":"AGFzbQ=="},"data":{"hook.wasm":"text"}}"#;
        assert_eq!(hook(both), Ok(Content::Plain(b"\0asm".to_vec())));
        assert_eq!(hook(r#"{"data":{"hook.wasm":"text"}}"#), Ok(Content::Plain(b"text".to_vec())));
    }

    #[test]
    fn a_missing_key_is_an_error_that_names_the_others() {
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
