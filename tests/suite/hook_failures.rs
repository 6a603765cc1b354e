//! A hook that fails changes nothing, says why on the parent, and heals when a good module takes its place.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::attacks::finalizers::let_go_as_told;
use crate::compat::decorated::finalizers;
use crate::pages::symptoms;
use crate::wasm;

fn response(number: u32) -> Value {
    let child = config_map("child", json!({}), json!({ "number": number.to_string() }));
    json!({ "status": { "number": number }, "children": [child] })
}

/// A good module, then `bad` in its place, then another good one.
async fn heals(test: &mut Fixture, hook: Hook, bad: &[u8], why: impl Fn(&str) -> bool) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&response(1))?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    let child = test.config_maps().until("child", "made", |_| true).await?;
    let parent = test.parents().until("a", "its status", |parent| parent["status"]["number"] == 1).await?;

    test.store("hook", bad).await?;
    let says_why = |event: &Value| {
        let message = text(event, "/message");
        message.starts_with("Sync error: ") && why(&message.to_lowercase()) && event["type"] == "Warning"
    };
    let event = test.until_event("a", "SyncError", &says_why).await?;
    let again = |event: &Value| says_why(event) && event["count"].as_u64() > Some(1);
    test.until_event("a", "SyncError", again).await?;
    ensure!(text(&event, "/source/component") == "metacontroller", "from {}", event["source"]);
    let fails =
        |cc: &Value| has_condition(cc, "Ready", "False", "AllParentsFailing") && cc["status"]["failing"] == 1;
    let ready = |cc: &Value| condition(cc, "Ready").map(|it| text(it, "/message").to_lowercase());
    let cc = test.until_controller("one parent failing", fails).await?;
    ensure!(ready(&cc).is_some_and(|message| why(&message)), "{:?}", ready(&cc));
    let same_child = test.config_maps().get("child").await?;
    let same_parent = test.parents().get("a").await?;
    ensure!(version(&same_child) == version(&child), "the child was written: {same_child}");
    ensure!(version(&same_parent) == version(&parent), "the parent was written: {same_parent}");

    test.store("hook", &wasm::answers(&response(2))?).await?;
    let healed = |child: &Value| child["data"]["number"] == "2";
    let changed = test.config_maps().until("child", "as the good module wants it", healed).await?;
    ensure!(uid(&changed) == uid(&child), "the child was made anew");
    test.parents().until("a", "its next status", |parent| parent["status"]["number"] == 2).await?;
    let heals = |cc: &Value| {
        cc["status"]["failing"] == 0 && !has_condition(cc, "Ready", "False", "AllParentsFailing")
    };
    test.until_controller("no parent failing", heals).await?;
    Ok(())
}

pub(crate) async fn a_hook_that_traps_changes_nothing_and_heals(test: &mut Fixture) -> Result<()> {
    let traps = |why: &str| why.contains("trap") || why.contains("unreachable");
    heals(test, test.hook("hook"), &wasm::traps()?, traps).await
}

pub(crate) async fn a_hook_that_loops_is_ended_by_its_timeout_and_heals(test: &mut Fixture) -> Result<()> {
    let hook = test.hook("hook").limited("timeout", "200ms").limited("instructions", 100_000_000_000_u64);
    heals(test, hook, &wasm::loops()?, |why| why.contains("limits.timeout") && why.contains("0.2s")).await
}

pub(crate) async fn a_hook_that_loops_is_ended_by_its_instructions_and_heals(
    test: &mut Fixture,
) -> Result<()> {
    let hook = test.hook("hook").limited("instructions", 1_000_000);
    heals(test, hook, &wasm::loops()?, |why| why.contains("instructions") && why.contains("1000000")).await
}

pub(crate) async fn a_hook_that_prints_nothing_changes_nothing_and_heals(test: &mut Fixture) -> Result<()> {
    let nothing = |why: &str| why.contains("nothing") || why.contains("empty");
    heals(test, test.hook("hook"), &wasm::prints("")?, nothing).await
}

pub(crate) async fn a_hook_that_prints_no_json_changes_nothing_and_heals(test: &mut Fixture) -> Result<()> {
    heals(test, test.hook("hook"), &wasm::prints("Hello, World!")?, |why| why.contains("json")).await
}

pub(crate) async fn a_hook_that_prints_more_than_json_changes_nothing_and_heals(
    test: &mut Fixture,
) -> Result<()> {
    let twice = format!("{}{}", response(1), response(1));
    heals(test, test.hook("hook"), &wasm::prints(&twice)?, |why| why.contains("trailing")).await
}

pub(crate) async fn a_hook_that_prints_too_much_changes_nothing_and_heals(test: &mut Fixture) -> Result<()> {
    let hook = test.hook("hook").limited("output", "1Ki");
    let much = json!({ "children": [], "status": { "text": "x".repeat(2000) } });
    heals(test, hook, &wasm::answers(&much)?, |why| why.contains("output") && why.contains("1ki")).await
}

pub(crate) async fn a_hook_that_exits_with_3_changes_nothing_and_heals(test: &mut Fixture) -> Result<()> {
    let code = wasm::EXIT_CODE.to_string();
    heals(test, test.hook("hook"), &wasm::exits()?, |why| why.contains("exit") && why.contains(&code)).await
}

/// The controller runs all the while, and goes on with other parents.
pub(crate) async fn a_parent_whose_finalize_hook_fails_for_long_is_told_how_to_go(
    test: &mut Fixture,
) -> Result<()> {
    let fails = |asked: &Asked| match asked.path.as_str() {
        "/finalize" => Answer::text("the database is gone").with_status(500),
        _ => json!({ "children": [], "status": { "number": 1 } }).into(),
    };
    let webhook = Webhook::serve(fails).await?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    test.create(test.parent("p")).await?;
    test.parents().until("p", "has a finalizer", |parent| finalizers(parent).len() == 1).await?;
    test.parents().delete("p").await?;
    let says = |event: &Value| {
        let message = text(event, "/message");
        event["type"] == "Warning" && message.contains("which cannot clean up") && message.contains("500")
    };
    let event = test.until_event("p", "FinalizerWaits", says).await?;
    symptoms::is_shown(test, "FinalizerWaits", &symptoms::parent(test, "p")).await?;
    test.until_controller("p fails", |cc| has_condition(cc, "Ready", "False", "AllParentsFailing")).await?;
    test.create(test.parent("q")).await?;
    test.parents().until("q", "its status", |parent| parent["status"]["number"] == 1).await?;
    let_go_as_told(test, &event).await?;
    test.until_controller("no parent fails", |cc| has_condition(cc, "Ready", "True", "Running"))
        .await
        .map(drop)
}
