//! Calls of hooks, measured: `cargo xtask bench hook`, `guests` and `neighbours` build this program and run it.
//!
//! A goal that is missed is printed and is no error.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]

mod fixture;
mod guests;
mod hook;
mod meter;
mod neighbours;
mod stats;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use binaries::{exit_code, paths};
use clap::{Parser, ValueEnum};

use self::meter::Meter;

#[derive(Parser)]
#[command(name = "bench-calls")]
struct Options {
    #[arg(value_enum)]
    bench: Bench,
    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    Hook,
    Guests,
    Neighbours,
}

fn main() -> ExitCode {
    let options = Options::parse();
    exit_code(match options.bench {
        Bench::Hook => hook::run(options.json),
        Bench::Guests => guests::run(options.json),
        Bench::Neighbours => neighbours::run(options.json),
    })
}

/// The program that calls hooks as the server does.
fn ours() -> Result<Meter> {
    Meter::start(&mut Command::new(paths::target()?.join("release/bench-meter")))
}

/// Path of the same hook as a webhook, and its caller.
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
