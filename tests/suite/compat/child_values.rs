//! Section 4 of the compatibility contract: the values in children, which arrive as the hook answered them: lists, texts
//! and nulls.

use acceptance::api::{CONFIG_MAP, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, config_map, text};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::child_management::round;

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
