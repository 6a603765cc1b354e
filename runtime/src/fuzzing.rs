//! Entries for the fuzz targets in `tests/fuzz`.

use crate::hook::wasm::compile;
pub use crate::hook::wasm::compile::check::inspect;
pub use crate::hook::wasm::compile::outline::OutlineBounds;
pub use crate::hook::wasm::source::unpack::unpack;
pub use crate::hook::wasm::wasi::{CallState, linker};

/// The settings of the engine for modules.
pub fn engine_config() -> wasmtime::Config {
    compile::engine_config(compile::WasmKind::Module, compile::CodeTarget::Machine)
}
