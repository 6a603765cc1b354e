//! The acceptance suite: our server against a real control plane, started once for all tests.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "people watch what is printed")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod accounts;
mod all_rights;
mod apply;
mod asked_cluster;
mod attacks;
mod author_messages;
mod caches;
mod cases;
mod chart;
mod compat;
mod components;
mod composite;
mod conditions;
mod config_restart;
mod control_planes;
mod crds;
mod dashboard;
mod dev;
mod diff;
mod diff_states;
mod explain;
mod explain_rights;
mod first_calls;
mod gallery;
mod gallery_copies;
mod gallery_node;
mod gallery_scripts;
mod harness;
mod hook_failures;
mod hostile_components;
mod hostile_hooks;
mod hostile_loops;
mod hostile_scripts;
mod immortal;
mod in_cluster;
mod keeping;
mod kept;
mod leader_election;
mod lifecycle;
mod limits;
mod lists;
mod modules;
mod mounts;
mod node;
mod other_servers;
mod outages;
mod packed;
mod pages;
mod pause;
mod purity;
mod record;
mod redefined;
mod related_deletion;
mod render;
mod replayed;
mod restored;
mod runner;
mod scaffold;
mod schemas;
mod scripts;
mod second_day;
mod secrecy;
mod services;
mod settling;
mod shadows;
mod spans;
mod status_of_one;
mod table;
mod taken_rights;
mod tutorial;
mod tutorial_scripts;
mod wasm;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use control_planes::{ControlPlanes, Plane};
use lists::{all, experiments};
use runner::{Wanted, What};

fn main() -> ExitCode {
    match tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(suite())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101), // as Rust's own test runner
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::from(101)
        }
    }
}

async fn suite() -> Result<bool> {
    let wanted = Wanted::parse(env::args().skip(1))?;
    let all = if wanted.what == What::Attack {
        if !wanted.attack.short {
            attacks::take_long_form();
        }
        experiments()
    } else {
        all()
    };
    if wanted.what == What::List {
        wanted.pick(&all).iter().for_each(|test| println!("{}: test", test.title));
        return Ok(true);
    }
    if wanted.what == What::HoldNode {
        let held = control_planes::start_with_node().await?;
        return hold(held.map_err(|missing| anyhow!("{missing}"))?).await;
    }
    node::look_before_all()?;
    let planes = Arc::new(ControlPlanes::start().await?);
    if wanted.what == What::Hold {
        return hold(planes.plain()).await;
    }
    let passed = tokio::select! {
        passed = runner::run(&planes, &wanted, &all) => Ok(passed),
        interrupt = tokio::signal::ctrl_c() => Err(interrupt.map_or_else(Into::into, |()| anyhow!("interrupted"))),
    };
    if (wanted.keep_logs || !matches!(passed, Ok(true)))
        && let Some(planes) = Arc::into_inner(planes)
    {
        planes.keep_logs();
    }
    passed
}

async fn hold(held: Plane) -> Result<bool> {
    println!("{}", held.plane.scratch().display());
    std::future::pending().await
}
