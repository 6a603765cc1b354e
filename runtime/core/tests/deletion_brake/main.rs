//! The deletion brake: cases, and the law that in whatever order parents are reconciled the threshold holds.
#![allow(clippy::unwrap_used, reason = "a test")]

mod cases;
mod orders;
mod threshold;

use std::sync::Arc;

use metahook_core::hash::Fingerprint;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};

pub(crate) fn id(kind: &str, name: usize) -> ObjectId {
    let resource = Resource {
        gvk: Gvk::new("v1", kind),
        plural: format!("{}s", kind.to_lowercase()).into(),
        namespaced: true,
        has_status: true,
    };
    ObjectId { resource: Arc::new(resource), key: Key::new("n", &name.to_string()) }
}

pub(crate) fn version(of: &[u8]) -> Fingerprint {
    Fingerprint::of(of)
}

pub(crate) fn parent(name: usize) -> ObjectId {
    id("Parent", name)
}
