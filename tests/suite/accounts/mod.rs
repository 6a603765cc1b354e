//! A controller with a ServiceAccount of its own can do what that one may, and nothing else.

pub(crate) mod account_changes;
pub(crate) mod account_reads;
pub(crate) mod account_roles;
pub(crate) mod account_writes;
mod kit;
