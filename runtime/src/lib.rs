//! The metahook server: the effects around the decisions of `metahook-core`. In the order of the data:
//!
//! - `cluster`: the API server; the only folder that speaks to it
//! - `store`: caches of the cluster's objects
//! - `queue`: keys that wait for a worker
//! - [`hook`]: hooks, in their sandbox
//! - `memory`: the memory budget that reconciles share
//! - `controller`: controllers, each running over its parents
//! - `pack`: modules as they are stored
//! - [`server`]: all of it put together
//! - `author`: what hooks are tried with, without a cluster
//! - `deploy`: bundles of an author's files on a cluster
//! - `dev`: a session of an author's server on a cluster
//! - [`cli`]: flags to settings
//! - `progress`: steps of commands that take long, told on a terminal
//! - `telemetry`: logs, probes, metrics

mod author;
pub mod cli;
mod cluster;
mod controller;
mod deploy;
mod dev;
#[doc(hidden)]
pub mod fuzzing;
pub mod hook;
mod memory;
mod pack;
mod progress;
mod queue;
pub mod server;
mod store;
mod sync;
mod telemetry;

#[doc(hidden)]
pub use author::kinds::built_in_kinds;
#[doc(hidden)]
pub use author::schemas::built_in_schemas;
pub use hook::wasm::compile::compile;
pub use telemetry::LogError;

/// Sets logging up as the flags say.
pub fn start_log(serve: &cli::Serve) -> Result<(), LogError> {
    telemetry::start_log(serve.log_format(), &serve.log_level())
}
