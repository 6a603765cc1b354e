//! The contract with users of Metacontroller, section by section.

pub(crate) mod customize;
pub(crate) mod parent_reconcile;
