//! The server and its controllers from start to end, also when the server is killed.

use std::collections::BTreeMap;

use acceptance::api::{POD, SERVICE_ACCOUNT};
use acceptance::fixture::{Fixture, guest};
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, condition, has_condition, is_true, text, uid};
use acceptance::webhook::Webhook;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::mounts::reach_as;
use crate::settling::get;

/// A controller of the tutorial, ready.
async fn hosted(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hello-hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hello-hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    Ok(())
}

async fn create(test: &mut Fixture, numbers: std::ops::Range<u32>) -> Result<()> {
    for number in numbers {
        test.create(test.parent(&format!("p{number}")).greeting("World")).await?;
    }
    Ok(())
}

/// Names and uids of all Pods.
async fn pods(test: &Fixture) -> Result<BTreeMap<String, String>> {
    let pods = test.pods().list().await?;
    Ok(pods.iter().map(|pod| (text(pod, "/metadata/name").to_owned(), uid(pod).to_owned())).collect())
}

fn all_kept(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Result<()> {
    for (name, uid) in before {
        ensure!(
            after.get(name) == Some(uid),
            "Pod {name} was {uid} before the kill, is {:?}",
            after.get(name)
        );
    }
    Ok(())
}

/// Killed twice while Pods are made; then once while they are all made anew. There the API server may break off in the
/// middle of a deletion; such a Pod is only gone when the controllers' Pod collector comes by, every 20 seconds.
pub(crate) async fn a_server_killed_in_the_middle_comes_back_without_a_lost_or_doubled_pod(
    test: &mut Fixture,
) -> Result<()> {
    hosted(test).await?;
    create(test, 0..8).await?;
    test.server().kill().await?;
    let first = pods(test).await?;
    create(test, 8..20).await?;

    test.server().start()?;
    let more = |all: &[Value]| all.len() > first.len();
    test.pods().until_all("more than before the kill", more).await?;
    test.server().kill().await?;
    let second = pods(test).await?;
    all_kept(&first, &second)?;

    test.server().start()?;
    let counted = |all: &[Value]| all.len() == 20 && all.iter().all(|parent| parent["status"]["pods"] == 1);
    test.parents().until_all("20 parents with a Pod each", counted).await?;
    let third = pods(test).await?;
    all_kept(&second, &third)?;
    ensure!(third.len() == 20, "{} Pods of 20 parents", third.len());

    for number in 0..20 {
        test.parents().merge(&format!("p{number}"), &json!({ "spec": { "who": "You" } })).await?;
    }
    test.server().kill().await?;
    let middle = test.pods().list().await?;
    test.server().start()?;
    let anew = |pod: &Value| text(pod, "/spec/containers/0/command/1") == "Hello, You!";
    let all_anew = |all: &[Value]| all.len() == 20 && all.iter().all(anew);
    test.pods().until_all("20 Pods made anew", all_anew).await?;
    test.parents().until_all("20 parents with a Pod each", counted).await?;
    let last = pods(test).await?;
    let made = middle.iter().filter(|pod| anew(pod));
    let made = made.map(|pod| (text(pod, "/metadata/name").to_owned(), uid(pod).to_owned())).collect();
    all_kept(&made, &last)
}

pub(crate) async fn sigterm_ends_the_server_with_exit_code_0(test: &mut Fixture) -> Result<()> {
    hosted(test).await?;
    create(test, 0..3).await?;
    let status = test.server().stop().await?;
    ensure!(status.code() == Some(0), "the server ended with {status}");
    test.server().start()?;
    test.pods().until_all("3 Pods", |all| all.len() == 3).await?;
    Ok(())
}

pub(crate) async fn events_tell_that_a_controller_starts_and_stops(test: &mut Fixture) -> Result<()> {
    hosted(test).await?;
    let name = test.name().to_owned();
    let normal =
        |message: String| move |event: &Value| event["type"] == "Normal" && event["message"] == message;
    test.until_controller_event("Starting", normal(format!("Starting controller: {name}"))).await?;
    test.until_controller_event("Started", normal(format!("Started controller: {name}"))).await?;
    test.controllers().delete(&name).await?;
    test.until_controller_event("Stopping", normal(format!("Stopping controller: {name}"))).await?;
    test.until_controller_event("Stopped", normal(format!("Stopped controller: {name}"))).await?;
    Ok(())
}

pub(crate) async fn a_controller_without_the_servers_label_is_left_alone(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hello-hook", &guest("hello")?).await?;
    test.serve()?;
    let other = format!("{}-other", test.name());
    let unlabelled = test.controller().renamed(&other).without_labels().synced_by(test.hook("hello-hook"));
    test.host(unlabelled).await?;
    test.host(test.controller().making(&POD, "Recreate").synced_by(test.hook("hello-hook"))).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    let other = test.controllers().get(&other).await?;
    ensure!(condition(&other, "Ready").is_none(), "it was hosted: {}", other["status"]);
    Ok(())
}

pub(crate) async fn a_controller_without_a_sync_hook_says_so(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().making(&POD, "Recreate")).await?;
    let says = |cc: &Value| has_condition(cc, "Ready", "False", "NoSyncHook");
    test.until_controller("not ready: NoSyncHook", says).await?;
    Ok(())
}

pub(crate) async fn a_limit_above_what_the_server_allows_is_refused_naming_both(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    let hook = test.hook("hello-hook").limited("memory", "1Gi");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    let says = |cc: &Value| has_condition(cc, "Ready", "False", "InvalidSpec");
    let cc = test.until_controller("not ready: InvalidSpec", says).await?;
    let why = condition(&cc, "Ready").map_or("", |ready| text(ready, "/message"));
    ensure!(why.contains("1Gi") && why.contains("512Mi"), "{why}");
    until_warning(test, "1Gi").await
}

/// Waits for a warning about the test's controller in the server's log.
async fn until_warning(test: &mut Fixture, about: &str) -> Result<()> {
    let name = test.name().to_owned();
    let is = |line: &str| line.contains("WARN") && line.contains(&name) && line.contains(about);
    test.server().until_log("the warning", |log| log.lines().any(is)).await.map(drop)
}

pub(crate) async fn a_controller_of_a_kind_that_is_not_served_is_in_the_log(
    test: &mut Fixture,
) -> Result<()> {
    let hook = Webhook::answering(json!({})).await?;
    test.serve()?;
    test.host(test.controller().synced_by(Hook::webhook(&hook.url("/sync")))).await?;
    until_warning(test, "greetings").await
}

/// At rest, a webhook's parents count as settled. Once no server selects the controller, nothing is known of them.
pub(crate) async fn a_controller_that_leaves_the_servers_selection_says_so(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::answering(json!({ "status": { "said": "so" } })).await?;
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().synced_by(Hook::webhook(&hook.url("/sync")))).await?;
    test.create(test.parent("a")).await?;
    let at_rest = |cc: &Value| {
        let status = &cc["status"];
        is_true(cc, "Ready") && status["parents"] == 1 && status["settled"] == 1 && status["failing"] == 0
    };
    let hosted = test.until_controller("one parent at rest", at_rest).await?;
    let labels = hosted["metadata"]["labels"].clone();
    let mut none = labels.clone();
    none.as_object_mut().into_iter().flatten().for_each(|(_, value)| *value = Value::Null);
    let name = test.name().to_owned();
    test.controllers().merge(&name, &json!({ "metadata": { "labels": none } })).await?;
    let left =
        |cc: &Value| has_condition(cc, "Ready", "False", "NotSelected") && cc["status"]["parents"].is_null();
    let left = test.until_controller("not selected, without counts", left).await?;
    ensure!(left["status"]["settled"].is_null() && left["status"]["failing"].is_null(), "{}", left["status"]);
    test.controllers().merge(&name, &json!({ "metadata": { "labels": labels } })).await?;
    test.until_controller("one parent at rest again", at_rest).await?;
    Ok(())
}

/// The definitions of controllers, or the right to list them, may come later: a rollout of the server goes on.
pub(crate) async fn the_server_is_ready_before_controllers_can_be_listed(test: &mut Fixture) -> Result<()> {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "limited" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    reach_as(test, "limited").await?;
    let address = free_address()?;
    test.server().flag(&format!("--health-probe-bind-address={address}"));
    test.serve()?;
    let is_told = |log: &str| log.contains("controllers cannot be listed");
    test.server().until_log("that controllers cannot be listed", is_told).await?;
    let answer = get(address, "/readyz").await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}
