//! Modules in ConfigMaps, under one key or in parts that an index names: followed, so that a changed one is loaded.

mod content;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use metahook_core::api::hook::ModuleRef;
use metahook_core::api::packed::{Index, PART_KEY};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Version;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::kept::{Keeper, Kept, KeptVersions, Owner};
use super::module_file::ModuleFile;
use super::module_state::{ModuleSourceError, ModuleState, publish, publish_kept};
use super::registry::ModuleRegistry;
use super::scripts::Caller;
use crate::cluster::named_objects::{Follower, ObjectWatches, Reference, ReferenceState, any_changed};
use crate::hook::wasm::compile::{Digest, ModuleError, Unpacked, retry_delay};
use crate::hook::wasm::run::Module;
use crate::sync::lock;
use crate::telemetry::error_chain;
use content::{Content, config_map, content, read};

/// The sources of all running controllers' modules, each followed once.
pub(super) struct ModuleSources {
    objects: Arc<ObjectWatches>,
    pub(super) registry: Arc<ModuleRegistry>,
    followed: Mutex<BTreeMap<ModuleRef, Weak<ModuleSource>>>,
    /// Holds the module of all sources, in place of what they name.
    file: Option<PathBuf>,
    kept: Option<Arc<KeptVersions>>,
}

/// One source, followed as long as it is held.
pub(super) struct ModuleSource {
    pub(super) state: watch::Receiver<ModuleState>,
    /// The digest of the last version that is not kept.
    pub(super) not_kept: watch::Sender<Option<String>>,
    owners: watch::Sender<BTreeSet<Owner>>,
    _task: AbortOnDropHandle<()>,
}

impl ModuleSources {
    pub(super) fn new(objects: Arc<ObjectWatches>, registry: Arc<ModuleRegistry>) -> Self {
        Self { objects, registry, followed: Mutex::default(), file: None, kept: None }
    }

    pub(super) fn out_of_file(self, path: PathBuf) -> Self {
        Self { file: Some(path), ..self }
    }

    pub(super) fn keeping(self, kept: KeptVersions) -> Self {
        Self { kept: Some(Arc::new(kept)), ..self }
    }

    /// `owner`: the controller in whose turn a script is compiled. Of several controllers with one source it is the first.
    pub(super) fn follow(&self, spec: &ModuleRef, owner: Owner) -> Arc<ModuleSource> {
        let mut followed = lock(&self.followed);
        followed.retain(|_, source| source.strong_count() > 0);
        if let Some(source) = followed.get(spec).and_then(Weak::upgrade) {
            source.owners.send_if_modified(|owners| owner.joins(owners));
            return source;
        }
        let controller = Arc::clone(&owner.name);
        let (owners, followed_owners) = watch::channel(BTreeSet::from([owner]));
        let (sender, state) = watch::channel(ModuleState::default());
        let (registry, not_kept) = (Arc::clone(&self.registry), watch::Sender::new(None));
        let task = if let Some(path) = &self.file {
            tokio::spawn(ModuleFile::new(path.clone(), spec.language, registry).run(sender))
        } else {
            let keep = |versions| Keeper::new(versions, spec.clone(), followed_owners, not_kept.clone());
            let keeper = self.kept.clone().map(keep);
            let loader = Loader::new(Arc::clone(&self.objects), registry, spec.clone(), &controller);
            tokio::spawn(Loader { keeper, ..loader }.run(sender))
        };
        let source = ModuleSource { state, not_kept, owners, _task: AbortOnDropHandle::new(task) };
        let source = Arc::new(source);
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
    /// The bytes are those of the loaded module, or the index has its digest.
    Same(Arc<Module>),
}

struct Loader {
    objects: Arc<ObjectWatches>,
    registry: Arc<ModuleRegistry>,
    spec: ModuleRef,
    controller: Box<str>,
    name: Arc<Reference>,
    map: Follower,
    /// The version of `map` that was read last.
    read: Option<Version>,
    /// Bytes under the key, as they are stored, and the module that they are.
    loaded: Option<(Fingerprint, Digest)>,
    /// Followed only until the module is loaded.
    parts: BTreeMap<String, Follower>,
    keeper: Option<Keeper>,
}

/// Why a kept version is not used.
struct NotUsed {
    why: String,
    may_heal: bool,
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
        let (read, loaded, parts, keeper) = (None, None, BTreeMap::new(), None);
        Self { objects, registry, spec, controller, name, map, read, loaded, parts, keeper }
    }

    async fn run(mut self, state: watch::Sender<ModuleState>) {
        // In a row, of the same objects.
        let mut failures = 0;
        // In a row, of any.
        let mut refusals = 0_u32;
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
                Ok(Stage::Complete(stored, index)) => {
                    let print = index.is_none().then(|| Fingerprint::of(&stored));
                    let loaded = self.load(stored, index, failures > 0).await;
                    self.loaded = print.zip(loaded.as_ref().ok().map(|module| module.digest));
                    refusals = if loaded.is_ok() { 0 } else { refusals.saturating_add(1) };
                    Some(loaded)
                }
                Ok(Stage::Same(module)) => Some(Ok(module)),
                Err(problem) => Some(Err(problem)),
            };
            if let Some(Ok(_)) = loaded {
                self.parts.clear();
            }
            let mut may_heal = matches!(&loaded, Some(Err(problem)) if problem.may_heal());
            match loaded {
                Some(Err(problem)) if now.is_none() => {
                    may_heal |= self.publish_problem(&state, problem).await;
                }
                Some(loaded) => publish(&state, loaded),
                None => {}
            }
            self.share(&state.borrow());
            let changed = self.changed();
            if may_heal {
                failures += 1;
                // A change ends the delay.
                if tokio::time::timeout(retry_delay(failures), changed).await.is_err() {
                    continue;
                }
            } else {
                changed.await;
            }
            failures = 0;
            tokio::time::sleep(pause(refusals)).await;
        }
    }

    /// Controllers with one source run one version. All of them own the one that runs in the place of a refused one: it stays when
    /// the first of them goes.
    fn share(&self, state: &ModuleState) {
        let problem = state.problem.as_ref().filter(|problem| problem.allows_kept());
        if let (Some(keeper), Some(module), Some(_)) = (&self.keeper, &state.module, problem) {
            keeper.share(&module.digest.hex());
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
                self.read = Some(map.version.clone());
                content(name(), key.clone(), map.json(), self.registry.bounds.size)?
            }
        };
        let is_kept = |digest: &str| self.keeper.as_ref().is_none_or(|keeper| keeper.has(digest));
        let index = match content {
            Content::Plain(bytes) => {
                let same = self.loaded.as_ref().filter(|(print, _)| *print == Fingerprint::of(&bytes));
                let now = now.filter(|now| same.is_some_and(|(_, digest)| *digest == now.digest));
                return Ok(match now.filter(|now| is_kept(&now.digest.hex())) {
                    Some(now) => Stage::Same(Arc::clone(now)),
                    None => Stage::Complete(bytes, None),
                });
            }
            Content::Packed(index) => index,
        };
        if let Some(pinned) = sha256.filter(|pinned| *pinned != index.sha256) {
            return Err(ModuleSourceError::Pinned { map: name(), key, found: index.sha256, pinned });
        }
        let is_kept = is_kept(&index.sha256);
        match now.filter(|module| is_kept && module.digest.hex() == index.sha256) {
            Some(module) => Ok(Stage::Same(Arc::clone(module))),
            None => self.join(index),
        }
    }

    /// The bytes of all parts, one after the other.
    fn join(&mut self, index: Index) -> Result<Stage, ModuleSourceError> {
        self.parts.retain(|name, _| index.parts.contains(name));
        let mut states = Vec::new();
        for (number, name) in index.parts.iter().enumerate() {
            let part = config_map(&self.spec.namespace, name);
            let follow = || self.objects.follow(self.spec.reader.as_ref(), &part);
            let state = self.parts.entry(name.clone()).or_insert_with(follow).now();
            states.push((number, part, state));
        }
        // None is read before all are there: each that comes would have all before it read again.
        if states.iter().any(|(.., state)| matches!(state, ReferenceState::NotYet)) {
            return Ok(Stage::Wait);
        }
        let (mut stored, bounds) = (Vec::new(), self.registry.bounds);
        for (number, part, state) in states {
            // What is beyond the bound is refused as it is.
            if stored.len() as u64 > bounds.packed.max(bounds.size) {
                break;
            }
            let map = Arc::clone(&self.name);
            match state {
                ReferenceState::NotYet => {}
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
        Ok(Stage::Complete(stored, Some(index)))
    }

    async fn load(
        &self,
        stored: Vec<u8>,
        index: Option<Index>,
        is_retry: bool,
    ) -> Result<Arc<Module>, ModuleSourceError> {
        let ModuleRef { key, sha256, .. } = self.spec.clone();
        let map = Arc::clone(&self.name);
        let refused = |source, found| {
            let (map, key) = (Arc::clone(&map), key.clone());
            ModuleSourceError::Module { map, key, found, source: Box::new(source) }
        };
        let accepted = self
            .keeper
            .as_ref()
            .map(|keeper| (keeper, keeper.versions.takes(stored.len()).then(|| stored.clone())));
        let module = self.registry.unpack(stored).await.map_err(|source| refused(source, None))?;
        let (found, size) = (module.digest.hex(), module.bytes.len());
        if let Some(index) =
            index.filter(|index| index.sha256 != found || u64::try_from(size) != Ok(index.size))
        {
            let wanted = format!("{} bytes with {}", index.size, index.sha256);
            return Err(ModuleSourceError::Mixed { map, size, found, wanted });
        }
        if let Some(pinned) = sha256.filter(|pinned| *pinned != found) {
            return Err(ModuleSourceError::Pinned { map, key, found, pinned });
        }
        let loaded = self.load_unpacked(module, is_retry).await;
        let loaded = loaded.map_err(|source| refused(source, Some(found.clone())))?;
        if let Some((keeper, stored)) = accepted.filter(|(keeper, _)| !keeper.has(&found)) {
            keeper.keep(found, stored, self.read.clone());
        }
        Ok(loaded)
    }

    async fn load_unpacked(&self, module: Unpacked, is_retry: bool) -> Result<Arc<Module>, ModuleError> {
        match self.spec.language {
            None => self.registry.load_for(module, is_retry).await,
            Some(language) => {
                let caller = Caller { controller: &self.controller, is_retry };
                self.registry.load_script_for(language, &self.spec.key, module.bytes, caller).await
            }
        }
    }

    /// Waits until the stored module, or the controllers that name it, are others.
    async fn changed(&mut self) {
        let objects = any_changed([&mut self.map].into_iter().chain(self.parts.values_mut()));
        let owners = async {
            match &mut self.keeper {
                Some(keeper) => keeper.owners_changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { () = objects => {}, () = owners => {} }
    }

    /// Publishes why the first module is refused: with the newest version that was kept and loads, if there is one. Whether there
    /// may be one another time.
    async fn publish_problem(&self, state: &watch::Sender<ModuleState>, problem: ModuleSourceError) -> bool {
        let Some(keeper) = self.keeper.as_ref().filter(|_| problem.allows_kept()) else {
            publish(state, Err(problem));
            return false;
        };
        let mut may_heal = false;
        let versions = keeper.versions.of(&self.spec, &keeper.owners()).await.unwrap_or_else(|error| {
            tracing::warn!(module = %self.name, error = error_chain(&error), "kept versions of a module cannot be read");
            may_heal = !error.is_ungranted();
            Vec::new()
        });
        for kept in versions {
            match self.load_kept(&keeper.versions, &kept).await {
                Ok(module) => {
                    publish_kept(state, module, &kept.version.accepted, problem);
                    return false;
                }
                Err(not_used) => {
                    let (digest, why) = (&kept.version.digest, not_used.why);
                    tracing::warn!(module = %self.name, digest, why, "a kept version of a module is not used");
                    may_heal |= not_used.may_heal;
                }
            }
        }
        publish(state, Err(problem));
        may_heal
    }

    async fn load_kept(&self, versions: &KeptVersions, kept: &Kept) -> Result<Arc<Module>, NotUsed> {
        let for_good = |why: String| NotUsed { why, may_heal: false };
        let refused = |error: ModuleError| NotUsed { may_heal: error.may_heal(), why: error.to_string() };
        let version = &kept.version;
        if let Some(pinned) = self.spec.sha256.as_ref().filter(|pinned| **pinned != version.digest) {
            return Err(for_good(format!("the spec pins {pinned}")));
        }
        let stored = versions.read(kept).await;
        let stored =
            stored.map_err(|error| NotUsed { may_heal: !error.is_ungranted(), why: error_chain(&error) })?;
        let stored = stored.ok_or_else(|| for_good("a part of it is gone".to_owned()))?;
        let module = self.registry.unpack(stored).await.map_err(refused)?;
        let found = module.digest.hex();
        if found != version.digest {
            return Err(for_good(format!("its ConfigMaps were edited: their bytes have the digest {found}")));
        }
        self.load_unpacked(module, false).await.map_err(refused)
    }
}

/// Pause before the next load of a source that was refused so many times in a row: a client may write it again and again, and each load
/// unpacks all of it. The first few come at once, as an author mends a module.
fn pause(refusals: u32) -> Duration {
    const AT_ONCE: u32 = 10;
    match refusals.checked_sub(AT_ONCE) {
        None | Some(0) => Duration::ZERO,
        Some(more) => Duration::from_secs(1 << more.min(4).saturating_sub(1)),
    }
}

#[cfg(test)]
mod tests;
