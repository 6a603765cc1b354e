//! Sources of hooks: a module and its mounts, followed, as one value that changes at once.
//!
//! A hook is one value: its module and the content of its mounts, each the last good one. A reconcile takes it once, so it never
//! mixes versions. Only the ConfigMaps and Secrets that controllers name are watched, never all of a cluster's.

pub mod kept;
mod load_limiter;
mod module_file;
mod module_source;
mod module_state;
mod mounts;
mod registry;
mod runners;
pub(crate) mod scripts;
pub mod unpack;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::hook::ModuleRef;
use metahook_core::api::mount::MountRef;
use metahook_core::api::reason::ConditionReason;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::object::ObjectMeta;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use mounts::MountMemory;
pub use mounts::mounted_files;
pub use registry::{Loaded, ModuleRegistry};
pub use runners::RunnerCompilation;

use super::run::{Module, MountedFolder, Runtime};
use crate::cluster::api_client::ApiClient;
use crate::cluster::named_objects::ObjectWatches;
use kept::{KeptVersions, Owner};
use module_source::{ModuleSource, ModuleSources};
use module_state::{ModuleSourceError, ModuleState};
use mounts::{MountError, MountSet, Mounts};

/// The time that a module is followed after its last hook.
const RELEASE_DELAY: Duration = Duration::from_mins(1);

/// The sources of all hooks of running controllers.
pub(crate) struct HookSources {
    objects: Arc<ObjectWatches>,
    modules: ModuleSources,
    memory: Arc<MountMemory>,
}

/// The source of one hook. Its module and mounts are followed as long as it is held.
pub(crate) struct HookSource {
    state: watch::Receiver<HookSourceState>,
    module: Arc<ModuleSource>,
    _task: AbortOnDropHandle<()>,
}

/// The hook to call, and the problem of the one that should be called.
#[derive(Clone, Default)]
pub(crate) struct HookSourceState {
    /// The last good module and mounts: bad ones never take their place.
    pub(crate) loaded: Option<LoadedModule>,
    pub(crate) problem: Option<HookSourceError>,
}

/// A module with its mounts. A reconcile takes it once, so that it never mixes versions.
#[derive(Clone)]
pub struct LoadedModule {
    pub(crate) module: Arc<Module>,
    pub(crate) mounts: Arc<Mounts>,
    /// A fingerprint of the module and the content of the mounts.
    pub(crate) identity: Fingerprint,
    /// When an earlier server accepted it, where it was kept since.
    pub(crate) kept_since: Option<Arc<str>>,
    /// It runs in the place of a refused one, and could not be kept: a server that starts has it no longer.
    pub(crate) ends_with_server: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HookSourceError {
    #[error(transparent)]
    Module(#[from] ModuleSourceError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl HookSourceError {
    /// The digest of the refused module, where it is known.
    pub(crate) fn refused(&self) -> Option<&str> {
        if let Self::Module(error) = self { error.refused() } else { None }
    }

    /// Whether the same bytes may load another time.
    pub(crate) fn may_heal(&self) -> bool {
        matches!(self, Self::Module(error) if error.may_heal())
    }

    /// The reason of the condition `ModulesLoaded`.
    pub(crate) fn reason(&self) -> ConditionReason {
        match self {
            Self::Module(error) => error.reason(),
            Self::Mount(error) => error.reason(),
        }
    }
}

impl LoadedModule {
    fn new(module: Arc<Module>, mounts: Mounts) -> Self {
        let mut identity = Fingerprinter::default();
        identity.add(module.digest.as_bytes());
        if let Some(runner) = &module.runner {
            identity.add(runner.digest.as_bytes());
        }
        identity.add(mounts.digest.as_bytes());
        Self {
            module,
            mounts: Arc::new(mounts),
            identity: identity.finish(),
            kept_since: None,
            ends_with_server: false,
        }
    }

    /// A module of a file, with folders in place of its mounts.
    pub fn of_files(module: Arc<Module>, folders: Vec<MountedFolder>) -> Self {
        Self::new(module, Mounts::of_folders(folders))
    }
}

impl HookSources {
    pub(crate) fn new(api: ApiClient, registry: Arc<ModuleRegistry>, memory: MountMemory) -> Self {
        let objects = Arc::new(ObjectWatches::new(api));
        let modules = ModuleSources::new(Arc::clone(&objects), registry);
        Self { objects, modules, memory: Arc::new(memory) }
    }

    /// Keeps versions that were loaded, and goes on with them where a server that starts finds others refused.
    pub(crate) fn keeping(self, kept: KeptVersions) -> Self {
        Self { modules: self.modules.keeping(kept), ..self }
    }

    /// Takes the module of this file in the place of all others.
    pub(crate) fn with_module_file(self, path: PathBuf) -> Self {
        Self { modules: self.modules.out_of_file(path), ..self }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.modules.registry.runtime()
    }

    pub(crate) fn objects(&self) -> &ObjectWatches {
        &self.objects
    }

    pub(crate) fn follow(
        &self,
        module: &ModuleRef,
        mounts: &[MountRef],
        controller: &ObjectMeta,
    ) -> Arc<HookSource> {
        let (sender, state) = watch::channel(HookSourceState::default());
        let module = self.modules.follow(module, Owner::of(controller));
        let mounts = MountSet::follow(mounts, &self.objects, Arc::clone(&self.memory));
        let task = AbortOnDropHandle::new(tokio::spawn(join(Arc::clone(&module), mounts, sender)));
        Arc::new(HookSource { state, module, _task: task })
    }
}

impl HookSource {
    /// Changes of the state; the present state counts as the first.
    pub(crate) fn changes(&self) -> watch::Receiver<HookSourceState> {
        let mut changes = self.state.clone();
        changes.mark_changed();
        changes
    }

    pub(crate) fn loaded(&self) -> Option<LoadedModule> {
        self.state.borrow().loaded.clone()
    }
}

/// A controller whose spec changes is started again. The delay keeps the last good module until then, also where the
/// stored one is bad.
impl Drop for HookSource {
    fn drop(&mut self) {
        let module = Arc::clone(&self.module);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(RELEASE_DELAY).await;
                drop(module);
            });
        }
    }
}

async fn join(module: Arc<ModuleSource>, mut mounts: MountSet, state: watch::Sender<HookSourceState>) {
    let mut modules = module.state.clone();
    // The sender is held by the module.
    let mut not_kept = module.not_kept.subscribe();
    loop {
        let module = modules.borrow_and_update().clone();
        let (content, problem) = mounts.update();
        let not_kept_now = not_kept.borrow_and_update().clone();
        publish(&state, (module, not_kept_now.as_deref()), content, problem);
        tokio::select! {
            changed = modules.changed() => if changed.is_err() { return },
            () = mounts.changed() => {}
            _held = not_kept.changed() => {}
        }
    }
}

fn publish(
    state: &watch::Sender<HookSourceState>,
    (module, not_kept): (ModuleState, Option<&str>),
    mounts: Option<Mounts>,
    mount_problem: Option<MountError>,
) {
    let is_refused = module.problem.is_some();
    let problem = module.problem.map(HookSourceError::from).or(mount_problem.map(HookSourceError::from));
    let kept_since = module.kept_since;
    let loaded = module.module.zip(mounts).map(|(module, mounts)| {
        let ends_with_server = is_refused && not_kept.is_some_and(|digest| module.digest.hex() == digest);
        LoadedModule { kept_since, ends_with_server, ..LoadedModule::new(module, mounts) }
    });
    state.send_if_modified(|state| {
        let identity = |loaded: &Option<LoadedModule>| {
            loaded.as_ref().map(|loaded| (loaded.identity, loaded.ends_with_server))
        };
        let same = state.problem == problem && identity(&state.loaded) == identity(&loaded);
        if !same {
            *state = HookSourceState { loaded, problem };
        }
        !same
    });
}
