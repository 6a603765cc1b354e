//! Attacks on children by another hook's module or spec: deletions beyond the threshold wait.

use std::collections::BTreeSet;

use acceptance::api::{CONFIG_MAP, Objects, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true, text, uid};
use acceptance::proxy::{Moment, Proxy, Write};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::attacks::{form, measure};
use crate::pages::symptoms;
use crate::wasm;

const CHILDREN: usize = 10;

fn children() -> Value {
    let child = |nth| config_map(&format!("child-{nth}"), json!({}), json!({}));
    json!({ "children": (0..CHILDREN).map(child).collect::<Vec<_>>() })
}

fn no_children() -> Result<Vec<u8>> {
    wasm::answers(&json!({ "children": [] }))
}

fn is_held(controller: &Value) -> bool {
    has_condition(controller, "DeletionsHeld", "True", "ThresholdExceeded")
        && has_condition(controller, "Ready", "False", "DeletionsHeld")
}

/// Every child settled with the hooks and the spec that run.
fn is_accepted(controller: &Value) -> bool {
    has_condition(controller, "DeletionsHeld", "False", "NothingHeld") && is_true(controller, "Ready")
}

/// The only parent has settled with the first version: no reconcile of that version is to come, whose answer would count.
fn is_settled(controller: &Value) -> bool {
    controller["status"]["settled"] == 1 && is_accepted(controller) && !accepted(controller).is_empty()
}

fn accepted(controller: &Value) -> String {
    text(controller, "/status/deletions/accepted").to_owned()
}

/// The digest that the message about held deletions asks a user to agree to.
fn wanted_consent(controller: &Value) -> Result<String> {
    let held = condition(controller, "DeletionsHeld").context("no condition")?;
    let (_, digest) = text(held, "/message").rsplit_once(": ").context("no digest")?;
    Ok(digest.to_owned())
}

/// Uids of the objects with such names that are not being deleted.
async fn living(place: &Objects, prefix: &str) -> Result<BTreeSet<String>> {
    let all = place.list().await?;
    let lives = all.iter().filter(|child| {
        text(child, "/metadata/name").starts_with(prefix) && child["metadata"]["deletionTimestamp"].is_null()
    });
    Ok(lives.map(|child| uid(child).to_owned()).collect())
}

/// Uids of ConfigMaps that are children.
async fn living_children(test: &Fixture) -> Result<BTreeSet<String>> {
    living(&test.config_maps(), "child-").await
}

/// Waits until deletions are held, or carried out, as without the brake.
async fn until_held(test: &Fixture, place: &Objects, prefix: &str) -> Result<()> {
    until("deletions held", PATIENCE, || async {
        let controller = test.controllers().get(test.name()).await?;
        let ends = is_held(&controller) || living(place, prefix).await?.is_empty();
        Ok(if ends { Ok(()) } else { Err(controller["status"].to_string()) })
    })
    .await
}

/// Creates the parent; gives back its children when it has settled with them.
async fn settled_parent(test: &mut Fixture) -> Result<BTreeSet<String>> {
    test.create(test.parent("a")).await?;
    test.config_maps().until("child-9", "made", |_| true).await?;
    test.until_controller("settled with its first version", is_settled).await?;
    let children = living_children(test).await?;
    ensure!(children.len() == CHILDREN, "{} children", children.len());
    Ok(children)
}

/// A parent with ten ConfigMaps, whose hook then wants none; gives back the children of before.
async fn wrong_module(test: &mut Fixture) -> Result<BTreeSet<String>> {
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&children())?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let before = settled_parent(test).await?;
    test.store("hook", &no_children()?).await?;
    until_held(test, &test.config_maps(), "child-").await?;
    Ok(before)
}

async fn lost(test: &mut Fixture, before: &BTreeSet<String>, bound: usize) -> Result<()> {
    let living = living_children(test).await?;
    let lost = before.difference(&living).count();
    test.at_most("children deleted", number(lost), "children", number(bound))
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

pub(crate) async fn a_wrong_module_deletes_none_of_ten_children_over_restarts(
    test: &mut Fixture,
) -> Result<()> {
    let metrics = measure::with_metrics(test)?;
    let before = wrong_module(test).await?;
    let held = |waits: bool| async move {
        until("parents held in metrics", PATIENCE, || async {
            let held = measure::metric(metrics, "metahook_parents_held")?;
            Ok(if (held >= 1.0) == waits { Ok(()) } else { Err(format!("{held}")) })
        })
        .await
    };
    held(true).await?;
    let told = |event: &Value| {
        let message = text(event, "/message");
        message.contains("10 of the controller's 10 children") && message.contains("ConfigMap")
    };
    lost(test, &before, 0).await?;
    test.until_controller_event("DeletionsHeld", told).await?;
    symptoms::is_shown(test, "would be deleted", &symptoms::controller(test.name())).await?;

    let status = json!({ "status": { "conditions": null } });
    test.server().kill().await?;
    test.controllers().merge_status(test.name(), &status).await?;
    test.server().start()?;
    test.until_controller("deletions held by the next server", is_held).await?;
    lost(test, &before, 0).await?;

    test.store("hook", &wasm::answers(&children())?).await?;
    test.until_controller("the first module accepted", is_accepted).await?;
    held(false).await?;
    lost(test, &before, 0).await
}

pub(crate) async fn a_wrong_module_deletes_at_most_a_fifth_of_many_children(
    test: &mut Fixture,
) -> Result<()> {
    let parents = form(40, 1000);
    test.define_kind().await?;
    test.store("hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    for nth in 0..parents {
        test.create(test.parent(&format!("p{nth}"))).await?;
    }
    let all = |cc: &Value| cc["status"]["settled"] == parents && !accepted(cc).is_empty();
    test.until_controller("settled", all).await?;
    let pods = test.pods();
    let before = living(&pods, "p").await?;
    ensure!(before.len() == parents, "{} Pods", before.len());

    test.store("hook", &no_children()?).await?;
    until_held(test, &pods, "p").await?;
    let deleted = before.difference(&living(&pods, "p").await?).count();
    test.at_most("children deleted at first", number(deleted), "children", number(parents / 5))?;
    test.server().kill().await?;
    test.server().start()?;
    let waits = |cc: &Value| {
        let message = condition(cc, "DeletionsHeld").map_or("", |held| text(held, "/message"));
        is_held(cc) && message.contains(&format!("now {} of the controller's", parents - parents / 5))
    };
    test.until_controller("all others held by the next server", waits).await?;
    let deleted = before.difference(&living(&pods, "p").await?).count();
    test.at_most("children deleted", number(deleted), "children", number(parents / 5))?;

    test.store("hook", &guest("hello")?).await?;
    test.until_controller("the first module accepted", is_accepted).await?;
    pods.until_all("all there again", |all| all.len() == parents).await?;
    let deleted = before.difference(&living(&pods, "p").await?).count();
    test.at_most("children deleted in all", number(deleted), "children", number(parents / 5))
}

pub(crate) async fn held_deletions_go_on_where_a_user_agrees(test: &mut Fixture) -> Result<()> {
    let before = wrong_module(test).await?;
    let controller = test.until_controller("deletions held", is_held).await?;
    let agree =
        |digest: &str| json!({ "metadata": { "annotations": { "metahook.dev/allow-deletions": digest } } });
    test.controllers().merge(test.name(), &agree("another")).await?;
    lost(test, &before, 0).await?;
    test.controllers().merge(test.name(), &agree(&wanted_consent(&controller)?)).await?;
    test.config_maps()
        .until_all("no child", |all| !all.iter().any(|one| text(one, "/metadata/name").starts_with("child-")))
        .await?;
    let was = accepted(&controller);
    let next = |cc: &Value| is_accepted(cc) && accepted(cc) != was;
    test.until_controller("the new module accepted", next).await.map(drop)
}

/// A webhook, and the parent with ten children that it made.
async fn by_webhook(test: &mut Fixture) -> Result<(Webhook, BTreeSet<String>)> {
    test.define_kind().await?;
    let webhook = Webhook::answering(Answer::text(children().to_string())).await?;
    test.serve()?;
    let hook = Hook::webhook(&webhook.url("/before"));
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let before = settled_parent(test).await?;
    Ok((webhook, before))
}

pub(crate) async fn held_reconciles_go_on_when_the_answers_ask_for_less(test: &mut Fixture) -> Result<()> {
    let (webhook, before) = by_webhook(test).await?;
    let says = |status: &str, children: Value| {
        Answer::text(json!({ "status": { "is": status }, "children": children }).to_string())
    };
    webhook.answer(says("wrong", json!([])));
    change_url(test, &webhook).await?;
    test.until_controller("deletions held", is_held).await?;
    let parent = test.parents().get("a").await?;
    ensure!(parent["status"]["is"].is_null(), "a status was written: {parent}");
    webhook.answer(says("right", children()["children"].clone()));
    test.parents().merge("a", &json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    test.parents().until("a", "reconciled", |parent| parent["status"]["is"] == "right").await?;
    test.until_controller("accepted", is_accepted).await?;
    lost(test, &before, 0).await
}

pub(crate) async fn deletions_that_no_change_of_the_hook_brings_about_do_not_wait(
    test: &mut Fixture,
) -> Result<()> {
    let (webhook, before) = by_webhook(test).await?;
    webhook.answer(Answer::text(json!({ "children": [] }).to_string()));
    test.parents().merge("a", &json!({ "spec": { "who": "nobody" } })).await?;
    for nth in 0..CHILDREN {
        test.config_maps().until_gone(&format!("child-{nth}")).await?;
    }
    let left = living_children(test).await?.intersection(&before).count();
    test.at_most("children that a user's change leaves", number(left), "children", 0.0)
}

/// The two ConfigMaps of the parent that a request is about.
fn two_children(asked: &Asked) -> Value {
    let parent = text(&asked.body, "/parent/metadata/name");
    let child = |nth| config_map(&format!("child-{parent}-{nth}"), json!({}), json!({}));
    json!({ "children": [child(0), child(1)] })
}

/// A webhook, and parents with two children each, settled with the first version of their controller; its children.
async fn many_by_webhook(test: &mut Fixture, parents: usize) -> Result<(Webhook, BTreeSet<String>)> {
    test.define_kind().await?;
    let webhook = Webhook::serve(|asked| two_children(asked).into()).await?;
    test.serve()?;
    let hook = Hook::webhook(&webhook.url("/before"));
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook);
    test.host(controller).await?;
    for nth in 0..parents {
        test.create(test.parent(&format!("p{nth}"))).await?;
    }
    let all = |cc: &Value| cc["status"]["settled"] == parents && is_accepted(cc) && !accepted(cc).is_empty();
    test.until_controller("settled", all).await?;
    let before = living_children(test).await?;
    ensure!(before.len() == 2 * parents, "{} children", before.len());
    Ok((webhook, before))
}

/// Changes the controller's spec: its hook has another URL.
async fn change_url(test: &Fixture, webhook: &Webhook) -> Result<()> {
    let spec = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": webhook.url("/after") } } } } });
    test.controllers().merge(test.name(), &spec).await.map(drop)
}

fn is_deletion_of_child(write: &Write) -> bool {
    write.method == Method::DELETE && write.path.contains("/configmaps/child-")
}

/// Waits until the proxy holds a deletion up, or the server holds all others. Gives back whether it is the former.
async fn is_held_up(test: &Fixture, proxy: &Proxy) -> Result<bool> {
    until("a deletion on its way, or all held", PATIENCE, || async {
        if proxy.is_held() {
            return Ok(Ok(true));
        }
        let controller = test.controllers().get(test.name()).await?;
        Ok(if is_held(&controller) { Ok(false) } else { Err(controller["status"].to_string()) })
    })
    .await
}

pub(crate) async fn a_server_that_is_killed_at_each_deletion_deletes_at_most_a_fifth(
    test: &mut Fixture,
) -> Result<()> {
    let parents = form(40, 300);
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    test.server().reach_by(proxy.kubeconfig());
    // Each run of the server is killed at the first deletion; with one reconcile at a time it has counted two by then.
    test.server().flag("--workers=1");
    let (webhook, before) = many_by_webhook(test, parents).await?;
    webhook.answer(json!({ "children": [] }));
    proxy.hold(1, Moment::Before, is_deletion_of_child);
    change_url(test, &webhook).await?;
    let mut kills = 0;
    while is_held_up(test, &proxy).await? {
        test.server().kill().await?;
        kills += 1;
        let moment = if kills % 2 == 0 { Moment::Before } else { Moment::After };
        proxy.hold(1, moment, is_deletion_of_child);
        test.server().start()?;
    }
    proxy.pass();
    test.at_least("kills at deletions", number(kills), "kills", number(form(5, 50)))?;
    let deleted = before.difference(&living_children(test).await?).count();
    test.at_least("children deleted by servers that were killed", number(deleted), "children", 1.0)?;
    test.until_controller("the rest held", is_held).await?;
    lost(test, &before, (2 * parents / 5).max(5)).await
}

/// Changes all parents, so that they are reconciled.
async fn touch(test: &Fixture, parents: usize, label: &str) -> Result<()> {
    for nth in 0..parents {
        let label = json!({ "metadata": { "labels": { "touched": label } } });
        test.parents().merge(&format!("p{nth}"), &label).await?;
    }
    Ok(())
}

pub(crate) async fn a_version_that_answers_well_at_first_deletes_at_most_a_fifth(
    test: &mut Fixture,
) -> Result<()> {
    let parents = form(40, 400);
    let (webhook, before) = many_by_webhook(test, parents).await?;
    change_url(test, &webhook).await?;
    until("all parents asked about by the new URL", PATIENCE, || async {
        let asked = webhook.asked();
        let after = asked.iter().filter(|asked| asked.path == "/after");
        let names: BTreeSet<_> = after.map(|asked| text(&asked.body, "/parent/metadata/name")).collect();
        Ok(if names.len() == parents { Ok(()) } else { Err(format!("{} parents", names.len())) })
    })
    .await?;
    // The first reconcile of a new version may write in vain; with the second one each parent settles.
    touch(test, parents, "first").await?;
    test.until_controller("settled again", |cc| cc["status"]["settled"] == parents).await?;
    webhook.answer(json!({ "children": [] }));
    touch(test, parents, "second").await?;
    until_held(test, &test.config_maps(), "child-").await?;
    test.until_controller("deletions held", is_held).await?;
    lost(test, &before, (2 * parents / 5).max(5)).await
}
