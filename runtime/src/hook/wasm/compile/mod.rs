//! What a module may cost before it is called for the first time.

pub(crate) mod artifact;
pub(crate) mod cache;
pub(crate) mod compiler;
pub(crate) mod features;
pub(crate) mod module_error;
pub(crate) mod outline;
pub(crate) mod process;

use std::path::PathBuf;
use std::time::Duration;

/// How modules are compiled and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSettings {
    /// The program that compiles when called with `compile`: this one.
    pub compiler: PathBuf,
    pub bounds: ModuleBounds,
    /// Compilations at once.
    pub compilations: usize,
    /// Where compiled modules are kept; nowhere when absent.
    pub cache: Option<PathBuf>,
}

/// The most that a module may ask of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleBounds {
    /// Bytes as stored, where they are compressed.
    pub packed: u64,
    /// Bytes of the module itself.
    pub size: u64,
    /// Functions of its own; a table may have as many elements.
    pub functions: u32,
    pub compile_time: Duration,
    /// Address space of the compiler.
    pub compile_memory: u64,
}

impl ModuleSettings {
    pub fn new(compiler: impl Into<PathBuf>) -> Self {
        Self { compiler: compiler.into(), bounds: ModuleBounds::default(), compilations: 1, cache: None }
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
        }
    }
}
