//! The server on the same work: how long it takes, and what of the machine it uses.

use std::time::{Duration, Instant};

use acceptance::free_port::free_address;
use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::api::{self, Api, Kind};
use crate::bodies;
use crate::cluster::{Cluster, Running};
use crate::peers::Theirs;
use crate::usage;
use crate::work::{self, Changed, FRESH, LATENCIES, Made, Worker, count, name};

/// How long a server is watched that has nothing to do.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) made: Made,
    pub(crate) changed: Changed,
    /// Microseconds of CPU for one look at one parent.
    pub(crate) idle_resync_us: f64,
    /// The server's own count of its writes, for each parent created.
    pub(crate) writes: f64,
}

/// Leaves nothing behind but a namespace.
pub(crate) async fn measure(cluster: &Cluster, namespace: &str, parents: usize) -> Result<Ours> {
    let api = cluster.namespace(namespace).await?;
    let server = cluster.serve(&[]).await?;
    let made = work::make(&api, &server, parents).await?;
    check(&api).await?;
    let writes = server.metric("metahook_writes_total", "").await? / count(parents);
    let changed = work::change(&api, &server, parents).await?;
    let idle_resync_us = resync(cluster, &server, parents + LATENCIES + FRESH).await?;
    server.stop().await?;
    cluster.empty(&api).await?;
    Ok(Ours { made, changed, idle_resync_us, writes })
}

/// The server that keeps traces of its reconciles, as it does in the manifests. Leaves nothing behind but a namespace.
pub(crate) async fn measure_with_traces(
    cluster: &Cluster,
    namespace: &str,
    parents: usize,
) -> Result<Theirs> {
    let api = cluster.namespace(namespace).await?;
    let server = cluster.serve(&[format!("--inspection-address={}", free_address()?)]).await?;
    let made = work::make(&api, &server, parents).await?;
    let changed = work::change(&api, &server, parents).await?;
    server.stop().await?;
    cluster.empty(&api).await?;
    Ok(Theirs { made, changed })
}

/// The bare writes are the server's.
async fn check(api: &Api) -> Result<()> {
    let first = name(0);
    let parent: api::Made = serde_json::from_value(api.get(Kind::Parent, &first).await?["metadata"].take())?;
    bodies::check_pod(&api.get(Kind::Pod, &first).await?, &parent, "World")
}

/// CPU for one look at a parent about which there is nothing to do: all that the process used while it looked at all of
/// them each second.
async fn resync(cluster: &Cluster, server: &Running, parents: usize) -> Result<f64> {
    let looks = async || server.metric("metahook_reconcile_total", "result=\"settled\"").await;
    cluster.looks_again_each_second(true).await?;
    // Another spec is another controller, which has to look at each parent once.
    while looks().await? < count(parents) {
        sleep(Duration::from_millis(500)).await;
    }
    server.until_settled(parents).await?;
    usage::quiet().await?;
    let (looked, used) = (looks().await?, usage::cpu_of_threads(server.pid)?);
    sleep(IDLE).await;
    let (looked, used) =
        (looks().await? - looked, usage::between(&used, &usage::cpu_of_threads(server.pid)?));
    cluster.looks_again_each_second(false).await?;
    #[expect(clippy::cast_precision_loss, reason = "seconds at most")]
    Ok(used as f64 / 1000.0 / looked)
}

impl Worker for Running {
    fn pid(&self) -> u32 {
        self.pid
    }

    async fn until_settled(&self, parents: usize) -> Result<()> {
        let start = Instant::now();
        while self.metric("metahook_parents_settled", "").await? < count(parents) {
            anyhow::ensure!(start.elapsed() < Duration::from_mins(2), "not all parents come to rest");
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

impl Running {
    /// The sum of a metric over the labels that are given.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let mut stream = TcpStream::connect(self.metrics).await.context("the server tells no metrics")?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let those =
            text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        Ok(those.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }
}
