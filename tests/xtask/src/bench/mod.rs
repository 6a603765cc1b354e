//! `cargo xtask bench`: what a call costs, what a bad neighbour costs others, and how fast parents converge. Measured in
//! this one run, on this machine; a goal that is missed is printed and no error.

mod converge;
mod fixture;
mod hook;
mod meter;
mod neighbours;
mod stats;

use std::path::PathBuf;
use std::process::Command;

use acceptance::paths;
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use self::meter::Meter;
use crate::build;
use crate::cargo::{cargo, run as run_cargo};

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
    /// Prints one JSON object instead of a table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// A call of the tutorial's hook beside the same hook as a Go webhook
    Hook,
    /// Calls of one controller while the hook of another one does its worst
    Neighbours,
    /// Parents of the tutorial's controller on a real control plane beside the bare writes that they take
    Converge(converge::Options),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::Hook => build().and_then(|()| hook::run(options.json)),
        What::Neighbours => build().and_then(|()| neighbours::run(options.json)),
        What::Converge(converge) => converge::run(converge, options.json),
    }
}

/// Everything is optimized as what users get is.
fn build() -> Result<()> {
    eprintln!("building the server and the guests, optimized");
    build::need_target()?;
    let guests =
        ["build", "--profile", "guest", "--target", build::TARGET, "-p", "hello", "-p", "bench-guests"];
    run_cargo(&mut cargo(&guests))?;
    run_cargo(&mut cargo(&["build", "--release", "-p", "bench-meter"]))?;
    let mut go = Command::new("go");
    go.current_dir(modules().with_file_name("webhook")).env("GOWORK", "off");
    go.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(webhook()?).arg(".");
    let built = go.status().context("cannot run `go`: install Go (https://go.dev/dl)")?;
    ensure!(built.success(), "go build failed ({built})");
    Ok(())
}

/// The program that calls hooks as the server does.
fn ours() -> Result<Meter> {
    Meter::start(&mut Command::new(paths::target()?.join("release/bench-meter")))
}

/// The same hook as a webhook, and who calls it.
fn webhook() -> Result<PathBuf> {
    Ok(paths::target()?.join("bench-webhook"))
}

/// Modules written by hand.
fn modules() -> PathBuf {
    paths::workspace().join("tests/bench/modules")
}

/// `met` or `missed`.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}
