//! Scripts: an interpreter that comes with the server, and bytecode that it makes of each script once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use metahook_core::api::hook::Language;
use tokio::time::Instant;

use super::registry::{Loaded, ModuleRegistry};
use super::runners::RunnerCompilation;
use crate::hook::wasm::compile::{Digest, Inspected, ModuleBounds, ModuleError, RunnerCode, blocking};
use crate::hook::wasm::run::{
    COMPILE, Call, CallError, Files, MountedFolder, Reservation, Runtime, Script, Seed,
};

/// Bytes of a script, as much as a ConfigMap holds.
const MAX_SCRIPT: u64 = 1 << 20;

/// Bounds of a runner's compilation, which is the server's own and larger than any hook's: `CPython` takes ten seconds
/// of two cores.
const RUNNER_BOUNDS: ModuleBounds = ModuleBounds {
    packed: 64 << 20,
    size: 64 << 20,
    functions: 200_000,
    compile_time: Duration::from_mins(30),
    compile_memory: 8 << 30,
    // They are few, and the server's own.
    code: u64::MAX,
};

/// Where an interpreter finds its script and the bytecode of it.
pub(crate) const FOLDER: &str = "/hook";
const BYTECODE: &str = ".code";

/// A runner that a cache keeps is held for this long after the start of a server. A script that comes later loads it again,
/// and a server without scripts gets its memory back.
const PREPARED_TIMEOUT: Duration = Duration::from_mins(5);

/// The caller of a load.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// The controller in whose turn in the sandbox a script is compiled. Empty: a turn beside all controllers.
    pub(super) controller: &'a str,
    /// The bytes are those of the caller's load before.
    pub(super) is_retry: bool,
}

impl ModuleRegistry {
    /// Loads a script: has its interpreter make bytecode of it, which every call runs.
    ///
    /// `file` is what errors call the script.
    pub async fn load_script(self: &Arc<Self>, language: Language, file: &str, source: Vec<u8>) -> Loaded {
        self.load_script_for(language, file, source, Caller::default()).await
    }

    pub(super) async fn load_script_for(
        self: &Arc<Self>,
        language: Language,
        file: &str,
        source: Vec<u8>,
        caller: Caller<'_>,
    ) -> Loaded {
        let found = source.len() as u64;
        if found > MAX_SCRIPT {
            return Err(ModuleError::ScriptSize { found, bound: MAX_SCRIPT });
        }
        let key = [language.as_str().as_bytes(), b"\0", file.as_bytes(), b"\0", &source].concat();
        let (this, file, controller) = (Arc::clone(self), file.to_owned(), caller.controller.to_owned());
        let make = || async move { this.make_script(language, &file, source, &controller).await };
        self.once(Digest::of(&key), caller.is_retry, make).await
    }

    /// Loads what a file holds: a script in a language, else a module as it is stored.
    pub async fn load_file(
        self: &Arc<Self>,
        path: &Path,
        language: Option<Language>,
        stored: Vec<u8>,
    ) -> Loaded {
        if let Some(language) = language {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return self.load_script(language, &name, stored).await;
        }
        let module = self.unpack(stored).await?;
        self.load(module).await
    }

    /// Compiles the interpreters that are there, before any script needs one. Those that a cache keeps stay loaded only
    /// until the scripts of the controllers that start with the server have found them, so that none is loaded twice.
    pub(crate) async fn prepare_runners(self: Arc<Self>) {
        let mut kept = Vec::new();
        for language in Language::ALL {
            if !self.runners.path(language).is_file() {
                continue;
            }
            match self.runner(language).await {
                Ok(runner) if self.code.keeps() => kept.push(runner),
                Ok(runner) => self.runners.held.lock().await.push(runner),
                Err(error) => tracing::error!(language = language.as_str(), %error, "no runner"),
            }
        }
        hold(kept).await;
    }

    /// The interpreter is loaded, so that a script takes milliseconds.
    pub(super) fn has_runner(&self, language: Language) -> bool {
        let runner = self.runners.loaded.get(&language).and_then(|loaded| loaded.try_lock().ok());
        runner.is_some_and(|loaded| loaded.strong_count() > 0)
    }

    /// Reports to this listener, the first one, each interpreter that is compiled for a script.
    pub fn on_runner_compilation(&self, listener: impl Fn(RunnerCompilation) + Send + Sync + 'static) {
        self.runners.listener.get_or_init(|| Box::new(listener));
    }

    async fn runner(&self, language: Language) -> Loaded {
        self.runner_and_time(language).await.0
    }

    /// The interpreter, and how long it was compiled for this caller.
    async fn runner_and_time(&self, language: Language) -> (Loaded, Duration) {
        let Some(loaded) = self.runners.loaded.get(&language) else {
            unreachable!("all languages are there")
        };
        // Whoever comes meanwhile waits for the same load.
        let mut loaded = loaded.lock().await;
        if let Some(runner) = loaded.upgrade() {
            return (Ok(runner), Duration::ZERO);
        }
        let runner = self.load_runner(language).await;
        let mut compiled = None;
        if let Ok(runner) = &runner {
            *loaded = Arc::downgrade(runner);
            compiled = runner.origin.compile_time();
        }
        if let Some(took) = compiled {
            self.runners.report(RunnerCompilation::Ended { language, took });
        }
        (runner, compiled.unwrap_or_default())
    }

    async fn load_runner(&self, language: Language) -> Loaded {
        let code = self.runners.code_path(language);
        let compiles = |refused: Option<&str>| {
            let (code, refused) = (code.clone(), refused.map(str::to_owned));
            self.runners.report(RunnerCompilation::Begins { language, code, refused });
        };
        let load = async {
            let module = self.inspect_runner(language).await?;
            let beside = RunnerCode { path: &code, compiles: &compiles };
            self.make(module, &RUNNER_BOUNDS, Some(beside)).await
        };
        load.await.map_err(|error| of_runner(language, error))
    }

    async fn inspect_runner(&self, language: Language) -> Result<Inspected, ModuleError> {
        let path = self.runners.path(language);
        let file = path.clone();
        let bytes = match blocking(move || Ok(std::fs::read(file))).await? {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ModuleError::NoRunner { language, path });
            }
            Err(error) => {
                let why = format!("{}: {error}", path.display());
                return Err(ModuleError::Runner { language: language.as_str(), why });
            }
        };
        self.code.inspect(bytes.into()).await
    }

    /// Compiles the interpreters that are there, and leaves their code beside them for servers of this version.
    ///
    /// # Errors
    /// One of them cannot be compiled, or its code cannot be written.
    pub async fn compile_runners(&self) -> Result<Vec<PathBuf>, ModuleError> {
        let mut written = Vec::new();
        for language in Language::ALL.into_iter().filter(|language| self.runners.path(*language).is_file()) {
            let path = self.runners.code_path(language);
            let ship = async {
                let module = self.inspect_runner(language).await?;
                self.code.ship(module, &RUNNER_BOUNDS, &path).await
            };
            ship.await.map_err(|error| of_runner(language, error))?;
            written.push(path);
        }
        Ok(written)
    }

    async fn make_script(&self, language: Language, file: &str, source: Vec<u8>, controller: &str) -> Loaded {
        let (runner, waited) = self.runner_and_time(language).await;
        let (runner, start) = (runner?, Instant::now());
        let (digest, size, source) = (Digest::of(&source), source.len(), Bytes::from(source));
        let script = |files: Files| {
            let folder = MountedFolder { path: FOLDER.to_owned(), files: files.into() };
            Script { file: file.to_owned(), folder, stop_within: None }
        };
        let none = script(Files::new());
        let compiler = Runtime::script(Arc::clone(&runner), digest, size, Duration::ZERO, none);
        let call = Call {
            controller,
            hook: COMPILE,
            is_of_shadow: false,
            request: source.clone(),
            now: SystemTime::UNIX_EPOCH,
            limits: self.limits,
            seed: Seed::default(),
            mounts: &[],
            memory: Reservation::default(),
        };
        let code = self.runtime.call(&compiler, call).await.answer.map_err(refusal)?;
        let files = Files::from([(file.to_owned(), source), (BYTECODE.to_owned(), code.into())]);
        let took = waited + start.elapsed();
        tracing::info!(%digest, size, language = language.as_str(), "script loaded");
        Ok(Arc::new(Runtime::script(runner, digest, size, took, script(files))))
    }
}

/// The error names the runner.
fn of_runner(language: Language, error: ModuleError) -> ModuleError {
    match error {
        error @ (ModuleError::NoRunner { .. } | ModuleError::Runner { .. }) => error,
        error => ModuleError::Runner { language: language.as_str(), why: error.to_string() },
    }
}

/// Why there is no bytecode: only what the interpreter counts, or says of the script, is the script's fault. A machine that
/// stands still lets a call time out, too.
fn refusal(error: CallError) -> ModuleError {
    match error {
        CallError::Script(said) => ModuleError::Script(said),
        CallError::Timeout { .. }
        | CallError::CrowdedOut { .. }
        | CallError::Start(_)
        | CallError::Stopped { .. }
        | CallError::Stopping
        | CallError::MemoryShort(_)
        | CallError::Bug(_) => ModuleError::ScriptFailed(error.to_string()),
        CallError::Instructions { .. }
        | CallError::Memory { .. }
        | CallError::Table { .. }
        | CallError::Output { .. }
        | CallError::Trap { .. }
        | CallError::Exit { .. }
        | CallError::Request(_) => ModuleError::Script(error.to_string()),
    }
}

/// Keeps runners loaded until the scripts that start with the server have found them.
async fn hold<T>(runners: Vec<T>) {
    if !runners.is_empty() {
        tokio::time::sleep(PREPARED_TIMEOUT).await;
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::api::policy::{LimitBounds, Limits};

    use super::*;
    use crate::hook::wasm::compile::ModuleSettings;
    use crate::hook::wasm::run::{RuntimeSettings, tests};

    /// Its hook has the one place that a controller gets of four.
    #[tokio::test]
    async fn a_script_is_compiled_in_the_turn_of_its_controller() {
        let (limits, modules) = (LimitBounds::default(), ModuleSettings::new("none"));
        let settings = RuntimeSettings { concurrency: 4, limits, modules };
        let registry = Arc::new(ModuleRegistry::new(&settings).unwrap());
        let runtime = registry.runtime();
        let runner = Arc::new(tests::module(runtime, r#"(module (func (export "_start")))"#));
        *registry.runners.loaded[&Language::Python].lock().await = Arc::downgrade(&runner);
        let loops = tests::module(runtime, r#"(module (func (export "_start") (loop $a (br $a))))"#);
        let limits = Limits { instructions: u64::MAX, timeout: Duration::from_mins(1), ..limits.default };
        let load = |controller, source: &str| {
            let caller = Caller { controller, is_retry: false };
            let (registry, source) = (Arc::clone(&registry), source.as_bytes().to_vec());
            async move { registry.load_script_for(Language::Python, "hook.py", source, caller).await }
        };
        let compiled = async {
            load("other", "1").await.unwrap();
            tokio::time::timeout(Duration::from_millis(300), load("c", "2")).await.is_ok()
        };
        tokio::select! {
            biased;
            called = runtime.call(&loops, tests::call(limits)) => panic!("{called:?}"),
            is_compiled = compiled => assert!(!is_compiled, "it did not wait for its controller's turn"),
        }
        load("c", "2").await.unwrap();
    }

    #[test]
    fn a_script_is_refused_for_itself_alone() {
        let heals = |error: CallError| refusal(error).may_heal();
        let budget = Duration::from_secs(10);
        for error in [
            CallError::Timeout { budget, kept: String::new() },
            CallError::Start("no room".to_owned()),
            CallError::Bug("it panicked".to_owned()),
        ] {
            assert!(heals(error.clone()), "{error}");
        }
        for error in [
            CallError::Script("hook.js:1".to_owned()),
            CallError::Instructions { budget: 1, place: String::new() },
        ] {
            assert!(!heals(error.clone()), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_prepared_runner_is_held_for_five_minutes() {
        let runner = Arc::new(());
        let loaded = Arc::downgrade(&runner);
        let held = tokio::spawn(hold(vec![runner]));
        tokio::time::sleep(Duration::from_secs(299)).await;
        assert!(loaded.upgrade().is_some(), "a script that comes now would load it again");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(loaded.upgrade().is_none(), "a server without scripts does not get its memory back");
        held.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_runner_there_is_nothing_to_hold() {
        let start = Instant::now();
        hold::<()>(Vec::new()).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
