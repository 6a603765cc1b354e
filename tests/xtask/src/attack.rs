//! `cargo xtask attack`: builds the server, optimized, and lets the experiments of the suite attack it. What needs no cluster
//! goes first: the tests of the sandbox, and of the turns of its calls.

use std::process::Command;
use std::{env, io};

use anyhow::{Result, ensure};
use binaries::cluster::Binaries;
use binaries::paths;
use clap::Args;

use crate::cargo::{cargo, exec, run as run_cargo, run_tests_to};
use crate::{guests, runners};

/// The test with a paused clock of how long loops of other controllers keep a call waiting.
const TURNS: &str =
    "hook::wasm::run::turns::tests::a_neighbour_waits_a_turn_for_each_four_controllers_that_loop";

#[derive(Args)]
pub(crate) struct Options {
    /// Only experiments with one of these in their names
    names: Vec<String>,
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
    runners::build_what_can_be()?;
    runners::compile(Command::new(&server), &paths::runners()?)?;
    for _ in 0..options.repeat {
        let mut sandbox = cargo(&["test", "--workspace", "--test", "sandbox", "--"]);
        // The table alone, or the list, goes to the standard output.
        run_cargo(sandbox.args(&options.names).stdout(io::stderr()))?;
        if options.names.is_empty() {
            let mut turns = cargo(&["test", "--workspace", "--lib", "--", "--exact", TURNS]);
            let (counts, is_ok) = run_tests_to(&mut turns, &mut io::stderr())?;
            // Without this check a test that is renamed does not run, and nothing fails.
            ensure!(
                is_ok && counts.passed == 1,
                "{TURNS}: {} passed, {} failed",
                counts.passed,
                counts.failed
            );
        }
    }
    let mut suite = cargo(&["test", "--workspace", "--test", "suite", "--", "--attack"]);
    if env::var_os("METAHOOK_BIN").is_none() {
        suite.env("METAHOOK_BIN", server);
    }
    suite.arg(format!("--repeat={}", options.repeat)).args(&options.names);
    for (flag, is_set) in [("--json", options.json), ("--short", options.short)] {
        suite.args(is_set.then_some(flag));
    }
    exec(&mut suite)
}
