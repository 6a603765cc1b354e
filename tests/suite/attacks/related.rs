//! Customize hooks that ask for too much: floods of rules, names and selectors, beside a neighbour that goes on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use acceptance::api::{Objects, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Hook, config_map, text};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::attacks::form;
use crate::attacks::measure::{self, runtime_p99};
use crate::wasm::{self, Wat};

const RULES: u32 = 10_000;

/// Controllers with a flood, and parents of each.
const CONTROLLERS: usize = 2;
const PARENTS: usize = 3;

/// Parents of the neighbour whose Pods are waited for.
const NEIGHBOURS: u32 = 10;

/// Bounds in milliseconds of 99 of 100 probes, and on the speed of the neighbour. The suite's server is not optimized, and
/// other tests keep the machine busy beside the short form.
fn delay() -> f64 {
    form(1500.0, 100.0)
}

/// How long the neighbour is measured.
fn window() -> Duration {
    form(Duration::from_secs(2), Duration::from_secs(30))
}

fn speed() -> f64 {
    form(0.05, 0.5)
}

/// MiB that the server may ever have had.
const MEMORY_MIB: f64 = 300.0;

/// The label of the objects that are asked for.
pub(super) const LABEL: &str = "flood";

fn map(test: &Fixture, number: usize) -> Value {
    config_map(&format!("map-{number}"), json!({ LABEL: test.name() }), json!({}))
}

/// A server with probes, and a neighbour that has nothing to do yet.
pub(crate) async fn serve(test: &mut Fixture) -> Result<SocketAddr> {
    test.define_kind().await?;
    let probes = measure::with_probes(test)?;
    test.store("good", &guest("hello")?).await?;
    test.store("quiet", &wasm::answers(&json!({ "children": [] }))?).await?;
    test.serve()?;
    let good = test.controller().of_parents_with("row", "good").making(&POD, "Recreate");
    test.host(good.synced_by(test.hook("good"))).await?;
    // From here on its module is compiled, and its objects are listed.
    neighbours(test, "first").await?;
    Ok(probes)
}

/// A controller that is hosted beside the neighbour, about parents of its own.
pub(super) async fn host(test: &mut Fixture, name: &str, customize: Hook) -> Result<()> {
    let controller = test.controller().renamed(&format!("{}-{name}", test.name()));
    let hook = test.hook("quiet").version("v2");
    let controller = controller.of_parents_with("row", name).synced_by(hook);
    test.host(controller.customized_by(customize.version("v2"))).await.map(drop)
}

/// Parents per second that get their Pods.
async fn neighbours(test: &mut Fixture, prefix: &str) -> Result<f64> {
    let start = Instant::now();
    let mut count = 0_u32;
    while count == 0 || start.elapsed() < window() {
        let names: Vec<_> = (count..count + NEIGHBOURS).map(|number| format!("{prefix}-{number}")).collect();
        for name in &names {
            test.create(test.parent(name).labelled("row", "good")).await?;
        }
        for name in &names {
            test.parents().until(name, "its Pod counted", |parent| parent["status"]["pods"] == 1).await?;
        }
        count += NEIGHBOURS;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// As [`neighbours`] while something else goes on, which does not end.
async fn neighbours_beside(
    test: &mut Fixture,
    prefix: &str,
    other: impl Future<Output = Result<()>>,
) -> Result<f64> {
    tokio::select! {
        speed = neighbours(test, prefix) => speed,
        ended = other => ended.and_then(|()| bail!("what goes on beside has ended")),
    }
}

/// Measures probes and a neighbour while the objects that floods ask for change again and again.
async fn beside(test: &mut Fixture, probes: SocketAddr, alone: f64) -> Result<()> {
    for controller in 0..CONTROLLERS {
        let name = format!("{}-bad-{controller}", test.name());
        let begun = |controller: &Value| controller["status"]["parents"] == PARENTS;
        test.controllers().until(&name, "its parents known", begun).await?;
    }
    let touched = test.config_maps();
    let touch = async {
        for number in 0_u64.. {
            touched.merge("map-0", &json!({ "data": { "number": number.to_string() } })).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    let (beside, p99) = runtime_p99(probes, neighbours_beside(test, "beside", touch)).await?;
    test.at_most("p99 of probes", p99, "ms", delay())?;
    test.at_least("neighbour's speed", beside / alone, "of its own", speed())?;
    memory(test)
}

/// Hosts a flood beside many objects, has it asked for again and again, and measures probes, a neighbour and memory.
async fn flood(test: &mut Fixture, hook: &[u8]) -> Result<()> {
    let probes = serve(test).await?;
    test.store("flood", hook).await?;
    let maps = test.config_maps();
    let create = (0..form(300, 5000)).map(|number| maps.create(map(test, number)));
    stream::iter(create).buffer_unordered(16).try_collect::<Vec<_>>().await?;
    let alone = neighbours(test, "alone").await?;
    for controller in 0..CONTROLLERS {
        host(test, &format!("bad-{controller}"), test.hook("flood")).await?;
        for parent in 0..PARENTS {
            let name = format!("bad-{controller}-{parent}");
            test.create(test.parent(&name).labelled("row", &format!("bad-{controller}"))).await?;
        }
    }
    beside(test, probes, alone).await
}

fn memory(test: &mut Fixture) -> Result<()> {
    measure::memory_at_most(test, "memory", MEMORY_MIB)
}

/// The Event on a parent that its rules are refused.
pub(super) async fn refused(test: &Fixture, parent: &str, says: &str) -> Result<()> {
    let is = |event: &Value| {
        let message = text(event, "/message");
        message.starts_with("Sync error: customize hook") && message.contains(says)
    };
    test.until_event(parent, "SyncError", is).await.map(drop)
}

pub(crate) async fn ten_thousand_equal_rules_count_once(test: &mut Fixture) -> Result<()> {
    let rule = json!({ "apiVersion": "v1", "resource": "configmaps", "labelSelector": { "matchLabels": { LABEL: test.name() } } });
    let hook = Wat::default().prints(r#"{"relatedResources":["#);
    let hook = hook.prints_times(RULES - 1, format!("{rule},")).prints(format!("{rule}]}}"));
    Box::pin(flood(test, &hook.wasm()?)).await?;
    for number in 0..CONTROLLERS {
        let name = format!("{}-bad-{number}", test.name());
        let settled = |controller: &Value| controller["status"]["settled"] == PARENTS;
        test.controllers().until(&name, "all parents settled", settled).await?;
    }
    Ok(())
}

/// Rules of which none is like another; each finds all objects of the flood.
fn different(test: &Fixture, count: u32, selector: impl Fn(u32) -> Value) -> Value {
    let rule = |number| {
        let mut rule = selector(number);
        rule["apiVersion"] = json!("v1");
        rule["resource"] = json!("configmaps");
        rule["labelSelector"]["matchLabels"] = json!({ LABEL: test.name() });
        rule
    };
    json!({ "relatedResources": (0..count).map(rule).collect::<Vec<_>>() })
}

/// As modules that print so much do not fit into a ConfigMap, a webhook answers.
async fn flood_by_webhook(test: &mut Fixture, answer: Value, says: &str) -> Result<()> {
    let webhook = Webhook::answering(answer).await?;
    // Six parents take turns, and a server that is not optimized beside other tests takes ten seconds for the default.
    test.server().flag(form("--customize-steps-max=50000", "--customize-steps-max=500000"));
    let probes = serve(test).await?;
    let maps = test.config_maps();
    let create = (0..form(300, 5000)).map(|number| maps.create(map(test, number)));
    stream::iter(create).buffer_unordered(16).try_collect::<Vec<_>>().await?;
    let alone = neighbours(test, "alone").await?;
    for controller in 0..CONTROLLERS {
        let row = format!("bad-{controller}");
        host(test, &row, Hook::webhook(&webhook.url("/customize"))).await?;
        for parent in 0..PARENTS {
            test.create(test.parent(&format!("{row}-{parent}")).labelled("row", &row)).await?;
        }
    }
    beside(test, probes, alone).await?;
    for controller in 0..CONTROLLERS {
        refused(test, &format!("bad-{controller}-0"), says).await?;
    }
    Ok(())
}

pub(crate) async fn ten_thousand_different_rules_are_refused_by_name(test: &mut Fixture) -> Result<()> {
    let absent = |number| json!({ "key": format!("x{number}"), "operator": "DoesNotExist" });
    let few = |number| json!({ "labelSelector": { "matchExpressions": [absent(number)] } });
    let answer = different(test, RULES / 2, few);
    flood_by_webhook(test, answer, "(--customize-steps-max)").await
}

pub(crate) async fn ten_thousand_selectors_of_namespaces_are_refused_by_name(
    test: &mut Fixture,
) -> Result<()> {
    let absent = |number| json!({ "key": format!("x{number}"), "operator": "DoesNotExist" });
    let few = |number| json!({ "namespaceSelector": { "matchExpressions": [absent(number)] } });
    let answer = different(test, RULES / 2, few);
    flood_by_webhook(test, answer, "(--customize-steps-max)").await
}

/// No label leads to a rule that only excludes: each change is matched with all of them.
pub(crate) async fn rules_that_only_exclude_keep_nobody_waiting_beside_large_updates(
    test: &mut Fixture,
) -> Result<()> {
    const INTERVAL: Duration = Duration::from_millis(140);
    let (parents, rules) = (form(6, 30), form(2000, RULES));
    let home = test.name().to_owned();
    let webhook = Webhook::serve(move |asked: &Asked| {
        let parent = text(&asked.body, "/parent/metadata/name");
        let rule = |number| {
            let not_in = json!({ "key": "x", "operator": "NotIn", "values": [format!("{parent}-{number}")] });
            let selector = json!({ "matchExpressions": [not_in] });
            json!({ "apiVersion": "v1", "resource": "configmaps", "namespace": home, "labelSelector": selector })
        };
        json!({ "relatedResources": (0..rules).map(rule).collect::<Vec<_>>() }).into()
    });
    let webhook = webhook.await?;
    let probes = serve(test).await?;
    let maps = test.config_maps();
    let large = |number: u64| json!({ "data": { "large": format!("{number}{}", "0".repeat(900_000)) } });
    let touch = async |maps: &Objects| {
        for number in 1_u64.. {
            maps.merge("large", &large(number)).await?;
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    };
    let first = config_map("large", json!({}), large(0)["data"].clone());
    test.make(&maps, first).await?;
    // Each update keeps etcd, the API server and this test busy for a part of a core: that is none of the rules' doing.
    let alone = neighbours_beside(test, "alone", touch(&maps)).await?;
    host(test, "bad", Hook::webhook(&webhook.url("/customize"))).await?;
    for number in 0..parents {
        test.create(test.parent(&format!("bad-{number}")).labelled("row", "bad")).await?;
    }
    // Of many rules those of some parents are known; the others fail at the bound of all rules.
    let known = |controller: &Value| {
        let count = |field: &str| controller["status"][field].as_u64().unwrap_or_default();
        count("settled") > 0 && count("settled") + count("failing") == parents
    };
    test.controllers().until(&format!("{}-bad", test.name()), "its rules known, or refused", known).await?;
    let work = neighbours_beside(test, "beside", touch(&maps));
    let (beside, p99) = runtime_p99(probes, work).await?;
    test.at_most("p99 of probes", p99, "ms", delay())?;
    test.at_least("neighbour's speed", beside / alone, "of its own", speed())?;
    memory(test)
}

fn names(count: usize, prefix: &str) -> Value {
    let names: Vec<_> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    json!({ "relatedResources": [{ "apiVersion": "v1", "resource": "configmaps", "names": names }] })
}

pub(crate) async fn half_a_million_names_are_refused(test: &mut Fixture) -> Result<()> {
    let probes = serve(test).await?;
    let [many, some] = [names(450_000, "name"), names(100_000, "n")].map(Answer::from);
    let webhook = Webhook::serve(move |asked: &Asked| {
        let parent = text(&asked.body, "/parent/metadata/name");
        if parent == "some" { some.clone() } else { many.clone() }
    });
    let webhook = webhook.await?;
    host(test, "bad", Hook::webhook(&webhook.url("/customize"))).await?;
    let refusals = async {
        for parent in ["one", "two", "three", "some"] {
            test.create(test.parent(parent).labelled("row", "bad")).await?;
        }
        for parent in ["one", "two", "three"] {
            refused(test, parent, "bytes, and 2097152 are allowed (--customize-bytes-max)").await?;
        }
        let says = "relatedResources[0].names brings it to 100000 names, and 10000 are allowed (--customize-names-max)";
        refused(test, "some", says).await
    };
    let ((), p99) = runtime_p99(probes, refusals).await?;
    test.at_most("p99 of probes", p99, "ms", delay())?;
    memory(test)
}

/// Each parent asks for as many names as one may; all of them together take more than the server remembers.
pub(crate) async fn rules_of_too_many_parents_are_refused_until_others_go(test: &mut Fixture) -> Result<()> {
    // What the rule of one takes, which follows from the length of its names.
    const EACH: usize = 1_850_000;
    let fit = form(2, 20);
    test.server().flag(&format!("--customize-memory-max={}", EACH * fit + EACH / 2));
    // Each name is looked for in each namespace, and other tests have some.
    test.server().flag("--customize-steps-max=50000000");
    serve(test).await?;
    let webhook =
        Webhook::serve(|asked: &Asked| names(10_000, text(&asked.body, "/parent/metadata/name")).into());
    let webhook = webhook.await?;
    let row = format!("{}-bad", test.name());
    host(test, "bad", Hook::webhook(&webhook.url("/customize"))).await?;
    // A parent has a status once its rules fit.
    let fits = |parent: &Value| parent["status"]["observedGeneration"] == 1;
    for number in 0..fit {
        test.create(test.parent(&format!("p{number}")).labelled("row", "bad")).await?;
    }
    for number in 0..fit {
        test.parents().until(&format!("p{number}"), "rules that fit", fits).await?;
    }
    test.create(test.parent("more").labelled("row", "bad")).await?;
    refused(test, "more", "are allowed for all parents (--customize-memory-max)").await?;
    let one = |controller: &Value| controller["status"]["failing"] == 1;
    test.controllers().until(&row, "one that fails", one).await?;
    test.parents().delete("p0").await?;
    test.parents().until("more", "rules that fit now", fits).await?;
    memory(test)
}
