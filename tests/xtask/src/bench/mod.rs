//! `cargo xtask bench`: what a call costs, and what a bad neighbour costs others. Measured in this one run, on this
//! machine; a goal that is missed is printed and no error.

mod fixture;
mod hook;
mod meter;
mod neighbours;
mod stats;

use std::path::PathBuf;
use std::process::Command;

use acceptance::paths;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use self::meter::Meter;
use crate::build;
use crate::cargo::{cargo, run as run_cargo};

#[derive(Args)]
pub(crate) struct Options {
    #[arg(value_enum)]
    what: What,
    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// A call of the tutorial's hook beside the same hook as a Go webhook
    Hook,
    /// Calls of one controller while the hook of another one does its worst
    Neighbours,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    build()?;
    match options.what {
        What::Hook => hook::run(options.json),
        What::Neighbours => neighbours::run(options.json),
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
