//! Related objects that hooks have deleted: what the spec grants and their request showed, and nothing else.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use acceptance::api::{self, CONFIG_MAP, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, config_map, text, uid};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::wasm;

/// Finalizer that holds objects that are being deleted.
const HOLD: &str = "example.com/hold";

/// Asks for the ConfigMaps with labels that name the parent, wherever they are. Those with a label `go` that names
/// the hook have to go.
fn program(asked: &Asked) -> Answer {
    let (hook, parent) = (asked.path.trim_start_matches('/'), text(&asked.body, "/parent/metadata/name"));
    if hook == "customize" {
        let home = text(&asked.body, "/parent/metadata/namespace");
        let selector = json!({ "matchLabels": { "of": parent, "test": home } });
        let rule = json!({ "apiVersion": "v1", "resource": "configmaps", "labelSelector": selector });
        return json!({ "relatedResources": [rule] }).into();
    }
    let sees = asked.body["related"]["ConfigMap.v1"].as_object().into_iter().flatten().count();
    let child = config_map(&format!("{parent}-child"), json!({}), json!({}));
    let status = json!({ "sees": sees });
    // Of `b` both objects matter. The server may see the parent before it sees these.
    if parent == "b" && sees < 2 {
        return json!({ "status": status, "children": [] }).into();
    }
    json!({ "status": status, "children": [child], "deleteRelated": deletions(asked), "finalized": hook == "finalize" })
        .into()
}

/// References to the objects that have to go, of those that a hook is shown.
fn deletions(asked: &Asked) -> Vec<Value> {
    let shown = asked.body["related"]["ConfigMap.v1"].as_object().into_iter().flatten();
    let hook = asked.path.trim_start_matches('/');
    shown
        .filter(|(_, object)| text(object, "/metadata/labels/go") == hook)
        .map(|(_, object)| reference(object))
        .collect()
}

fn reference(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "uid": uid(object),
        "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
    })
}

/// A ConfigMap that a parent sees, and that goes when this hook sees it.
fn related(test: &Fixture, name: &str, of: &str, go: &str) -> Value {
    config_map(name, json!({ "of": of, "go": go, "test": test.name() }), json!({}))
}

fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!([HOLD]);
    object
}

fn grants(any_namespace: bool) -> Value {
    json!([{ "apiVersion": "v1", "resource": "configmaps", "anyNamespace": any_namespace }])
}

/// A controller with these hooks of one version, and a short name: with a finalize hook a longer one is refused.
fn hooked(test: &Fixture, webhook: &Webhook, version: &str) -> Composite {
    let hook = |path: &str| Hook::webhook(&webhook.url(path)).version(version);
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "InPlace");
    controller.synced_by(hook("/sync")).customized_by(hook("/customize"))
}

fn short(test: &Fixture) -> String {
    let unique: Vec<_> = test.name().rsplit('-').take(2).collect();
    format!("deletes-{}", unique.join("-"))
}

/// How many deletions the Events of a parent tell of.
async fn told(test: &Fixture, parent: &str) -> Result<u64> {
    let fields = format!("involvedObject.name={parent},reason=DeletedRelated");
    let events = test.within(&api::EVENT).list_where(&fields).await?;
    let each = events.iter().map(|event| {
        let count = text(event, "/message").split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
        Ok(count.with_context(|| event.to_string())? * event["count"].as_u64().unwrap_or(1))
    });
    each.sum()
}

async fn until_told(test: &Fixture, parent: &str, object: &Value) -> Result<()> {
    let (name, namespace) = (text(object, "/metadata/name"), text(object, "/metadata/namespace"));
    let name = if namespace == test.name() { name.to_owned() } else { format!("{namespace}/{name}") };
    let is = |event: &Value| {
        let (says, names) = text(event, "/message").split_once(": ").unwrap_or_default();
        event["type"] == "Normal"
            && says.ends_with(" of v1 ConfigMap, as the hook asked")
            && names.split(", ").any(|one| one == name)
    };
    test.until_event(parent, "DeletedRelated", is).await.map(drop)
}

/// More than a flood of Events may have.
async fn many_are_told_of_to_the_last(test: &mut Fixture) -> Result<()> {
    let here = test.config_maps();
    let mut many = Vec::new();
    for number in 0..30 {
        many.push(test.make(&here, related(test, &format!("many-{number}"), "many", "sync")).await?);
    }
    test.create(test.parent("many")).await?;
    for one in &many {
        here.until_gone(text(one, "/metadata/name")).await?;
        until_told(test, "many", one).await?;
    }
    let count = told(test, "many").await?;
    ensure!(count == 30, "{count} of 30 are told of");
    Ok(())
}

/// A hook that has something deleted is asked again, until nothing is left.
fn asked_to_finalize_again(webhook: &Webhook) -> Result<()> {
    let asked = webhook.asked().iter().filter(|asked| asked.path == "/finalize").count();
    ensure!(asked >= 2, "the finalizer came off with the deletions still to be done");
    Ok(())
}

async fn until_refused(test: &Fixture, parent: &str, says: &str) -> Result<()> {
    let is = |event: &Value| text(event, "/message").contains(says);
    test.until_event(parent, "SyncError", is).await.map(drop)
}

async fn until_going(place: &Objects, name: &str) -> Result<()> {
    let going = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    place.until(name, "being deleted", going).await.map(drop)
}

async fn let_go(place: &Objects, name: &str) -> Result<()> {
    place.merge(name, &json!({ "metadata": { "finalizers": null } })).await?;
    place.until_gone(name).await
}

async fn sees(test: &Fixture, parent: &str, objects: u64) -> Result<()> {
    let what = format!("sees {objects}");
    test.parents().until(parent, &what, |parent| parent["status"]["sees"] == objects).await.map(drop)
}

/// A parent sees related objects in its own namespace and elsewhere.
pub(crate) async fn what_is_granted_goes_with_an_event_and_nothing_else_does(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(program).await?;
    let here = test.config_maps();
    let one = test.make(&here, related(test, "one", "a", "sync")).await?;
    let going = test.make(&here, held(related(test, "going", "a", "sync"))).await?;
    test.make(&here, related(test, "stays", "a", "")).await?;
    test.make(&here, related(test, "another", "none", "sync")).await?;
    test.define_kind().await?;
    test.serve()?;
    test.host(hooked(test, &webhook, "v2").with("relatedDeletion", grants(false))).await?;
    test.create(test.parent("a")).await?;
    here.until_gone("one").await?;
    until_going(&here, "going").await?;
    until_told(test, "a", &one).await?;
    until_told(test, "a", &going).await?;
    sees(test, "a", 2).await?;
    let again = test.make(&here, related(test, "one", "a", "sync")).await?;
    here.until_gone("one").await?;
    until_told(test, "a", &again).await?;
    let_go(&here, "going").await?;
    sees(test, "a", 1).await?;
    ensure!(told(test, "a").await? == 3, "each deletion is told once");
    many_are_told_of_to_the_last(test).await?;

    let away = format!("{}-away", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": away } });
    let namespaces = test.everywhere(&api::NAMESPACE);
    test.make(&namespaces, namespace).await?;
    let there = test.within_other(&CONFIG_MAP, &away);
    test.make(&here, related(test, "near", "b", "sync")).await?;
    let far = there.create(related(test, "far", "b", "sync")).await?;
    test.create(test.parent("b")).await?;
    until_refused(test, "b", &format!("].namespace is \"{away}\", and spec.relatedDeletion[0] lets")).await?;
    ensure!(here.find("b-child").await?.is_none(), "a child was made of an answer that was refused");
    ensure!(here.get("near").await?["metadata"]["deletionTimestamp"].is_null(), "near was deleted");
    test.controllers().merge(&short(test), &json!({ "spec": { "relatedDeletion": grants(true) } })).await?;
    there.until_gone("far").await?;
    here.until_gone("near").await?;
    until_told(test, "b", &far).await?;
    here.get("stays").await?;
    here.get("another").await?;
    Ok(())
}

/// The finalizer stays on until what the finalize hook has deleted is being deleted.
pub(crate) async fn a_parent_that_goes_takes_along_what_its_finalize_hook_names(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(program).await?;
    let here = test.config_maps();
    test.make(&here, related(test, "one", "a", "finalize")).await?;
    test.make(&here, held(related(test, "going", "a", "finalize"))).await?;
    test.define_kind().await?;
    test.serve()?;
    let finalize = Hook::webhook(&webhook.url("/finalize")).version("v1");
    let controller = hooked(test, &webhook, "v1").finalized_by(finalize);
    test.host(controller.with("relatedDeletion", grants(false))).await?;
    test.create(test.parent("a")).await?;
    sees(test, "a", 2).await?;
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    here.until_gone("one").await?;
    until_going(&here, "going").await?;
    asked_to_finalize_again(&webhook)?;
    ensure!(told(test, "a").await? == 2, "two deletions");
    let_go(&here, "going").await
}

/// A module is told what is missing; once it is not, its parent comes to rest.
pub(crate) async fn without_a_grant_a_modules_answer_is_refused_before_anything_is_written(
    test: &mut Fixture,
) -> Result<()> {
    let here = test.config_maps();
    let going = test.make(&here, held(related(test, "going", "a", ""))).await?;
    let answer = |reference: &Value| json!({ "status": { "is": "written" }, "children": [config_map("child", json!({}), json!({}))], "deleteRelated": [reference] });
    let rule = json!({ "apiVersion": "v1", "resource": "configmaps", "names": ["going"] });
    test.store("rules", &wasm::answers(&json!({ "relatedResources": [rule] }))?).await?;
    test.store("hook", &wasm::answers(&answer(&reference(&going)))?).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(test.hook("hook")).customized_by(test.hook("rules"))).await?;
    test.create(test.parent("a")).await?;
    let name = format!("v1 ConfigMap {}/going", test.name());
    let says = format!("deleteRelated[0] is {name}, and the controller's spec does not let its hooks delete");
    until_refused(test, "a", &says).await?;
    until_refused(test, "a", "add {apiVersion: v1, resource: configmaps} to spec.relatedDeletion").await?;

    let mut other = reference(&going);
    other["uid"] = json!("1");
    test.store("other", &wasm::answers(&answer(&other))?).await?;
    let sync = |module: &str| json!({ "sync": { "wasm": { "configMap": { "name": module } } } });
    let granted = json!({ "spec": { "relatedDeletion": grants(false), "hooks": sync("other") } });
    test.controllers().merge(test.name(), &granted).await?;
    until_refused(test, "a", &format!("deleteRelated[0].uid is 1, and {name} in its request has the uid"))
        .await?;
    ensure!(here.find("child").await?.is_none(), "a child was made of an answer that was refused");
    ensure!(test.parents().get("a").await?["status"].is_null(), "a status of an answer that was refused");
    ensure!(here.get("going").await?["metadata"]["deletionTimestamp"].is_null(), "deleted without a grant");

    test.controllers().merge(test.name(), &json!({ "spec": { "hooks": sync("hook") } })).await?;
    until_going(&here, "going").await?;
    here.until("child", "made", |_| true).await?;
    test.until_controller("one settled parent", |cc| cc["status"]["settled"] == 1).await?;
    until_told(test, "a", &going).await?;
    ensure!(told(test, "a").await? == 1, "told once");
    let_go(&here, "going").await
}

/// While the hook answers, another client makes the object anew.
pub(crate) async fn an_object_that_takes_a_name_meanwhile_stays(test: &mut Fixture) -> Result<()> {
    let here = test.config_maps();
    let first = test.make(&here, related(test, "one", "a", "")).await?;
    let (go, wait) = channel::<()>();
    let (wait, old) = (Mutex::new(wait), reference(&first));
    let webhook = Webhook::serve(move |asked| {
        if asked.path == "/customize" {
            return program(asked);
        }
        let shown = &asked.body["related"]["ConfigMap.v1"]["one"];
        let delete = if uid(shown) == text(&old, "/uid") { json!([old]) } else { json!([]) };
        // The first call goes on when the test says so; afterwards the other end is closed.
        tokio::task::block_in_place(|| {
            if let Ok(wait) = wait.lock() {
                wait.recv().unwrap_or_default();
            }
        });
        json!({ "status": { "sees": uid(shown) }, "children": [], "deleteRelated": delete }).into()
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    test.host(hooked(test, &webhook, "v1").with("relatedDeletion", grants(false))).await?;
    test.create(test.parent("a")).await?;
    webhook.until_asked("to sync", |asked| asked.path == "/sync").await?;
    here.delete("one").await?;
    let second = here.create(related(test, "one", "a", "")).await?;
    drop(go);
    test.parents().until("a", "the new one seen", |a| text(a, "/status/sees") == uid(&second)).await?;
    test.server().until_log("the first is gone", |log| log.contains("gone before it was deleted")).await?;
    let now = here.get("one").await?;
    ensure!(now["metadata"]["deletionTimestamp"].is_null() && uid(&now) == uid(&second), "{now}");
    ensure!(told(test, "a").await? == 0, "nothing was deleted");
    let errors = test.within(&api::EVENT).list_where("involvedObject.name=a,reason=SyncError").await?;
    ensure!(errors.is_empty(), "unexpected Events: {errors:?}");
    Ok(())
}

/// Metacontroller knows no such field: neither does a webhook whose controller grants nothing.
pub(crate) async fn a_webhook_whose_controller_grants_nothing_deletes_nothing(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(program).await?;
    let here = test.config_maps();
    test.make(&here, related(test, "one", "a", "sync")).await?;
    test.define_kind().await?;
    test.serve()?;
    test.host(hooked(test, &webhook, "v1").with("relatedDeletion", json!([]))).await?;
    test.create(test.parent("a")).await?;
    sees(test, "a", 1).await?;
    here.until("a-child", "made", |_| true).await?;
    let told_of = |log: &str| log.contains("has the unknown field deleteRelated");
    test.server().until_log("the field is told of", told_of).await?;

    let hooks = hooked(test, &webhook, "v2").json()["spec"]["hooks"].clone();
    test.controllers().merge(&short(test), &json!({ "spec": { "hooks": hooks } })).await?;
    until_refused(test, "a", "the hook's answer has the unknown field deleteRelated").await?;
    here.get("one").await?;
    test.controllers().merge(&short(test), &json!({ "spec": { "relatedDeletion": grants(false) } })).await?;
    here.until_gone("one").await
}

/// Objects that the hook of a decorated object has deleted go, and hold it back while there is something to delete.
pub(crate) async fn decorators_delete_by_the_same_rules(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked| {
        if asked.path == "/customize" {
            return program(asked);
        }
        let (deletions, finalized) = (deletions(asked), asked.path == "/finalize");
        json!({ "labels": { "seen": "yes" }, "deleteRelated": deletions, "finalized": finalized }).into()
    })
    .await?;
    let here = test.config_maps();
    let one = test.make(&here, related(test, "one", "a", "sync")).await?;
    test.make(&here, related(test, "last", "a", "finalize")).await?;
    test.make(&here, related(test, "stays", "a", "")).await?;
    test.define_kind().await?;
    test.serve()?;
    let decorators =
        Kind::new("metacontroller.k8s.io", "v1alpha1", "DecoratorController", "decoratorcontrollers");
    let hook = |path: &str| json!({ "version": "v2", "webhook": { "url": webhook.url(path) } });
    let (key, value) = test
        .label()
        .split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .unwrap_or_default();
    let decorator = json!({
        "apiVersion": decorators.api_version(), "kind": decorators.kind,
        "metadata": { "name": short(test), "labels": { key: value } },
        "spec": {
            "resources": [{ "apiVersion": test.kind().api_version(), "resource": test.kind().plural }],
            "hooks": { "sync": hook("/sync"), "finalize": hook("/finalize"), "customize": hook("/customize") },
        },
    });
    let everywhere = test.everywhere(&decorators);
    test.make(&everywhere, decorator).await?;
    test.create(test.parent("a")).await?;
    until_refused(test, "a", "the hook's answer has the unknown field deleteRelated").await?;
    ensure!(
        test.parents().get("a").await?["metadata"]["labels"].is_null(),
        "labelled by an answer that was refused"
    );
    everywhere.merge(&short(test), &json!({ "spec": { "relatedDeletion": grants(false) } })).await?;
    here.until_gone("one").await?;
    until_told(test, "a", &one).await?;
    let labelled = |a: &Value| a["metadata"]["labels"]["seen"] == "yes";
    test.parents().until("a", "labelled", labelled).await?;
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    asked_to_finalize_again(&webhook)?;
    here.until_gone("last").await?;
    here.get("stays").await?;
    Ok(())
}

pub(crate) async fn a_grant_that_cannot_be_is_named_by_its_field(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.serve()?;
    let kind = |plural: &str| json!({ "apiVersion": "v1", "resource": plural });
    test.host(hooked(test, &webhook, "v2").with("relatedDeletion", json!([kind("pods"), kind("pods")])))
        .await?;
    let says = |kind: &'static str, what: &'static str| {
        move |cc: &Value| {
            condition(cc, kind)
                .is_some_and(|it| it["status"] == "False" && text(it, "/message").contains(what))
        }
    };
    let name = short(test);
    let twice =
        says("Ready", "spec.relatedDeletion[1]: v1 pods is granted by spec.relatedDeletion[0] already");
    test.controllers().until(&name, "granted twice", twice).await?;
    let unknown = json!({ "spec": { "relatedDeletion": [kind("pods"), kind("things")] } });
    test.controllers().merge(&name, &unknown).await?;
    let unknown = says("KindsServed", "spec.relatedDeletion[1]: the API server serves no v1 things");
    test.controllers().until(&name, "a kind that is not served", unknown).await?;
    Ok(())
}
