//! How long parents take to converge beside the bare writes that they consist of: builds the program that measures it.

use std::process::Command;

use acceptance::paths;
use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::build;
use crate::cargo::{cargo, run as run_cargo};

#[derive(Args)]
pub(super) struct Options {
    /// How many are made at once
    #[arg(long, value_name = "N", default_value_t = 2000)]
    parents: usize,
    /// Bare writes and the server in turn, so often; what is told are medians
    #[arg(long, value_name = "K", default_value_t = 5)]
    pairs: usize,
    /// One more flag for the server, such as --server-flag=--workers=16
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    server_flag: Vec<String>,
}

pub(super) fn run(options: &Options, json: bool) -> Result<()> {
    eprintln!("building the server and the guest, optimized");
    build::need_target()?;
    run_cargo(&mut cargo(&["build", "--profile", "guest", "--target", build::TARGET, "-p", "hello"]))?;
    run_cargo(&mut cargo(&["build", "--release", "-p", "metahook", "-p", "bench-converge"]))?;
    let mut program = Command::new(paths::target()?.join("release/bench-converge"));
    program.arg(format!("--parents={}", options.parents)).arg(format!("--pairs={}", options.pairs));
    program.args(options.server_flag.iter().map(|flag| format!("--flag={flag}")));
    if json {
        program.arg("--json");
    }
    let status = program.status().context("cannot run bench-converge")?;
    ensure!(status.success(), "bench-converge failed ({status})");
    Ok(())
}
