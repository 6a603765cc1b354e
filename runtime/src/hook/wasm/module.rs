//! Bytes to a module that can be run; each digest is compiled once, however many controllers name it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use metahook_core::spec::hook::LimitBounds;
use metahook_core::text::shorten;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use wasmtime::{InstancePre, Linker, Module as Code};

use super::engine::{EngineError, Sandbox};
use super::host::Host;
use super::slots::Slots;
use super::wasi;

/// A module may be this large.
const LARGEST: usize = 64 << 20;

/// What a module says of itself is cut to this many bytes.
const LONGEST: usize = 500;

/// SHA-256 of a module's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Compiles modules and runs them.
pub struct Runtime {
    pub(super) slots: Slots,
    pub(super) sandbox: Sandbox,
    linker: Linker<Host>,
    /// By digest; a module lives as long as somebody uses it.
    modules: Mutex<BTreeMap<Digest, Weak<Module>>>,
    /// One compilation at a time: the others find what it made, and hooks go on meanwhile.
    compiler: Semaphore,
    compilations: AtomicU64,
}

/// A module that can be run.
pub struct Module {
    pub digest: Digest,
    pub size: usize,
    pub compile_time: Duration,
    pub(super) ready: InstancePre<Host>,
}

/// Bytes that cannot be run, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    #[error("the module has {0} bytes, and {LARGEST} are allowed")]
    TooLarge(usize),
    #[error("this is a component, and hooks are modules: build with --target wasm32-wasip1")]
    Component,
    #[error(
        "this module is compressed ({0}), which this version of the server does not read: store the module as it is"
    )]
    Compressed(&'static str),
    #[error("this is not a WebAssembly module: its first bytes are {0}, not 00 61 73 6d")]
    NotWasm(String),
    #[error("the module is refused: {0}")]
    Refused(String),
    #[error("the module has no function _start: build a command (fn main), not a library")]
    NoStart,
    #[error("the module wants what hooks cannot have: {0}; a hook gets WASI preview 1 and nothing else")]
    Import(String),
}

impl Runtime {
    pub fn new(slots: usize, bounds: &LimitBounds) -> Result<Self, EngineError> {
        let sandbox = Sandbox::new(slots, bounds)?;
        let linker = wasi::linker(&sandbox.engine).map_err(|error| EngineError::new(&error))?;
        Ok(Self {
            slots: Slots::new(slots),
            sandbox,
            linker,
            modules: Mutex::default(),
            compiler: Semaphore::new(1),
            compilations: AtomicU64::new(0),
        })
    }

    /// Compiles a module, or finds it compiled.
    pub async fn load(self: &Arc<Self>, bytes: Vec<u8>) -> Result<Arc<Module>, ModuleError> {
        check(&bytes)?;
        let digest = Digest::of(&bytes);
        // Never closed.
        let _turn = self.compiler.acquire().await;
        if let Some(module) = self.modules().get(&digest).and_then(Weak::upgrade) {
            return Ok(module);
        }
        let this = Arc::clone(self);
        let compiled = tokio::task::spawn_blocking(move || this.compile(digest, &bytes)).await;
        let module = Arc::new(compiled.unwrap_or_else(|panic| Err(ModuleError::Refused(panic.to_string())))?);
        let mut modules = self.modules();
        modules.retain(|_, module| module.strong_count() > 0);
        modules.insert(digest, Arc::downgrade(&module));
        Ok(module)
    }

    /// Modules compiled so far.
    pub fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    fn compile(&self, digest: Digest, bytes: &[u8]) -> Result<Module, ModuleError> {
        let start = Instant::now();
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let code = Code::new(&self.sandbox.engine, bytes)
            .map_err(|error| ModuleError::Refused(shorten(&format!("{error:#}"), LONGEST)))?;
        if code.get_export("_start").is_none() {
            return Err(ModuleError::NoStart);
        }
        let ready = self
            .linker
            .instantiate_pre(&code)
            .map_err(|error| ModuleError::Import(shorten(&format!("{error:#}"), LONGEST)))?;
        Ok(Module { digest, size: bytes.len(), compile_time: start.elapsed(), ready })
    }

    fn modules(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, Weak<Module>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can be said of the bytes before anything is compiled.
fn check(bytes: &[u8]) -> Result<(), ModuleError> {
    match bytes {
        _ if bytes.len() > LARGEST => Err(ModuleError::TooLarge(bytes.len())),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', ..] => Err(ModuleError::Component),
        [0x1f, 0x8b, ..] => Err(ModuleError::Compressed("gzip")),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err(ModuleError::Compressed("zstd")),
        _ => {
            let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            Err(ModuleError::NotWasm(first.join(" ")))
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
