//! Sandbox of authors' commands: modules from files, loaded and called as the server does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use metahook_core::api::hook::{HookName, Language};
use metahook_core::api::policy::LimitBounds;

use crate::build_command::build_command_of;
use crate::documents::{DocumentError, read_bytes};
use crate::hook_modules::HookFile;
use crate::progress::Progress;
use metahook_server::hook::wasm::compile::{ModuleError, ModuleSettings};
use metahook_server::hook::wasm::run::{EngineError, Module, Reservation, RuntimeSettings, Seed};
use metahook_server::hook::wasm::source::{ModuleRegistry, RunnerCompilation};
use metahook_server::hook::{CallContext, CallPurpose, CallResult, LoadedHook};

/// A runtime for modules that lie in files.
pub struct Sandbox {
    modules: Arc<ModuleRegistry>,
    max_file: u64,
}

/// Input of a hook's call.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The controller's name.
    pub controller: &'a str,
    pub hook: HookName,
    pub request: Bytes,
    /// The time that the hook's clock begins at.
    pub now: SystemTime,
    /// The source of its random numbers. A server's come from the key of its installation; the default is the same for everybody.
    pub seed: Seed,
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
    #[error("the module (`{build}` makes one)")]
    File { build: &'static str, source: DocumentError },
    #[error("the script")]
    Script(#[source] DocumentError),
    #[error("the recording is damaged: its {key} is not the version {digest}")]
    Damaged { key: String, digest: String },
    #[error("{}", path.display())]
    Module { path: PathBuf, source: ModuleError },
    #[error(
        "{}: {}, the interpreter of {}, is not there: name the folder that has it with --runners FOLDER; the server's image has it in /usr/bin/runners, and in a checkout `cargo xtask runners {}` builds it",
        file.display(), runner.display(), language.title(), language.as_str()
    )]
    NoRunner { file: PathBuf, language: Language, runner: PathBuf },
}

/// Message to an author who waits for an interpreter.
fn said(compilation: &RunnerCompilation) -> String {
    match compilation {
        RunnerCompilation::Begins { language, code, refused } => {
            let why = match refused {
                Some(why) => format!("{} is not used: {why}", code.display()),
                None => format!("{} is missing", code.display()),
            };
            let folder = code.parent().unwrap_or(Path::new("")).display();
            let keeps =
                format!("`metahook compile-runners --runners {folder}` compiles it once and keeps it");
            format!("compiling the interpreter of {}, as {why}; {keeps}", language.title())
        }
        RunnerCompilation::Ended { language, took } => {
            let seconds = took.as_secs_f64();
            format!("the interpreter of {} is compiled, after {seconds:.1} s", language.title())
        }
    }
}

impl LoadError {
    /// The module is there, and the server would not take it.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Module { .. })
    }
}

impl Sandbox {
    pub fn new(modules: ModuleSettings) -> Result<Self, LoadError> {
        let max_file = modules.bounds.size;
        let settings = RuntimeSettings { concurrency: 1, limits: LimitBounds::default(), modules };
        let modules = Arc::new(ModuleRegistry::new(&settings)?);
        let progress = Progress::of_stderr();
        modules.on_runner_compilation(move |compilation| progress.note(&said(&compilation)));
        Ok(Self { modules, max_file })
    }

    /// Loads a module as it is stored, plain or compressed, or a script.
    pub async fn load(&self, file: &HookFile) -> Result<Arc<Module>, LoadError> {
        let HookFile { path, language } = file;
        let stored = read_bytes(path, self.max_file).map_err(|source| match language {
            Some(_) => LoadError::Script(source),
            None => LoadError::File { build: build_command_of(path), source },
        })?;
        self.load_stored(path, *language, stored).await
    }

    /// Loads a module or a script that comes from elsewhere; `name` is what errors call it.
    pub async fn load_stored(
        &self,
        name: &Path,
        language: Option<Language>,
        stored: Vec<u8>,
    ) -> Result<Arc<Module>, LoadError> {
        let loaded = self.modules.load_file(name, language, stored).await;
        let file = name.to_owned();
        loaded.map_err(|error| match error {
            // The server's own words are about the server.
            ModuleError::NoRunner { language, path: runner } => {
                LoadError::NoRunner { file, language, runner }
            }
            source => LoadError::Module { path: file, source },
        })
    }

    /// Calls a hook, whose module is one of this sandbox.
    pub async fn call(&self, hook: &LoadedHook, input: Input<'_>) -> CallResult {
        let context = CallContext {
            runtime: self.modules.runtime(),
            controller: input.controller,
            hook: input.hook,
            now: input.now,
            seed: input.seed,
            memory: &Reservation::default(),
            kept: None,
            purpose: CallPurpose::Author,
        };
        hook.call(input.request, context).await
    }
}
