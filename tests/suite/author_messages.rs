//! Tests of the server's messages to the author of a hook that is accepted: on the parent and the controller.

use acceptance::api::{CONFIG_MAP, EVENT, POD};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, definition, has_condition, is_true, text};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::modules::digest as wasm_digest;
use crate::pages::symptoms;
use crate::wasm;

fn says(message: &str) -> impl Fn(&Value) -> bool {
    move |event| text(event, "/message") == message && event["type"] == "Warning"
}

/// A module that takes another one's place, one that is refused, and a pin as the status has it.
pub(crate) async fn which_module_runs_is_told_on_the_controller(test: &mut Fixture) -> Result<()> {
    let module = |number: u32| wasm::answers(&json!({ "children": [], "status": { "number": number } }));
    let digest = async |test: &Fixture, number: u32| -> Result<String> {
        let has = |parent: &Value| parent["status"]["number"] == number;
        test.parents().until("p", "the status of the module", has).await?;
        let is_told = |cc: &Value| {
            let hook = &cc["status"]["hooks"]["sync"];
            let digest = text(hook, "/digest").trim_start_matches("sha256:");
            digest == wasm_digest(&module(number).unwrap_or_default())
                && digest.starts_with(text(hook, "/shortDigest"))
        };
        let cc = test.until_controller("the digest of the module", is_told).await?;
        ensure!(text(&cc, "/status/hooks/sync/shortDigest").len() == 12, "{}", cc["status"]["hooks"]);
        Ok(text(&cc, "/status/hooks/sync/digest").to_owned())
    };
    test.define_kind().await?;
    test.store("hook", &module(1)?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    let first = digest(test, 1).await?;
    test.store("hook", &module(2)?).await?;
    let second = digest(test, 2).await?;
    let replaced = format!("The sync hook has another module: {first} -> {second}");
    let is_replaced = |event: &Value| text(event, "/message") == replaced && event["type"] == "Normal";
    test.until_controller_event("ModuleReplaced", is_replaced).await?;

    test.store("hook", b"this is no module").await?;
    let goes_on = |cc: &Value| has_condition(cc, "Ready", "True", "LastGoodInUse");
    let cc = test.until_controller("a refused module", goes_on).await?;
    let says = condition(&cc, "Ready").map(|ready| text(ready, "/message").to_owned()).unwrap_or_default();
    ensure!(says.contains(&format!("{second} goes on being called")), "{says}");
    symptoms::is_shown(test, "LastGoodInUse", &symptoms::controller(test.name())).await?;
    symptoms::is_shown(test, "goes on being called", &symptoms::controller(test.name())).await?;
    test.store("hook", &module(2)?).await?;
    test.until_controller("running", |cc| has_condition(cc, "Ready", "True", "Running")).await?;

    let pin = json!({ "spec": { "hooks": { "sync": { "wasm": { "sha256": second } } } } });
    test.controllers().merge(test.name(), &pin).await?;
    let is_pinned =
        |cc: &Value| cc["status"]["observedGeneration"] == 2 && has_condition(cc, "Ready", "True", "Running");
    test.until_controller("running with the pin", is_pinned).await?;
    test.store("hook", &module(1)?).await?;
    let holds = |cc: &Value| has_condition(cc, "ModulesLoaded", "False", "DigestMismatch");
    test.until_controller("the pin holds", holds).await?;
    Ok(())
}

/// A child and a status with fields that their kinds do not have, and an answer with one that means nothing.
pub(crate) async fn fields_that_nobody_knows_are_named_on_the_parent(test: &mut Fixture) -> Result<()> {
    let mut kind = definition(test.kind());
    let properties = json!({ "ready": { "type": "integer" }, "observedGeneration": { "type": "integer" } });
    kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({ "type": "object", "properties": properties });
    let place = test.definitions();
    let name = text(&place.create(kind).await?, "/metadata/name").to_owned();
    place.until(&name, "established", |crd| is_true(crd, "Established")).await?;
    let pod = |name: &str, field: &str| {
        let containers = json!([{ "name": "c", "image": "busybox" }]);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "restartPolicy": "Never", "containers": containers },
        });
        pod["spec"]["containers"][0][field] = json!("x");
        pod
    };
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "dataa": {} });
    let children = json!([pod("a", "imagee"), pod("b", "imagee"), map]);
    let answer = json!({ "children": children, "status": { "ready": 1, "redy": 2 }, "statuss": {} });
    test.store("hook", &wasm::answers(&answer)?).await?;
    test.serve()?;
    let controller = test.controller().making(&POD, "InPlace").making(&CONFIG_MAP, "InPlace");
    let rules = json!({ "relatedResources": [], "related": [] });
    test.store("rules", &wasm::answers(&rules)?).await?;
    let hooks = controller.synced_by(test.hook("hook")).customized_by(test.hook("rules"));
    test.host(hooks).await?;
    test.create(test.parent("p")).await?;
    let about_pods = |event: &Value| {
        let message = text(event, "/message");
        message.starts_with("create Pod") && message.ends_with("unknown field \"spec.containers[0].imagee\"")
    };
    test.until_event("p", "ApiWarning", about_pods).await?;
    symptoms::is_shown(test, "the API server warns:", &symptoms::parent(test, "p")).await?;
    test.until_event("p", "ApiWarning", |event| text(event, "/message").ends_with("unknown field \"dataa\""))
        .await?;
    let about_status = |event: &Value| text(event, "/message").ends_with("unknown field \"status.redy\"");
    test.until_event("p", "ApiWarning", about_status).await?;
    let ignored = "The sync hook's answer has the unknown field statuss; that has no effect";
    test.until_event("p", "AnswerIgnored", says(ignored)).await?;
    let ignored = "The customize hook's answer has the unknown field related; that has no effect";
    test.until_event("p", "AnswerIgnored", says(ignored)).await?;
    test.parents().until("p", "its status", |parent| parent["status"]["ready"] == 1).await?;
    // Two Pods with the same mistake are told of once.
    let events = test.within(&EVENT).list().await?;
    let of_pods: Vec<_> = events.iter().filter(|event| about_pods(event)).collect();
    ensure!(of_pods.len() == 1 && of_pods.iter().all(|event| event["count"] == 1), "{of_pods:?}");
    Ok(())
}

/// A webhook that answers with the children of its parent's spec, and at its end with none.
pub(crate) async fn why_a_child_goes_is_told_on_its_parent(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(|asked: &Asked| {
        let parent = &asked.body["parent"];
        let shown = asked.body["children"]["ConfigMap.v1"].as_object().is_some_and(|all| !all.is_empty());
        let children: Vec<_> = parent["spec"]["children"].as_object().into_iter().flatten().collect();
        let children =
            children.iter().map(|(name, text)| config_map(name, json!({ "text": text }), json!({})));
        match asked.path.as_str() {
            "/finalize" => json!({ "children": [], "finalized": !shown }).into(),
            _ => json!({ "children": children.collect::<Vec<_>>(), "status": {} }).into(),
        }
    })
    .await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "Recreate");
    let controller = controller.synced_by(Hook::webhook(&webhook.url("/sync")));
    test.host(controller.finalized_by(Hook::webhook(&webhook.url("/finalize")))).await?;
    let spec = json!({ "children": { "a": "1", "b": "1", "c": "1", "d": "1" } });
    test.create(test.parent("p").with(spec)).await?;
    let maps = test.config_maps();
    for name in ["a", "b", "c", "d"] {
        maps.until(name, "made", |_| true).await?;
    }
    let told = |start: &'static str, end: &'static str| {
        move |event: &Value| {
            let message = text(event, "/message");
            message.starts_with(start) && message.contains(end) && event["type"] == "Normal"
        }
    };
    let change = json!({ "spec": { "children": { "a": null, "b": null, "c": "2" } } });
    test.parents().merge("p", &change).await?;
    let unlisted = "are deleted: the answer of the sync hook does not list it (version ";
    test.until_event("p", "ChildDeleted", told("ConfigMap a, ConfigMap b ", unlisted)).await?;
    symptoms::is_shown(test, "are deleted:", &[("-A", format!("-n {}", test.name()))]).await?;
    let changed =
        "is deleted to be made anew: the answer of the hook differs from it in metadata.labels.text";
    test.until_event("p", "ChildDeleted", told("ConfigMap c ", changed)).await?;
    maps.until("c", "made anew", |map| map["metadata"]["labels"]["text"] == "2").await?;
    maps.merge("d", &json!({ "metadata": { "labels": { "text": "foreign" } } })).await?;
    let drifted = "is deleted to be made anew: another client changed it in metadata.labels.text";
    test.until_event("p", "ChildDeleted", told("ConfigMap d ", drifted)).await?;
    maps.until("d", "made anew", |map| map["metadata"]["labels"]["text"] == "1").await?;
    test.parents().delete("p").await?;
    let finalized = "are deleted: the answer of the finalize hook does not list it";
    test.until_event("p", "ChildDeleted", told("ConfigMap c, ConfigMap d ", finalized)).await?;
    test.parents().until_gone("p").await?;
    let log = std::fs::read_to_string(test.server().log())?;
    let line = |reason: &str| {
        log.lines().any(|line| line.contains(r#""message":"written""#) && line.contains(reason))
    };
    ensure!(line("the sync hook does not list it") && line("the finalize hook does not list it"), "{log}");
    let changed = format!("ConfigMap {}/d changed", test.name());
    for cause in ["first reconcile", "spec changed", "own writes", "deleted", &changed] {
        ensure!(log.contains(&format!(r#""cause":"{cause}""#)), "no reconcile because of {cause:?}: {log}");
    }
    Ok(())
}
