//! Tools with which authors try hooks without a cluster: documents of files, and the server's own sandbox and
//! decisions.
//!
//! Nothing here decides: requests are written, answers read and plans made by `metahook_core`, as the server has it do, and
//! modules are called by [`crate::hook::wasm`].

pub(crate) mod call;
pub(crate) mod cases;
pub(crate) mod diff;
pub(crate) mod documents;
pub(crate) mod folders;
pub(crate) mod kinds;
pub(crate) mod properties;
pub(crate) mod render;
pub(crate) mod sandbox;
pub(crate) mod scaffold;
pub(crate) mod schemas;
pub(crate) mod yaml;
