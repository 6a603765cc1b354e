//! Owner references follow the version by which a controller reads its parents.

use acceptance::api::{CONFIG_MAP, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, definition, has_condition, text, uid};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
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

fn controller_of(test: &Fixture, way: &Way) -> String {
    format!("{}-{}", test.name(), way.name)
}

/// A controller for each way over this version, with a parent.
async fn host_each_way(test: &mut Fixture, version: &Kind, webhook: &Webhook) -> Result<()> {
    for way in &WAYS {
        let controller = test.controller().renamed(&controller_of(test, way)).over(version);
        let controller = controller.of_parents_with("way", way.name).making(&CONFIG_MAP, way.method);
        let controller = controller.with("applyStrategy", way.apply);
        test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
        test.create(test.parent(way.name).labelled("way", way.name)).await?;
    }
    Ok(())
}

/// From now on the controller of this way reads its parents in another version.
async fn read_in(test: &Fixture, way: &Way, version: &Kind) -> Result<()> {
    let spec = json!({ "parentResource": { "apiVersion": version.api_version() } });
    test.controllers().merge(&controller_of(test, way), &json!({ "spec": spec })).await.map(drop)
}

pub(crate) async fn owner_references_follow_the_version_of_the_controller(test: &mut Fixture) -> Result<()> {
    let newer = test.kind().clone();
    let older = Kind { version: "v1beta1".to_owned(), ..newer.clone() };
    define(test, &newer, |spec| versions(spec, "v1beta1", true)).await?;
    let webhook = Webhook::serve(child).await?;
    let attachments =
        Webhook::answering(json!({ "attachments": [config_map(DECORATED, json!({}), json!({}))] })).await?;
    test.serve()?;
    host_each_way(test, &older, &webhook).await?;
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
        read_in(test, way, &newer).await?;
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

/// A reference to an owner that does not exist: the garbage collector takes it off, or deletes an object without another owner.
fn missing_owner(kind: &Kind) -> Value {
    let uid = "5f0c8a52-0000-4000-8000-000000000000";
    json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "name": "missing", "uid": uid })
}

/// Gives the child a second owner that does not exist, and waits until the garbage collector has looked at both.
async fn until_collected(maps: &Objects, child: &str, newer: &Kind) -> Result<()> {
    let mut owners = maps.get(child).await?["metadata"]["ownerReferences"].take();
    let owner = owners.clone();
    owners.as_array_mut().context("it has no owner")?.push(missing_owner(newer));
    maps.merge(child, &json!({ "metadata": { "ownerReferences": owners } })).await?;
    let is_alone = |map: &Value| map["metadata"]["ownerReferences"] == owner;
    maps.until(child, "without the owner that does not exist", is_alone).await.map(drop)
}

/// All controllers but the last read in the newer version before the older one is served no longer.
pub(crate) async fn children_stay_when_the_older_version_of_their_owners_goes(
    test: &mut Fixture,
) -> Result<()> {
    let newer = test.kind().clone();
    let older = Kind { version: "v1beta1".to_owned(), ..newer.clone() };
    define(test, &newer, |spec| versions(spec, "v1beta1", true)).await?;
    let maps = test.config_maps();
    let mut orphan = config_map("orphan", json!({}), json!({}));
    orphan["metadata"]["ownerReferences"] = json!([missing_owner(&newer)]);
    test.make(&maps, orphan).await?;
    let webhook = Webhook::serve(child).await?;
    test.serve()?;
    host_each_way(test, &older, &webhook).await?;
    let mut before = Vec::new();
    for way in &WAYS {
        let is = |map: &Value| owner_versions(map) == [older.api_version()];
        before.push(maps.until(way.name, "owned in the older version", is).await?);
    }
    let (late, early) = WAYS.split_last().context("no way")?;
    let is_newer = |map: &Value| owner_versions(map) == [newer.api_version()];
    for way in early {
        read_in(test, way, &newer).await?;
        maps.until(way.name, "owned in the newer version", is_newer).await?;
    }
    let mut spec = definition(&newer)["spec"].take();
    versions(&mut spec, "v1beta1", false);
    let name = format!("{}.{}", newer.plural, newer.group);
    test.definitions().merge(&name, &json!({ "spec": { "versions": spec["versions"] } })).await?;
    let lacks = |cc: &Value| has_condition(cc, "Ready", "False", "KindNotServed");
    test.controllers().until(&controller_of(test, late), "its version is not served", lacks).await?;
    maps.until_gone("orphan").await.context("the garbage collector knows the kind")?;
    for (way, before) in early.iter().zip(&before) {
        until_collected(&maps, way.name, &newer).await?;
        let after = maps.get(way.name).await?;
        ensure!(uid(&after) == uid(before) && after["data"] == before["data"], "{}: {after}", way.name);
        ensure!(after["metadata"]["deletionTimestamp"].is_null(), "{}: {after}", way.name);
    }
    // The garbage collector may have deleted this child, as its owner is not found in the older version.
    read_in(test, late, &newer).await?;
    maps.until(late.name, "owned in the newer version", is_newer).await.map(drop)
}
