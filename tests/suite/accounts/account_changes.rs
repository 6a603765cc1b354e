//! A controller that gets an account while it runs or is paused.

use acceptance::api::{CONFIG_MAP, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{config_map, has_condition, is_true, text};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kit::{grant, roles, short, until_controller};
use crate::wasm;

/// A hook that asks for one child with a number.
fn answers_number(number: &str) -> Result<Vec<u8>> {
    let child = config_map("child", json!({}), json!({ "number": number }));
    wasm::answers(&json!({ "status": {}, "children": [child] }))
}

fn has_number(number: &'static str) -> impl Fn(&Value) -> bool {
    move |child| child["data"]["number"] == number
}

/// Hosts a controller without an account whose hook, stored under this name, made a child with the number 1; makes the account
/// `greeter`. Returns the controller's name.
async fn numbered_by(test: &mut Fixture, hook: &str) -> Result<String> {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "greeter" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    test.define_kind().await?;
    test.store(hook, &answers_number("1")?).await?;
    test.serve()?;
    let name = short(test);
    let controller = test.controller().renamed(&name).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(test.hook(hook))).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", has_number("1")).await?;
    Ok(name)
}

/// The account is named before it may do anything: until then all stays as it was.
pub(crate) async fn a_controller_goes_on_until_its_new_account_may_start_it(
    test: &mut Fixture,
) -> Result<()> {
    let name = numbered_by(test, "first").await?;
    test.store("second", &answers_number("3")?).await?;

    let place = json!({ "namespace": test.name(), "name": "greeter" });
    let hook = json!({ "sync": { "wasm": { "configMap": { "namespace": test.name(), "name": "second" } } } });
    let spec = json!({ "spec": { "serviceAccountRef": place, "hooks": hook } });
    let changed = test.controllers().merge(&name, &spec).await?;
    let refused =
        format!("User \"system:serviceaccount:{}:greeter\" cannot get resource \"configmaps\"", test.name());
    let says = |event: &Value| text(event, "/message").contains(&refused);
    test.until_event_on(&changed, "RightsMissing", says).await?;
    test.store("first", &answers_number("2")?).await?;
    test.config_maps().until("child", "updated as before", has_number("2")).await?;

    let roles = roles(test, &changed).await?;
    for ends in ["-reads", "-writes", "-hooks"] {
        grant(test, &roles, ends).await?;
    }
    test.config_maps().until("child", "updated by the new account", has_number("3")).await?;
    until_controller(test, "its new spec", |cc| {
        is_true(cc, "Ready") && cc["status"]["observedGeneration"] == cc["metadata"]["generation"]
    })
    .await?;
    Ok(())
}

/// Resumed as another account, a controller stays paused until that one may start it; its first reconcile is the account's.
pub(crate) async fn a_controller_that_is_resumed_as_another_account_is_that_account_at_once(
    test: &mut Fixture,
) -> Result<()> {
    let name = numbered_by(test, "hook").await?;
    let controllers = test.controllers();
    controllers.merge(&name, &json!({ "spec": { "paused": true } })).await?;
    let paused = |cc: &Value| has_condition(cc, "Paused", "True", "ControllerPaused");
    until_controller(test, "paused", paused).await?;
    test.store("hook", &answers_number("2")?).await?;

    let place = json!({ "namespace": test.name(), "name": "greeter" });
    let resumed = json!({ "spec": { "paused": null, "serviceAccountRef": place } });
    let changed = controllers.merge(&name, &resumed).await?;
    test.until_event_on(&changed, "RightsMissing", |_| true).await?;
    // Another change while it waits: it is resumed all the same.
    let changed = controllers.merge(&name, &json!({ "spec": { "resyncPeriodSeconds": 600 } })).await?;
    ensure!(paused(&controllers.get(&name).await?), "it is not paused any more");
    ensure!(test.config_maps().get("child").await?["data"]["number"] == "1", "a child was written");

    let roles = roles(test, &changed).await?;
    for ends in ["-reads", "-hooks"] {
        grant(test, &roles, ends).await?;
    }
    test.until_event_on(&changed, "Resumed", |_| true).await?;
    let refused = format!("User \"system:serviceaccount:{}:greeter\" cannot update", test.name());
    test.until_event("a", "SyncError", |event| text(event, "/message").contains(&refused)).await?;
    ensure!(test.config_maps().get("child").await?["data"]["number"] == "1", "another account wrote");
    grant(test, &roles, "-writes").await?;
    test.config_maps().until("child", "updated by the account", has_number("2")).await.map(drop)
}
