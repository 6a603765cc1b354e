//! Hooks: bytes to a hook, bytes back.

pub mod wasm;
pub(crate) mod web;
