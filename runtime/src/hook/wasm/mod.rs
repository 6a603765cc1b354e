//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

pub mod engine;
pub mod error;
pub(crate) mod folders;
mod host;
pub mod module;
pub(crate) mod mounts;
mod pipe;
pub mod run;
pub(crate) mod seeds;
mod slots;
pub(crate) mod source;
mod stored;
mod unpack;
mod wasi;
