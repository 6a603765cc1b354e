//! What a server takes for parents with several children each.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::usage;
use crate::work::{Worker, count, create_parents};

#[derive(Debug, Serialize)]
pub(crate) struct Sized {
    parents: usize,
    children: usize,
    /// Until all children are made.
    converge_s: f64,
    cpu_s: f64,
    memory_before_mb: f64,
    memory_mb: f64,
}

/// Leaves the objects behind: the control plane goes with them.
pub(crate) async fn measure(cluster: &Cluster, parents: usize, children: usize) -> Result<Sized> {
    cluster.ask_for_config_maps(children).await?;
    let api = cluster.namespace("sized").await?;
    let server = cluster.serve(&[]).await?;
    let memory_before_mb = usage::memory_mb(server.pid)?;
    let (before, start) = (usage::cpu_seconds(server.pid)?, Instant::now());
    create_parents(&api, parents).await?;
    // The settled ones do not tell how many were made before.
    while server.metric("metahook_writes_total", "").await? < count(parents * children) {
        sleep(Duration::from_millis(100)).await;
    }
    server.until_settled(parents).await?;
    let converge_s = start.elapsed().as_secs_f64();
    let cpu_s = usage::cpu_seconds(server.pid)? - before;
    let memory_mb = usage::memory_mb(server.pid)?;
    server.stop().await?;
    Ok(Sized { parents, children, converge_s, cpu_s, memory_before_mb, memory_mb })
}

impl fmt::Display for Sized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parents, children, converge_s, cpu_s, memory_before_mb, memory_mb } = self;
        write!(
            f,
            "{parents} parents with {children} ConfigMaps each: made in {converge_s:.1} s, {cpu_s:.1} s of CPU, memory {memory_before_mb:.0} MB before and {memory_mb:.0} MB with all"
        )
    }
}
