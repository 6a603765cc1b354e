//! Hooks that are webhooks: one POST, one answer.

pub(crate) mod client;
mod connector;
mod web_error;
