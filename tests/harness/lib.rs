//! Harness of demo and acceptance tests: a real control plane, our server as a child process, and waiting well.
#![allow(clippy::print_stderr, reason = "people watch what is printed")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

pub mod api;
pub mod control_plane;
#[cfg(test)]
mod docs;
pub mod expected_messages;
pub mod figures;
pub mod fixture;
pub mod folder;
pub mod free_port;
pub mod helm;
pub mod kubectl;
pub mod memory_limit;
pub mod metrics;
pub mod node;
pub mod objects;
mod pki;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod server;
pub mod wait;
pub mod webhook;

pub use binaries::{cluster, paths};
pub use image as oci;
