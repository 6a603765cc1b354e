//! The project's own commands: `cargo xtask --help`.
//!
//! It is compiled before its first line appears, so it depends on little. Commands that need the harness, Kubernetes'
//! client or the server's crates are programs of their own: xtask builds them with Cargo's progress shown, then becomes
//! them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]

mod attack;
mod bench;
mod bench_hooks;
mod bench_peers;
mod cargo;
mod cases;
mod chart;
mod check;
mod children;
mod demo;
mod docs;
mod fuzz;
mod guests;
mod image;
mod release;
mod runners;
mod static_server;
mod steps;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use binaries::cluster::Binaries;
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
    /// Checks formats, links, circles between modules, dependencies, workflows, lints and documentation
    Check(check::Options),
    /// Builds the book in runtime/docs
    Docs,
    /// Builds the Wasm guests and prints their sizes
    Guests,
    /// Builds the interpreters of scripts
    Runners(runners::Options),
    /// Runs the targets of tests/fuzz under libFuzzer
    Fuzz(fuzz::Options),
    /// Measures: what a call of a hook costs, what a bad neighbour costs others, how fast parents converge
    Bench(bench::Options),
    /// Attacks the server: experiments with hostile hooks, tenants and networks, and a table of their figures
    Attack(attack::Options),
    /// Finds or builds the Kubernetes binaries and prints their folder
    Cluster,
    /// Writes the CRDs in manifests/crds
    Crds {
        /// Only compares them with what would be written
        #[arg(long)]
        check: bool,
    },
    /// Tests the Helm chart: lints and renders it, installs and upgrades releases; with the Helm that it builds
    Chart(chart::Options),
    /// Tries the cases from the field: what users of controllers like these have reported
    Cases(cases::Options),
    /// Makes the server an OCI image, without Docker
    Image,
    /// Makes what a release holds: programs, images, manifests, chart, book, and what is in them
    Release(release::Options),
    /// Makes the pictures of the book: pages of `metahook dashboard`, in headless Chromium
    Screenshots,
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let result = children::end_on_signals().and_then(|()| run(command));
    match (children::interrupted(), result) {
        (Some(signal), _) => {
            eprintln!("interrupted");
            ExitCode::from(128 + signal) // as shells have it
        }
        (None, Ok(true)) => ExitCode::SUCCESS,
        (None, Ok(false)) => ExitCode::FAILURE,
        (None, Err(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False if the command has printed what went wrong.
fn run(command: Command) -> Result<bool> {
    match command {
        Command::Demo(options) => demo::run(&options)?,
        Command::Test(options) => return Ok(test::run(&options)),
        Command::Check(options) => return check::run(&options),
        Command::Docs => return docs::run(docs::Program::OfPath),
        Command::Guests => guests::build_all()?,
        Command::Runners(options) => runners::run(&options)?,
        Command::Fuzz(options) => fuzz::run(&options)?,
        Command::Bench(options) => bench::run(&options)?,
        Command::Attack(options) => attack::run(&options)?,
        Command::Cluster => println!("{}", Binaries::find_or_build()?.folder().display()),
        Command::Crds { check } => cargo::become_program("crds", check.then_some("--check"))?,
        Command::Chart(options) => return chart::run(&options),
        Command::Cases(options) => return Ok(cases::run(&options)),
        Command::Image => image::build()?,
        Command::Release(options) => return release::run(&options),
        Command::Screenshots => {
            cargo::build_programs(&["metahook"])?;
            cargo::become_program("screenshots", None)?;
        }
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
}
