//! `metahook schema`: what hooks are asked and answer is as the printed schemas say, and nothing else is.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::json_schema::faults;
use crate::render::{CRD, PARENT, composite, config_map, module};
use crate::webhook::Webhook;
use crate::{Ended, Folder};

fn typed() -> String {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}});
    CRD.replace("storage: true,", &format!("storage: true, schema: {schema},"))
}

fn folder(controller: &str) -> Folder {
    Folder::new().with("controller.yaml", controller).with("crd.yaml", typed()).with("parent.yaml", PARENT)
}

fn printed(folder: &Folder, of: &str) -> Value {
    let ended = folder.metahook(&["schema", of, "-f", "controller.yaml", "-f", "crd.yaml"]);
    ended.is(0, "");
    serde_json::from_str(&ended.out).unwrap()
}

#[track_caller]
fn holds(schema: &Value, value: &Value) {
    assert!(faults(schema, value).is_empty(), "{:?}\n{value:#}", faults(schema, value));
}

/// A webhook that answers so, and the requests that it got.
fn hook(answer: Value) -> (Webhook, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&asked);
    let webhook = Webhook::serve(move |request| {
        keep.lock().unwrap().push(request.clone());
        answer.clone()
    });
    (webhook, asked)
}

fn by(webhook: &Webhook) -> Value {
    json!({"webhook": {"url": webhook.url}, "version": "v2"})
}

fn render(folder: &Folder) -> Ended {
    let files = ["-f", "controller.yaml", "-f", "crd.yaml", "-f", "parent.yaml"];
    folder.metahook(&[&["render", "--cycles=5"][..], &files].concat())
}

#[test]
fn requests_and_answers_of_a_composite_are_as_its_schemas_say() {
    let answer = json!({
        "children": [config_map("a", "x")], "status": {"any": 1}, "resyncAfterSeconds": 30.5,
        "events": [{"type": "Normal", "reason": "Greeted", "message": "it greets"}],
    });
    let rules = json!({"relatedResources": [{"apiVersion": "v1", "resource": "services", "names": ["x"]}]});
    let (sync, asked) = hook(answer.clone());
    let (customize, asked_first) = hook(rules.clone());
    let folder = folder(&composite(&json!({"sync": by(&sync), "customize": by(&customize)}), "InPlace"));
    render(&folder).is(0, "settled");
    let (requests, first) = (asked.lock().unwrap(), asked_first.lock().unwrap());
    assert!(requests.len() > 1 && !first.is_empty(), "{requests:?}");
    let request = printed(&folder, "sync-request");
    requests.iter().for_each(|one| holds(&request, one));
    let customize_request = printed(&folder, "customize-request");
    first.iter().for_each(|one| holds(&customize_request, one));
    let mut odd = requests[0].clone();
    odd["parent"]["spec"]["size"] = json!("large");
    assert!(faults(&request, &odd)[0].starts_with("/parent/spec/size "), "{:?}", faults(&request, &odd));
    let response = printed(&folder, "sync-response");
    holds(&response, &answer);
    holds(&printed(&folder, "customize-response"), &rules);
    let mut typo = config_map("a", "x");
    typo["dataa"] = json!({});
    for wrong in [
        json!({}),
        json!({"children": [], "statuss": {}}),
        json!({"children": [typo]}),
        json!({"children": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]}),
        json!({"children": [], "events": [{"type": "Loud", "reason": "r", "message": "m"}]}),
    ] {
        assert!(!faults(&response, &wrong).is_empty(), "{wrong}");
    }
    let parent = printed(&folder, "parent");
    holds(&parent, &requests[0]["parent"]);
    assert!(!faults(&parent, &json!({"apiVersion": "example.com/v1", "kind": "Other"})).is_empty());
}

#[test]
fn a_decorators_hook_is_asked_about_an_object_and_answers_with_attachments() {
    let answer = json!({"labels": {"a": "b", "c": null}, "attachments": [config_map("extra", "x")]});
    let (sync, asked) = hook(answer.clone());
    let controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController", "metadata": {"name": "d"},
        "spec": {
            "resources": [{"apiVersion": "example.com/v1", "resource": "things"}],
            "attachments": [{"apiVersion": "v1", "resource": "configmaps"}],
            "hooks": {"sync": by(&sync)},
        },
    });
    let folder = folder(&controller.to_string());
    render(&folder).is(0, "settled");
    let request = printed(&folder, "sync-request");
    asked.lock().unwrap().iter().for_each(|one| holds(&request, one));
    holds(&printed(&folder, "sync-response"), &answer);
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = folder(&composite(&module(), "InPlace")).with("none.yaml", "a: [");
    let schema = |more: &[&str]| folder.metahook(&[&["schema", "parent"][..], more].concat());
    schema(&[]).is(2, "the argument -f FILE is needed");
    schema(&["-f", "missing.yaml"]).is(2, "missing.yaml");
    schema(&["-f", "none.yaml"]).is(2, "none.yaml");
    schema(&["-f", "crd.yaml"]).is(2, "no CompositeController and no DecoratorController");
    schema(&["-f", "controller.yaml"]).is(2, "example.com/v1 things is not built in");
    folder.metahook(&["schema", "colour", "-f", "crd.yaml"]).is(2, "sync-request");
}

#[test]
fn the_schema_of_controllers_holds_for_ours_and_finds_typos() {
    let folder = Folder::new();
    let ended = folder.metahook(&["schema", "controller"]);
    ended.is(0, "");
    let schema = serde_json::from_str(&ended.out).unwrap();
    let fine = serde_json::from_str(&composite(&module(), "InPlace")).unwrap();
    holds(&schema, &fine);
    let mut typo = fine;
    typo["spec"]["childResource"] = json!([]);
    assert!(!faults(&schema, &typo).is_empty());
}
