//! What a hook is made of, its module and its mounts, as one value that changes at once.

pub mod module;
mod module_source;
pub(crate) mod mounts;
pub(crate) mod registry;
mod unpack;

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::hook::ModuleRef;
use metahook_core::api::mount::MountRef;
use metahook_core::api::reason::ConditionReason;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::api_client::ApiClient;
use crate::cluster::object_watch::ObjectWatches;
use module::{Module, Runtime};
use module_source::{ModuleState, Stored, StoredError, StoredModules};
use mounts::{MountError, MountMemory, MountSet, Mounts};

/// A module is followed so much longer than anybody wants it.
const LINGERS: Duration = Duration::from_mins(1);

/// What the hooks of running controllers are made of.
pub(crate) struct Sources {
    objects: Arc<ObjectWatches>,
    modules: StoredModules,
    memory: Arc<MountMemory>,
}

/// One hook. Whoever holds it keeps its module and mounts followed.
pub(crate) struct Followed {
    state: watch::Receiver<SourceState>,
    module: Arc<Stored>,
    _task: AbortOnDropHandle<()>,
}

/// What is called, and what is wrong with what should be called.
#[derive(Clone, Default)]
pub(crate) struct SourceState {
    /// The last good module and mounts: bad ones never take their place.
    pub(crate) loaded: Option<Loaded>,
    pub(crate) problem: Option<SourceError>,
}

/// All that a call is made of but its request. A pass takes it once, so that it never mixes versions.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) module: Arc<Module>,
    pub(crate) mounts: Arc<Mounts>,
    /// The same for the same module with the same mounts, and else another.
    pub(crate) identity: Fingerprint,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SourceError {
    #[error(transparent)]
    Module(#[from] StoredError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

impl SourceError {
    /// The digest of the module that is not loaded, where it is known.
    pub(crate) fn refused(&self) -> Option<&str> {
        match self {
            Self::Module(error) => error.refused(),
            Self::Mount(_) => None,
        }
    }

    /// The reason of the condition `ModulesLoaded`.
    pub(crate) fn reason(&self) -> ConditionReason {
        match self {
            Self::Module(error) => error.reason(),
            Self::Mount(error) => error.reason(),
        }
    }
}

impl Loaded {
    fn new(module: Arc<Module>, mounts: Mounts) -> Self {
        let mut both = Fingerprinter::default();
        both.add(module.digest.as_bytes());
        both.add(mounts.digest().as_bytes());
        Self { module, mounts: Arc::new(mounts), identity: both.finish() }
    }
}

impl Sources {
    pub(crate) fn new(rest: ApiClient, runtime: Arc<Runtime>, memory: MountMemory) -> Self {
        let objects = Arc::new(ObjectWatches::new(rest));
        let modules = StoredModules::new(Arc::clone(&objects), runtime);
        Self { objects, modules, memory: Arc::new(memory) }
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        self.modules.runtime()
    }

    pub(crate) fn follow(&self, module: &ModuleRef, mounts: &[MountRef]) -> Arc<Followed> {
        let (sender, state) = watch::channel(SourceState::default());
        let module = self.modules.follow(module);
        let mounts = MountSet::follow(mounts, &self.objects, Arc::clone(&self.memory));
        let task = AbortOnDropHandle::new(tokio::spawn(join(Arc::clone(&module), mounts, sender)));
        Arc::new(Followed { state, module, _task: task })
    }
}

impl Followed {
    /// Changes of what is loaded or wrong; the present state counts as the first.
    pub(crate) fn changes(&self) -> watch::Receiver<SourceState> {
        let mut changes = self.state.clone();
        changes.mark_changed();
        changes
    }

    pub(crate) fn loaded(&self) -> Option<Loaded> {
        self.state.borrow().loaded.clone()
    }
}

/// A controller whose spec changes ends and begins anew: the last good module is still there by then, also if what is
/// stored is not good.
impl Drop for Followed {
    fn drop(&mut self) {
        let module = Arc::clone(&self.module);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(LINGERS).await;
                drop(module);
            });
        }
    }
}

async fn join(module: Arc<Stored>, mut mounts: MountSet, state: watch::Sender<SourceState>) {
    let mut modules = module.state();
    loop {
        let now = modules.borrow_and_update().clone();
        let (content, problem) = mounts.update();
        publish(&state, now, content, problem);
        tokio::select! {
            changed = modules.changed() => if changed.is_err() { return },
            () = mounts.changed() => {}
        }
    }
}

fn publish(
    state: &watch::Sender<SourceState>,
    module: ModuleState,
    mounts: Option<Mounts>,
    wrong: Option<MountError>,
) {
    let problem = module.problem.map(SourceError::from).or(wrong.map(SourceError::from));
    let loaded = module.module.zip(mounts).map(|(module, mounts)| Loaded::new(module, mounts));
    state.send_if_modified(|state| {
        let identity = |loaded: &Option<Loaded>| loaded.as_ref().map(|loaded| loaded.identity);
        let same = state.problem == problem && identity(&state.loaded) == identity(&loaded);
        if !same {
            *state = SourceState { loaded, problem };
        }
        !same
    });
}
