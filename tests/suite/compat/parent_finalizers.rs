//! Section 3 of the compatibility contract: finalizers of parents, and which hook is called while a parent goes.

use std::time::Duration;

use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, text};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::parent_reconcile::{
    FOREIGN, child, finalized, finalizers, hold, is_about, is_going, labelled, let_go, names, synced,
};

fn ours(test: &Fixture) -> String {
    format!("metacontroller.io/compositecontroller-{}", test.name())
}

pub(crate) async fn the_finalizer_comes_first_and_goes_when_the_hook_says_finalized(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "children": [child("a"), child("b")] }).into(),
        // One after the other, and finalized when none is left.
        _ => match names(asked).len() {
            2 => json!({ "children": [child("a")] }).into(),
            1 => json!({ "children": [] }).into(),
            _ => json!({ "children": [child("late")], "finalized": true }).into(),
        },
    };
    let webhook = synced(test, program, finalized).await?;
    test.create(test.parent("p")).await?;
    let ours = ours(test);
    let first = webhook.until_asked("the first time", |_| true).await?;
    ensure!(finalizers(&first.body["parent"]) == [ours.as_str()], "asked about {}", first.body["parent"]);
    ensure!(first.body["finalizing"] == false, "{}", first.body["finalizing"]);
    test.config_maps().until("b", "made", |_| true).await?;
    test.parents().delete("p").await?;
    test.parents().until_gone("p").await?;
    let last = webhook.asked().into_iter().rfind(|asked| asked.path == "/finalize");
    let last = last.ok_or_else(|| anyhow::anyhow!("the finalize hook was never asked"))?;
    ensure!(last.body["finalizing"] == true && names(&last).is_empty(), "{}", last.body);
    ensure!(is_going(&last.body["parent"]), "{}", last.body["parent"]);
    let late = test.config_maps().find("late").await?;
    ensure!(late.is_none(), "children were written in the pass that said finalized");
    Ok(())
}

pub(crate) async fn without_a_finalize_hook_a_parent_that_goes_is_synced_and_keeps_its_children(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match text(&asked.body, "/parent/metadata/deletionTimestamp") {
        "" => json!({ "children": [child("a"), child("b")] }).into(),
        // Not in order, and of no concern any more; the status counts.
        _ => json!({ "children": [labelled("x", "other")], "status": { "going": true } }).into(),
    };
    let webhook = synced(test, program, |c, _| c).await?;
    test.create(test.parent("p")).await?;
    hold(test, "p").await?;
    test.config_maps().until("b", "made", |_| true).await?;
    test.parents().delete("p").await?;
    test.parents().until("p", "has its last status", |p| p["status"]["going"] == true).await?;
    let last = webhook.asked().pop().map(|asked| (asked.path, asked.body["finalizing"].clone()));
    ensure!(last == Some(("/sync".to_owned(), json!(false))), "{last:?}");
    ensure!(test.config_maps().find("x").await?.is_none() && test.config_maps().find("a").await?.is_some());
    let_go(test, "p").await
}

pub(crate) async fn foreground_deletion_asks_the_finalize_hook_and_leaves_children_to_itself(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "children": [child("a")] }).into(),
        _ => json!({ "children": [child("other")], "status": { "asked": true } }).into(),
    };
    let webhook = synced(test, program, finalized).await?;
    test.create(test.parent("p")).await?;
    test.config_maps().until("a", "made", |_| true).await?;
    // The garbage collector waits for it.
    test.config_maps().merge("a", &json!({ "metadata": { "finalizers": [FOREIGN] } })).await?;
    test.parents().delete_in_foreground("p").await?;
    test.parents().until("p", "was asked about", |p| p["status"]["asked"] == true).await?;
    let parent = test.parents().get("p").await?;
    ensure!(finalizers(&parent).contains(&"foregroundDeletion"), "{parent}");
    ensure!(test.config_maps().find("other").await?.is_none(), "children were written");
    webhook.answer(json!({ "finalized": true }));
    test.parents().merge("p", &json!({ "spec": { "more": 1 } })).await?;
    test.parents().until("p", "rid of ours", |p| finalizers(p) == ["foregroundDeletion"]).await?;
    test.config_maps().merge("a", &json!({ "metadata": { "finalizers": null } })).await?;
    test.parents().until_gone("p").await
}

pub(crate) async fn once_our_finalizer_is_off_the_finalize_hook_is_still_asked(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        match asked.path.as_str() {
        "/sync" => json!({ "children": [child("a")] }).into(),
        _ => json!({ "children": [], "finalized": true, "status": { "saw": asked.body["parent"]["spec"].clone() } }).into(),
    }
    };
    let _webhook = synced(test, program, finalized).await?;
    test.create(test.parent("p")).await?;
    test.config_maps().until("a", "made", |_| true).await?;
    hold(test, "p").await?;
    test.parents().delete("p").await?;
    test.parents().until("p", "rid of ours", |p| finalizers(p) == [FOREIGN]).await?;
    test.parents().merge("p", &json!({ "spec": { "more": 1 } })).await?;
    test.parents().until("p", "asked about again", |p| p["status"]["saw"]["more"] == 1).await?;
    let parent = test.parents().get("p").await?;
    ensure!(finalizers(&parent) == [FOREIGN], "a parent that goes got a finalizer: {parent}");
    ensure!(test.config_maps().find("a").await?.is_some(), "children are left to the garbage collector");
    let_go(test, "p").await
}

pub(crate) async fn a_parent_that_stops_matching_is_finalized_while_it_lives(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "children": [child("a"), child("b")] }).into(),
        _ => json!({ "children": [child("b"), child("c")], "finalized": true, "status": { "done": true } })
            .into(),
    };
    let webhook =
        synced(test, program, |c, webhook| finalized(c, webhook).of_parents_with("on", "yes")).await?;
    test.create(test.parent("p").labelled("on", "yes")).await?;
    test.config_maps().until("b", "made", |_| true).await?;
    test.parents().merge("p", &json!({ "metadata": { "labels": { "on": null } } })).await?;
    test.config_maps().until("c", "made by the finalize hook", |_| true).await?;
    test.config_maps().until_gone("a").await?;
    let done = test
        .parents()
        .until("p", "finalized", |p| p["status"]["done"] == true && finalizers(p).is_empty())
        .await?;
    let asked = webhook.count();
    test.parents().merge("p", &json!({ "spec": { "more": 1 } })).await?;
    test.create(test.parent("q").labelled("on", "yes")).await?;
    webhook.until_asked("about another", |asked| is_about(asked, "/sync", "q")).await?;
    let about_p = |asked: &&Asked| asked.body["parent"]["metadata"]["name"] == "p";
    let again = webhook.asked().iter().skip(asked).filter(about_p).count();
    ensure!(again == 0, "asked {again} times about a parent that is finalized: {done}");
    Ok(())
}

pub(crate) async fn a_finalizer_comes_off_with_its_hook_and_with_its_controller(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = synced(test, |_| json!({ "children": [] }).into(), finalized).await?;
    test.create(test.parent("p")).await?;
    let ours = ours(test);
    let has = |p: &Value| finalizers(p) == [ours.as_str()];
    test.parents().until("p", "has ours", has).await?;
    let hooks = json!({ "spec": { "hooks": { "finalize": null } } });
    test.controllers().merge(test.name(), &hooks).await?;
    test.parents().until("p", "rid of ours with the hook", |p| finalizers(p).is_empty()).await?;
    let hook = json!({ "webhook": { "url": webhook.url("/finalize") } });
    test.controllers().merge(test.name(), &json!({ "spec": { "hooks": { "finalize": hook } } })).await?;
    test.parents().until("p", "has ours again", has).await?;
    test.controllers().delete(test.name()).await?;
    test.parents().until("p", "rid of ours with the controller", |p| finalizers(p).is_empty()).await?;
    test.parents().delete("p").await?;
    test.parents().until_gone("p").await
}

pub(crate) async fn a_controller_that_is_made_anew_at_once_waits_for_the_old_one_and_keeps_its_finalizers(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        let answer = Answer::from(json!({ "children": [] }));
        if is_about(asked, "/sync", "slow") { answer.after(Duration::from_secs(2)) } else { answer }
    };
    let webhook = synced(test, program, finalized).await?;
    test.create(test.parent("p")).await?;
    let ours = ours(test);
    test.parents().until("p", "has ours", |p| finalizers(p) == [ours.as_str()]).await?;
    test.create(test.parent("slow")).await?;
    webhook.until_asked("about the slow one", |asked| is_about(asked, "/sync", "slow")).await?;
    let mut controller = test.controllers().get(test.name()).await?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        controller["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    controller["spec"]["resyncPeriodSeconds"] = json!(1);
    test.controllers().delete(test.name()).await?;
    test.controllers().create(controller).await?;
    let before = webhook.count();
    let anew = |asked: &Asked| asked.body["controller"]["spec"]["resyncPeriodSeconds"] == 1;
    webhook.until_asked("by the new one", anew).await?;
    let early = webhook.asked().iter().skip(before).filter(|asked| !anew(asked)).count();
    ensure!(early == 0, "the old one asked {early} times more");
    webhook.until_asked_again(3).await?;
    let parent = test.parents().get("p").await?;
    ensure!(finalizers(&parent) == [ours.as_str()], "{parent}");
    Ok(())
}

pub(crate) async fn a_finalizer_of_a_controller_that_is_gone_for_long_comes_off(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let gone = "metacontroller.io/compositecontroller-gone-for-long";
    let mut parent = test.parent("p").json();
    parent["metadata"]["finalizers"] = json!([gone, FOREIGN]);
    test.make(&test.parents(), parent).await?;
    let webhook = Webhook::answering(json!({ "children": [] })).await?;
    test.serve()?;
    test.host(test.controller().synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    test.parents().until("p", "rid of it", |p| finalizers(p) == [FOREIGN]).await?;
    test.parents().delete("p").await?;
    let_go(test, "p").await
}
