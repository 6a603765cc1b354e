//! `cargo xtask attack`: builds the server, optimized, and lets the experiments of the suite attack it.

use std::env;

use anyhow::Result;
use binaries::cluster::Binaries;
use binaries::paths;
use clap::Args;

use crate::cargo::{cargo, exec, run as run_cargo};
use crate::guests;

#[derive(Args)]
pub(crate) struct Options {
    /// Only experiments with this in their name
    name: Option<String>,
    /// Runs each so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Prints a JSON list instead of a table
    #[arg(long)]
    json: bool,
    /// The short forms, as the suite runs them
    #[arg(long)]
    short: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    eprintln!("building the server, optimized, and the experiments (some ten minutes the first time)");
    Binaries::find_or_build()?;
    guests::build_all()?;
    run_cargo(&mut cargo(&["build", "--release", "-p", "metahook"]))?;
    let server = paths::target()?.join("release").join("metahook");
    let mut suite = cargo(&["test", "--workspace", "--test", "suite", "--", "--attack"]);
    if env::var_os("METAHOOK_BIN").is_none() {
        suite.env("METAHOOK_BIN", server);
    }
    suite.arg(format!("--repeat={}", options.repeat)).args(&options.name);
    for (flag, is_set) in [("--json", options.json), ("--short", options.short)] {
        suite.args(is_set.then_some(flag));
    }
    exec(&mut suite)
}
