//! Demo of `cargo xtask demo`: the tutorial or another story, shown step by step with the lines a person would type.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod cluster;
mod config_restart;
mod hello;
mod immortal;
mod interrupt;
mod steps;
mod terminal;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use binaries::exit_code;
use binaries::story::Story;
use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use cluster::Cluster;
use interrupt::Interrupt;
use steps::Demo;

/// As `cargo xtask demo` passes them on.
#[derive(Parser)]
#[command(name = "demo")]
struct Options {
    #[arg(value_enum)]
    story: Story,
    #[arg(long)]
    keep: bool,
    #[arg(long)]
    context: Option<String>,
    #[arg(long)]
    use_existing: bool,
    #[arg(long)]
    install: bool,
}

/// The kind of the controller, and fields that the CRD of that kind must have.
fn needs(story: Story) -> (&'static str, &'static [&'static str]) {
    match story {
        Story::Hello | Story::Immortal => ("compositecontrollers", &["wasm"]),
        Story::HelloPython | Story::HelloJs => ("compositecontrollers", &["script"]),
        Story::ConfigRestart => ("decoratorcontrollers", &["wasm", "relatedDeletion"]),
    }
}

/// Images of containers that run until they are ended.
fn images(story: Story) -> &'static [&'static str] {
    match story {
        Story::Hello | Story::HelloPython | Story::HelloJs | Story::ConfigRestart => &[],
        Story::Immortal => &immortal::IMAGES,
    }
}

async fn show_story(story: Story, demo: &mut Demo<'_>) -> Result<()> {
    match story {
        Story::Hello | Story::HelloPython | Story::HelloJs => hello::show(demo).await,
        Story::Immortal => immortal::show(demo).await,
        Story::ConfigRestart => config_restart::show(demo).await,
    }
}

fn main() -> ExitCode {
    exit_code(run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
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
    let mut cluster = match &options.context {
        None => Cluster::own(options.install, images(options.story)).await?,
        Some(name) => Cluster::of_context(name, options.use_existing, needs(options.story)).await?,
    };
    let mut demo = Demo::of(options.story.name(), &cluster, interrupt);
    let shown = show_story(options.story, &mut demo).await;
    if let Err(why) = &shown {
        eprintln!("\nerror: {why:#}\n{}", demo.evidence());
    }
    if options.keep && !interrupt.is_set() {
        keep(&cluster, options.story.name(), interrupt).await;
    }
    interrupt.ignore_one();
    let cleaned = demo.clean_up().await;
    if shown.is_err() || cleaned.is_err() {
        cluster.keep_logs();
    }
    ensure!(shown.is_ok(), "the demo did not come to its end");
    cleaned?;
    println!("\n{}", cluster.closing());
    Ok(())
}

async fn keep(cluster: &Cluster, name: &str, interrupt: &Arc<Interrupt>) {
    println!("\nEverything stays until Ctrl-C. In another terminal:");
    println!("  {}", cluster.export());
    println!("  kubectl -n {name} apply -f guests/{name}/{name}.yaml");
    while !interrupt.is_set() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
