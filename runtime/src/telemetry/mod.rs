//! What is told about the server while it runs.

pub(crate) mod log;
