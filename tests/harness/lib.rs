//! What demo and acceptance tests stand on: a real control plane, our server as a child process, and waiting well.
#![allow(clippy::print_stderr, reason = "people watch what is printed")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

pub mod api;
pub mod cluster;
pub mod control_plane;
#[cfg(test)]
mod docs;
pub mod fixture;
pub mod folder;
mod go;
pub mod kubectl;
pub mod node;
pub mod objects;
pub mod oci;
pub mod paths;
mod pki;
pub mod process;
pub mod proxy;
pub mod said;
pub mod server;
pub mod wait;
pub mod webhook;
