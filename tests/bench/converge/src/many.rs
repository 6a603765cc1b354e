//! Many controllers, each with a kind of its own: one server for all of them, beside an operator for each.

use std::fmt;
use std::time::Instant;

use acceptance::api::{COMPOSITE_CONTROLLER, CONFIG_MAP, Kind, Objects, POD};
use acceptance::fixture::{self, guest};
use acceptance::objects::{Composite, Hook, Parent, is_true, module};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use crate::cluster::Cluster;
use crate::peers::Peer;
use crate::usage;

#[derive(Debug, Serialize)]
pub(crate) struct Many {
    controllers: usize,
    /// From the start of the server until it says of each controller that it is ready.
    ready_s: f64,
    memory_mb: f64,
    /// From the first of one parent for each until all have their Pods.
    pods_s: f64,
    memory_with_parents_mb: f64,
    /// Memory of as many idle operators, by the name of the peer.
    operators_mb: Vec<(&'static str, f64)>,
}

/// Leaves the objects behind: the control plane goes with them.
pub(crate) async fn measure(cluster: &Cluster, controllers: usize, peers: &[Peer]) -> Result<Many> {
    let api = cluster.namespace("many").await?;
    let maps = Objects::within(cluster.client(), &CONFIG_MAP, &api.namespace);
    maps.create(module("hook", &guest("hello")?)).await?;
    // The tutorial's controller, which the server hosts too, is the first.
    let kinds: Vec<_> = (1..controllers).map(kind).collect();
    let all = Objects::cluster_wide(cluster.client(), &COMPOSITE_CONTROLLER);
    for (kind, number) in kinds.iter().zip(0..) {
        fixture::define(cluster.client(), kind).await?;
        let controller = Composite::named(&format!("many-{number}")).over(kind).generating_selectors();
        let hook = Hook::wasm(&api.namespace, "hook");
        all.create(controller.making(&POD, "Recreate").synced_by(hook).json()).await?;
    }
    usage::quiet().await?;
    let start = Instant::now();
    let server = cluster.start_server(&[]).await?;
    all.until_all("ready", |all| all.iter().all(|one| is_true(one, "Ready"))).await?;
    let ready_s = start.elapsed().as_secs_f64();
    usage::quiet().await?;
    let memory_mb = usage::proportional_mb(server.pid)?;
    let start = Instant::now();
    for kind in &kinds {
        let parents = Objects::within(cluster.client(), kind, &api.namespace);
        parents.create(Parent::named(kind, &kind.plural).with(json!({ "who": "World" })).json()).await?;
    }
    let pods = Objects::within(cluster.client(), &POD, &api.namespace);
    pods.until_all("one for each parent", |pods| pods.len() == kinds.len()).await?;
    let pods_s = start.elapsed().as_secs_f64();
    usage::quiet().await?;
    let memory_with_parents_mb = usage::proportional_mb(server.pid)?;
    server.stop().await?;
    let mut operators_mb = Vec::new();
    for peer in peers {
        operators_mb.push((peer.name, peer.memory_of_many(cluster, controllers).await?));
    }
    Ok(Many { controllers, ready_s, memory_mb, pods_s, memory_with_parents_mb, operators_mb })
}

fn kind(number: usize) -> Kind {
    Kind::new("many.example.com", "v1", &format!("Many{number}"), &format!("many{number}s"))
}

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { controllers, ready_s, memory_mb, pods_s, memory_with_parents_mb, operators_mb } = self;
        write!(
            f,
            "{controllers} controllers in one server: ready {ready_s:.1} s after its start, memory {memory_mb:.0} MB; a parent of each: all Pods made in {pods_s:.1} s, memory {memory_with_parents_mb:.0} MB"
        )?;
        for (name, memory) in operators_mb {
            write!(
                f,
                "\n{controllers} operators of the peer {name}, with nothing to do: {memory:.0} MB together"
            )?;
        }
        Ok(())
    }
}
