//! JSON values: written as Go writes them, merged three ways, compared as Kubernetes would.

pub mod difference;
pub mod go;
pub mod lists;
pub mod merge;
