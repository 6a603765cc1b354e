//! Attacks by pauses: leaders that are stopped past their Lease, again and again, in the middle of their writes.

use std::time::Instant;

use acceptance::api::{CONFIG_MAP, Kind, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, is_true, text};
use acceptance::process::Signal;
use acceptance::proxy::{Proxy, Write};
use acceptance::server::Server;
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::attacks::form;
use crate::leader_election::elect;

const ACQUIRED: &str = "Successfully acquired lease";

/// Parents that are changed together.
const TOGETHER: usize = 50;

/// Writes of the new state before the leader is stopped: it is in the middle of them.
const UNDER_WAY: usize = 10;

/// Whether only the leader may write this.
fn is_of_a_leader(write: &Write) -> bool {
    !write.path.contains("/leases") && !write.path.ends_with("/secrets/metahook-seed")
}

fn templates() -> Kind {
    Kind::new("", "v1", "PodTemplate", "podtemplates")
}

/// A child that is updated one after the other, one that is made anew, and a related object to delete.
fn answer(asked: &Asked) -> Answer {
    let (name, who) = (text(&asked.body, "/parent/metadata/name"), text(&asked.body, "/parent/spec/who"));
    if asked.path == "/customize" {
        let rule = json!({ "apiVersion": "v1", "resource": "podtemplates", "names": [name] });
        return Answer::from(json!({ "relatedResources": [rule] }));
    }
    let data = json!({ "who": who });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data,
    });
    let mut doomed = Vec::new();
    for (_, one) in asked.body["related"]["PodTemplate.v1"].as_object().into_iter().flatten() {
        let metadata = &one["metadata"];
        doomed.push(json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"],
        }));
    }
    let children = json!([config_map(name, json!({}), data), secret]);
    Answer::from(json!({ "children": children, "status": { "who": who }, "deleteRelated": doomed }))
}

/// Two servers, each with a proxy that records its writes.
struct Servers {
    second: Server,
    proxies: [Proxy; 2],
    /// Which one leads.
    leader: usize,
    /// Leases that each has acquired.
    acquired: [usize; 2],
}

impl Servers {
    fn get<'a>(&'a mut self, test: &'a mut Fixture, which: usize) -> &'a mut Server {
        if which == 0 { test.server() } else { &mut self.second }
    }

    fn writes(&self, of: usize) -> usize {
        self.proxies.get(of).map_or(0, |proxy| proxy.writes().len())
    }

    /// Stops the leader past its Lease and lets it go on: writes that it began after that.
    async fn pause_the_leader(&mut self, test: &mut Fixture) -> Result<usize> {
        let (old, new) = (self.leader, 1 - self.leader);
        self.get(test, old).signal(Signal::Stop)?;
        let times = self.acquired[new] + 1;
        let leads = |log: &str| log.matches(ACQUIRED).count() == times;
        self.get(test, new).until_log("the other leads", leads).await?;
        self.acquired[new] = times;
        let before = self.writes(old);
        self.get(test, old).signal(Signal::Continue)?;
        let ended = self.get(test, old).until_ended().await?;
        ensure!(!ended.success(), "a leader that lost its Lease ended well");
        let late = self.writes(old) - before;
        self.get(test, old).start()?;
        self.leader = new;
        Ok(late)
    }
}

async fn two_servers(test: &mut Fixture) -> Result<Servers> {
    let mut proxies = Vec::new();
    for _ in 0..2 {
        let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
        proxy.count(is_of_a_leader);
        proxies.push(proxy);
    }
    let proxies: [Proxy; 2] = proxies.try_into().ok().context("not two")?;
    let mut second = elect(test);
    test.server().reach_by(proxies[0].kubeconfig());
    second.reach_by(proxies[1].kubeconfig());
    test.serve()?;
    test.server().until_log("the first leads", |log| log.contains(ACQUIRED)).await?;
    second.start()?;
    second.until_log("the second stands by", |log| log.contains("new leader elected")).await?;
    Ok(Servers { second, proxies, leader: 0, acquired: [1, 0] })
}

async fn greet(test: &Fixture, parents: usize, who: &str) -> Result<()> {
    let all = test.parents();
    for first in (0..parents).step_by(TOGETHER) {
        let some = (first..parents.min(first + TOGETHER)).map(|nth| {
            let all = &all;
            async move { all.merge(&format!("p{nth}"), &json!({ "spec": { "who": who } })).await }
        });
        try_join_all(some).await?;
    }
    Ok(())
}

async fn create(test: &Fixture, parents: usize) -> Result<()> {
    let all = test.parents();
    for first in (0..parents).step_by(TOGETHER) {
        let some = (first..parents.min(first + TOGETHER)).map(|nth| {
            let (all, parent) = (&all, test.parent(&format!("p{nth}")).greeting("nobody").json());
            async move { all.create(parent).await }
        });
        try_join_all(some).await?;
    }
    Ok(())
}

/// Nothing was waited for in the rounds, so it may take a while.
async fn until_done(test: &Fixture, parents: usize) -> Result<()> {
    let is_done = |all: &[Value]| all.len() == parents && all.iter().all(|one| one["status"]["who"] == "all");
    for _ in 0..5 {
        if test.parents().until_all("all parents at the end", is_done).await.is_ok() {
            return Ok(());
        }
    }
    test.parents().until_all("all parents at the end", is_done).await.map(drop)
}

pub(crate) async fn leaders_that_pause_past_their_lease_begin_no_write_and_double_nothing(
    test: &mut Fixture,
) -> Result<()> {
    let (parents, rounds) = (form(50, 2000), form(2, 50));
    let webhook = Webhook::serve(answer).await?;
    test.define_kind().await?;
    let mut servers = two_servers(test).await?;
    let of = |path: &str| Hook::webhook(&webhook.url(path));
    let deletes = json!([{ "apiVersion": "v1", "resource": "podtemplates" }]);
    let controller = test
        .controller()
        .making(&CONFIG_MAP, "RollingInPlace")
        .making(&SECRET, "Recreate")
        .with("relatedDeletion", deletes)
        .synced_by(of("/sync"))
        .customized_by(of("/customize"));
    test.host(controller).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    create(test, parents).await?;
    let (mut late, start) = (0, Instant::now());
    for round in 0..rounds {
        let who = format!("round {round}");
        let doomed = json!({ "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "p0" },
            "template": { "spec": { "containers": [{ "name": "a", "image": "a" }] } } });
        if test.within(&templates()).find("p0").await?.is_none() {
            test.within(&templates()).create(doomed).await?;
        }
        let (leader, before) = (servers.leader, servers.writes(servers.leader));
        greet(test, parents.min(200), &who).await?;
        until("writes are under way", PATIENCE, async || {
            let more = servers.writes(leader) - before;
            Ok(if more >= UNDER_WAY { Ok(()) } else { Err(format!("{more} writes")) })
        })
        .await?;
        late += servers.pause_the_leader(test).await?;
        ensure!(late == 0, "{late} writes begun past the Lease in round {round}");
    }
    test.at_most("writes begun past the Lease", f64::from(u32::try_from(late)?), "writes", 0.0)?;
    let took = start.elapsed().as_secs_f64() / f64::from(u32::try_from(rounds)?);
    test.at_most("a round took", took, "s", 60.0)?;
    greet(test, parents, "all").await?;
    until_done(test, parents).await?;
    for kind in [&CONFIG_MAP, &SECRET] {
        let made = test.within(kind).list().await?;
        let made = made.iter().filter(|one| text(one, "/metadata/name").starts_with('p')).count();
        ensure!(made == parents, "{made} children of the kind {} of {parents} parents", kind.kind);
    }
    ensure!(test.within(&templates()).list().await?.is_empty(), "a related object is left");
    servers.second.stop().await.map(drop)
}
