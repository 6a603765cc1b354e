//! Section 4 of the compatibility contract: how children are made, changed and deleted, by a merge of our own or by
//! server-side apply.

use std::collections::BTreeMap;

use acceptance::api::{CONFIG_MAP, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, config_map, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kinds::{WAYS, Way, children, kinds};
use crate::wasm;

const LAST_APPLIED: &str = "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration";
const MADE_BY: &str = "/metadata/annotations/metahook.dev~1controller";

/// A controller of parents with the label `way`, which makes children this way.
pub(super) fn controller(test: &Fixture, way: Way, webhook: &Webhook) -> Composite {
    let all = kinds().iter().fold(test.controller(), |controller, kind| controller.making(kind, way.method));
    all.renamed(&format!("{}-{}", test.name(), way.name))
        .of_parents_with("way", way.name)
        .with("applyStrategy", way.apply)
        .synced_by(Hook::webhook(&webhook.url("/sync")))
}

/// The children of each kind, and the round of the parent as its status.
fn of_all_kinds(asked: &Asked) -> Answer {
    let name = text(&asked.body, "/parent/metadata/name");
    json!({ "children": children(name), "status": { "round": asked.body["parent"]["spec"]["round"] } }).into()
}

async fn all(test: &Fixture, name: &str) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for kind in kinds() {
        all.insert(kind.kind.clone(), test.within(&kind).get(name).await?);
    }
    Ok(all)
}

/// Writes of the server but for statuses: writes, writes in vain, dry runs.
fn deeds(log: &str, parent: &str) -> Vec<String> {
    let of_parent = |line: &&str| line.contains(&format!("/{parent}\""));
    let deed = |line: &&str| {
        (line.contains("written") || line.contains("dry run")) && !line.contains("\"op\":\"status\"")
    };
    log.lines().filter(of_parent).filter(deed).map(str::to_owned).collect()
}

pub(super) async fn round(test: &Fixture, parent: &str, round: u32) -> Result<()> {
    test.parents().merge(parent, &json!({ "spec": { "round": round } })).await?;
    test.parents().until(parent, "its round", |parent| parent["status"]["round"] == round).await?;
    Ok(())
}

pub(crate) async fn after_the_first_write_ten_reconciles_write_nothing(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(of_all_kinds).await?;
    test.define_kind().await?;
    test.serve()?;
    for way in WAYS {
        test.host(controller(test, way, &webhook)).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
    }
    let mut made = BTreeMap::new();
    for way in WAYS {
        // Whoever else has to do with them, such as the controller of Deployments, has its say.
        test.parents()
            .until(way.name, "a status", |parent| parent["status"]["observedGeneration"] == 1)
            .await?;
        made.insert(way.name, all(test, way.name).await?);
    }
    for number in 1..=10 {
        for way in WAYS {
            round(test, way.name, number).await?;
        }
    }
    let log = test.server().until_log("its log", |_| true).await?;
    for way in WAYS {
        let deeds = deeds(&log, way.name);
        ensure!(deeds.len() == kinds().len(), "{}: more than one write each: {deeds:#?}", way.name);
        same_objects(&made[way.name], &all(test, way.name).await?)?;
    }
    test.server().stop().await?;
    test.server().start()?;
    for number in 11..=13 {
        for way in WAYS {
            round(test, way.name, number).await?;
        }
    }
    let log = test.server().until_log("its log", |_| true).await?;
    for way in WAYS {
        let deeds = deeds(&log, way.name);
        ensure!(!deeds.iter().any(|deed| deed.contains("\"op\":\"recreate\"")), "{}: {deeds:#?}", way.name);
        ensure!(
            deeds.len() <= 2 * kinds().len(),
            "{}: more than one try each after a start: {deeds:#?}",
            way.name
        );
        for (kind, now) in all(test, way.name).await? {
            let before = &made[way.name][&kind];
            ensure!(uid(before) == uid(&now) && before["spec"] == now["spec"], "{kind}: {before}\n{now}");
        }
    }
    Ok(())
}

/// Checks that the objects are the same, but for those whose writer writes statuses.
fn same_objects(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Result<()> {
    for (kind, before) in before {
        let after = &after[kind];
        ensure!(uid(before) == uid(after), "{kind} was made anew");
        let others = before["metadata"].get("generation").is_some();
        if !others {
            ensure!(version(before) == version(after), "{kind} was written: {before}\n{after}");
        }
    }
    Ok(())
}

const ON_DELETE: [Way; 2] = [
    Way { name: "left", method: "OnDelete", apply: "dynamic-apply" },
    Way { name: "applied-left", method: "OnDelete", apply: "server-side-apply" },
];

/// A ConfigMap and a Pod, whose command cannot be changed, with the parent's round in them.
fn with_the_round(asked: &Asked) -> Answer {
    let name = text(&asked.body, "/parent/metadata/name");
    let round = asked.body["parent"]["spec"]["round"].to_string();
    let map = config_map(name, json!({ "ours": "1" }), json!({ "round": round }));
    // What cannot be changed is not for those that only change.
    let pods = if name.contains("in-place") { json!([]) } else { json!([pod(name, &round)]) };
    let children: Vec<_> = pods.as_array().into_iter().flatten().chain([&map]).cloned().collect();
    json!({ "children": children, "status": { "round": asked.body["parent"]["spec"]["round"] } }).into()
}

fn pod(name: &str, command: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "registry.invalid/none", "command": [command] }],
        },
    })
}

pub(crate) async fn what_changed_is_written_made_anew_or_left_as_the_strategy_says(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(with_the_round).await?;
    test.define_kind().await?;
    test.serve()?;
    let ways = || WAYS.into_iter().chain(ON_DELETE);
    for way in ways() {
        let controller = controller(test, way, &webhook);
        test.host(controller).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
    }
    let (maps, pods) = (test.config_maps(), test.pods());
    let mut before = BTreeMap::new();
    for way in ways() {
        round(test, way.name, 1).await?;
        let made = maps.until(way.name, "made in the first round", |_| true).await?;
        ensure!(text(&made, MADE_BY) == format!("{}-{}", test.name(), way.name), "{made}");
        ensure!(text(&made, LAST_APPLIED).is_empty() == (way.apply == "server-side-apply"), "{made}");
    }
    for way in ways() {
        // The first answer may have been about no round at all.
        let is_left = way.method == "OnDelete";
        let settled = maps.until(way.name, "settled", |map| is_left || map["data"]["round"] == "1").await?;
        before.insert(way.name, settled);
        round(test, way.name, 2).await?;
    }
    for way in ways() {
        let before = &before[way.name];
        match way.method {
            "OnDelete" => {
                round(test, way.name, 3).await?;
                same("left", before, &maps.get(way.name).await?)?;
            }
            "InPlace" => {
                let now = maps.until(way.name, "changed", |map| map["data"]["round"] == "2").await?;
                ensure!(uid(&now) == uid(before), "{} was made anew", way.name);
            }
            _ => {
                let now = maps.until(way.name, "changed", |map| map["data"]["round"] == "2").await?;
                ensure!(uid(&now) != uid(before), "{} was not made anew", way.name);
                let anew = |pod: &Value| pod.pointer("/spec/containers/0/command/0") == Some(&json!("2"));
                pods.until(way.name, "made anew", anew).await?;
            }
        }
    }
    drift_is_put_right(test).await
}

/// A user takes a label away and changes a value.
async fn drift_is_put_right(test: &Fixture) -> Result<()> {
    let maps = test.config_maps();
    let drift =
        json!({ "metadata": { "labels": { "ours": null, "theirs": "1" } }, "data": { "round": "0" } });
    for way in WAYS.into_iter().chain(ON_DELETE) {
        let before = maps.merge(way.name, &drift).await?;
        if way.method == "OnDelete" {
            round(test, way.name, 4).await?;
            same("left with its drift", &before, &maps.get(way.name).await?)?;
            continue;
        }
        let is_right = |map: &Value| map["data"]["round"] == "2" && map["metadata"]["labels"]["ours"] == "1";
        let now = maps.until(way.name, "put right", is_right).await?;
        ensure!((uid(&now) == uid(&before)) == (way.method == "InPlace"), "{}: {now}", way.name);
        let theirs = now["metadata"]["labels"]["theirs"] == "1";
        ensure!(theirs == (way.method == "InPlace"), "what is not ours stays where the object does: {now}");
    }
    // A label alone is drift as well.
    for way in WAYS {
        let before = maps.merge(way.name, &json!({ "metadata": { "labels": { "ours": "2" } } })).await?;
        let is_right = |map: &Value| map["metadata"]["labels"]["ours"] == "1";
        let now = maps.until(way.name, "its label put right", is_right).await?;
        ensure!((uid(&now) == uid(&before)) == (way.method == "InPlace"), "{}: {now}", way.name);
    }
    Ok(())
}

pub(super) fn same(what: &str, before: &Value, after: &Value) -> Result<()> {
    ensure!(version(before) == version(after), "not {what}: {before}\n{after}");
    Ok(())
}

pub(crate) async fn another_strategy_takes_over_what_was_written_and_what_is_dropped_goes(
    test: &mut Fixture,
) -> Result<()> {
    let child = |data: Value| json!({ "children": [config_map("child", json!({}), data)] });
    let webhook = Webhook::answering(child(json!({ "a": "1", "b": "1" }))).await?;
    test.define_kind().await?;
    test.serve()?;
    let way = Way { apply: "dynamic-apply", ..WAYS[0] };
    let controller = controller(test, way, &webhook);
    let name = format!("{}-{}", test.name(), way.name);
    test.host(controller).await?;
    test.grant(self::controller(test, Way { apply: "server-side-apply", ..way }, &webhook)).await?;
    test.create(test.parent("p").labelled("way", way.name)).await?;
    let maps = test.config_maps();
    let first = maps.until("child", "made", |map| !text(map, LAST_APPLIED).is_empty()).await?;
    maps.merge("child", &json!({ "data": { "theirs": "1" } })).await?;
    test.controllers().merge(&name, &json!({ "spec": { "applyStrategy": "server-side-apply" } })).await?;
    maps.until("child", "handed over", |map| text(map, LAST_APPLIED).is_empty()).await?;
    webhook.answer(child(json!({ "a": "2" })));
    test.parents().merge("p", &json!({ "spec": { "round": 1 } })).await?;
    let applied = |map: &Value| map["data"] == json!({ "a": "2", "theirs": "1" });
    maps.until("child", "rid of what is dropped", applied).await?;
    test.controllers().merge(&name, &json!({ "spec": { "applyStrategy": null } })).await?;
    let back = |map: &Value| text(map, LAST_APPLIED).contains(r#""data":{"a":"2"}"#);
    maps.until("child", "recorded again", back).await?;
    webhook.answer(child(json!({ "c": "3" })));
    test.parents().merge("p", &json!({ "spec": { "round": 2 } })).await?;
    let merged = |map: &Value| map["data"] == json!({ "c": "3", "theirs": "1" });
    let last = maps.until("child", "merged", merged).await?;
    ensure!(uid(&first) == uid(&last), "made anew on the way");
    Ok(())
}

pub(crate) async fn a_secrets_record_holds_hashes_where_its_hook_is_a_module(
    test: &mut Fixture,
) -> Result<()> {
    let secret = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "data": { "a": "aGlkZGVu" }, "stringData": { "b": "hidden" },
        })
    };
    let webhook = Webhook::answering(json!({ "children": [secret("by-webhook")] })).await?;
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&json!({ "children": [secret("by-module")] }))?).await?;
    let own = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&own);
    test.serve()?;
    for (way, hook) in [("webhook", Hook::webhook(&webhook.url("/sync"))), ("module", test.hook("hook"))] {
        let controller = test.controller().making(&SECRET, "InPlace").synced_by(hook);
        let controller = controller.renamed(&format!("{}-{way}", test.name())).of_parents_with("way", way);
        test.host(controller).await?;
        test.create(test.parent(way).labelled("way", way)).await?;
    }
    let secrets = test.within(&SECRET);
    let plain = secrets.until("by-webhook", "made", |_| true).await?;
    ensure!(text(&plain, LAST_APPLIED).contains("aGlkZGVu"), "as Metacontroller writes it: {plain}");
    let hashed = secrets.until("by-module", "made", |_| true).await?;
    let record = text(&hashed, LAST_APPLIED);
    ensure!(record.contains(r#""a":"sha256:"#) && !record.contains("hidden"), "{record}");
    ensure!(hashed["data"] == json!({ "a": "aGlkZGVu", "b": "aGlkZGVu" }), "{hashed}");
    secrets.merge("by-module", &json!({ "data": { "b": "ZHJpZnQ=" } })).await?;
    secrets.until("by-module", "put right", |secret| secret["data"]["b"] == "aGlkZGVu").await?;
    Ok(())
}

pub(crate) async fn a_bad_child_holds_no_other_and_one_that_is_going_is_left_until_it_is_gone(
    test: &mut Fixture,
) -> Result<()> {
    let answer = |bad: &str, data: Value| {
        let bad = config_map("bad", json!({}), json!({ bad: "x" }));
        json!({ "children": [bad, config_map("good", json!({}), data)], "status": { "seen": true } })
    };
    let webhook = Webhook::answering(answer("no/key", json!({ "a": "1" }))).await?;
    test.define_kind().await?;
    test.serve()?;
    let hook = Hook::webhook(&webhook.url("/sync"));
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("p")).await?;
    let maps = test.config_maps();
    maps.until("good", "made", |_| true).await?;
    test.parents().until("p", "a status", |parent| parent["status"]["seen"] == true).await?;
    let told = |event: &Value| {
        text(event, "/message").contains("/bad: ") && text(event, "/message").contains("no/key")
    };
    test.until_event("p", "SyncError", told).await?;
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    let first = maps.merge("good", &held).await?;
    maps.delete("good").await?;
    webhook.answer(answer("key", json!({ "a": "2" })));
    test.parents().merge("p", &json!({ "spec": { "round": 1 } })).await?;
    maps.until("bad", "made once it is good", |_| true).await?;
    let going = maps.get("good").await?;
    ensure!(
        going["data"] == first["data"] && uid(&going) == uid(&first),
        "a child that is going was written"
    );
    maps.merge("good", &json!({ "metadata": { "finalizers": null } })).await?;
    let anew = |map: &Value| uid(map) != uid(&first) && map["data"]["a"] == "2";
    maps.until("good", "made anew", anew).await?;
    Ok(())
}
