//! Bytes to a module that can be run; each digest is compiled once, however many controllers name it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use metahook_core::api::limits::LimitBounds;
use metahook_core::text::shorten;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use wasmtime::{InstancePre, Linker, Module as Code};

use super::registry::{Known, Loaded};
use super::unpack::unpack;
use crate::hook::wasm::compile::artifact::{Artifact, Name};
use crate::hook::wasm::compile::cache::Cache;
use crate::hook::wasm::compile::compiler::Compiler;
pub use crate::hook::wasm::compile::module_error::ModuleError;
use crate::hook::wasm::compile::outline::{Most, inspect};
use crate::hook::wasm::compile::{ModuleBounds, ModuleSettings};
use crate::hook::wasm::run::concurrency::Slots;
use crate::hook::wasm::run::engine::{EngineError, Sandbox};
use crate::hook::wasm::wasi;
use crate::hook::wasm::wasi::state::Host;
use crate::sync::lock;

/// What a module says of itself is cut to this many bytes.
const LONGEST: usize = 500;

/// SHA-256 of a module's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// What a runtime is made of.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// Calls at once.
    pub slots: usize,
    pub limits: LimitBounds,
    pub modules: ModuleSettings,
}

/// Compiles modules and runs them.
pub struct Runtime {
    pub(crate) slots: Slots,
    pub(crate) sandbox: Sandbox,
    linker: Linker<Host>,
    bounds: ModuleBounds,
    most: Most,
    compiler: Compiler,
    cache: Option<Arc<Cache>>,
    known: Mutex<Known>,
}

/// A module that can be run.
pub struct Module {
    pub digest: Digest,
    pub size: usize,
    pub origin: Origin,
    pub(crate) ready: InstancePre<Host>,
}

/// Where a module's code came from, and how long that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Compiled, without the time it waited for its turn.
    Compiled(Duration),
    /// Found in the cache.
    Cached(Duration),
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

impl Runtime {
    pub fn new(settings: &RuntimeSettings) -> Result<Self, EngineError> {
        let RuntimeSettings { slots, limits, modules } = settings;
        let table = modules.bounds.functions;
        let sandbox = Sandbox::new(*slots, limits, table)?;
        let linker = wasi::linker(&sandbox.engine).map_err(|error| EngineError::new(&error))?;
        let cache = modules.cache.as_ref().and_then(|folder| {
            let why = |error| {
                tracing::warn!(folder = %folder.display(), %error, "--module-cache-dir is not used");
            };
            Cache::open(folder).map_err(why).ok()
        });
        Ok(Self {
            slots: Slots::new(*slots),
            sandbox,
            linker,
            bounds: modules.bounds,
            most: Most { functions: table, memory: limits.ceiling.memory, table: table.into() },
            compiler: Compiler::new(modules),
            cache: cache.map(Arc::new),
            known: Mutex::default(),
        })
    }

    /// The bound of a module's size after decompression.
    pub(crate) fn largest(&self) -> u64 {
        self.bounds.size
    }

    /// Stored bytes to a module's bytes.
    pub async fn unpack(&self, stored: Vec<u8>) -> Result<Vec<u8>, ModuleError> {
        let bounds = self.bounds;
        off_thread(move || unpack(stored, &bounds)).await
    }

    /// Makes a module ready to run: compiles it, or finds it compiled.
    ///
    /// *Guarantees*: each digest is compiled once at a time, however many ask; dropped, it takes nothing from the others.
    pub async fn load(self: &Arc<Self>, bytes: Vec<u8>) -> Loaded {
        let most = self.most;
        let (digest, bytes) =
            off_thread(move || inspect(&bytes, most).map(|()| (Digest::of(&bytes), bytes))).await?;
        let found = self.known().find(digest, Instant::now(), || {
            let this = Arc::clone(self);
            async move {
                let loaded = this.make(digest, bytes).await;
                this.known().ended(digest, &loaded, Instant::now());
                loaded
            }
            .boxed()
        });
        match found {
            Ok(loaded) => loaded,
            Err(loading) => loading.await,
        }
    }

    /// Compilations started so far.
    pub fn compilations(&self) -> u64 {
        self.compiler.started()
    }

    async fn make(&self, digest: Digest, bytes: Vec<u8>) -> Loaded {
        let (start, size) = (Instant::now(), bytes.len());
        let name = Name::new(digest, &self.sandbox.engine);
        if let Some(code) = self.cached(&name).await {
            return self.ready(digest, size, &code, Origin::Cached(start.elapsed()));
        }
        let turn = self.compiler.turn().await;
        let start = Instant::now();
        let artifact = Arc::new(turn.compile(&bytes).await?);
        drop(turn);
        let (engine, fresh) = (self.sandbox.engine.clone(), Arc::clone(&artifact));
        let load = move || {
            let wrong = |error| format!("its output is no code of this engine: {error:#}");
            fresh.load(&engine).map_err(|error| ModuleError::Compiler(shorten(&wrong(error), LONGEST)))
        };
        let code = off_thread(load).await?;
        let module = self.ready(digest, size, &code, Origin::Compiled(start.elapsed()))?;
        self.keep(name, artifact);
        Ok(module)
    }

    async fn cached(&self, name: &Name) -> Option<Code> {
        let (cache, engine, name) =
            (Arc::clone(self.cache.as_ref()?), self.sandbox.engine.clone(), name.clone());
        let find = move || {
            let artifact = cache.find(&name)?;
            let code = artifact.load(&engine).ok();
            if code.is_none() {
                // Whole, and yet not made by this engine.
                cache.discard(&name);
            }
            code
        };
        off_thread(move || Ok(find())).await.ok()?
    }

    /// Nobody waits for that: the module serves already.
    fn keep(&self, name: Name, artifact: Arc<Artifact>) {
        if let Some(cache) = self.cache.clone() {
            tokio::task::spawn_blocking(move || cache.keep(&name, &artifact));
        }
    }

    fn ready(&self, digest: Digest, size: usize, code: &Code, origin: Origin) -> Loaded {
        let ready = self.linker.instantiate_pre(code);
        let ready = ready.map_err(|error| ModuleError::Import(shorten(&format!("{error:#}"), LONGEST)))?;
        let (cached, time) = match origin {
            Origin::Compiled(time) => (false, time),
            Origin::Cached(time) => (true, time),
        };
        tracing::info!(%digest, size, cached, seconds = time.as_secs_f64(), "module loaded");
        Ok(Arc::new(Module { digest, size, origin, ready }))
    }

    /// A module compiled in this process, whatever it imports: tests have functions of their own.
    #[cfg(test)]
    pub(crate) fn of_text(&self, text: &str) -> Module {
        let code = Code::new(&self.sandbox.engine, wat::parse_str(text).unwrap()).unwrap();
        let ready = self.linker.instantiate_pre(&code).unwrap();
        let origin = Origin::Compiled(Duration::ZERO);
        Module { digest: Digest::of(text.as_bytes()), size: text.len(), origin, ready }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

/// Runs what takes long without waiting, on a thread where that holds nobody up.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ModuleError> + Send + 'static,
) -> Result<T, ModuleError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(ModuleError::Refused(panic.to_string())))
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digest in hexadecimal, as `sha256sum` prints it.
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

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({}, {} bytes)", self.digest, self.size)
    }
}
