//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

pub mod engine;
pub mod module;
mod pipe;
pub mod run;
pub(crate) mod seeds;
pub(crate) mod source;
