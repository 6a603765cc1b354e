//! What metahook decides. Pure functions of values: no I/O, no clock, no logging. In the order of the data:
//!
//! - [`object`]: one object; its bytes, its identity, its labels
//! - [`api`]: our API; what is stored, and what of it can be run
//! - [`cache`]: objects by name, owner and uid, kept up to date by events; which parents an event concerns
//! - [`related`]: what a hook is shown besides its children, and whom a change of it concerns
//! - [`hook`]: what a hook is asked and what it answers
//! - [`rollout`]: which state of its parent each child is at, and which child goes to the latest next
//! - [`children`]: what is to be written
//! - [`decorator`]: what is to be written of an object that is decorated, and whose labels, annotations and status it has
//! - [`reconcile`]: these in a row: what a reconcile reads, asks and decides, and how it goes on
//! - [`settled`]: parents about which there is nothing to do until something changes
//! - [`pacing`]: how long requests and resyncs wait
//! - [`json`]: JSON as Go writes it, merges, comparisons
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod api;
pub mod cache;
pub mod children;
pub mod controller_metrics;
pub mod decorator;
pub mod hash;
pub mod hook;
pub mod json;
pub mod object;
pub mod pacing;
pub mod reconcile;
pub mod related;
pub mod rollout;
pub mod settled;
pub mod text;
