//! Programs that demo and tests run: Kubernetes, a node's parts, the server and the guests. Light, because `xtask` is
//! compiled with it before it prints its first line.
#![allow(clippy::print_stderr, reason = "a build reports its progress")]

pub mod architecture;
pub mod cluster;
pub mod elapsed;
pub mod go;
pub mod helm;
mod needs;
pub mod node;
pub mod paths;
pub mod story;

use std::process::ExitCode;

/// The exit code of a program; prints its error.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
