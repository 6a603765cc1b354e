//! Hooks: bytes to a hook, bytes back. All kinds of hooks are followed, and called, as one.

mod call;
mod followed;
/// Hooks that are WebAssembly modules, run in a sandbox inside the server.
pub mod wasm {
    pub mod compile;
    pub mod run;
    pub mod source;
    pub(crate) mod wasi;
}
pub mod web;

pub use call::{CallContext, CallPurpose, CallResult, HookCallError, LoadedHook};
pub(crate) use followed::{Hook, HookProblem, HookState};
