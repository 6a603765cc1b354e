//! The work that the server and its peers do alike, and what of it is measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::time::sleep;

use crate::api::{Api, Kind};
use crate::bodies;
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

/// A process that makes Pods of parents.
pub(crate) trait Worker {
    fn pid(&self) -> u32;

    /// Waits until it has nothing left to do about so many parents.
    async fn until_settled(&self, parents: usize) -> Result<()>;
}

/// All parents made at once.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) time: Duration,
    pub(crate) cpu: f64,
    /// Before there was any parent, and with all of them at rest.
    pub(crate) memory_before_mb: f64,
    pub(crate) memory_mb: f64,
}

/// What comes after: parents one by one, and another spec for all.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub(crate) to_pod_p50: Duration,
    pub(crate) to_pod_p99: Duration,
    pub(crate) recreate: Duration,
    pub(crate) recreate_cpu: f64,
    /// From parent to Pod while all others are recreated.
    pub(crate) storm_to_pod_p99: Duration,
    /// The most that it ever had.
    pub(crate) peak_mb: f64,
}

pub(crate) fn name(number: usize) -> String {
    format!("hello-{number:06}")
}

pub(crate) async fn make(api: &Api, worker: &impl Worker, parents: usize) -> Result<Made> {
    let memory_before_mb = usage::memory_mb(worker.pid())?;
    let (time, cpu) = create_all(api, worker, parents).await?;
    Ok(Made { time, cpu, memory_before_mb, memory_mb: usage::memory_mb(worker.pid())? })
}

/// After [`make`].
pub(crate) async fn change(api: &Api, worker: &impl Worker, parents: usize) -> Result<Changed> {
    let to_pod = one_by_one(api).await?;
    let (recreate, recreate_cpu, storm) = recreate_all(api, worker, parents).await?;
    Ok(Changed {
        to_pod_p50: percentile(to_pod.clone(), 50),
        to_pod_p99: percentile(to_pod, 99),
        recreate,
        recreate_cpu,
        storm_to_pod_p99: percentile(storm, 99),
        peak_mb: usage::peak_mb(worker.pid())?,
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

async fn create_all(api: &Api, worker: &impl Worker, parents: usize) -> Result<(Duration, f64)> {
    let mut observed = Observer::of(api, Kind::Parent).await?;
    let (before, start) = (usage::cpu_seconds(worker.pid())?, Instant::now());
    create_parents(api, parents).await?;
    let (end, _) = observed.until(parents, |parent| parent.has_converged(1)).await?;
    // What it does afterwards to come to rest is part of the work.
    worker.until_settled(parents).await?;
    let cpu = usage::cpu_seconds(worker.pid())? - before;
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

async fn recreate_all(
    api: &Api,
    worker: &impl Worker,
    parents: usize,
) -> Result<(Duration, f64, Vec<Duration>)> {
    let old_pods: BTreeMap<_, _> = api.all(Kind::Pod).await?.into_iter().collect();
    let mut observed = Observer::of(api, Kind::Parent).await?;
    let mut new_pods = Observer::of(api, Kind::Pod).await?;
    usage::quiet().await?;
    let (before, start) = (usage::cpu_seconds(worker.pid())?, Instant::now());
    let each = api.clone();
    let storm = crowd::each(parents, move |number| {
        let (api, name) = (each.clone(), name(number));
        async move { api.patch(&name, &json!({ "spec": { "who": "Bob" } })).await.map(drop) }
    });
    let ((), fresh) = tokio::try_join!(storm, fresh(api))?;
    let (converged, _) = observed.until(parents, |parent| parent.has_converged(2)).await?;
    let is_new = |pod: &Object| old_pods.get(&pod.metadata.name).is_some_and(|uid| *uid != pod.metadata.uid);
    let (made, _) = new_pods.until(parents, is_new).await?;
    worker.until_settled(parents + LATENCIES + FRESH).await?;
    let cpu = usage::cpu_seconds(worker.pid())? - before;
    Ok((converged.max(made) - start, cpu, fresh))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of parents")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}
