//! `cargo xtask demo`: the tutorial, shown step by step with the lines a person would type.

mod interrupt;
mod place;
mod steps;
mod terminal;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::build;
use interrupt::Interrupt;
use place::Place;
use steps::Demo;

#[derive(Args)]
pub(crate) struct Options {
    /// Leaves everything running until Ctrl-C, and says how to reach it
    #[arg(long)]
    keep: bool,
    /// Runs on the cluster of this kubectl context instead of one of its own
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// On that cluster, uses our CRDs and the server that are there instead of refusing
    #[arg(long, requires = "context")]
    use_existing: bool,
    /// Installs Debian packages that a node needs and that are missing (done without asking where CI=true)
    #[arg(long, conflicts_with = "context")]
    install: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    build::all()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let interrupt = Arc::new(Interrupt::default());
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            tokio::spawn(listen(signal(kind)?, Arc::clone(&interrupt)));
        }
        show(options, &interrupt).await
    })
}

async fn listen(mut signals: Signal, interrupt: Arc<Interrupt>) {
    while signals.recv().await.is_some() {
        if !interrupt.heard() {
            println!("cleaning up; once more leaves the rest as it is");
        }
    }
}

async fn show(options: &Options, interrupt: &Arc<Interrupt>) -> Result<()> {
    let mut place = match &options.context {
        None => Place::own(build::may_install(options.install)).await?,
        Some(name) => Place::of_context(name, options.use_existing).await?,
    };
    let mut demo = Demo::at(&place, interrupt);
    let shown = demo.tutorial().await;
    if let Err(why) = &shown {
        eprintln!("\nerror: {why:#}\n{}", demo.evidence());
    }
    if options.keep && !interrupt.is_set() {
        keep(&place, interrupt).await;
    }
    interrupt.ignore_one();
    let cleaned = demo.clean_up().await;
    if shown.is_err() || cleaned.is_err() {
        place.keep_logs();
    }
    ensure!(shown.is_ok(), "the demo did not come to its end");
    cleaned?;
    println!("\n{}", place.closing());
    Ok(())
}

async fn keep(place: &Place, interrupt: &Arc<Interrupt>) {
    println!("\nEverything stays until Ctrl-C. In another terminal:");
    println!("  {}", place.export());
    println!("  kubectl -n hello apply -f guests/hello/hello.yaml");
    while !interrupt.is_set() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
