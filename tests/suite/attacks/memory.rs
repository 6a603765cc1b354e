//! Many reconciles that each take much memory: large answers at once, and parents that are larger read than stored.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::memory_limit::MemoryLimit;
use acceptance::objects::{Hook, config_map};
use acceptance::wait::until;
use acceptance::webhook::{Answer, Webhook};
use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::attacks::measure::{memory_at_most, metric, percentile, with_metrics};
use crate::attacks::{form, is_long, related};
use crate::wasm;

/// The budget of the server in MiB: of the short form a quarter, for answers a quarter as large.
fn budget() -> u32 {
    form(128, 512)
}

/// MiB that the server may take beside its budget: caches, threads, and the memory that malloc keeps.
const BESIDE_MIB: u32 = 200;

/// MiB that the server may keep once large objects are gone.
const REST_MIB: u32 = 120;

/// MiB that the server may take for large modules. All of the short form together have 200.
fn modules_mib() -> f64 {
    form(200.0, 400.0)
}

/// Parents of each controller.
const PARENTS: u32 = 5;

/// How long a whole attack may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// A server with a bounded budget, and a neighbour; gives back where its metrics are.
async fn serve(test: &mut Fixture) -> Result<SocketAddr> {
    test.server().flag(&format!("--memory-budget={}Mi", budget()));
    let metrics = with_metrics(test)?;
    related::serve(test).await?;
    Ok(metrics)
}

/// Hosts a controller that is hooked to the webhook's path, and makes its parents.
async fn attack(test: &mut Fixture, webhook: &Webhook, name: &str, parents: u32) -> Result<()> {
    let controller = test.controller().renamed(&format!("{}-{name}", test.name()));
    let path = if name == "children" { "/children" } else { "/status" };
    let controller = controller.of_parents_with("row", name).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url(path)).with("timeout", "60s"))).await?;
    for nth in 0..parents {
        test.create(test.parent(&format!("{name}-{nth}")).labelled("row", name)).await?;
    }
    Ok(())
}

/// How long things took, the slowest but one in a hundred of each, in seconds.
struct Slowest {
    /// From a neighbour's new parent to its Pod in the parent's status.
    neighbour: f64,
    /// A ConfigMap made and changed by the test itself.
    bare: f64,
}

/// Measures a neighbour beside bare writes until `done` is so.
async fn slowest_until(test: &mut Fixture, prefix: &str, done: impl Fn() -> Result<bool>) -> Result<Slowest> {
    let (start, maps) = (Instant::now(), test.config_maps());
    let (mut neighbours, mut bare) = (Vec::new(), Vec::new());
    while neighbours.len() < form(10, 100) || !done()? {
        ensure!(start.elapsed() < PATIENCE, "the attack does not end");
        let name = format!("{prefix}-{}", neighbours.len());
        let start = Instant::now();
        test.create(test.parent(&name).labelled("row", "good")).await?;
        test.parents().until(&name, "its Pod counted", |parent| parent["status"]["pods"] == 1).await?;
        neighbours.push(start.elapsed());
        let start = Instant::now();
        maps.create(config_map(&name, json!({}), json!({}))).await?;
        maps.merge(&name, &json!({ "data": { "k": "bare" } })).await?;
        bare.push(start.elapsed());
    }
    let p99 = |took| percentile(took, 99).as_secs_f64();
    Ok(Slowest { neighbour: p99(neighbours), bare: p99(bare) })
}

/// Records that the server keeps its bound beside an attack, and that its neighbour is not slowed down: no more than what
/// the API server itself takes longer.
async fn beside(test: &mut Fixture, alone: Slowest, done: impl Fn() -> Result<bool>) -> Result<()> {
    let pid = test.server().pid()?;
    let beside = slowest_until(test, "beside", done).await?;
    ensure!(test.server().pid()? == pid, "the server is another process");
    memory_at_most(test, "memory", f64::from(budget() + BESIDE_MIB))?;
    if is_long() {
        let api_server = (beside.bare / alone.bare).max(1.0);
        let times = beside.neighbour / alone.neighbour / api_server;
        return test.at_most("p99 of a neighbour's parents, by that of bare writes", times, "times", 2.0);
    }
    // The server of the tests is not optimized.
    test.at_most("p99 of a neighbour's parents", beside.neighbour, "s", 5.0)
}

/// The API server refuses statuses of so many bytes: all parents of the attackers fail.
fn refused(metrics: SocketAddr, parents: u32) -> impl Fn() -> Result<bool> {
    move || Ok(metric(metrics, "metahook_parents_failing")? >= f64::from(parents))
}

pub(crate) async fn large_statuses_and_many_children_take_turns(test: &mut Fixture) -> Result<()> {
    // More than the API server takes of a request.
    let (count, width) = form((100_000, 30), (450_000, 6));
    let mut members = String::new();
    for nth in 0..count {
        write!(members, r#""{nth:0width$}":0,"#)?;
    }
    let status = format!(r#"{{"children":[],"status":{{{members}"last":0}}}}"#);
    let child = |nth| config_map(&format!("child-{nth:05}"), json!({}), json!({ "k": "v" }));
    let made: Vec<Value> = (0..form(300, 10_000)).map(child).collect();
    let typed = |mut child: Value| {
        child["apiVersion"] = json!("v1");
        child["kind"] = json!("ConfigMap");
        child
    };
    let children = json!({ "children": made.into_iter().map(typed).collect::<Vec<_>>(), "status": {} });
    let children = children.to_string();
    let webhook = Webhook::serve(move |asked| {
        Answer::text(if asked.path == "/children" { children.clone() } else { status.clone() })
    })
    .await?;
    let metrics = serve(test).await?;
    let alone = slowest_until(test, "alone", || Ok(true)).await?;
    let controllers = form(2, 8);
    for nth in 0..controllers {
        attack(test, &webhook, &format!("hog-{nth}"), PARENTS).await?;
    }
    attack(test, &webhook, "children", 1).await?;
    beside(test, alone, refused(metrics, controllers * PARENTS)).await?;
    let maps = test.config_maps();
    let made = |all: &[Value]| all.iter().filter(|map| map["data"]["k"] == "v").count() >= form(300, 10_000);
    until("all children", PATIENCE, || async {
        let all = maps.list().await?;
        Ok(if made(&all) { Ok(()) } else { Err(format!("{} ConfigMaps", all.len())) })
    })
    .await
}

pub(crate) async fn large_answers_of_webhooks_take_turns(test: &mut Fixture) -> Result<()> {
    let status =
        format!(r#"{{"children":[],"status":{{"is":"{}"}}}}"#, "x".repeat((form(8, 32) << 20) - 100));
    let status = bytes::Bytes::from(status);
    let webhook = Webhook::serve(move |_| Answer::text(status.clone())).await?;
    let metrics = serve(test).await?;
    let alone = slowest_until(test, "alone", || Ok(true)).await?;
    let controllers = form(2, 8);
    for nth in 0..controllers {
        attack(test, &webhook, &format!("hog-{nth}"), PARENTS).await?;
    }
    beside(test, alone, refused(metrics, controllers * PARENTS)).await
}

/// An empty key takes a node of a map. The decorator labels each parent, which rewrites it whole.
pub(crate) async fn parents_that_are_large_when_read_take_turns(test: &mut Fixture) -> Result<()> {
    serve(test).await?;
    let alone = slowest_until(test, "alone", || Ok(true)).await?;
    let answer = json!({ "attachments": [], "labels": { "large": "yes" }, "finalized": true });
    test.store("labels", &wasm::answers(&answer)?).await?;
    let decorator = test
        .decorator()
        .decorating(test.kind(), json!({ "labelSelector": { "matchLabels": { "row": "large" } } }));
    let hook = || test.hook("labels").version("v2");
    let decorator = decorator.synced_by(hook()).finalized_by(hook());
    test.host_decorator(decorator).await?;
    let many = vec![json!({ "": 0 }); form(30_000, 150_000)];
    for nth in 0..PARENTS {
        let parent = test.parent(&format!("large-{nth}")).labelled("row", "large");
        test.create(parent.with(json!({ "many": many }))).await?;
    }
    beside(test, alone, || Ok(true)).await?;
    for nth in 0..PARENTS {
        let name = format!("large-{nth}");
        test.parents()
            .until(&name, "a label", |parent| parent["metadata"]["labels"]["large"] == "yes")
            .await?;
        test.parents().delete(&name).await?;
        test.parents().until_gone(&name).await?;
    }
    memory_at_most(test, "memory at the end", f64::from(budget() + BESIDE_MIB))
}

/// The limit of the manifest.
const LIMIT: u64 = 2 << 30;

const IN_A_CONTAINER: &str = "kills by the kernel, with a limit of 2 GiB";

/// Has the kernel enforce the limit of the manifest, where the machine can.
fn in_a_container(test: &mut Fixture) {
    let name = test.name().to_owned();
    if test.server().limit_memory(&name, LIMIT).is_none() {
        eprintln!("no cgroup with a limit of memory can be made here: {name} goes on without");
    }
}

/// Without a limit there is no figure of it.
fn killed_nothing(test: &mut Fixture) -> Result<()> {
    test.server().runs()?;
    let kills = test.server().memory_limit().map(MemoryLimit::kills).transpose()?;
    kills.map_or(Ok(()), |kills| test.at_most(IN_A_CONTAINER, u32::try_from(kills)?.into(), "kills", 0.0))
}

/// The large objects belong to others, and have the kind of the children.
pub(crate) async fn large_objects_of_others_are_listed_in_small_pages(test: &mut Fixture) -> Result<()> {
    let count = form(150, 1000);
    let large = || json!({ "k": "x".repeat(1_000_000) });
    let names: Vec<_> = (0..count).map(|nth| format!("large-{nth}")).collect();
    for some in names.chunks(10) {
        let maps = test.config_maps();
        try_join_all(some.iter().map(|name| maps.create(config_map(name, json!({}), large())))).await?;
    }
    let child = config_map("child", json!({}), json!({ "k": "v" }));
    let webhook = Webhook::serve(move |_| Answer::from(json!({ "children": [child.clone()] }))).await?;
    test.define_kind().await?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    test.create(test.parent("p")).await?;
    in_a_container(test);
    test.serve()?;
    test.config_maps().until("child", "made", |_| true).await?;
    killed_nothing(test)?;
    memory_at_most(test, "memory", f64::from(form(280, 400)))?;
    for name in &names {
        test.config_maps().delete(name).await?;
    }
    let start = Instant::now();
    let mut rest = || Ok::<_, anyhow::Error>(u32::try_from(test.server().memory()? >> 20)?);
    while rest()? > REST_MIB && start.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let rest = rest()?;
    test.at_most("memory when they are gone", rest.into(), "MiB", REST_MIB.into())
}

/// The largest module with default flags that every call can begin: `--module-size-max` has room for no more data, and so has
/// the memory of a hook.
const LARGEST_MIB: usize = 63;

/// Tenants store modules of a few KiB each that are large when they are unpacked.
pub(crate) async fn packed_modules_are_unpacked_in_turns_and_kept_in_files(test: &mut Fixture) -> Result<()> {
    let (count, mib) = (form(5_u8, 20), form(40, LARGEST_MIB));
    test.define_kind().await?;
    let cache = test.plane().scratch().join(format!("{}-modules", test.name()));
    test.server().flag(&format!("--module-cache-dir={}", cache.display()));
    // Its default has no room for the code of twenty.
    test.server().flag("--module-code-max=2Gi");
    in_a_container(test);
    test.serve()?;
    for nth in 0..count {
        let name = format!("large-{nth}");
        test.store(&name, &wasm::packed(mib << 20, nth)?).await?;
        let controller = test.controller().renamed(&format!("{}-{name}", test.name()));
        test.host(controller.of_parents_with("row", &name).synced_by(test.hook(&name))).await?;
        test.create(test.parent(&name).labelled("row", &name)).await?;
    }
    for nth in 0..count {
        let name = format!("large-{nth}");
        until("the answers of all hooks", PATIENCE, || async {
            let parent = test.parents().get(&name).await?;
            Ok(if parent["status"]["is"] == "large" { Ok(()) } else { Err(parent.to_string()) })
        })
        .await?;
    }
    killed_nothing(test)?;
    memory_at_most(test, "memory", modules_mib())?;
    let rest = u32::try_from((test.server().memory()? + test.server().memory_of_files()?) >> 20)?;
    test.at_most("memory once all are loaded, with files in memory", rest.into(), "MiB", modules_mib())
}
