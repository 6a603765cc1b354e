//! The API server: the only folder that speaks to it.

pub(crate) mod api_client;
pub(crate) mod apply;
pub(crate) mod client;
pub(crate) mod config_maps;
pub(crate) mod discovery;
pub(crate) mod events;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod object_watch;
pub(crate) mod openapi;
pub(crate) mod rewrite;
pub(crate) mod seed;
mod server_side;
mod transport;
pub(crate) mod watch;
