//! Compilation of modules: in a process of its own, within bounds, with a cache on disk.
//!
//! The server itself never compiles. It reads a module's outline and hands the module to `metahook compile`, a process that has
//! given up memory, time and files beforehand. What comes back, or was kept on disk under a seal of the server's own, is trusted (`artifact`).

mod artifact;
mod cache;
pub(crate) mod check;
mod code_files;
mod code_space;
mod compiler;
pub(super) mod component;
mod component_start;
mod engine;
mod module_error;
mod names;
pub mod outline;
mod shipped;
mod start_work;
mod tree;
mod types;

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use metahook_core::api::policy::LimitBounds;
use metahook_core::shorten;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use wasmtime::Module;
use wasmtime::component::Component;

pub use artifact::SealKey;
use artifact::{Artifact, Name};
use cache::Cache;
use code_files::CodeFiles;
pub(super) use code_space::CodeSpace;
use code_space::LoadedCode;
pub use compiler::compile;
use compiler::{Compiler, Source};
pub(super) use engine::Engines;
pub use engine::{CodeTarget, engine_config};
pub use module_error::ModuleError;
use outline::OutlineBounds;
pub use outline::WasmKind;
pub(super) use shipped::RunnerCode;
use shipped::Shipped;
pub use start_work::StartWork;

/// Bytes of an error that a module or wasmtime describes.
const MAX_ERROR: usize = 500;

/// Settings of compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSettings {
    /// The program that compiles when called with `compile`: this one.
    pub compiler: PathBuf,
    pub bounds: ModuleBounds,
    /// Compilations at once.
    pub compilations: usize,
    /// The folder of compiled modules; without it they are not kept.
    pub cache: Option<PathBuf>,
    /// Key that seals compiled modules; without it they are neither read nor kept.
    pub seal_key: Option<SealKey>,
    /// The folder of the interpreters of scripts.
    pub runners: Option<PathBuf>,
    /// The runners are compiled as the server starts, not with the first script.
    pub prepare_runners: bool,
}

/// Bounds of a module before its first call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleBounds {
    /// Bytes as stored, where they are compressed.
    pub packed: u64,
    /// Bytes of the module itself.
    pub size: u64,
    /// Functions of its own; a table may have as many elements.
    pub functions: u32,
    /// Time of the processor, so that a busy machine refuses nothing.
    pub compile_time: Duration,
    /// Address space of the compiler.
    pub compile_memory: u64,
    /// Bytes of the code of all loaded modules together.
    pub code: u64,
}

/// SHA-256 of a module's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// The source of a module's code, and how long that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Compiled, without the wait for a free compiler.
    Compiled(Duration),
    /// Found in the cache.
    Cached(Duration),
}

/// The compression of a stored module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Gzip,
    Zstd,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// The bytes of a module, and its turn to be loaded, which ends with them.
pub struct Unpacked {
    pub(in crate::hook::wasm) bytes: Vec<u8>,
    pub(in crate::hook::wasm) digest: Digest,
    _turn: Option<OwnedSemaphorePermit>,
}

/// A module whose outline is right.
pub(super) struct Inspected {
    pub(super) facts: ModuleFacts,
    module: Unpacked,
}

/// Facts about a module without its bytes.
#[derive(Clone, Copy)]
pub(super) struct ModuleFacts {
    pub(super) digest: Digest,
    pub(super) size: usize,
    /// Work that each call begins with.
    pub(super) start: StartWork,
}

/// Code that an engine can run, and the space that it takes.
pub(super) struct Code {
    pub(super) compiled: Compiled,
    pub(super) space: Arc<CodeSpace>,
}

pub(super) enum Compiled {
    Module(Module),
    Component(Component),
}

/// A maker of code for the engines: finds it in the cache or compiles it.
pub(super) struct CodeLoader {
    engines: Engines,
    outline_bounds: OutlineBounds,
    compiler: Compiler,
    cache: Option<Arc<Cache>>,
    files: Arc<CodeFiles>,
    loaded: LoadedCode,
}

impl ModuleSettings {
    pub fn new(compiler: impl Into<PathBuf>) -> Self {
        Self {
            compiler: compiler.into(),
            bounds: ModuleBounds::default(),
            compilations: 1,
            cache: None,
            seal_key: None,
            runners: None,
            prepare_runners: false,
        }
    }
}

impl Default for ModuleBounds {
    fn default() -> Self {
        Self {
            packed: 16 << 20,
            size: 64 << 20,
            functions: 50_000,
            compile_time: Duration::from_mins(1),
            compile_memory: 1 << 30,
            code: 1 << 30,
        }
    }
}

impl CodeLoader {
    pub(super) fn new(engines: Engines, settings: &ModuleSettings, limits: &LimitBounds) -> Self {
        let cache = settings.cache.as_ref().zip(settings.seal_key.clone()).and_then(|(folder, key)| {
            let warn = |error| {
                tracing::warn!(folder = %folder.display(), %error, "--module-cache-dir is not used");
            };
            Cache::open(folder, key).map_err(warn).ok()
        });
        let cache = cache.map(Arc::new);
        Self {
            engines,
            outline_bounds: OutlineBounds {
                functions: settings.bounds.functions,
                memory: limits.ceiling.memory,
            },
            compiler: Compiler::new(settings),
            files: Arc::new(CodeFiles::new(cache.clone())),
            loaded: LoadedCode::default(),
            cache,
        }
    }

    /// Checks the outline of a module and computes its digest, on a thread for blocking work.
    pub(super) async fn inspect(&self, module: Unpacked) -> Result<Inspected, ModuleError> {
        let bounds = self.outline_bounds;
        let inspect = move || {
            let start = check::inspect(&module.bytes, bounds)?;
            let (digest, size) = (module.digest, module.bytes.len());
            Ok(Inspected { facts: ModuleFacts { digest, size, start }, module })
        };
        blocking(inspect).await
    }

    /// Code of a module that has been inspected. While it waits for a compiler its bytes lie on disk, and its turn has ended.
    /// `beside`: where the code of a runner may lie.
    pub(super) async fn load(
        &self,
        Inspected { facts, module }: Inspected,
        bounds: &ModuleBounds,
        beside: Option<RunnerCode<'_>>,
    ) -> Result<(Code, Origin), ModuleError> {
        let start = Instant::now();
        let kind = WasmKind::of(&module.bytes);
        let engine = self.engines.of(kind);
        let name = Name::new(facts.digest, engine);
        let refused = match self.beside(beside, facts.digest, kind, bounds).await? {
            Shipped::Found(code) => return Ok((code, Origin::Cached(start.elapsed()))),
            Shipped::Absent => None,
            Shipped::Refused(why) => Some(why),
        };
        if let Some(code) = self.cached(&name, kind, bounds.code).await? {
            return Ok((code, Origin::Cached(start.elapsed())));
        }
        if let Some(beside) = beside {
            (beside.compiles)(refused.as_deref());
        }
        let files = Arc::clone(&self.files);
        let create = move || {
            let output = files.create()?;
            let source = files.spill(&module.bytes).map_or(Source::Memory(module), Source::Disk);
            Ok((source, output))
        };
        let (source, output) = blocking(create).await?;
        let (artifact, start) = self.compiled(source, bounds, CodeTarget::Machine, output).await?;
        let artifact = Arc::new(artifact);
        let engine = engine.clone();
        let compiled = Arc::clone(&artifact);
        let code = blocking(move || {
            compiled.load(&engine, kind).map_err(|error| {
                let message = format!("{error:#}");
                if is_of_pool(&message) {
                    return ModuleError::Pool(shorten(&message, MAX_ERROR));
                }
                let message = format!("its output is no code of this engine: {message}");
                ModuleError::Compiler(shorten(&message, MAX_ERROR))
            })
        });
        let code = code.await?;
        self.keep(name, artifact);
        Ok((code, Origin::Compiled(start.elapsed())))
    }

    /// Compiles a module for a target into the file `output`; returns what it wrote, and when its turn came.
    async fn compiled(
        &self,
        source: Source,
        bounds: &ModuleBounds,
        target: CodeTarget,
        output: File,
    ) -> Result<(Artifact, Instant), ModuleError> {
        let (output, start) = self.compiler.compile(source, bounds, target, output).await?;
        let size = output.metadata().map_err(|error| ModuleError::Code(error.to_string()))?.len();
        Ok((Artifact::new(output, self.loaded.add(size, bounds.code)?), start))
    }

    /// Makes an empty artifact of the server's own for so many bytes, where there is room for them.
    fn own(&self, max_code: u64) -> impl FnOnce(u64) -> Result<Artifact, ModuleError> + use<> {
        let (files, loaded) = (Arc::clone(&self.files), self.loaded.clone());
        move |len| {
            let space = loaded.add(len, max_code)?;
            Ok(Artifact::new(files.create()?, space))
        }
    }

    /// Artifacts are kept from one run of the server to the next.
    pub(super) fn keeps(&self) -> bool {
        self.cache.is_some()
    }

    /// Compilations started so far.
    pub(super) fn compilations(&self) -> u64 {
        self.compiler.started.load(Ordering::Relaxed)
    }

    async fn cached(&self, name: &Name, kind: WasmKind, max_code: u64) -> Result<Option<Code>, ModuleError> {
        let Some(cache) = self.cache.clone() else { return Ok(None) };
        let own = self.own(max_code);
        let engine = self.engines.of(kind).clone();
        let name = name.clone();
        let find = move || {
            let Some(found) = cache.find(&name, own)? else { return Ok(None) };
            let warn = |error: &wasmtime::Error| {
                tracing::warn!(file = name.as_str(), %error, "no code of this engine: the module is compiled again");
            };
            Ok(found.load(&engine, kind).inspect_err(warn).ok())
        };
        blocking(find).await
    }

    /// Writes to the cache in the background: the module serves already.
    fn keep(&self, name: Name, artifact: Arc<Artifact>) {
        if let Some(cache) = self.cache.clone() {
            tokio::task::spawn_blocking(move || cache.keep(&name, &artifact));
        }
    }
}

/// Whether the engine refuses code because a call of it would not fit into the pool: its errors have texts alone.
fn is_of_pool(message: &str) -> bool {
    message.contains("exceeds the") || message.contains("instance allocation for this")
}

/// The delay after so many failures in a row to load the same bytes: 10 s, doubled up to ten minutes. To compile without a
/// pause would keep a machine busy.
pub(super) fn retry_delay(failures: u32) -> Duration {
    const MIN_DELAY: Duration = Duration::from_secs(10);
    const MAX_DELAY: Duration = Duration::from_mins(10);
    let doublings = failures.saturating_sub(1).min(16);
    MIN_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY)
}

/// Runs blocking work on a thread for it; a panic there is a bug of the server.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ModuleError> + Send + 'static,
) -> Result<T, ModuleError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(ModuleError::Bug(panic.to_string())))
}

impl Unpacked {
    /// Hashes the bytes, on a thread for blocking work.
    pub(super) fn in_turn(bytes: Vec<u8>, turn: OwnedSemaphorePermit) -> Self {
        Self { digest: Digest::of(&bytes), bytes, _turn: Some(turn) }
    }
}

/// Bytes that nobody else has to wait for.
impl From<Vec<u8>> for Unpacked {
    fn from(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes, _turn: None }
    }
}

impl Origin {
    /// How long compiling took; absent where nothing was compiled.
    pub fn compile_time(self) -> Option<Duration> {
        match self {
            Self::Compiled(time) => Some(time),
            Self::Cached(_) => None,
        }
    }
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digest in hexadecimal, as `sha256sum` prints it.
    /// Enough of it to tell modules apart by eye.
    pub fn short(&self) -> String {
        self.hex().chars().take(12).collect()
    }

    pub fn hex(&self) -> String {
        let nibbles = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}
