//! `cargo xtask bench`: builds what a measurement needs, optimized, then becomes the program that measures.
//!
//! All is measured in this one run, on this machine; a goal that is missed is printed and is no error.

use std::process::Command;

use anyhow::Result;
use binaries::paths;
use clap::{Args, Subcommand};

use crate::bench_hooks;
use crate::bench_peers::{self, Peer};
use crate::cargo::{cargo, exec, run as run_cargo};
use crate::{guests, runners};

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
    /// The tutorial's hook in each language beside the same function behind web servers, as a table
    Guests,
    /// Calls of one controller while the hook of another one does its worst
    Neighbours,
    /// Parents of the tutorial's controller on a real control plane beside the bare writes that they take
    Converge(Converge),
}

#[derive(Args)]
struct Converge {
    /// How many are made at once
    #[arg(long, value_name = "N", default_value_t = 2000)]
    parents: usize,
    /// Bare writes and the server in turn, so often; medians are printed
    #[arg(long, value_name = "K", default_value_t = 5)]
    pairs: usize,
    /// Parents with so many ConfigMaps each instead, once: what the server takes for them
    #[arg(long, value_name = "N")]
    children: Option<usize>,
    /// So many controllers instead, each with a kind of its own, once; with --peer as many operators that have nothing to do
    #[arg(long, value_name = "N", conflicts_with = "children")]
    controllers: Option<usize>,
    /// One more flag for the server, such as --server-flag=--workers=16
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    server_flag: Vec<String>,
    /// An operator written by hand that does the same work in turn; may be given for each
    #[arg(long, value_name = "PEER", conflicts_with = "children")]
    peer: Vec<Peer>,
    /// The server with traces of its reconciles too, in turn
    #[arg(long, conflicts_with_all = ["children", "controllers"])]
    traces: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    eprintln!(
        "building the server and the guests, optimized (some eight minutes the first time, on two cores)"
    );
    let mut program = match &options.what {
        What::Hook => calls("hook")?,
        What::Guests => {
            guests::build_components(&["hello"])?;
            bench_hooks::build()?;
            runners::build_what_can_be()?;
            calls("guests")?
        }
        What::Neighbours => calls("neighbours")?,
        What::Converge(converge) => converge.build()?,
    };
    if options.json {
        program.arg("--json");
    }
    exec(&mut program)
}

/// Measures calls of hooks, without a cluster.
fn calls(bench: &str) -> Result<Command> {
    guests::build_packages(&["hello", "bench-guests"])?;
    run_cargo(&mut cargo(&["build", "--release", "-p", "bench-meter", "-p", "bench-calls"]))?;
    bench_peers::build_go("webhook")?;
    let mut program = optimized("bench-calls")?;
    program.arg(bench);
    Ok(program)
}

impl Converge {
    fn build(&self) -> Result<Command> {
        guests::build_packages(&["hello", "probe_answers"])?;
        run_cargo(&mut cargo(&["build", "--release", "-p", "metahook", "-p", "bench-converge"]))?;
        let peers = bench_peers::build(&self.peer)?;
        let mut program = optimized("bench-converge")?;
        program.arg(format!("--parents={}", self.parents)).arg(format!("--pairs={}", self.pairs));
        program.args(self.children.map(|children| format!("--children={children}")));
        program.args(self.controllers.map(|controllers| format!("--controllers={controllers}")));
        program.args(self.server_flag.iter().map(|flag| format!("--flag={flag}")));
        program.args(self.traces.then_some("--traces")).args(peers);
        Ok(program)
    }
}

fn optimized(program: &str) -> Result<Command> {
    Ok(Command::new(paths::target()?.join("release").join(program)))
}
