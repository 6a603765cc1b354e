//! The compatibility contract on a real API server: a module for each of its sections.

pub(crate) mod api_objects;
pub(crate) mod hook_protocol;
