//! One reconcile of one parent, as far as it is decided: its phase, its claims, its input, its plan, its outcome.

pub mod config;
pub mod input;
pub mod outcome;
pub mod phase;
pub mod plan;
pub mod rollout;
#[cfg(test)]
mod testing;
