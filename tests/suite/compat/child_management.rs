//! Section 4 of the compatibility contract: how children are made, changed and deleted, by a merge of our own or by
//! server-side apply.

use std::collections::BTreeMap;

use acceptance::api::{CONFIG_MAP, Kind, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, config_map, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kinds::{WAYS, Way, children, kinds};
use crate::wasm;

const LAST_APPLIED: &str = "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration";
const MADE_BY: &str = "/metadata/annotations/metahook.dev~1controller";

/// A controller of parents with the label `way`, which makes children this way.
fn controller(test: &Fixture, way: Way, webhook: &Webhook) -> Composite {
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

async fn round(test: &Fixture, parent: &str, round: u32) -> Result<()> {
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

fn same(what: &str, before: &Value, after: &Value) -> Result<()> {
    ensure!(version(before) == version(after), "not {what}: {before}\n{after}");
    Ok(())
}

pub(crate) async fn a_taken_name_is_reported_with_its_owner_and_left(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked: &Asked| {
        let name = text(&asked.body, "/parent/metadata/name");
        json!({ "children": [config_map(name, json!({}), json!({ "is": "ours" }))] }).into()
    })
    .await?;
    test.define_kind().await?;
    let owner = test.create(test.parent("owner")).await?;
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "owner",
        "uid": uid(&owner), "controller": true,
    });
    let mut taken = Vec::new();
    for way in [WAYS[0], WAYS[2]] {
        let mut map = config_map(way.name, json!({}), json!({ "is": "theirs" }));
        map["metadata"]["ownerReferences"] = json!([reference]);
        taken.push(test.make(&test.config_maps(), map).await?);
    }
    test.serve()?;
    for way in [WAYS[0], WAYS[2]] {
        let controller = controller(test, way, &webhook);
        test.host(controller).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
        let told =
            |event: &Value| text(event, "/message").contains("exists already: Greeting owner controls it");
        test.until_event(way.name, "SyncError", told).await?;
    }
    for before in taken {
        same("left", &before, &test.config_maps().get(text(&before, "/metadata/name")).await?)?;
    }
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

pub(crate) async fn lists_are_merged_by_what_the_api_server_publishes(test: &mut Fixture) -> Result<()> {
    let group = format!("lists.{}.example.com", test.name());
    let kind = Kind::new(&group, "v1", "Lists", "lists");
    let text_items = |list: &str| json!({ "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": list });
    let fields = json!({ "name": { "type": "string" }, "side": { "type": "string", "default": "left" }, "value": { "type": "string" } });
    let items = json!({ "type": "object", "properties": fields, "required": ["name"] });
    let mut definition = acceptance::objects::definition(&kind);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({
        "type": "object",
        "properties": {
            "set": text_items("set"),
            "atomic": { "type": "array", "items": items, "x-kubernetes-list-type": "atomic" },
            "map": {
                "type": "array", "items": items,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "side"],
            },
        },
    });
    let crd = test.definitions().create(definition).await?;
    let established = |crd: &Value| acceptance::objects::is_true(crd, "Established");
    test.definitions().until(text(&crd, "/metadata/name"), "established", established).await?;
    let child = |set: Value, map: Value| {
        let spec = json!({ "set": set, "atomic": [{ "name": "x" }], "map": map });
        json!({ "children": [{ "apiVersion": format!("{group}/v1"), "kind": "Lists", "metadata": { "name": "child" }, "spec": spec }] })
    };
    let webhook = Webhook::answering(child(
        json!(["a", "b"]),
        json!([{ "name": "n", "value": "1" }, { "name": "n", "side": "right", "value": "1" }]),
    ))
    .await?;
    test.define_kind().await?;
    test.serve()?;
    let controller =
        test.controller().making(&kind, "InPlace").synced_by(Hook::webhook(&webhook.url("/sync")));
    test.host(controller).await?;
    test.create(test.parent("p")).await?;
    let lists = test.within(&kind);
    lists.until("child", "made", |_| true).await?;
    let theirs = json!({ "spec": {
        "set": ["a", "b", "theirs"],
        "atomic": [{ "name": "x" }, { "name": "theirs" }],
        "map": [
            { "name": "n", "value": "1" }, { "name": "n", "side": "right", "value": "1" }, { "name": "theirs" },
        ],
    } });
    lists.merge("child", &theirs).await?;
    webhook.answer(child(json!(["a", "c"]), json!([{ "name": "n", "value": "2" }])));
    test.parents().merge("p", &json!({ "spec": { "round": 1 } })).await?;
    let expected = json!({
        "set": ["a", "theirs", "c"],
        "atomic": [{ "name": "x", "side": "left" }, { "name": "theirs", "side": "left" }],
        "map": [{ "name": "n", "side": "left", "value": "2" }, { "name": "theirs", "side": "left" }],
    });
    lists.until("child", "merged", |child| child["spec"] == expected).await?;
    Ok(())
}

/// Characters that readers of YAML fold, refuse or take for something else, and some beside them; no control below U+0020
/// but those that JSON has a name for.
fn hazards() -> impl Iterator<Item = char> {
    let ranges =
        ['\u{7e}'..='\u{a1}', '\u{2027}'..='\u{202a}', '\u{fefe}'..='\u{ff01}', '\u{fffc}'..='\u{10001}'];
    "\u{0}\u{1}\u{8}\t\n\u{c}\r\u{1f}\"\\/#:?%&*<>'`,{}[]!|@-~\u{d7ff}\u{e000}\u{1fffe}\u{10ffff}😀é"
        .chars()
        .chain(ranges.into_iter().flatten())
}

pub(crate) async fn every_text_comes_back_byte_for_byte_under_both_strategies(
    test: &mut Fixture,
) -> Result<()> {
    let mut texts = serde_json::Map::new();
    for c in hazards() {
        let value = format!("{c}a {c} b{c}{c}  {c}\n{c}");
        texts.insert(format!("c{:x}", u32::from(c)), json!(value));
    }
    for (i, word) in
        ["", " ", "null", "~", "y", "<<", "=", "1e3", "0x1", "- a", "a: b", "# a", "---", "...", "\u{feff}"]
            .into_iter()
            .enumerate()
    {
        texts.insert(format!("word{i}"), json!(word));
    }
    texts.insert("long".to_owned(), json!("a \u{2028} b".repeat(5000)));
    // The API server lets any value be a key of a custom resource.
    let mut keys: serde_json::Map<_, _> =
        hazards().map(|c| (format!("{c} k {c}"), json!(format!("{c}")))).collect();
    keys.insert("k".repeat(5000), json!("long"));
    keys.insert("\u{2029}".repeat(400), json!("long escaped"));

    let kind = Kind::new(&format!("texts.{}.example.com", test.name()), "v1", "Texts", "texts");
    let spec = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    define(test, &kind, spec).await?;
    let (data, of_keys, api_version) = (texts.clone(), keys.clone(), kind.api_version());
    let webhook = Webhook::serve(move |asked: &Asked| {
        let name = text(&asked.body, "/parent/metadata/name");
        let mut map = config_map(name, json!({}), json!(data));
        map["metadata"]["annotations"] = json!(data);
        let keys = json!({ "apiVersion": api_version, "kind": "Texts", "metadata": { "name": name }, "spec": of_keys });
        json!({ "children": [map, keys] }).into()
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    for apply in STRATEGIES {
        let controller = test.controller().making(&CONFIG_MAP, "InPlace").making(&kind, "InPlace");
        host_with(test, controller, apply, &webhook).await?;
        let map = test.within(&CONFIG_MAP).until(apply, "made", |_| true).await?;
        let of_keys = test.within(&kind).until(apply, "made", |_| true).await?;
        for (key, value) in &texts {
            ensure!(map["data"][key] == *value, "{apply}: data {key}: {value} became {}", map["data"][key]);
            let found = &map["metadata"]["annotations"][key];
            ensure!(found == value, "{apply}: annotation {key}: {value} became {found}");
        }
        ensure!(of_keys["spec"] == json!(keys), "{apply}: {}", of_keys["spec"]);
    }
    Ok(())
}

const STRATEGIES: [&str; 2] = ["dynamic-apply", "server-side-apply"];

/// Hosts a controller with this apply strategy, and makes its parent, which has the strategy's name.
async fn host_with(test: &mut Fixture, controller: Composite, apply: &str, webhook: &Webhook) -> Result<()> {
    let controller = controller
        .renamed(&format!("{}-{apply}", test.name()))
        .of_parents_with("way", apply)
        .with("applyStrategy", apply)
        .synced_by(Hook::webhook(&webhook.url("/sync")));
    test.host(controller).await?;
    test.create(test.parent(apply).labelled("way", apply)).await.map(drop)
}

/// Defines a kind with this schema of its spec.
async fn define(test: &Fixture, kind: &Kind, spec: Value) -> Result<()> {
    let mut definition = acceptance::objects::definition(kind);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    let crd = test.definitions().create(definition).await?;
    let established = |crd: &Value| acceptance::objects::is_true(crd, "Established");
    test.definitions().until(text(&crd, "/metadata/name"), "established", established).await?;
    Ok(())
}

pub(crate) async fn nulls_are_kept_where_the_schema_lets_them_be_under_both_strategies(
    test: &mut Fixture,
) -> Result<()> {
    let kind = Kind::new(&format!("nulls.{}.example.com", test.name()), "v1", "Nulls", "nulls");
    let raw = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({
        "type": "object",
        "properties": {
            "raw": raw,
            "maybe": { "type": "string", "nullable": true },
            "never": { "type": "string" },
            "items": { "type": "array", "items": raw },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
            "list": { "type": "array", "items": { "type": "object", "properties": { "map": { "type": "object", "additionalProperties": { "type": "string" } } } } },
        },
    });
    define(test, &kind, spec).await?;
    let specs = [
        json!({ "raw": { "n": 1, "o": { "p": 1 } }, "maybe": "x", "never": "x", "items": [{ "b": 1 }], "map": { "a": "x" }, "list": [{ "map": { "a": "x" } }] }),
        json!({ "raw": { "n": null, "o": { "p": null } }, "maybe": null, "never": null, "items": [{ "a": null, "b": 1 }], "map": {}, "list": [{ "map": {} }] }),
        json!({ "raw": { "n": 2, "o": { "p": 2 } }, "maybe": "y", "never": "y", "items": [{ "a": 2, "b": null }], "map": { "b": "y" }, "list": [{ "map": { "b": "y" } }] }),
    ];
    let (answers, api_version) = (specs.clone(), kind.api_version());
    let webhook = Webhook::serve(move |asked: &Asked| {
        let name = text(&asked.body, "/parent/metadata/name");
        let round =
            asked.body["parent"]["spec"]["round"].as_u64().and_then(|round| usize::try_from(round).ok());
        let spec = round.and_then(|round| answers.get(round)).unwrap_or(&answers[0]);
        let child =
            json!({ "apiVersion": api_version, "kind": "Nulls", "metadata": { "name": name }, "spec": spec });
        json!({ "children": [child], "status": { "round": asked.body["parent"]["spec"]["round"] } }).into()
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    for apply in STRATEGIES {
        let controller = test.controller().making(&kind, "InPlace");
        host_with(test, controller, apply, &webhook).await?;
        let children = test.within(&kind);
        children.until(apply, "made", |child| child["spec"] == specs[0]).await?;
        for (number, spec) in (0_u32..).zip(&specs).skip(1) {
            let mut expected = spec.clone();
            if expected["never"].is_null() {
                expected.as_object_mut().context("no object")?.remove("never");
            }
            round(test, apply, number).await?;
            children.until(apply, "nulls as answered", |child| child["spec"] == expected).await?;
        }
    }
    Ok(())
}

pub(crate) async fn a_value_that_keeps_flipping_is_named_and_put_right_less_often(
    test: &mut Fixture,
) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "child" }, "data": { "k": "b3Vycw==" },
    });
    let map = config_map("child", json!({}), json!({ "k": "ours" }));
    let webhook = Webhook::answering(json!({ "children": [map, secret] })).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = controller(test, WAYS[0], &webhook);
    let name = format!("{}-{}", test.name(), WAYS[0].name);
    test.host(controller).await?;
    test.create(test.parent("p").labelled("way", WAYS[0].name)).await?;
    let (maps, secrets) = (test.config_maps(), test.within(&SECRET));
    for (place, ours, theirs) in
        [(&maps, json!("ours"), json!("theirs")), (&secrets, json!("b3Vycw=="), json!("dGhlaXJz"))]
    {
        // Put right at once five times.
        for _ in 0..6 {
            place.until("child", "as the hook wants it", |child| child["data"]["k"] == ours).await?;
            place.merge("child", &json!({ "data": { "k": theirs } })).await?;
        }
    }
    let about = |kind: &str| format!("{kind} {}/child is changed back", test.name());
    let of_map = test
        .until_event("p", "ValueFlapping", |event| text(event, "/message").starts_with(&about("ConfigMap")))
        .await?;
    let said = text(&of_map, "/message");
    ensure!(said.contains(r#"data.k ("ours" becomes "theirs", by "#), "{said}");
    let of_secret = test
        .until_event("p", "ValueFlapping", |event| text(event, "/message").starts_with(&about("Secret")))
        .await?;
    let said = text(&of_secret, "/message");
    ensure!(said.contains("data.k") && !said.contains("b3Vycw"), "{said}");
    let unstable = |one: &Value| {
        condition(one, "ChildrenStable")
            .is_some_and(|is| is["status"] == "False" && text(is, "/message").contains("(data.k)"))
    };
    test.controllers().until(&name, "not stable", unstable).await?;
    maps.until("child", "put right in the end", |child| child["data"]["k"] == "ours").await?;
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

pub(crate) async fn two_controllers_of_one_parent_leave_each_others_children_alone(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(|asked: &Asked| {
        let name = asked.path.trim_start_matches('/').to_owned();
        json!({ "children": [config_map(&name, json!({}), json!({}))], "status": {} }).into()
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    test.create(test.parent("p")).await?;
    for name in ["one", "two"] {
        let hook = Hook::webhook(&webhook.url(&format!("/{name}")));
        let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook);
        test.host(controller.renamed(&format!("{}-{name}", test.name()))).await?;
    }
    let maps = test.config_maps();
    let (one, two) = (maps.until("one", "made", |_| true).await?, maps.until("two", "made", |_| true).await?);
    let told = |event: &Value| text(event, "/message").contains("was made by the controller");
    test.until_event("p", "ControllersOverlap", told).await?;
    for number in 1..=3 {
        test.parents().merge("p", &json!({ "spec": { "round": number } })).await?;
        for path in ["/one", "/two"] {
            let about = |asked: &Asked| asked.path == path && asked.body["parent"]["spec"]["round"] == number;
            let asked = webhook.until_asked("about the round", about).await?;
            let seen = asked.body["children"]["ConfigMap.v1"].as_object().context("no children")?;
            ensure!(seen.keys().eq([path.trim_start_matches('/')]), "sees another's: {seen:?}");
        }
    }
    same("left", &one, &maps.get("one").await?)?;
    same("left", &two, &maps.get("two").await?)?;
    // Once the other is no more, what it made is the parent's again, and undesired.
    test.controllers().delete(&format!("{}-two", test.name())).await?;
    test.controllers().until_gone(&format!("{}-two", test.name())).await?;
    test.parents().merge("p", &json!({ "spec": { "round": 4 } })).await?;
    maps.until_gone("two").await
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
