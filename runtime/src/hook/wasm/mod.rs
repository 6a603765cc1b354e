//! Hooks that are WebAssembly modules, run in a sandbox inside the server.

mod artifact;
pub mod bounds;
mod cache;
pub(crate) mod child;
mod compile;
pub mod engine;
pub mod error;
mod features;
mod inspect;
mod known;
pub mod module;
mod pipe;
pub mod run;
pub(crate) mod source;
mod unpack;
