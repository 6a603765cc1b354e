//! Faults of single children in the answers of webhooks: the other children are written all the same, as with Metacontroller.

use acceptance::api::{CONFIG_MAP, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text, uid, version};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::compat::customize::define_cluster_scoped;

const SCALER: &str = "HorizontalPodAutoscaler";

fn child(name: &str) -> Value {
    config_map(name, json!({}), json!({ "is": name }))
}

fn scaler(version: &str, name: &str, max: u32) -> Value {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "none" });
    json!({
        "apiVersion": format!("autoscaling/{version}"), "kind": SCALER, "metadata": { "name": name },
        "spec": { "maxReplicas": max, "scaleTargetRef": target },
    })
}

fn has_message(says: &str) -> impl Fn(&Value) -> bool {
    move |event| text(event, "/message").contains(says)
}

pub(crate) async fn annotations_that_are_no_strings_are_left_out_and_told_of(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        let mut odd = child("odd");
        odd["metadata"]["annotations"] = json!({ "said": "yes" });
        if asked.body["parent"]["spec"]["mode"] == "null" {
            odd["metadata"]["annotations"]["gone"] = Value::Null;
            odd["data"]["is"] = json!("changed");
        }
        json!({ "children": [odd, child("fine")], "status": { "n": 1 } }).into()
    };
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    let p = test.create(test.parent("p")).await?;
    let said = |map: &Value| map["metadata"]["annotations"]["said"] == "yes";
    test.config_maps().until("odd", "annotated", said).await?;
    test.parents().merge("p", &json!({ "spec": { "mode": "null" } })).await?;
    let is_changed = |map: &Value| map["data"]["is"] == "changed" && !said(map);
    test.config_maps().until("odd", "changed, without annotations", is_changed).await?;
    let says = "children[0].metadata.annotations[\"gone\"] must be a string, not null";
    test.until_event_on(&p, "AnnotationsLeftOut", has_message(says)).await?;
    test.parents().until("p", "its status", |p| p["status"]["n"] == 1).await?;
    Ok(())
}

pub(crate) async fn a_child_in_another_version_is_created_once_and_its_copy_left(
    test: &mut Fixture,
) -> Result<()> {
    let scalers = Kind::new("autoscaling", "v2", SCALER, "horizontalpodautoscalers");
    let program = |asked: &Asked| {
        let mode = asked.body["parent"]["spec"]["mode"].clone();
        let children = match mode.as_str() {
            Some("other") => vec![scaler("v1", "kept", 7), scaler("v1", "made", 7), child("beside")],
            Some("none") => vec![],
            _ => vec![scaler("v2", "kept", 3)],
        };
        json!({ "children": children, "status": { "mode": mode } }).into()
    };
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&scalers, "InPlace").making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    let p = test.create(test.parent("p")).await?;
    let place = test.within(&scalers);
    let kept = place.until("kept", "made", |_| true).await?;
    test.parents().merge("p", &json!({ "spec": { "mode": "other" } })).await?;
    let made = place.until("made", "made in the other version", |_| true).await?;
    test.config_maps().until("beside", "made beside it", |_| true).await?;
    let says = "is a autoscaling/v1 HorizontalPodAutoscaler, and the controller's spec declares it as autoscaling/v2";
    test.until_event_on(&p, "UnmanagedChild", has_message(says)).await?;
    test.parents().until("p", "synced", |p| p["status"]["mode"] == "other").await?;
    test.parents().merge("p", &json!({ "spec": { "more": 1 } })).await?;
    webhook.until_asked("once more", |asked| asked.body["parent"]["spec"]["more"] == 1).await?;
    // Once another parent has settled, so has this one.
    test.create(test.parent("q").with(json!({ "mode": "none" }))).await?;
    test.parents().until("q", "synced after it", |q| !q["status"].is_null()).await?;
    let now = place.get("kept").await?;
    ensure!(now["spec"]["maxReplicas"] == 3 && uid(&now) == uid(&kept), "it was touched: {now}");
    ensure!(uid(&place.get("made").await?) == uid(&made), "it was made anew");
    test.parents().merge("p", &json!({ "spec": { "mode": "none" } })).await?;
    place.until_gone("kept").await.and(place.until_gone("made").await)
}

pub(crate) async fn a_child_without_its_namespace_fails_alone(test: &mut Fixture) -> Result<()> {
    let home = test.name().to_owned();
    let program = move |asked: &Asked| {
        let mut lost = child("lost");
        let mut fine = child("fine");
        fine["metadata"]["namespace"] = json!(home);
        if asked.body["parent"]["spec"]["mode"] == "lost" {
            fine["data"]["is"] = json!("changed");
        } else {
            lost["metadata"]["namespace"] = json!(home);
        }
        json!({ "children": [lost, fine], "status": { "n": 1 } }).into()
    };
    let webhook = Webhook::serve(program).await?;
    let kind = Kind::new(&format!("wide.{}", test.kind().group), "v1", "Greeting", "greetings");
    define_cluster_scoped(test, &kind).await?;
    test.serve()?;
    let controller = test.controller().over(&kind).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    let parents = test.everywhere(&kind);
    let parent = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": "p" }, "spec": {},
    });
    let p = test.make(&parents, parent).await?;
    let lost = test.config_maps().until("lost", "made", |_| true).await?;
    parents.merge("p", &json!({ "spec": { "mode": "lost" } })).await?;
    test.config_maps().until("fine", "changed", |map| map["data"]["is"] == "changed").await?;
    let says = "children[0].metadata.namespace is missing";
    test.until_event_on(&p, "SyncError", has_message(says)).await?;
    parents.until("p", "its status beside the failure", |p| p["status"]["observedGeneration"] == 2).await?;
    ensure!(version(&test.config_maps().get("lost").await?) == version(&lost), "the lost one was touched");
    Ok(())
}
