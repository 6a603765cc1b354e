//! Section 3 of the compatibility contract: which parents are looked at, which hook is asked, finalizers, claims, labels,
//! status.

use std::time::Duration;

use acceptance::api::{CONFIG_MAP, Kind, POD};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, config_map, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

const FOREIGN: &str = "example.com/foreign";

/// A controller of `ConfigMap`s with a sync webhook.
async fn synced(
    test: &mut Fixture,
    program: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    change: impl FnOnce(Composite, &Webhook) -> Composite,
) -> Result<Webhook> {
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    let controller = change(controller.synced_by(Hook::webhook(&webhook.url("/sync"))), &webhook);
    test.host(controller).await?;
    Ok(webhook)
}

fn finalized(controller: Composite, webhook: &Webhook) -> Composite {
    controller.finalized_by(Hook::webhook(&webhook.url("/finalize")))
}

fn child(name: &str) -> Value {
    config_map(name, json!({}), json!({ "is": name }))
}

fn labelled(name: &str, app: &str) -> Value {
    config_map(name, json!({ "app": app }), json!({ "is": name }))
}

fn ours(test: &Fixture) -> String {
    format!("metacontroller.io/compositecontroller-{}", test.name())
}

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn names(asked: &Asked) -> Vec<&str> {
    let children = asked.body["children"]["ConfigMap.v1"].as_object();
    children.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

fn is_going(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn is_about(asked: &Asked, path: &str, parent: &str) -> bool {
    asked.path == path && asked.body["parent"]["metadata"]["name"] == parent
}

/// A foreign finalizer holds the parent; the test removes it at its end.
async fn hold(test: &Fixture, parent: &str) -> Result<()> {
    let held = test.parents().get(parent).await?;
    let all: Vec<_> = finalizers(&held).into_iter().chain([FOREIGN]).collect();
    test.parents().merge(parent, &json!({ "metadata": { "finalizers": all } })).await?;
    Ok(())
}

async fn let_go(test: &Fixture, parent: &str) -> Result<()> {
    let held = test.parents().get(parent).await?;
    let all: Vec<_> = finalizers(&held).into_iter().filter(|one| *one != FOREIGN).collect();
    test.parents().merge(parent, &json!({ "metadata": { "finalizers": all } })).await?;
    test.parents().until_gone(parent).await
}

pub(crate) async fn a_parent_is_reconciled_while_its_labels_match_and_then_left(
    test: &mut Fixture,
) -> Result<()> {
    let answer = |asked: &Asked| {
        let name = text(&asked.body, "/parent/metadata/name").to_owned();
        json!({ "children": [child(&name)], "status": { "seen": true } }).into()
    };
    let webhook = synced(test, answer, |c, _| c.of_parents_with("on", "yes")).await?;
    test.create(test.parent("off")).await?;
    test.create(test.parent("on").labelled("on", "yes")).await?;
    let made = test.config_maps().until("on", "made", |_| true).await?;
    ensure!(!webhook.asked().iter().any(|asked| is_about(asked, "/sync", "off")), "asked about the other");
    test.parents().merge("off", &json!({ "metadata": { "labels": { "on": "yes" } } })).await?;
    test.config_maps().until("off", "made once it matches", |_| true).await?;
    test.parents().merge("on", &json!({ "metadata": { "labels": { "on": null } } })).await?;
    // What comes after is told of in order: by then the change above has been seen.
    test.parents().merge("off", &json!({ "spec": { "more": 1 } })).await?;
    webhook.until_asked("about the change", |asked| asked.body["parent"]["spec"]["more"] == 1).await?;
    let still = test.config_maps().get("on").await?;
    ensure!(
        version(&still) == version(&made),
        "the children of a parent that no longer matches were touched"
    );
    Ok(())
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

pub(crate) async fn a_parent_with_no_valid_selector_is_an_error_until_it_goes(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "children": [labelled("a", "p")] }).into(),
        _ => json!({ "children": [], "finalized": names(asked).is_empty() }).into(),
    };
    let webhook = synced(test, program, |c, webhook| finalized(c, webhook).by_own_selectors()).await?;
    test.create(test.parent("none")).await?;
    let says = |event: &Value| text(event, "/message").contains("spec.selector");
    test.until_event("none", "SyncError", says).await?;
    ensure!(webhook.count() == 0, "asked about a parent without a selector");
    test.create(test.parent("p").selecting("app", "p")).await?;
    test.config_maps().until("a", "made", |_| true).await?;
    test.parents().merge("p", &json!({ "spec": { "selector": { "matchLabels": 7 } } })).await?;
    test.until_event("p", "SyncError", says).await?;
    test.parents().delete("p").await?;
    test.parents().until_gone("p").await?;
    test.config_maps().until_gone("a").await
}

pub(crate) async fn claims_follow_owner_labels_and_deletion(test: &mut Fixture) -> Result<()> {
    // The parent wants what it has, less what is marked.
    let program = |asked: &Asked| {
        let have = names(asked).into_iter().filter(|name| *name != "unwanted");
        json!({ "children": have.map(|name| labelled(name, "p")).collect::<Vec<_>>() }).into()
    };
    let webhook = synced(test, program, |c, _| c.by_own_selectors()).await?;
    let place = test.config_maps();
    let owner = test.make(&place, child("owner")).await?;
    let other = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner), "controller": true,
    }]);
    for object in [labelled("adopted", "p"), labelled("unwanted", "p"), labelled("stranger", "other")] {
        test.make(&place, object).await?;
    }
    let mut foreign = labelled("foreign", "p");
    foreign["metadata"]["ownerReferences"] = other.clone();
    let mut going = labelled("going", "p");
    going["metadata"]["finalizers"] = json!([FOREIGN]);
    // What a decorator made is left to it as long as it exists, under whatever server.
    let decorator = format!("{}-d", test.name());
    test.host_decorator(test.decorator().renamed(&decorator).without_labels()).await?;
    let mut attached = labelled("attached", "p");
    attached["metadata"]["annotations"] = json!({ "metacontroller.k8s.io/decorator-controller": decorator });
    for object in [foreign, going, attached] {
        test.make(&place, object).await?;
    }
    place.delete("going").await?;
    test.create(test.parent("p").selecting("app", "p")).await?;
    let adopted =
        place.until("adopted", "adopted", |one| one["metadata"]["ownerReferences"].is_array()).await?;
    let parent = test.parents().get("p").await?;
    let reference = json!([{
        "apiVersion": test.kind().api_version(), "kind": test.kind().kind, "name": "p", "uid": uid(&parent),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    ensure!(adopted["metadata"]["ownerReferences"] == reference, "{adopted}");
    place.until_gone("unwanted").await?;
    let asked = webhook.until_asked("with the adopted", |asked| names(asked).contains(&"adopted")).await?;
    ensure!(names(&asked) == ["adopted", "unwanted"], "{:?}", names(&asked));
    place.merge("adopted", &json!({ "metadata": { "labels": { "app": "other" } } })).await?;
    let free = |one: &Value| one["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
    place.until("adopted", "released", free).await?;
    ensure!(place.get("foreign").await?["metadata"]["ownerReferences"] == other);
    for left in ["stranger", "going", "attached"] {
        ensure!(free(&place.get(left).await?), "{left} was adopted");
    }
    place.merge("going", &json!({ "metadata": { "finalizers": null } })).await?;
    Ok(())
}

pub(crate) async fn a_parent_that_goes_neither_adopts_nor_releases(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| {
        let count = names(asked).len();
        let status = json!({ "children": count, "going": is_going(&asked.body["parent"]) });
        json!({ "children": [labelled("a", "p"), labelled("b", "p")], "status": status }).into()
    };
    let _webhook = synced(test, program, |c, _| c.by_own_selectors()).await?;
    test.create(test.parent("p").selecting("app", "p")).await?;
    test.parents().until("p", "has two", |p| p["status"]["children"] == 2).await?;
    hold(test, "p").await?;
    test.parents().delete("p").await?;
    // The server knows, too: else it releases what stops to match.
    test.parents().until("p", "going", |p| p["status"]["going"] == true).await?;
    test.config_maps().merge("a", &json!({ "metadata": { "labels": { "app": "x" } } })).await?;
    test.parents().until("p", "one stopped matching", |p| p["status"]["children"] == 1).await?;
    test.make(&test.config_maps(), labelled("orphan", "p")).await?;
    test.config_maps().merge("a", &json!({ "metadata": { "labels": { "app": "p" } } })).await?;
    test.parents().until("p", "it matches again", |p| p["status"]["children"] == 2).await?;
    let orphan = test.config_maps().get("orphan").await?;
    ensure!(orphan["metadata"].get("ownerReferences").is_none(), "{orphan}");
    let_go(test, "p").await
}

pub(crate) async fn a_child_that_does_not_match_refuses_the_whole_answer(test: &mut Fixture) -> Result<()> {
    let answer = |asked: &Asked| {
        let bad = asked.body["parent"]["spec"]["bad"] == true;
        json!({ "children": [labelled("a", "p"), labelled("b", if bad { "x" } else { "p" })], "status": { "bad": bad } }).into()
    };
    let _webhook = synced(test, answer, |c, _| c.by_own_selectors()).await?;
    let mut parent = test.parent("p").selecting("app", "p").json();
    parent["spec"]["bad"] = json!(true);
    test.make(&test.parents(), parent).await?;
    let says = |event: &Value| text(event, "/message").contains("don't match parent selector");
    test.until_event("p", "SyncError", says).await?;
    ensure!(test.config_maps().find("a").await?.is_none(), "a child was written");
    ensure!(test.parents().get("p").await?.get("status").is_none(), "the status was written");
    test.parents().merge("p", &json!({ "spec": { "bad": false } })).await?;
    let a = test.config_maps().until("a", "made", |_| true).await?;
    ensure!(a["metadata"]["labels"] == json!({ "app": "p" }), "labels were added: {a}");
    Ok(())
}

pub(crate) async fn the_status_is_replaced_whole_written_beside_failures_and_not_without_need(
    test: &mut Fixture,
) -> Result<()> {
    let answer = |asked: &Asked| match text(&asked.body, "/parent/spec/mode") {
        "fails" => json!({ "status": { "a": 2, "observedGeneration": 77 }, "children": [
            // The API server refuses it: a ConfigMap's data are texts.
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "bad" }, "data": { "a": 1 } },
            child("good"),
        ] })
        .into(),
        "none" => json!({ "children": [child("good")] }).into(),
        _ => json!({ "status": { "a": 1, "b": 1 }, "children": [] }).into(),
    };
    let webhook = synced(test, answer, |c, _| c.resyncing_each_second()).await?;
    test.create(test.parent("p")).await?;
    let first = json!({ "a": 1, "b": 1, "observedGeneration": 1 });
    let settled = test.parents().until("p", "its status", |p| p["status"] == first).await?;
    webhook.until_asked_again(3).await?;
    let still = test.parents().get("p").await?;
    ensure!(version(&still) == version(&settled), "written without need: {still}");
    test.parents().merge("p", &json!({ "spec": { "mode": "fails" } })).await?;
    let second = json!({ "a": 2, "observedGeneration": 2 });
    test.parents().until("p", "its status beside a failure", |p| p["status"] == second).await?;
    test.config_maps().until("good", "made beside a failure", |_| true).await?;
    test.until_event("p", "SyncError", |event| text(event, "/message").contains("bad")).await?;
    test.parents().merge("p", &json!({ "spec": { "mode": "none" } })).await?;
    let third = json!({ "observedGeneration": 3 });
    test.parents().until("p", "no status", |p| p["status"] == third).await?;
    Ok(())
}

pub(crate) async fn unmanaged_children_of_webhooks_are_created_once_and_reported(
    test: &mut Fixture,
) -> Result<()> {
    let place = test.name().to_owned();
    let answer = move |_: &Asked| {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "unmanaged" } });
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1,
            "metadata": { "name": format!("unmanaged-{place}") },
        });
        json!({ "children": [secret, class, child("kept")], "status": { "n": 1 } }).into()
    };
    let priority = Kind::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
    let secret = Kind::new("", "v1", "Secret", "secrets");
    let webhook = synced(test, answer, |c, _| c.making(&POD, "InPlace")).await?;
    test.create(test.parent("p")).await?;
    test.within(&secret).until("unmanaged", "made", |_| true).await?;
    let name = format!("unmanaged-{}", test.name());
    test.everywhere(&priority).until(&name, "made", |_| true).await?;
    test.config_maps().until("kept", "made", |_| true).await?;
    for says in
        ["a v1 Secret, which the controller's spec does not declare", "a scheduling.k8s.io/v1 PriorityClass"]
    {
        test.until_event("p", "UnmanagedChild", |event| text(event, "/message").contains(says)).await?;
    }
    test.parents().until("p", "synced", |p| p["status"]["n"] == 1).await?;
    test.parents().merge("p", &json!({ "spec": { "more": 1 } })).await?;
    let more = |asked: &Asked| asked.body["parent"]["spec"]["more"] == 1;
    webhook.until_asked("once more", more).await?;
    test.create(test.parent("q")).await?;
    test.parents().until("q", "synced after it", |q| q["status"]["n"] == 1).await?;
    let times = webhook.asked().iter().filter(|asked| more(asked)).count();
    ensure!(times <= 2, "asked {times} times: what is there already is no failure");
    test.everywhere(&priority).delete(&name).await
}

pub(crate) async fn a_built_in_kind_with_a_status_can_be_a_parent(test: &mut Fixture) -> Result<()> {
    let ingress = Kind::new("networking.k8s.io", "v1", "Ingress", "ingresses");
    let address = json!({ "ip": "192.0.2.1", "ipMode": "VIP" });
    let status = json!({ "loadBalancer": { "ingress": [address] } });
    let webhook = Webhook::answering(json!({ "children": [child("of-ingress")], "status": status })).await?;
    test.serve()?;
    let controller = test.controller().over(&ingress).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    let parents = test.within(&ingress);
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let parent = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "p" },
        "spec": { "defaultBackend": backend },
    });
    test.make(&parents, parent).await?;
    test.config_maps().until("of-ingress", "made", |_| true).await?;
    let told = |p: &Value| p["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1";
    let told = parents.until("p", "its status", told).await?;
    ensure!(told["spec"]["defaultBackend"] == backend, "the spec was touched: {told}");
    Ok(())
}
