//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

pub mod compile;
pub mod run;
pub mod source;
pub(crate) mod wasi;
