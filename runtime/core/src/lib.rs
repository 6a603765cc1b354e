//! Decisions of metahook: pure functions of values, without I/O, clock or logging. The modules, in the order of the data:
//!
//! - [`object`]: one object; its bytes, its identity, its labels
//! - [`api`]: our API; what is stored, and what of it can be run
//! - [`cache`]: objects by name, owner and uid, kept up to date by events; which parents an event concerns
//! - [`related`]: objects that a hook is shown besides its children, and the parents that a change of one concerns
//! - [`hook`]: requests to hooks, and their answers
//! - [`rollout`]: rolling updates: revisions of a parent, and the child that moves next
//! - [`children`]: the plan of writes of children
//! - [`decorator`]: the writes of a decorated object, and conflicts between decorators
//! - [`reconcile`]: these in a row: what a reconcile reads, asks and decides, and how it goes on
//! - [`settled`]: parents that need no call of a hook until something changes
//! - [`pacing`]: delays of requests and resyncs
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
