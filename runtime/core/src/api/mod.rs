//! Our API objects: their types as stored, and the checked forms that a running controller reads.

pub mod account;
pub mod composite;
pub mod controller;
pub mod decorator;
pub mod deletion;
pub mod endpoint;
pub mod hook;
pub mod mount;
pub mod packed;
pub mod policy;
pub mod rbac;
pub mod revision;
pub mod snapshot;
pub mod status;
pub mod units;
pub mod webhook;

/// A spec that cannot be run: which field, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    pub field: String,
    pub problem: String,
}

impl SpecError {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}
