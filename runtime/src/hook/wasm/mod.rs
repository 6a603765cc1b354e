//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

pub mod engine;
pub mod error;
mod host;
pub mod module;
mod pipe;
pub mod run;
mod slots;
pub(crate) mod source;
mod wasi;
