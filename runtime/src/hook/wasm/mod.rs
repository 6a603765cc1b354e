//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

mod artifact;
pub mod bounds;
mod cache;
pub mod call_error;
mod compile;
pub(crate) mod compiler;
pub mod engine;
pub(crate) mod features;
mod host;
mod inspect;
mod known;
pub mod module;
mod module_error;
pub(crate) mod mounts;
mod pipe;
pub mod run;
pub(crate) mod seeds;
mod slots;
pub(crate) mod source;
mod stored;
mod unpack;
mod wasi;
