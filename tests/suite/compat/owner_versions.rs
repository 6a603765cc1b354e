//! Owner references follow the version by which a controller reads its parents.

use acceptance::api::{CONFIG_MAP, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{config_map, text, uid};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::decorated::{define, sync};
use crate::compat::kinds::Way;

const WAYS: [Way; 5] = [
    Way { name: "left", method: "OnDelete", apply: "dynamic-apply" },
    Way { name: "in-place", method: "InPlace", apply: "dynamic-apply" },
    Way { name: "recreate", method: "Recreate", apply: "dynamic-apply" },
    Way { name: "applied", method: "InPlace", apply: "server-side-apply" },
    Way { name: "applied-left", method: "OnDelete", apply: "server-side-apply" },
];
const DECORATED: &str = "decorated";

fn child(asked: &Asked) -> Answer {
    let name = text(&asked.body, "/parent/metadata/name");
    json!({ "children": [config_map(name, json!({}), json!({ "is": "ours" }))] }).into()
}

/// The kind in both versions; the older one is served or not.
fn versions(spec: &mut Value, older: &str, is_served: bool) {
    let mut first = spec["versions"][0].clone();
    (first["storage"], first["served"]) = (json!(false), json!(is_served));
    first["name"] = json!(older);
    let newer = spec["versions"][0].take();
    spec["versions"] = json!([newer, first]);
}

/// The versions by which a child names its owners.
fn owner_versions(child: &Value) -> Vec<&str> {
    let owners = child.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().map(|owner| text(owner, "/apiVersion")).collect()
}

pub(crate) async fn owner_references_follow_the_version_of_the_controller(test: &mut Fixture) -> Result<()> {
    let newer = test.kind().clone();
    let older = Kind { version: "v1beta1".to_owned(), ..newer.clone() };
    define(test, &newer, |spec| versions(spec, "v1beta1", true)).await?;
    let webhook = Webhook::serve(child).await?;
    let attachments =
        Webhook::answering(json!({ "attachments": [config_map(DECORATED, json!({}), json!({}))] })).await?;
    test.serve()?;
    let named = |test: &Fixture, way: &Way| format!("{}-{}", test.name(), way.name);
    for way in &WAYS {
        let controller = test.controller().renamed(&named(test, way)).over(&older);
        let controller = controller.of_parents_with("way", way.name).making(&CONFIG_MAP, way.method);
        let controller = controller.with("applyStrategy", way.apply);
        test.host(controller.synced_by(acceptance::objects::Hook::webhook(&webhook.url("/sync")))).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
    }
    let rule = json!({ "labelSelector": { "matchLabels": { "way": "left" } } });
    let decorator = test.decorator().decorating(&older, rule).attaching(&CONFIG_MAP, "");
    let decorator = test.host_decorator(decorator.synced_by(sync(&attachments))).await?;
    let maps = test.config_maps();
    let children: Vec<&str> = WAYS.iter().map(|way| way.name).chain([DECORATED]).collect();
    let mut before = Vec::new();
    for child in &children {
        let is = |map: &Value| owner_versions(map) == [older.api_version()];
        before.push(maps.until(child, "owned in the older version", is).await?);
    }
    // A reference of another owner stays as it is.
    let stranger = json!({ "apiVersion": older.api_version(), "kind": newer.kind, "name": "applied", "uid": uid(&test.parents().get("applied").await?) });
    let mut owners = before[1]["metadata"]["ownerReferences"].clone();
    if let Some(owners) = owners.as_array_mut() {
        owners.push(stranger);
    }
    maps.merge("in-place", &json!({ "metadata": { "ownerReferences": owners } })).await?;
    for way in &WAYS {
        let spec = json!({ "parentResource": { "apiVersion": newer.api_version() } });
        test.controllers().merge(&named(test, way), &json!({ "spec": spec })).await?;
    }
    let mut rules = decorator["spec"]["resources"].clone();
    rules[0]["apiVersion"] = json!(newer.api_version());
    let name = text(&decorator, "/metadata/name");
    test.decorators().merge(name, &json!({ "spec": { "resources": rules } })).await?;
    for (child, before) in children.iter().zip(&before) {
        let is = |map: &Value| owner_versions(map).first() == Some(&newer.api_version().as_str());
        let after = maps.until(child, "owned in the newer version", is).await?;
        ensure!(uid(before) == uid(&after) && before["data"] == after["data"], "{child}: {after}");
        let owners = if *child == "in-place" { 2 } else { 1 };
        ensure!(owner_versions(&after).len() == owners, "{child}: {after}");
        if owners == 2 {
            ensure!(owner_versions(&after)[1] == older.api_version(), "a stranger's reference: {after}");
        }
    }
    Ok(())
}
