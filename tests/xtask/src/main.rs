//! The project's own commands: `cargo xtask --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod bench;
mod build;
mod cargo;
mod check;
mod crds;
mod demo;
mod image;
mod map;
mod test;

use std::process::ExitCode;

use acceptance::cluster::Binaries;
use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the tutorial, or another story, on a real control plane: a Wasm hook makes Pods
    Demo(demo::Options),
    /// Runs all tests, or some
    Test(test::Options),
    /// Checks formats, lints and documentation
    Check,
    /// Builds the Wasm guests and prints their sizes
    Guests,
    /// Measures: what a call of a hook costs, what a bad neighbour costs others, how fast parents converge
    Bench(bench::Options),
    /// Finds or builds the Kubernetes binaries and prints their folder
    Cluster,
    /// Writes the CRDs in manifests/crds
    Crds {
        /// Only compares them with what would be written
        #[arg(long)]
        check: bool,
    },
    /// Makes the server an OCI image, without Docker
    Image,
    /// Prints files that grew large and what metahook-core pulls in
    Map,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// False if the command has said itself what went wrong.
fn run(command: Command) -> Result<bool> {
    match command {
        Command::Demo(options) => demo::run(&options)?,
        Command::Test(options) => return Ok(test::run(&options)),
        Command::Check => check::run()?,
        Command::Guests => build::guests()?,
        Command::Bench(options) => bench::run(&options)?,
        Command::Cluster => println!("{}", Binaries::find_or_build()?.folder().display()),
        Command::Crds { check } => crds::run(check)?,
        Command::Image => image::build()?,
        Command::Map => map::run()?,
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn the_crds_in_manifests_are_current() {
        super::crds::run(true).unwrap();
    }
}
