//! Entries for the fuzz targets in `tests/fuzz`.

pub use crate::hook::wasm::compile::check::inspect;
pub use crate::hook::wasm::compile::engine_config;
pub use crate::hook::wasm::compile::outline::OutlineBounds;
pub use crate::hook::wasm::source::unpack::unpack;
pub use crate::hook::wasm::wasi::{CallState, linker};
