//! Sandbox of authors' commands: modules from files, loaded and called as the server does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use metahook_core::api::hook::HookName;
use metahook_core::api::policy::{LimitBounds, Limits};

use crate::author::documents::{DocumentError, read_bytes};
use crate::hook::wasm::compile::{ModuleError, ModuleSettings};
use crate::hook::wasm::run::{
    Call, Called, EngineError, Module, MountedFolder, Reservation, RuntimeSettings, Seed,
};
use crate::hook::wasm::source::ModuleRegistry;

/// A runtime for modules that lie in files.
pub(crate) struct Sandbox {
    modules: Arc<ModuleRegistry>,
    max_file: u64,
}

/// One call of a module, and how long it took.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) called: Called,
    pub(crate) took: Duration,
}

/// What a call of a module is made with.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    /// The controller's name.
    pub(crate) controller: &'a str,
    pub(crate) hook: HookName,
    pub(crate) request: Bytes,
    pub(crate) limits: Limits,
    pub(crate) mounts: &'a [MountedFolder],
    /// What the hook's clock begins at.
    pub(crate) now: SystemTime,
}

/// The clock of a call in a simulation, which is the same in each run: it begins in 2000, as objects do there, and goes on by a
/// second with each call, so that a hook which follows the time comes to no rest here either.
pub(crate) fn simulated_time(calls: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(30 * 365 * 24 + 7 * 24) + Duration::from_secs(calls)
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the module (`cargo build --target wasm32-wasip1 --release` makes one)")]
    File(#[source] DocumentError),
    #[error("{}", path.display())]
    Module { path: PathBuf, source: ModuleError },
}

impl LoadError {
    /// The module is there, and the server would not take it.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Module { .. })
    }
}

impl Sandbox {
    pub(crate) fn new(modules: ModuleSettings) -> Result<Self, LoadError> {
        let max_file = modules.bounds.size;
        let settings = RuntimeSettings { concurrency: 1, limits: LimitBounds::default(), modules };
        Ok(Self { modules: Arc::new(ModuleRegistry::new(&settings)?), max_file })
    }

    /// Loads a module as it is stored, plain or compressed, or a script.
    pub(crate) async fn load(&self, path: &Path) -> Result<Arc<Module>, LoadError> {
        let refused = |source| LoadError::Module { path: path.to_owned(), source };
        let stored = read_bytes(path, self.max_file).map_err(LoadError::File)?;
        self.modules.load_file(path, stored).await.map_err(refused)
    }

    pub(crate) async fn call(&self, module: &Module, input: Input<'_>) -> Timed {
        let Input { controller, hook, request, limits, mounts, now } = input;
        let call = Call {
            controller,
            hook: hook.as_str(),
            request,
            now,
            limits,
            // A server's come from the key of its installation; here they are the same for everybody.
            seed: Seed::default(),
            mounts,
            memory: Reservation::default(),
        };
        let start = Instant::now();
        let called = self.modules.runtime().call(module, call).await;
        Timed { called, took: start.elapsed() }
    }
}
