//! Pause: no hook is called for a parent or a controller that is paused, nothing is written, and all is caught up afterwards.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, text};
use acceptance::server::Server;
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::compat::decorated;
use crate::compat::rolling_update::{asks_for, have, rolling};
use crate::leader_election::{elect, until_leads, until_stands_by};
use crate::wasm;

const PAUSED: &str = "metahook.dev/paused";

/// Runs a command of the program against the test's cluster: `kubectl` plugins and people do the same.
async fn command(test: &mut Fixture, words: &[&str]) -> Result<String> {
    // Other tests have parents of the same names.
    let full = |word: &&str| match *word {
        kind @ "greetings" => format!("{kind}.{}", test.kind().group),
        word => word.to_owned(),
    };
    let words: Vec<_> = words.iter().map(full).collect();
    let namespace = test.name().to_owned();
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let reach = ["--kubeconfig", &kubeconfig, "--namespace", &namespace];
    let all: Vec<_> = words.iter().map(String::as_str).chain(reach).collect();
    Ok(test.server().run(&all).await?.0)
}

/// A child of the parent's name with its `who`; a finalize hook that is done at once.
fn greets(asked: &Asked) -> Answer {
    let parent = &asked.body["parent"];
    let name = format!("{}-child", text(parent, "/metadata/name"));
    let child = config_map(&name, json!({}), json!({ "who": parent["spec"]["who"] }));
    match asked.path.as_str() {
        "/finalize" => json!({ "children": [], "finalized": true }).into(),
        _ => json!({ "children": [child], "status": {} }).into(),
    }
}

async fn greeting(test: &mut Fixture) -> Result<Webhook> {
    let webhook = Webhook::serve(greets).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync")));
    test.host(controller.finalized_by(Hook::webhook(&webhook.url("/finalize")))).await?;
    Ok(webhook)
}

async fn says(test: &Fixture, parent: &str, who: &str) -> Result<()> {
    test.parents().merge(parent, &json!({ "spec": { "who": who } })).await.map(drop)
}

async fn until_greeted(test: &Fixture, parent: &str, who: &str) -> Result<Value> {
    let greets = |child: &Value| child["data"]["who"] == who;
    test.config_maps().until(&format!("{parent}-child"), &format!("greets {who}"), greets).await
}

fn asked_about(webhook: &Webhook, parent: &str) -> usize {
    let is_about = |asked: &&Asked| text(&asked.body, "/parent/metadata/name") == parent;
    webhook.asked().iter().filter(is_about).count()
}

fn message<'a>(controller: &'a Value, kind: &str) -> &'a str {
    condition(controller, kind).map_or("", |condition| text(condition, "/message"))
}

pub(crate) async fn a_paused_parent_stays_as_it_is_and_its_deletion_waits(test: &mut Fixture) -> Result<()> {
    let webhook = greeting(test).await?;
    for name in ["a", "b"] {
        test.create(test.parent(name).greeting("one")).await?;
        until_greeted(test, name, "one").await?;
    }
    let said = command(test, &["pause", "greetings", "a"]).await?;
    ensure!(said.contains("is paused: no hook is called"), "{said}");
    test.until_event("a", "Paused", |event| event["type"] == "Normal").await?;
    let one = |cc: &Value| {
        cc["status"]["paused"] == 1
            && has_condition(cc, "Paused", "True", "ParentsPaused")
            && has_condition(cc, "Ready", "True", "Running")
    };
    let cc = test.until_controller("one parent paused", one).await?;
    ensure!(message(&cc, "Paused").ends_with("/a"), "{}", message(&cc, "Paused"));
    let asked = asked_about(&webhook, "a");

    // Its spec and its child change, then another parent's: what comes of that one was decided later.
    test.config_maps().merge("a-child", &json!({ "data": { "who": "drift" } })).await?;
    says(test, "a", "two").await?;
    says(test, "b", "two").await?;
    until_greeted(test, "b", "two").await?;
    test.parents().delete("a").await?;
    let waits = |event: &Value| text(event, "/message").contains("is being deleted, and waits");
    test.until_event("a", "Paused", waits).await?;
    says(test, "b", "three").await?;
    until_greeted(test, "b", "three").await?;
    ensure!(test.parents().find("a").await?.is_some(), "a paused parent was let go");
    ensure!(test.config_maps().get("a-child").await?["data"]["who"] == "drift", "its child was written");
    ensure!(asked_about(&webhook, "a") == asked, "its hooks were asked");

    // A value that says nothing pauses, too, and is named.
    let unclear = json!({ "metadata": { "annotations": { PAUSED: "yes" } } });
    test.parents().merge("b", &unclear).await?;
    let named = |event: &Value| text(event, "/message").contains("is \"yes\"");
    test.until_event("b", "PauseUnclear", named).await?;

    for name in ["a", "b"] {
        let said = command(test, &["resume", "greetings", name]).await?;
        ensure!(said.contains("is no longer marked as paused"), "{said}");
    }
    test.parents().until_gone("a").await?;
    says(test, "b", "four").await?;
    until_greeted(test, "b", "four").await?;
    let none =
        |cc: &Value| cc["status"]["paused"] == 0 && has_condition(cc, "Paused", "False", "NothingPaused");
    test.until_controller("nothing paused", none).await.map(drop)
}

pub(crate) async fn a_paused_controller_calls_no_hook_and_catches_up(test: &mut Fixture) -> Result<()> {
    let webhook = greeting(test).await?;
    for name in ["a", "b"] {
        test.create(test.parent(name).greeting("one")).await?;
        until_greeted(test, name, "one").await?;
    }
    let name = test.name().to_owned();
    let said = command(test, &["pause", "controller", &name]).await?;
    ensure!(said.contains("is paused: no hook is called"), "{said}");
    let paused = |cc: &Value| {
        has_condition(cc, "Ready", "True", "Paused")
            && has_condition(cc, "Paused", "True", "ControllerPaused")
            && cc["status"]["paused"] == 2
    };
    test.until_controller("paused", paused).await?;
    test.until_controller_event("Paused", |event| event["type"] == "Normal").await?;
    let asked = webhook.count();

    test.config_maps().merge("a-child", &json!({ "data": { "who": "drift" } })).await?;
    says(test, "b", "two").await?;
    test.create(test.parent("new").greeting("one")).await?;
    test.until_controller("three parents paused", |cc| cc["status"]["paused"] == 3).await?;
    test.parents().delete("b").await?;
    let waits = |event: &Value| text(event, "/message").contains("is being deleted, and waits");
    test.until_event("b", "Paused", waits).await?;
    // A server that starts finds it paused.
    test.server().stop().await?;
    test.controllers().merge_status(&name, &json!({ "status": { "paused": null } })).await?;
    test.server().start()?;
    test.until_controller("three parents paused again", |cc| cc["status"]["paused"] == 3).await?;
    ensure!(webhook.count() == asked, "a hook was asked");
    ensure!(test.parents().find("b").await?.is_some(), "a parent was let go");
    ensure!(test.config_maps().get("a-child").await?["data"]["who"] == "drift", "a child was written");
    let new = test.parents().get("new").await?;
    ensure!(new["metadata"].get("finalizers").is_none(), "a parent was written: {new}");

    let said = command(test, &["resume", "controller", &name]).await?;
    ensure!(said.ends_with(" is resumed\n"), "{said}");
    until_greeted(test, "a", "one").await?;
    until_greeted(test, "new", "one").await?;
    test.parents().until_gone("b").await?;
    test.until_controller_event("Resumed", |event| event["type"] == "Normal").await?;
    let runs = |cc: &Value| cc["status"]["paused"] == 0 && has_condition(cc, "Ready", "True", "Running");
    test.until_controller("not paused", runs).await.map(drop)
}

/// Pauses it by these words, so that so many parents are paused, and kills the server. The next leader finds `a` changed, and its
/// child, and the pause in the spec or the annotation alone.
async fn passes_on(test: &mut Fixture, words: &[&str], count: u64) -> Result<(Webhook, Server)> {
    let mut next = elect(test);
    let webhook = greeting(test).await?;
    until_leads(test.server()).await?;
    next.start()?;
    until_stands_by(&next).await?;
    for name in ["a", "b"] {
        test.create(test.parent(name).greeting("one")).await?;
        until_greeted(test, name, "one").await?;
    }
    command(test, words).await?;
    let paused = |cc: &Value| cc["status"]["paused"] == count;
    test.until_controller("paused", paused).await?;
    let asked = asked_about(&webhook, "a");
    test.server().kill().await?;
    test.controllers().merge_status(test.name(), &json!({ "status": { "paused": null } })).await?;
    test.config_maps().merge("a-child", &json!({ "data": { "who": "drift" } })).await?;
    for name in ["a", "b"] {
        says(test, name, "two").await?;
    }
    until_leads(&next).await?;
    test.until_controller("paused under the next leader", paused).await?;
    ensure!(asked_about(&webhook, "a") == asked, "the next leader asked the hook");
    ensure!(test.config_maps().get("a-child").await?["data"]["who"] == "drift", "its child was written");
    Ok((webhook, next))
}

pub(crate) async fn a_paused_parent_is_left_alone_by_the_next_leader(test: &mut Fixture) -> Result<()> {
    let (webhook, mut next) = passes_on(test, &["pause", "greetings", "a"], 1).await?;
    let asked = asked_about(&webhook, "a");
    until_greeted(test, "b", "two").await?;
    ensure!(asked_about(&webhook, "a") == asked, "the next leader asked the hook");
    command(test, &["resume", "greetings", "a"]).await?;
    until_greeted(test, "a", "two").await?;
    hands_back(test, &mut next).await
}

pub(crate) async fn a_paused_controller_is_left_alone_by_the_next_leader(test: &mut Fixture) -> Result<()> {
    let name = test.name().to_owned();
    let (webhook, mut next) = passes_on(test, &["pause", "controller", &name], 2).await?;
    ensure!(asked_about(&webhook, "b") > 0, "the hook was never asked");
    ensure!(test.config_maps().get("b-child").await?["data"]["who"] == "one", "a child was written");
    command(test, &["resume", "controller", &name]).await?;
    for parent in ["a", "b"] {
        until_greeted(test, parent, "two").await?;
    }
    hands_back(test, &mut next).await
}

/// The test's server takes down what the test made.
async fn hands_back(test: &mut Fixture, next: &mut Server) -> Result<()> {
    test.server().start()?;
    next.stop().await.map(drop)
}

/// The deletion brake compares with what ran before the pause.
pub(crate) async fn a_module_that_changes_in_a_pause_is_braked_when_it_ends(
    test: &mut Fixture,
) -> Result<()> {
    let children: Vec<_> =
        (0..10).map(|nth| config_map(&format!("c-{nth}"), json!({}), json!({ "is": "here" }))).collect();
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&json!({ "children": children, "status": {} }))?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    test.config_maps().until("c-9", "made", |_| true).await?;
    let digest = |cc: &Value| text(cc, "/status/hooks/sync/digest").to_owned();
    let accepted = |cc: &Value| cc["status"]["deletions"]["accepted"].is_string() && !digest(cc).is_empty();
    let before = test.until_controller("the first version accepted", accepted).await?;

    let name = test.name().to_owned();
    command(test, &["pause", "compositecontroller", &name]).await?;
    let paused = |cc: &Value| has_condition(cc, "Ready", "True", "Paused");
    test.until_controller("paused", paused).await?;
    test.store("hook", &wasm::answers(&json!({ "children": [], "status": {} }))?).await?;
    let loaded = |cc: &Value| paused(cc) && !digest(cc).is_empty() && digest(cc) != digest(&before);
    test.until_controller("another module loaded", loaded).await?;
    command(test, &["resume", "compositecontroller", &name]).await?;
    test.until_controller("deletions held", |cc| {
        has_condition(cc, "DeletionsHeld", "True", "ThresholdExceeded")
    })
    .await?;
    test.config_maps().get("c-9").await.context("a child was deleted").map(drop)
}

pub(crate) async fn a_paused_rollout_moves_no_child(test: &mut Fixture) -> Result<()> {
    let webhook = rolling(test, "RollingInPlace", json!({}), |asked| {
        crate::compat::rolling_update::answer(asked).into()
    })
    .await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 3 }))).await?;
    have(test, &[1; 3]).await?;
    command(test, &["pause", "greetings", "p"]).await?;
    test.until_controller("paused", |cc| cc["status"]["paused"] == 1).await?;
    let asked = webhook.count();
    asks_for(test, json!({ "image": 2 })).await?;
    // Another parent of the controller is rolled out to its end.
    let labels = json!({ "on": "q" });
    let spec = json!({ "image": 3, "replicas": 0, "labels": labels });
    test.create(test.parent("q").with(spec)).await?;
    let seen = |parent: &Value| parent["status"]["observedGeneration"] == parent["metadata"]["generation"];
    test.parents().until("q", "seen", seen).await?;
    ensure!(asked_about(&webhook, "p") <= asked, "the hook was asked about a paused parent");
    have(test, &[1; 3]).await?;
    command(test, &["resume", "greetings", "p"]).await?;
    have(test, &[2; 3]).await.map(drop)
}

/// The annotation of an object stops all decorators; `spec.paused` of the older one keeps what it wrote, and holds no other.
pub(crate) async fn a_paused_object_is_not_decorated(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| {
        let said = text(&asked.body, "/object/data/is").to_owned();
        json!({ "labels": { "said": said }, "attachments": [decorated::attachment("x")] }).into()
    };
    let webhook = decorated::decorated(test, program, decorated::finalized).await?;
    decorated::make_map(test, "p").await?;
    let maps = test.config_maps();
    let said = |value: &'static str| move |map: &Value| decorated::label(map, "said") == value;
    maps.until("p", "decorated", said("here")).await?;
    maps.until("x", "attached", |_| true).await?;
    command(test, &["pause", "configmaps", "p"]).await?;
    let name = test.name().to_owned();
    let dc = test.decorators();
    dc.until(&name, "one object paused", |dc| dc["status"]["paused"] == 1).await?;
    let asked = decorated::times(&webhook, "p");
    maps.merge("p", &json!({ "data": { "is": "there" } })).await?;
    maps.delete("x").await?;
    maps.until_gone("x").await?;
    decorated::make_map(test, "q").await?;
    maps.until("q", "decorated", said("here")).await?;
    ensure!(decorated::times(&webhook, "p") == asked, "the hook was asked about a paused object");
    ensure!(decorated::label(&maps.get("p").await?, "said") == "here", "a paused object was written");
    command(test, &["resume", "configmap", "p"]).await?;
    maps.until("p", "decorated anew", said("there")).await?;
    maps.until("x", "attached again", |_| true).await.map(drop)
}

pub(crate) async fn a_paused_decorated_object_waits_with_its_deletion(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| json!({ "attachments": [], "finalized": asked.path == "/finalize" }).into();
    let webhook = decorated::decorated(test, program, decorated::finalized).await?;
    decorated::make_map(test, "p").await?;
    let (maps, ours) = (test.config_maps(), decorated::ours(test));
    let object =
        maps.until("p", "has a finalizer", |map| decorated::finalizers(map) == [ours.as_str()]).await?;
    command(test, &["pause", "configmaps", "p"]).await?;
    test.decorators().until(test.name(), "one is paused", |dc| dc["status"]["paused"] == 1).await?;
    let asked = decorated::times(&webhook, "p");
    maps.delete("p").await?;
    let waits = |event: &Value| text(event, "/message").contains("is being deleted, and waits");
    test.until_event_on(&object, "Paused", waits).await?;
    // Another object goes meanwhile.
    decorated::make_map(test, "q").await?;
    maps.until("q", "has a finalizer", |map| decorated::finalizers(map) == [ours.as_str()]).await?;
    maps.delete("q").await?;
    maps.until_gone("q").await?;
    ensure!(decorated::finalizers(&maps.get("p").await?) == [ours.as_str()], "a paused object was let go");
    ensure!(decorated::times(&webhook, "p") == asked, "its hooks were asked");
    command(test, &["resume", "configmaps", "p"]).await?;
    maps.until_gone("p").await?;
    let finalizes = |asked: &Asked| decorated::is_about(asked, "/finalize", "p");
    ensure!(webhook.asked().iter().any(finalizes), "it went without its finalize hook");
    Ok(())
}

pub(crate) async fn a_pause_that_cannot_be_says_why(test: &mut Fixture) -> Result<()> {
    greeting(test).await?;
    let name = test.name().to_owned();
    for (words, why) in [
        (["pause", "things", "a"], "no controller of the cluster reconciles objects of this kind"),
        (["pause", "greetings", "missing"], "missing does not exist"),
        (["pause", "controller", "missing"], "the controller \"missing\" does not exist"),
        (["resume", "compositecontrollers", "n/missing"], "has no namespaces"),
    ] {
        let Err(error) = command(test, &words).await else { bail!("{words:?} went well") };
        ensure!(format!("{error:#}").contains(why), "{words:?}: {error:#}");
    }
    let cc = test.controllers().get(&name).await?;
    ensure!(cc["spec"].get("paused").is_none(), "{}", cc["spec"]);
    Ok(())
}
