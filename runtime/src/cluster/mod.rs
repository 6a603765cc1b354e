//! The API server: the only folder that speaks to it.

pub(crate) mod api_client;
pub(crate) mod apply;
pub(crate) mod discovery;
pub(crate) mod events;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod named_objects;
pub(crate) mod object_watch;
mod server_side;
pub(crate) mod watch;
