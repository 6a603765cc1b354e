//! JSON values: written as Go writes them, merged three ways, compared as Kubernetes would.

pub mod go;
pub mod merge;
pub mod same;
