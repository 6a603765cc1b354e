//! The API server: the only folder that speaks to it.

pub(crate) mod apply;
pub(crate) mod client;
pub(crate) mod config_maps;
mod direct;
pub(crate) mod discovery;
pub(crate) mod events;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod named;
pub(crate) mod openapi;
pub(crate) mod rest;
pub(crate) mod rewrite;
pub(crate) mod seed;
mod server_side;
pub(crate) mod watch;
