//! Cached objects of the cluster: what watch events changed, and which parents that concerns.

pub(crate) mod label_index;
pub mod objects;
pub mod orphan_adopters;
pub mod trigger;
