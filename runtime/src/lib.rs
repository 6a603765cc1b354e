//! The metahook server: the effects around the decisions of `metahook-core`. In the order of the data:
//!
//! - [`cluster`]: the API server; the only folder that speaks to it
//! - `store`: caches of the cluster's objects
//! - `queue`: keys that wait for a worker
//! - [`hook`]: hooks, in their sandbox
//! - `memory`: the memory budget that reconciles share
//! - [`controller`]: controllers, each running over its parents
//! - [`inspection`]: the address where people look into the running server
//! - [`server`]: all of it put together
//! - [`telemetry`]: logs, probes, metrics
//!
//! Its flags are in `metahook`, the program; what authors try hooks with is in `metahook-author`.

pub mod cluster;
pub mod controller;
#[doc(hidden)]
pub mod fuzzing;
pub mod hook;
pub mod inspection;
mod memory;
mod queue;
pub mod server;
mod spans;
mod store;
pub mod sync;
pub mod telemetry;

pub use hook::wasm::compile::compile;
