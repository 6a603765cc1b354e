//! Why bytes are no hook: each message names the figure, the bound, and what to do.

use std::path::PathBuf;
use std::time::Duration;

use metahook_core::api::hook::Language;
use metahook_core::api::units::print_bytes;

use super::Encoding;

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
    #[error(
        "the component wants what hooks cannot have: {0}; a hook has no network, and gets wasi:cli, clocks, filesystem, io and random of preview 2"
    )]
    ComponentImport(String),
    #[error("a call of the module has no room in the server: {0}; make it of fewer or smaller modules")]
    Pool(String),
    #[error("the component is made of more than {0} modules: make it of fewer")]
    Modules(usize),
    #[error(
        "the component exports neither wasi:cli/run nor a function sync, finalize or customize: build a command (fn main), or the world metahook:hook"
    )]
    NoRun,
    #[error(
        "the component's export {name} is {found}, and a hook is func(request: string) -> result<string, string>"
    )]
    HookType { name: &'static str, found: String },
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
    #[error(
        "the module's first data lies on {found} pages of 4 KiB more than it fills, and {bound} are allowed: lay it together"
    )]
    Data { found: u64, bound: u64 },
    #[error(
        "the module's first data has {found} bytes of zeros between its pieces, and {bound} are allowed: lay it together"
    )]
    Gaps { found: u64, bound: u64 },
    #[error(
        "the component nests components and modules {found} deep, and {bound} are allowed: make it flatter"
    )]
    Depth { found: usize, bound: usize },
    #[error(
        "the names of imports and exports have {found} bytes, and {bound} are allowed: import and export less, or by shorter names"
    )]
    Names { found: u64, bound: u64 },
    #[error("there are {found} imports and exports, and {bound} are allowed: import and export less")]
    ManyNames { found: u64, bound: u64 },
    #[error(
        "the declarations of types have {found} bytes, and {bound} are allowed: declare fewer types, or smaller ones"
    )]
    Types { found: u64, bound: u64 },
    #[error(
        "each call of the module begins with {found} steps of the host (imports, functions, data, elements of tables, globals), and {bound} are allowed: lay its first data together, write it in the module, or instantiate it less often"
    )]
    Start { found: u64, bound: u64 },
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
        "compiling the module takes more than {}s of processor time (--module-compile-timeout): make it smaller",
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
    #[error(
        "with this module's {}, the code of all loaded modules would take {}, and {} are allowed (--module-code-max): raise it where disk and memory have room, or make the modules smaller",
        whole_mib(*bytes), whole_mib(others.saturating_add(*bytes)), print_bytes(*max)
    )]
    AllCode { bytes: u64, others: u64, max: u64 },
    #[error("the module's code cannot be written to a file (--module-cache-dir): {0}")]
    Code(String),
    #[error(
        "this server has no runner for {}: there is no {}: name its folder with --runners, or use the image of a release, which has it",
        language.as_str(), path.display()
    )]
    NoRunner { language: Language, path: PathBuf },
    #[error("the runner for {language} cannot be used: {why}")]
    Runner { language: &'static str, why: String },
    #[error("the script has {found} bytes, and {} are allowed: make it smaller, or mount what it reads", print_bytes(*bound))]
    ScriptSize { found: u64, bound: u64 },
    #[error("the script cannot be used: {0}")]
    Script(String),
    #[error("the script could not be compiled, which is tried again: {0}")]
    ScriptFailed(String),
    #[error("the compiler cannot be started: {0}")]
    NoCompiler(String),
    #[error("the compiler failed on this module: {0}")]
    Compiler(String),
    #[error("the server failed on this module, which is a bug of the server: {0}")]
    Bug(String),
}

fn whole_mib(bytes: u64) -> String {
    print_bytes(bytes.checked_next_multiple_of(1 << 20).unwrap_or(bytes))
}

impl ModuleError {
    /// Whether the same bytes may load another time: the machine may just be busy, or the server wrong. Else the bytes
    /// themselves are refused.
    pub fn may_heal(&self) -> bool {
        match self {
            Self::CompileTime(_)
            | Self::CompileMemory(_)
            | Self::AllCode { .. }
            | Self::Code(_)
            | Self::Compiler(_)
            | Self::NoCompiler(_)
            | Self::NoRunner { .. }
            | Self::Runner { .. }
            | Self::ScriptFailed(_)
            | Self::Bug(_) => true,
            Self::Packed { .. }
            | Self::Size(_)
            | Self::Broken { .. }
            | Self::Window(_)
            | Self::Trailing { .. }
            | Self::NotWasm(_)
            | Self::ComponentImport(_)
            | Self::Pool(_)
            | Self::Modules(_)
            | Self::NoRun
            | Self::HookType { .. }
            | Self::Functions { .. }
            | Self::Memory { .. }
            | Self::Table { .. }
            | Self::Data { .. }
            | Self::Gaps { .. }
            | Self::Depth { .. }
            | Self::Names { .. }
            | Self::ManyNames { .. }
            | Self::Types { .. }
            | Self::Start { .. }
            | Self::Tables(_)
            | Self::NoStart
            | Self::StartType
            | Self::Import(_)
            | Self::Refused(_)
            | Self::Artifact(_)
            | Self::ScriptSize { .. }
            | Self::Script(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_heal_is_told_from_what_the_bytes_are_refused_for() {
        let text = || "why".to_owned();
        for error in [
            ModuleError::CompileTime(Duration::ZERO),
            ModuleError::CompileMemory(1),
            ModuleError::AllCode { bytes: 1, others: 1, max: 1 },
            ModuleError::Code(text()),
            ModuleError::Compiler(text()),
            ModuleError::NoCompiler(text()),
            ModuleError::NoRunner { language: Language::Python, path: PathBuf::new() },
            ModuleError::Runner { language: "python", why: text() },
            ModuleError::ScriptFailed(text()),
            ModuleError::Bug(text()),
        ] {
            assert!(error.may_heal(), "{error}");
        }
        for error in [
            ModuleError::Size(1),
            ModuleError::NotWasm(text()),
            ModuleError::Pool(text()),
            ModuleError::Functions { found: 2, bound: 1 },
            ModuleError::Import(text()),
            ModuleError::Refused(text()),
            ModuleError::Artifact(1),
            ModuleError::Script(text()),
        ] {
            assert!(!error.may_heal(), "{error}");
        }
    }
}
