//! Leader election: of two servers with the same controllers one writes, and the other one is ready to.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use acceptance::api::{Kind, Objects, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::free_port::free_address;
use acceptance::objects::{condition, is_true, text, uid};
use acceptance::process::Signal;
use acceptance::proxy::{Fate, Proxy, Write};
use acceptance::server::Server;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::attacks::measure::{get, metric};

const ACQUIRED: &str = "Successfully acquired lease";
const PARENTS: usize = 20;

/// Two servers, each with a proxy that records its writes; the test's own leads.
struct Servers {
    first: Proxy,
    standby: Server,
    second: Proxy,
    /// Metrics of both.
    metrics: [SocketAddr; 2],
    /// Probes of the standby.
    probes: SocketAddr,
}

/// Whether only the leader may write this: the Lease is how it becomes one, and the Secret is the installation's, made
/// once.
fn is_of_a_leader(write: &Write) -> bool {
    !write.path.contains("/leases") && !write.path.ends_with("/secrets")
}

/// The Leases of the test.
pub(crate) fn leases(test: &Fixture) -> Objects {
    test.within(&Kind::new("coordination.k8s.io", "v1", "Lease", "leases"))
}

async fn holder(test: &Fixture) -> Result<String> {
    let lease = leases(test).find("metacontroller").await?.context("there is no Lease")?;
    Ok(text(&lease, "/spec/holderIdentity").to_owned())
}

/// The controller, its hook `hello`, and two servers, of which the second one has a proxy and a log of its own.
async fn two_servers(test: &mut Fixture) -> Result<Servers> {
    test.define_kind().await?;
    test.store("hello-hook", &guest("hello")?).await?;
    let first = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    let second = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    first.count(is_of_a_leader);
    second.count(is_of_a_leader);
    let mut standby = elect(test);
    let metrics = [free_address()?, free_address()?];
    let probes = free_address()?;
    test.server().flag(&format!("--metrics-address={}", metrics[0]));
    test.server().reach_by(first.kubeconfig());
    standby.flag(&format!("--metrics-address={}", metrics[1]));
    standby.flag(&format!("--health-probe-bind-address={probes}"));
    standby.reach_by(second.kubeconfig());
    test.serve()?;
    until_leads(test.server()).await?;
    standby.start()?;
    let hook = test.hook("hello-hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    for number in 0..PARENTS {
        test.create(test.parent(&format!("p{number}")).greeting("World")).await?;
    }
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    settled(test).await?;
    until_stands_by(&standby).await?;
    until_warm(metrics[1]).await?;
    ensure!(second.writes().is_empty(), "the standby wrote {:?}", second.writes());
    let ready = "metahook_controller_ready";
    ensure!(metric(metrics[0], ready)? > 0.0, "the leader does not tell of the controller");
    ensure!(metric(metrics[1], ready).is_err(), "the standby tells of a controller that the leader has");
    Ok(Servers { first, standby, second, metrics, probes })
}

/// From its next start on the test's server takes part in an election.
pub(crate) fn flags_of_election(test: &mut Fixture) {
    let namespace = format!("--leader-election-namespace={}", test.name());
    for flag in ["--leader-election", &namespace] {
        test.server().flag(flag);
    }
}

/// The test's server takes part in an election, and so does one more server like it, which is not started.
pub(crate) fn elect(test: &mut Fixture) -> Server {
    flags_of_election(test);
    test.second_server()
}

pub(crate) async fn until_leads(server: &Server) -> Result<()> {
    server.until_log("it leads", |log| log.contains(ACQUIRED)).await.map(drop)
}

pub(crate) async fn until_stands_by(server: &Server) -> Result<()> {
    server.until_log("it stands by", |log| log.contains("new leader elected")).await.map(drop)
}

/// The server with these metrics has a module loaded.
pub(crate) async fn until_warm(metrics: SocketAddr) -> Result<()> {
    until("a warm standby", PATIENCE, async || {
        let compiled = metric(metrics, "metahook_module_compilations_total").unwrap_or_default();
        Ok(if compiled > 0.0 { Ok(()) } else { Err("no module is loaded".to_owned()) })
    })
    .await
}

async fn settled(test: &Fixture) -> Result<()> {
    let counted =
        |all: &[Value]| all.len() == PARENTS && all.iter().all(|parent| parent["status"]["pods"] == 1);
    test.parents().until_all("all parents with a Pod each", counted).await.map(drop)
}

async fn greet(test: &Fixture, who: &str) -> Result<()> {
    for number in 0..PARENTS {
        test.parents().merge(&format!("p{number}"), &json!({ "spec": { "who": who } })).await?;
    }
    Ok(())
}

/// Each parent has one Pod, which greets as it should.
async fn until_greeted(test: &Fixture, who: &str) -> Result<()> {
    let hello = format!("Hello, {who}!");
    let is_new = |pod: &Value| text(pod, "/spec/containers/0/command/1") == hello;
    let all_new = |all: &[Value]| all.len() == PARENTS && all.iter().all(is_new);
    test.pods().until_all("all Pods made anew", all_new).await?;
    settled(test).await
}

async fn uids(test: &Fixture) -> Result<BTreeSet<String>> {
    Ok(test.pods().list().await?.iter().map(|pod| uid(pod).to_owned()).collect())
}

/// The condition of the controller names the holder of the Lease.
async fn until_named(test: &Fixture) -> Result<String> {
    let leader = holder(test).await?;
    let is_named = |cc: &Value| {
        is_true(cc, "SingleWriter")
            && condition(cc, "SingleWriter").is_some_and(|is| text(is, "/message").contains(&leader))
    };
    test.until_controller("the leader in its condition", is_named).await?;
    Ok(leader)
}

pub(crate) async fn a_standby_writes_nothing_and_takes_over_from_a_leader_that_is_killed(
    test: &mut Fixture,
) -> Result<()> {
    let servers = two_servers(test).await?;
    let leads = |of: usize| metric(servers.metrics[of], "leader_election_master_status");
    ensure!((leads(0)?, leads(1)?) == (1.0, 0.0), "{:?} {:?}", leads(0), leads(1));
    get(servers.probes, "/readyz").context("the standby is not ready")?;
    let (before, leader) = (uids(test).await?, until_named(test).await?);
    test.server().kill().await?;
    until_leads(&servers.standby).await?;
    ensure!(until_named(test).await? != leader, "the dead one still leads");
    ensure!((leads(0).is_err(), leads(1)?) == (true, 1.0), "{:?}", leads(1));
    ensure!(uids(test).await? == before, "the new leader made Pods anew");
    greet(test, "You").await?;
    until_greeted(test, "You").await?;
    ensure!(uids(test).await?.is_disjoint(&before), "a Pod is an old one");
    test.server().start()?;
    let stands_by = |log: &str| log.matches("new leader elected").count() == 2;
    test.server().until_log("the first stands by", stands_by).await?;
    ensure!((leads(0)?, leads(1)?) == (0.0, 1.0), "{:?} {:?}", leads(0), leads(1));
    Ok(())
}

pub(crate) async fn sigterm_ends_the_leaders_writes_and_hands_the_lease_over(
    test: &mut Fixture,
) -> Result<()> {
    let mut servers = two_servers(test).await?;
    let leader = until_named(test).await?;
    greet(test, "You").await?;
    let ended = test.server().stop().await?;
    ensure!(ended.success(), "{ended}");
    let written = servers.first.writes().len();
    // One that is not handed over would be its own for 15 seconds more.
    ensure!(holder(test).await? != leader, "the Lease is still its own");
    until_greeted(test, "You").await?;
    ensure!(until_named(test).await? != leader, "the old one still leads");
    ensure!(servers.first.writes().len() == written, "it wrote after its end");
    ensure!(!servers.second.writes().is_empty(), "the proxy of the standby records nothing");
    servers.standby.stop().await?;
    ensure!(holder(test).await?.is_empty(), "the last one kept the Lease");
    test.server().start()?;
    test.server().until_log("the first leads again", |log| log.matches(ACQUIRED).count() == 2).await?;
    Ok(())
}

pub(crate) async fn a_leader_that_pauses_past_its_lease_writes_nothing_more(
    test: &mut Fixture,
) -> Result<()> {
    let mut servers = two_servers(test).await?;
    // There are always some under way, and hardly ever is one just being sent.
    servers.first.meddle(|request| {
        let is_slow = !request.method().is_safe() && !request.uri().path().contains("/leases");
        if is_slow { Fate::Delay(Duration::from_millis(100)) } else { Fate::Pass }
    });
    greet(test, "You").await?;
    let count = servers.first.writes().len();
    test.pods().until_all("writes", |_| servers.first.writes().len() > count).await?;
    test.server().signal(Signal::Stop)?;
    until_leads(&servers.standby).await?;
    until_greeted(test, "You").await?;
    let (old, pods) = (servers.first.writes().len(), uids(test).await?);
    test.server().signal(Signal::Continue)?;
    let ended = test.server().until_ended().await?;
    ensure!(!ended.success(), "a leader that lost its Lease ended well");
    let late = servers.first.writes().split_off(old);
    ensure!(late.is_empty(), "writes past the lease: {late:?}");
    ensure!(uids(test).await? == pods, "a Pod was made twice");
    // It stands by when it is started again.
    test.server().start()?;
    greet(test, "Again").await?;
    until_greeted(test, "Again").await?;
    ensure!(
        servers.first.writes().len() == old,
        "a server that stands by wrote {:?}",
        servers.first.writes()
    );
    servers.standby.stop().await.map(drop)
}

/// Writes of two servers in the order in which the proxies got them.
#[derive(Clone, Default)]
struct BothLogs(Arc<Mutex<Vec<(usize, Instant)>>>);

impl BothLogs {
    fn of(servers: &Servers) -> Self {
        let both = Self::default();
        for (server, proxy) in [&servers.first, &servers.second].into_iter().enumerate() {
            let log = both.clone();
            proxy.count(move |write| {
                let counts = is_of_a_leader(write);
                if counts {
                    log.0.lock().unwrap_or_else(PoisonError::into_inner).push((server, Instant::now()));
                }
                counts
            });
        }
        both
    }

    /// The time from the last write of the first server to the first write of the second one, which are not mixed.
    fn gap(&self) -> Result<Duration> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, second): (Vec<_>, Vec<_>) = log.iter().partition(|(server, _)| *server == 0);
        let (_, last) = first.last().context("the first server wrote nothing")?;
        let (_, next) = second.first().context("the second server wrote nothing")?;
        let mixed = first.iter().filter(|(_, at)| at >= next).count();
        ensure!(mixed == 0, "{mixed} writes of the first server after one of the second server");
        Ok(next.duration_since(*last))
    }
}

pub(crate) async fn where_the_lease_is_deleted_one_server_writes_at_a_time(test: &mut Fixture) -> Result<()> {
    let mut servers = two_servers(test).await?;
    let logs = BothLogs::of(&servers);
    let leader = holder(test).await?;
    for round in 0..2 {
        let before = leases(test).get("metacontroller").await?;
        leases(test).delete("metacontroller").await?;
        greet(test, &format!("round {round}")).await?;
        let anew =
            |lease: &Value| uid(lease) != uid(&before) && text(lease, "/spec/holderIdentity") == leader;
        leases(test).until("metacontroller", "made anew by the leader", anew).await?;
        until_greeted(test, &format!("round {round}")).await?;
    }
    ensure!(servers.second.writes().is_empty(), "the standby wrote {:?}", servers.second.writes());

    // The leader cannot make it anew: it writes until its deadline. The other one waits for that, though it starts only now and
    // sees no Lease.
    servers.standby.stop().await?;
    servers.first.meddle(|request| {
        let is_slow = !request.method().is_safe();
        match request.uri().path().contains("/leases") {
            true => Fate::Refuse(503, None),
            false if is_slow => Fate::Delay(Duration::from_millis(100)),
            false => Fate::Pass,
        }
    });
    let written = servers.first.writes().len();
    leases(test).delete("metacontroller").await?;
    servers.standby.start()?;
    let mut round = 0;
    while !std::fs::read_to_string(servers.standby.log())?.contains(ACQUIRED) {
        round += 1;
        ensure!(round < 500, "no other server leads");
        greet(test, &format!("without a Lease, {round}")).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let late = servers.first.writes().len() - written;
    ensure!(late > PARENTS, "the old leader had too little to write: {late} writes");
    ensure!(!test.server().until_ended().await?.success(), "a leader that lost its Lease ended well");
    greet(test, "the end").await?;
    until_greeted(test, "the end").await?;
    let gap = logs.gap()?;
    ensure!(gap > Duration::from_secs(1), "the next leader wrote {gap:?} after the old one");
    ensure!(holder(test).await? != leader, "the dead one still leads");
    servers.first.meddle(|_| Fate::Pass);
    test.server().start()?;
    servers.standby.stop().await.map(drop)
}
