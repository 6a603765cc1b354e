//! How the server does beside the bare writes that its work consists of: `cargo xtask bench converge` builds and runs it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod api;
mod bare;
mod beside;
mod bodies;
mod cluster;
mod crowd;
mod many;
mod observer;
mod ours;
mod peers;
mod report;
mod sized;
mod usage;
mod work;

use std::fmt::Display;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use serde::Serialize;

use self::cluster::Cluster;
use self::peers::Peer;
use self::report::Report;

#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 2000)]
    parents: usize,
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Measures parents with so many ConfigMaps each instead: what the page on sizing says
    #[arg(long)]
    children: Option<usize>,
    /// Measures so many controllers instead, each with a kind of its own
    #[arg(long, conflicts_with = "children")]
    controllers: Option<usize>,
    #[arg(long)]
    json: bool,
    /// One more flag for the server
    #[arg(long, allow_hyphen_values = true)]
    flag: Vec<String>,
    /// Measures the operator in Go too: its program
    #[arg(long)]
    go: Option<PathBuf>,
    /// Measures the operator with kopf too: the virtual environment that has kopf
    #[arg(long)]
    kopf: Option<PathBuf>,
    /// Measures the server with traces of its reconciles too
    #[arg(long)]
    traces: bool,
}

impl Options {
    fn peers(&self) -> Vec<Peer> {
        let go = self.go.clone().map(|program| Peer::go(program, &self.flag));
        go.into_iter().chain(self.kopf.as_deref().map(Peer::kopf)).collect()
    }
}

/// A program that does the work, in its turn.
enum Turn<'a> {
    Ours,
    WithTraces,
    Peer(&'a Peer),
}

impl Turn<'_> {
    fn namespace(&self) -> &str {
        match self {
            Self::Ours => "ours",
            Self::WithTraces => "traces",
            Self::Peer(peer) => peer.name,
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let peers = options.peers();
    let cluster = Cluster::start(options.flag).await?;
    if let Some(children) = options.children {
        return print(&sized::measure(&cluster, options.parents, children).await?, options.json);
    }
    if let Some(controllers) = options.controllers {
        return print(&many::measure(&cluster, controllers, &peers).await?, options.json);
    }
    // Nothing is measured on an API server that has just started.
    eprintln!("warming up");
    bare::measure(&cluster, "warm-up", options.parents.min(1000)).await?;
    let mut report = Report::default();
    let ours = [Turn::Ours].into_iter().chain(options.traces.then_some(Turn::WithTraces));
    let mut turns: Vec<_> = ours.chain(peers.iter().map(Turn::Peer)).collect();
    for pair in 1..=options.pairs {
        let bare = bare::measure(&cluster, &format!("bare-{pair}"), options.parents).await?;
        for turn in &turns {
            let namespace = format!("{}-{pair}", turn.namespace());
            let line = match turn {
                Turn::Ours => {
                    let ours = ours::measure(&cluster, &namespace, options.parents).await?;
                    report.add(options.parents, &bare, &ours)
                }
                Turn::WithTraces => {
                    let traced = ours::measure_with_traces(&cluster, &namespace, options.parents).await?;
                    report.add_peer("with traces", options.parents, &bare, &traced)
                }
                Turn::Peer(peer) => {
                    let theirs = peer.measure(&cluster, &namespace, options.parents).await?;
                    report.add_peer(peer.name, options.parents, &bare, &theirs)
                }
            };
            eprintln!("{line}");
        }
        // The later one has an API server and an etcd that have kept more.
        turns.reverse();
    }
    if options.json {
        println!("{}", serde_json::to_string(&report.medians())?);
    } else {
        println!("{}", report.table());
    }
    Ok(())
}

fn print(measured: &(impl Serialize + Display), json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(measured)?);
    } else {
        println!("{measured}");
    }
    Ok(())
}
