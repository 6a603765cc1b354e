//! Where a module comes from: a ConfigMap that is followed, so that a changed module is called from then on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use metahook_core::index::Event;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::spec::hook::ModuleRef;
use metahook_core::text::shorten;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::module::{Digest, Module, ModuleError, Runtime};
use crate::cluster::rest::Rest;
use crate::cluster::watch::{Scope, watch as watch_resource};

/// The modules that running controllers name.
pub(crate) struct Modules {
    rest: Rest,
    runtime: Arc<Runtime>,
    followed: Mutex<BTreeMap<ModuleRef, Weak<Followed>>>,
}

/// One module in one ConfigMap. Whoever holds it keeps the watch of that ConfigMap alive.
pub(crate) struct Followed {
    state: watch::Sender<ModuleState>,
    task: Mutex<Option<AbortHandle>>,
}

/// What is called, and what is wrong with what should be called.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModuleState {
    /// The last good module: a bad one never takes its place.
    pub(crate) module: Option<Arc<Module>>,
    pub(crate) problem: Option<SourceError>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SourceError {
    #[error(
        "there is no ConfigMap {namespace}/{name}: create it, for example with `kubectl -n {namespace} create configmap {name} --from-file={key}=MODULE.wasm`"
    )]
    NoConfigMap { namespace: String, name: String, key: String },
    #[error("the ConfigMap {namespace}/{name} has no key {key:?} in binaryData or data; it has {found}")]
    NoKey { namespace: String, name: String, key: String, found: String },
    #[error("the ConfigMap {namespace}/{name} cannot be read: {message}")]
    Unreadable { namespace: String, name: String, message: String },
    #[error("ConfigMap {namespace}/{name}, key {key}: {source}")]
    Module { namespace: String, name: String, key: String, source: ModuleError },
    #[error(
        "ConfigMap {namespace}/{name}, key {key}: the module's digest is {found}, and the spec pins {pinned}: update the pin or put the module back"
    )]
    Pinned { namespace: String, name: String, key: String, found: String, pinned: String },
}

impl SourceError {
    /// The reason of the condition `ModulesLoaded`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NoConfigMap { .. } => "ConfigMapNotFound",
            Self::NoKey { .. } => "KeyNotFound",
            Self::Unreadable { .. } => "ConfigMapUnreadable",
            Self::Module { .. } => "ModuleInvalid",
            Self::Pinned { .. } => "DigestMismatch",
        }
    }
}

impl Modules {
    pub(crate) fn new(rest: Rest, runtime: Arc<Runtime>) -> Self {
        Self { rest, runtime, followed: Mutex::default() }
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    pub(crate) fn follow(&self, what: &ModuleRef) -> Arc<Followed> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|_, known| known.strong_count() > 0);
        if let Some(known) = followed.get(what).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Followed { state: watch::Sender::default(), task: Mutex::default() });
        let task = follow(self.rest.clone(), Arc::clone(&self.runtime), what.clone(), new.state.clone());
        *new.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(tokio::spawn(task).abort_handle());
        followed.insert(what.clone(), Arc::downgrade(&new));
        new
    }
}

impl Followed {
    /// Changes of the module; the present state counts as the first.
    pub(crate) fn changes(&self) -> watch::Receiver<ModuleState> {
        let mut changes = self.state.subscribe();
        changes.mark_changed();
        changes
    }

    pub(crate) fn module(&self) -> Option<Arc<Module>> {
        self.state.borrow().module.clone()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

async fn follow(rest: Rest, runtime: Arc<Runtime>, what: ModuleRef, state: watch::Sender<ModuleState>) {
    let maps = Arc::new(Resource {
        gvk: Gvk::new("v1", "ConfigMap"),
        plural: "configmaps".into(),
        namespaced: true,
        has_status: false,
    });
    let scope = Scope::One { namespace: what.namespace.clone(), name: what.name.clone() };
    let mut events = std::pin::pin!(watch_resource(rest.client(), &maps, &scope));
    let mut listed = false;
    while let Some(event) = events.next().await {
        let loaded = match event {
            Ok(Event::ListBegins) => {
                listed = false;
                continue;
            }
            Ok(Event::ListEnds) if listed => continue,
            Ok(Event::ListEnds | Event::Deleted(_)) => Err(no_config_map(&what)),
            Ok(Event::Listed(map) | Event::Applied(map)) => {
                listed = true;
                load(&runtime, &what, &map).await
            }
            // Events of our own writes; the watch tells none.
            Ok(Event::Wrote(_) | Event::Deleting(..) | Event::Missing(..)) => continue,
            // A watch that breaks says nothing about a module that is there.
            Err(_) if state.borrow().module.is_some() => continue,
            Err(error) => Err(SourceError::Unreadable {
                namespace: what.namespace.clone(),
                name: what.name.clone(),
                message: format!("{error}"),
            }),
        };
        publish(&state, loaded);
    }
}

fn publish(state: &watch::Sender<ModuleState>, loaded: Result<Arc<Module>, SourceError>) {
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

fn no_config_map(what: &ModuleRef) -> SourceError {
    SourceError::NoConfigMap {
        namespace: what.namespace.clone(),
        name: what.name.clone(),
        key: what.key.clone(),
    }
}

async fn load(runtime: &Arc<Runtime>, what: &ModuleRef, map: &Object) -> Result<Arc<Module>, SourceError> {
    let (namespace, name, key) = (what.namespace.clone(), what.name.clone(), what.key.clone());
    let stored = module_bytes(what, map.json())?;
    let invalid = |source| SourceError::Module {
        namespace: namespace.clone(),
        name: name.clone(),
        key: key.clone(),
        source,
    };
    let bytes = runtime.unpack(stored).await.map_err(invalid)?;
    if let Some(pinned) = &what.sha256 {
        let found = Digest::of(&bytes).hex();
        if found != *pinned {
            return Err(SourceError::Pinned { namespace, name, key, found, pinned: pinned.clone() });
        }
    }
    runtime.load(bytes).await.map_err(invalid)
}

/// The bytes under the key: of `binaryData`, else of `data`.
fn module_bytes(what: &ModuleRef, json: &str) -> Result<Vec<u8>, SourceError> {
    let map: ConfigMap = serde_json::from_str(json).map_err(|error| SourceError::Unreadable {
        namespace: what.namespace.clone(),
        name: what.name.clone(),
        message: error.to_string(),
    })?;
    let (mut binary, mut text) = (map.binary_data.unwrap_or_default(), map.data.unwrap_or_default());
    let bytes = binary.remove(&what.key).map(|bytes| bytes.0);
    bytes.or_else(|| text.remove(&what.key).map(String::into_bytes)).ok_or_else(|| {
        let keys: Vec<_> = binary.into_keys().chain(text.into_keys()).collect();
        SourceError::NoKey {
            namespace: what.namespace.clone(),
            name: what.name.clone(),
            key: what.key.clone(),
            found: if keys.is_empty() { "no keys at all".to_owned() } else { shorten(&keys.join(", "), 300) },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what() -> ModuleRef {
        ModuleRef { namespace: "n".into(), name: "m".into(), key: "hook.wasm".into(), sha256: None }
    }

    #[test]
    fn bytes_come_from_binary_data_and_else_from_data() {
        let both = r#"{"binaryData":{"hook.wasm":"AGFzbQ=="},"data":{"hook.wasm":"text"}}"#;
        assert_eq!(module_bytes(&what(), both), Ok(b"\0asm".to_vec()));
        assert_eq!(module_bytes(&what(), r#"{"data":{"hook.wasm":"text"}}"#), Ok(b"text".to_vec()));
    }

    #[test]
    fn a_missing_key_names_those_that_are_there() {
        let error = module_bytes(&what(), r#"{"binaryData":{"a.wasm":""},"data":{"b":""}}"#).unwrap_err();
        assert!(
            error.to_string().ends_with("has no key \"hook.wasm\" in binaryData or data; it has a.wasm, b"),
            "{error}"
        );
        assert!(module_bytes(&what(), "{}").unwrap_err().to_string().ends_with("it has no keys at all"));
    }
}
