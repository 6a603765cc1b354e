//! How the server does beside the bare writes that its work consists of: `cargo xtask bench converge` builds and runs it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod api;
mod bare;
mod bodies;
mod cluster;
mod crowd;
mod observer;
mod ours;
mod report;
mod sized;
mod usage;

use anyhow::Result;
use clap::Parser;

use self::cluster::Cluster;
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
    #[arg(long)]
    json: bool,
    /// One more flag for the server
    #[arg(long, allow_hyphen_values = true)]
    flag: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let cluster = Cluster::start(options.flag).await?;
    if let Some(children) = options.children {
        let sized = sized::measure(&cluster, options.parents, children).await?;
        if options.json {
            println!("{}", serde_json::to_string(&sized)?);
        } else {
            println!("{sized}");
        }
        return Ok(());
    }
    // Nothing is measured on an API server that has just started.
    eprintln!("warming up");
    bare::measure(&cluster, "warm-up", options.parents.min(1000)).await?;
    let mut report = Report::default();
    for pair in 1..=options.pairs {
        let bare = bare::measure(&cluster, &format!("bare-{pair}"), options.parents).await?;
        let ours = ours::measure(&cluster, &format!("ours-{pair}"), options.parents).await?;
        eprintln!("{}", report.add(options.parents, &bare, &ours));
    }
    if options.json {
        println!("{}", serde_json::to_string(&report.median())?);
    } else {
        println!("{}", report.table());
    }
    Ok(())
}
