//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

pub mod engine;
pub(crate) mod folders;
pub mod module;
pub(crate) mod mounts;
mod pipe;
pub mod run;
pub(crate) mod seeds;
pub(crate) mod source;
mod stored;
mod unpack;
