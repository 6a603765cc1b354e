//! What metahook decides. Pure functions of values: no I/O, no clock, no logging. In the order of the data:
//!
//! - [`object`]: one object; its bytes, its identity, its labels
//! - [`spec`]: our API; what is stored, and what of it can be run
//! - [`index`]: objects by name, owner and uid, kept up to date by events
//! - [`trigger`]: which parents an event concerns
//! - [`adopters`]: which of them might adopt an orphan
//! - [`gate`]: whether a parent is this controller's business
//! - [`children`]: how a parent's children are told from other objects
//! - [`claim`]: keep, adopt, release or leave
//! - [`related`]: what a hook is shown besides its children, and whom a change of it concerns
//! - [`protocol`]: what a hook is asked and what it answers
//! - [`rollout`]: which state of its parent each child is at, and which child goes to the latest next
//! - [`plan`]: what is to be written
//! - [`decoration`]: what is to be written of an object that is decorated, besides its attachments
//! - [`wishes`]: whose labels, annotations and status it has, where several controllers decorate it
//! - [`pass`]: these in a row: what a pass sees, asks and decides
//! - [`fingerprint`]: what a pass saw, as 128 bits
//! - [`standing`]: how each parent stood after its last pass: settled, failing
//! - [`outcome`]: how a pass that ended goes on
//! - [`spread`]: when each of many parents is looked at again
//! - [`tally`]: what a controller did so far
//! - [`bucket`]: how long a request waits where their number is limited
//! - [`rbac`]: the rights that a controller needs
//! - [`text`]: text cut to a length
//! - [`json`]: JSON as Go writes it, merges, comparisons
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod adopters;
mod brief;
pub mod bucket;
pub mod children;
pub mod claim;
pub mod decoration;
pub mod fingerprint;
pub mod gate;
pub mod index;
pub mod json;
pub mod keyed;
mod labelled;
pub mod object;
pub mod outcome;
pub mod pass;
pub mod plan;
pub mod protocol;
pub mod rbac;
pub mod related;
pub mod rollout;
pub mod spec;
pub mod spread;
pub mod standing;
pub mod tally;
pub mod text;
pub mod trigger;
pub mod wishes;
