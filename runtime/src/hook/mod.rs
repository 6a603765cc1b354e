//! Hooks: bytes to a hook, bytes back.

/// Hooks that are WebAssembly modules, run in a sandbox inside the server.
pub mod wasm {
    pub mod compile;
    pub mod run;
    pub mod source;
    pub(crate) mod wasi;
}
pub(crate) mod web;
