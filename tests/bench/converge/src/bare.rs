//! The bound: the writes that a perfect controller would make, and nothing else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::time::sleep;

use crate::api::{Api, Kind, Made};
use crate::bodies;
use crate::cluster::Cluster;
use crate::crowd;
use crate::observer::{Object, Observer};
use crate::report::percentile;
use crate::work::{BACKLOG, FRESH, LATENCIES, name};

#[derive(Debug)]
pub(crate) struct Bare {
    /// Until all parents have their Pod and their status.
    pub(crate) create: Duration,
    /// Until all Pods are new ones because the spec is.
    pub(crate) recreate: Duration,
    /// Two writes, one after the other.
    pub(crate) two_p50: Duration,
    /// Two writes, one after the other, while all others are recreated.
    pub(crate) storm_two_p99: Duration,
}

/// Leaves nothing behind but a namespace.
pub(crate) async fn measure(cluster: &Cluster, namespace: &str, parents: usize) -> Result<Bare> {
    let api = cluster.namespace(namespace).await?;
    let mut observed = Observer::of(&api, Kind::Parent).await?;
    let start = Instant::now();
    let each = api.clone();
    crowd::each(parents, move |number| {
        let api = each.clone();
        async move { create(&api, &name(number)).await.map(drop) }
    })
    .await?;
    let (end, _) = observed.until(parents, |parent| parent.has_converged(1)).await?;
    let create = end - start;
    let two_p50 = one_by_one(&api).await?;
    let (recreate, storm) = recreate_all(&api, parents).await?;
    cluster.empty(&api).await?;
    Ok(Bare { create, recreate, two_p50, storm_two_p99: percentile(storm, 99) })
}

/// Parent, Pod, status; how long the first two took.
async fn create(api: &Api, name: &str) -> Result<Duration> {
    let (start, namespace) = (Instant::now(), &api.namespace);
    let parent = api.create(Kind::Parent, &bodies::parent(namespace, name, "World")).await?;
    api.create(Kind::Pod, &bodies::pod(namespace, name, &parent, "World")).await?;
    let two = start.elapsed();
    api.put_status(name, &bodies::status(namespace, name, &parent, 1)).await?;
    Ok(two)
}

async fn one_by_one(api: &Api) -> Result<Duration> {
    let mut times = Vec::new();
    for number in 0..LATENCIES {
        times.push(create(api, &format!("one-{number}")).await?);
    }
    Ok(percentile(times, 50))
}

/// New parents in the same namespace, as long as the others are recreated.
async fn fresh(api: &Api) -> Result<Vec<Duration>> {
    sleep(BACKLOG).await;
    let mut times = Vec::new();
    for number in 0..FRESH {
        times.push(create(api, &format!("fresh-{number}")).await?);
    }
    Ok(times)
}

async fn recreate_all(api: &Api, parents: usize) -> Result<(Duration, Vec<Duration>)> {
    let pods: BTreeMap<_, _> = api.all(Kind::Pod).await?.into_iter().collect();
    let mut observed = Observer::of(api, Kind::Parent).await?;
    let mut new_pods = Observer::of(api, Kind::Pod).await?;
    let (start, each, before) = (Instant::now(), api.clone(), pods.clone());
    let storm = crowd::each(parents, move |number| {
        let (api, name) = (each.clone(), name(number));
        let uid = before.get(&name).cloned().unwrap_or_default();
        async move { recreate(&api, &name, &uid).await }
    });
    let ((), fresh) = tokio::try_join!(storm, fresh(api))?;
    let (converged, _) = observed.until(parents, |parent| parent.has_converged(2)).await?;
    let is_new = |pod: &Object| pods.get(&pod.metadata.name) != Some(&pod.metadata.uid);
    let (made, _) = new_pods.until(parents, is_new).await?;
    Ok((converged.max(made) - start, fresh))
}

/// Patch, delete, create, status.
async fn recreate(api: &Api, name: &str, pod: &str) -> Result<()> {
    let namespace = &api.namespace;
    let parent: Made = api.patch(name, &json!({ "spec": { "who": "Bob" } })).await?;
    api.delete(Kind::Pod, name, pod).await?;
    api.create(Kind::Pod, &bodies::pod(namespace, name, &parent, "Bob")).await?;
    api.put_status(name, &bodies::status(namespace, name, &parent, 2)).await
}
