//! Errors of modules that cannot be run as hooks, with what to do about each.

use std::fmt;
use std::time::Duration;

use metahook_core::api::units::print_bytes;

/// Bytes that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    #[error(
        "the module has {found} bytes as it is stored ({encoding}), and {} are allowed (--module-packed-max): make it smaller",
        print_bytes(*bound)
    )]
    Packed { encoding: Encoding, found: usize, bound: u64 },
    #[error("the module has more than {} (--module-size-max): strip it, or build it for size", print_bytes(*.0))]
    Size(u64),
    #[error("the module is stored as {encoding}, and cannot be unpacked: {why}; compress and store it again")]
    Broken { encoding: Encoding, why: String },
    #[error(
        "the module is stored as {0} with a window above 8Mi: compress it again without --long and --ultra"
    )]
    Window(Encoding),
    #[error("{count} bytes follow the end of the {encoding} data: store one module, compressed in one piece")]
    Trailing { encoding: Encoding, count: usize },
    #[error("this is not a WebAssembly module: its first bytes are {0}, not 00 61 73 6d")]
    NotWasm(String),
    #[error("this is a component, and hooks are modules: build with --target wasm32-wasip1")]
    Component,
    #[error(
        "the module has {found} functions, and {bound} are allowed (--module-functions-max): make it smaller"
    )]
    Functions { found: u32, bound: u32 },
    #[error(
        "the module begins with {} of memory, and no hook gets more than {} (--hook-memory-max): lower its initial memory",
        print_bytes(*found), print_bytes(*bound)
    )]
    Memory { found: u64, bound: u64 },
    #[error(
        "the module has a table of {found} elements, and {bound} are allowed (--module-functions-max): make it smaller"
    )]
    Table { found: u64, bound: u64 },
    #[error("the module has {0} tables, and a hook has one: build with --target wasm32-wasip1")]
    Tables(u32),
    #[error("the module has no function _start: build a command (fn main), not a library")]
    NoStart,
    #[error(
        "the module's function _start takes or returns values: build a command with --target wasm32-wasip1"
    )]
    StartType,
    #[error("the module wants what hooks cannot have: {0}; a hook gets WASI preview 1 and nothing else")]
    Import(String),
    #[error("the module is refused: {0}")]
    Refused(String),
    #[error(
        "the module was not compiled within {}s (--module-compile-timeout): make it smaller",
        .0.as_secs_f64()
    )]
    CompileTime(Duration),
    #[error(
        "compiling the module takes more than {} of memory (--module-compile-memory): make it smaller",
        print_bytes(*.0)
    )]
    CompileMemory(u64),
    #[error("the compiled module has more than {}: make it smaller", print_bytes(*.0))]
    Artifact(u64),
    #[error("the compiler cannot be started: {0}")]
    NoCompiler(String),
    #[error("the compiler failed on this module: {0}")]
    Compiler(String),
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

impl ModuleError {
    /// The time for which the same bytes need no other compilation to be known to fail.
    pub(in crate::hook::wasm) fn holds_for(&self) -> Duration {
        /// The machine may just be busy; compiling without a pause would keep it busy.
        const RETRY_DELAY: Duration = Duration::from_mins(5);
        match self {
            Self::CompileTime(_) | Self::CompileMemory(_) | Self::Artifact(_) | Self::Compiler(_) => {
                RETRY_DELAY
            }
            Self::NoCompiler(_) => Duration::ZERO,
            Self::Packed { .. }
            | Self::Size(_)
            | Self::Broken { .. }
            | Self::Window(_)
            | Self::Trailing { .. }
            | Self::NotWasm(_)
            | Self::Component
            | Self::Functions { .. }
            | Self::Memory { .. }
            | Self::Table { .. }
            | Self::Tables(_)
            | Self::NoStart
            | Self::StartType
            | Self::Import(_)
            | Self::Refused(_) => Duration::MAX,
        }
    }
}
