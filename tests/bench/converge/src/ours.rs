//! The server on the same work: how long it takes, and what of the machine it uses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::api::{Api, Kind, Made};
use crate::bodies;
use crate::cluster::{Cluster, Running};
use crate::crowd;
use crate::observer::{Object, Observer};
use crate::report::percentile;
use crate::usage;

/// Parents made one by one.
pub(crate) const LATENCIES: usize = 200;

/// Parents made one by one while all others are recreated.
pub(crate) const FRESH: usize = 40;
/// From the begin of the storm until there is a backlog.
pub(crate) const BACKLOG: Duration = Duration::from_millis(300);

/// How long a server is watched that has nothing to do.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) create: Duration,
    pub(crate) create_cpu: f64,
    /// Before there was any parent, and with all of them at rest.
    pub(crate) memory_before_mb: f64,
    pub(crate) memory_mb: f64,
    pub(crate) to_pod_p50: Duration,
    pub(crate) to_pod_p99: Duration,
    pub(crate) recreate: Duration,
    pub(crate) recreate_cpu: f64,
    /// From parent to Pod while all others are recreated.
    pub(crate) storm_to_pod_p99: Duration,
    /// Microseconds of CPU for one look at one parent.
    pub(crate) idle_resync_us: f64,
    /// The server's own count of its writes, for each parent created.
    pub(crate) writes: f64,
}

pub(crate) fn name(number: usize) -> String {
    format!("hello-{number:06}")
}

/// Leaves nothing behind but a namespace.
pub(crate) async fn measure(cluster: &Cluster, namespace: &str, parents: usize) -> Result<Ours> {
    let api = cluster.namespace(namespace).await?;
    let server = cluster.serve().await?;
    let memory_before_mb = usage::memory_mb(server.pid)?;
    let (create, create_cpu) = create_all(&api, &server, parents).await?;
    let memory_mb = usage::memory_mb(server.pid)?;
    let writes = server.metric("metahook_writes_total", "").await? / count(parents);
    let to_pod = one_by_one(&api).await?;
    let (recreate, recreate_cpu, storm) = recreate_all(&api, &server, parents).await?;
    let idle_resync_us = resync(cluster, &server, parents + LATENCIES + FRESH).await?;
    server.stop().await?;
    cluster.empty(&api).await?;
    Ok(Ours {
        create,
        create_cpu,
        memory_before_mb,
        memory_mb,
        to_pod_p50: percentile(to_pod.clone(), 50),
        to_pod_p99: percentile(to_pod, 99),
        recreate,
        recreate_cpu,
        storm_to_pod_p99: percentile(storm, 99),
        idle_resync_us,
        writes,
    })
}

pub(crate) async fn create_parents(api: &Api, parents: usize) -> Result<()> {
    let api = api.clone();
    let create = move |number| {
        let api = api.clone();
        async move {
            let parent = bodies::parent(&api.namespace, &name(number), "World");
            api.create(Kind::Parent, &parent).await.map(drop)
        }
    };
    crowd::each(parents, create).await
}

async fn create_all(api: &Api, server: &Running, parents: usize) -> Result<(Duration, f64)> {
    let mut observed = Observer::of(api, Kind::Parent).await?;
    let (before, start) = (usage::cpu_seconds(server.pid)?, Instant::now());
    create_parents(api, parents).await?;
    let (end, _) = observed.until(parents, |parent| parent.has_converged(1)).await?;
    // What it does afterwards to come to rest is part of the work.
    server.until_settled(parents).await?;
    let cpu = usage::cpu_seconds(server.pid)? - before;
    let first = name(0);
    let parent: Made = serde_json::from_value(api.get(Kind::Parent, &first).await?["metadata"].take())?;
    bodies::check_pod(&api.get(Kind::Pod, &first).await?, &parent, "World")?;
    Ok((end - start, cpu))
}

/// From the beginning of a parent's creation until a client that watches Pods knows of its Pod.
async fn one_by_one(api: &Api) -> Result<Vec<Duration>> {
    let mut parents = Observer::of(api, Kind::Parent).await?;
    let mut pods = Observer::of(api, Kind::Pod).await?;
    let mut times = Vec::new();
    for number in 0..LATENCIES {
        let name = format!("one-{number}");
        times.push(to_pod(api, &mut pods, &name).await?);
        parents.until(1, |parent| parent.metadata.name == name && parent.has_converged(1)).await?;
    }
    Ok(times)
}

async fn to_pod(api: &Api, pods: &mut Observer, name: &str) -> Result<Duration> {
    let start = Instant::now();
    api.create(Kind::Parent, &bodies::parent(&api.namespace, name, "World")).await?;
    let (seen, _) = pods.until(1, |pod| pod.metadata.name == name).await?;
    Ok(seen - start)
}

/// New parents in the same namespace, as long as the others are recreated.
async fn fresh(api: &Api) -> Result<Vec<Duration>> {
    let mut pods = Observer::of(api, Kind::Pod).await?;
    sleep(BACKLOG).await;
    let mut times = Vec::new();
    for number in 0..FRESH {
        times.push(to_pod(api, &mut pods, &format!("fresh-{number}")).await?);
    }
    Ok(times)
}

async fn recreate_all(api: &Api, server: &Running, parents: usize) -> Result<(Duration, f64, Vec<Duration>)> {
    let old_pods: BTreeMap<_, _> = api.all(Kind::Pod).await?.into_iter().collect();
    let mut observed = Observer::of(api, Kind::Parent).await?;
    let mut new_pods = Observer::of(api, Kind::Pod).await?;
    usage::quiet().await?;
    let (before, start) = (usage::cpu_seconds(server.pid)?, Instant::now());
    let each = api.clone();
    let storm = crowd::each(parents, move |number| {
        let (api, name) = (each.clone(), name(number));
        async move { api.patch(&name, &json!({ "spec": { "who": "Bob" } })).await.map(drop) }
    });
    let ((), fresh) = tokio::try_join!(storm, fresh(api))?;
    let (converged, _) = observed.until(parents, |parent| parent.has_converged(2)).await?;
    let is_new = |pod: &Object| old_pods.get(&pod.metadata.name).is_some_and(|uid| *uid != pod.metadata.uid);
    let (made, _) = new_pods.until(parents, is_new).await?;
    server.until_settled(parents + LATENCIES + FRESH).await?;
    let cpu = usage::cpu_seconds(server.pid)? - before;
    Ok((converged.max(made) - start, cpu, fresh))
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

#[expect(clippy::cast_precision_loss, reason = "numbers of parents")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}

impl Running {
    pub(crate) async fn until_settled(&self, parents: usize) -> Result<()> {
        let start = Instant::now();
        while self.metric("metahook_parents_settled", "").await? < count(parents) {
            anyhow::ensure!(start.elapsed() < Duration::from_mins(2), "not all parents come to rest");
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

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
