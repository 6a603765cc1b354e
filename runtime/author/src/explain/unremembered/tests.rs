use http::Response;
use metahook_core::object::id::{Gvk, Key, Resource};
use metahook_server::cluster::fake::answering;
use serde_json::json;

use super::*;
use crate::inspected_server::Inspector;

fn id() -> ObjectId {
    let gvk = Gvk::new("example.com/v1", "Hello");
    let resource = Resource { gvk, plural: "hellos".into(), namespaced: true, has_status: true };
    ObjectId { resource: resource.into(), key: Key::new("demo", "a") }
}

fn stopped(name: &str) -> Stopped {
    Stopped { controller: format!("CompositeController {name}"), why: "InvalidSpec: no hook".to_owned() }
}

#[test]
fn each_cause_has_its_own_message_with_what_to_do_next() {
    let [one, two] = ["hello", "other"].map(|name| format!("CompositeController {name}"));
    let not_running = |running: &[&String]| Unremembered::NotRunning {
        id: id(),
        stopped: vec![stopped("hello"), stopped("bye")],
        running: running.iter().map(|&name| name.clone()).collect(),
    };
    let calm = |controllers: &[&String]| Unremembered::Calm {
        id: id(),
        controllers: controllers.iter().map(|&name| name.clone()).collect(),
        ignoring: Vec::new(),
    };
    let not_selected = Unremembered::NotSelected {
        id: id(),
        controllers: vec![one.clone(), two.clone()],
        parent: Some("Bye b".to_owned()),
    };
    let child = |parent: Option<&str>| Unremembered::Child { id: id(), parent: parent.map(str::to_owned) };
    for (cause, says) in [
        (Unremembered::Missing { id: id() }, "kubectl get hellos.example.com -n demo lists"),
        (
            not_running(&[]),
            "hello, which is to reconcile it, does not run: InvalidSpec: no hook. See metahook status hello. CompositeController bye, which",
        ),
        (not_running(&[&two]), "status bye. CompositeController other runs and selects it, and the server"),
        (
            not_selected,
            "the selectors of CompositeController hello and CompositeController other. Its owner is Bye b: if",
        ),
        (calm(&[&one]), "CompositeController hello runs and selects it, and"),
        (
            calm(&[&one, &two]),
            "CompositeController hello and CompositeController other run and select it, and",
        ),
        (child(Some("Bye b")), "Its owner is Bye b: if this is its parent, explain it; if a customize hook"),
        (child(None), "No controller owns it, so it is no child; if a customize hook"),
    ] {
        let text = cause.to_string();
        assert!(text.starts_with("Hello demo/a: ") && text.contains(says), "{text}");
    }
}

/// Asks about a Hello with the label `a: b` in a cluster without a server.
async fn ask(controllers: [Value; 2]) -> Unremembered {
    let api = answering(move |request| {
        let kind = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "namespaced": false });
        let items = |items: &Value| json!({ "metadata": {}, "items": items });
        let path = request.uri().path();
        let answer = match path.rsplit('/').next()? {
            "v1alpha1" => json!({ "resources": [
                kind("compositecontrollers", "CompositeController"),
                kind("decoratorcontrollers", "DecoratorController"),
            ] }),
            "compositecontrollers" => items(&controllers[0]),
            "decoratorcontrollers" => items(&controllers[1]),
            "a" => json!({ "apiVersion": "example.com/v1", "kind": "Hello",
                "metadata": { "namespace": "demo", "name": "a", "labels": { "a": "b" }, "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o" },
                    { "apiVersion": "v1", "kind": "Bye", "name": "b", "uid": "b", "controller": true },
                ] } }),
            _ => items(&json!([])),
        };
        Some(Response::new(answer.to_string()))
    });
    let inspector = Inspector::for_tests(api);
    Explainer { inspector, namespace: "demo".to_owned() }.unremembered(&id()).await.unwrap()
}

/// A controller of Hellos with this value of the label `a`. `is_ready`: its status says so.
fn controller(name: &str, label: &str, is_ready: bool) -> Value {
    let hellos = json!({ "apiVersion": "example.com/v1", "resource": "hellos",
        "labelSelector": { "matchLabels": { "a": label } } });
    let condition = json!({ "type": "Ready", "status": if is_ready { "True" } else { "False" },
        "reason": "InvalidSpec", "message": "no hook", "lastTransitionTime": "" });
    json!({ "metadata": { "name": name }, "status": { "conditions": [condition] },
        "spec": { "parentResource": hellos, "resources": [hellos] } })
}

#[tokio::test]
async fn all_controllers_that_select_the_object_are_named() {
    let (selects, not) = ("b", "c");
    let composites = json!([
        controller("unlike", not, false),
        controller("hello", selects, false),
        controller("bye", selects, false),
        controller("runs", selects, true),
    ]);
    let running = vec!["CompositeController runs".to_owned(), "DecoratorController d".to_owned()];
    assert_eq!(
        ask([composites, json!([controller("d", selects, true)])]).await,
        Unremembered::NotRunning { id: id(), stopped: vec![stopped("hello"), stopped("bye")], running }
    );
    let unlike = json!([controller("unlike", not, false)]);
    let running = vec!["DecoratorController d".to_owned()];
    assert_eq!(
        ask([unlike.clone(), json!([controller("d", selects, true)])]).await,
        Unremembered::Calm { id: id(), controllers: running, ignoring: Vec::new() }
    );
    let controllers = vec!["CompositeController unlike".to_owned()];
    let parent = Some("Bye b".to_owned());
    let not_selected = Unremembered::NotSelected { id: id(), controllers, parent: parent.clone() };
    assert_eq!(ask([unlike, json!([])]).await, not_selected);
    assert_eq!(ask([json!([]), json!([])]).await, Unremembered::Child { id: id(), parent });
}

/// What a controller of these hooks may ignore, as the text says it.
fn ignored(spec: &Value, id: &ObjectId) -> String {
    let controller = "CompositeController c".to_owned();
    let ignoring = Ignoring::of(&controller, &json!({ "spec": spec }), id).into_iter().collect();
    Unremembered::Calm { id: id.clone(), controllers: vec![controller], ignoring }.to_string()
}

#[test]
fn a_controller_that_may_ignore_what_it_selects_is_told_apart() {
    let secret = {
        let gvk = Gvk::new("v1", "Secret");
        let resource = Resource { gvk, plural: "secrets".into(), namespaced: true, has_status: false };
        ObjectId { resource: resource.into(), key: Key::new("demo", "a") }
    };
    let (wasm, webhook) = (json!({ "wasm": { "url": "u" } }), json!({ "webhook": { "url": "u" } }));
    let none = "took its room (--trace-memory-max). To see";
    let finalizes = "; or CompositeController c, which has a finalize hook alone, reconciles it once it is being deleted. To";
    let secrets = "; or CompositeController c, whose hooks are modules or scripts, reconciles Secrets of the namespaces of --mount-secret-namespaces alone. To";
    let account = json!({ "hooks": { "sync": wasm }, "serviceAccountRef": { "name": "s" } });
    for (spec, id, says) in [
        (json!({ "hooks": { "sync": wasm, "finalize": wasm } }), id(), none),
        (json!({ "hooks": { "finalize": webhook } }), id(), finalizes),
        (json!({ "hooks": { "sync": {}, "finalize": wasm } }), id(), finalizes),
        (json!({ "hooks": { "sync": webhook } }), secret.clone(), none),
        (json!({ "hooks": { "sync": webhook, "customize": wasm } }), secret.clone(), secrets),
        (account, secret, none),
    ] {
        let text = ignored(&spec, &id);
        assert!(text.contains(says), "{spec}: {text}");
    }
}

#[test]
fn a_controller_that_is_not_ready_says_why() {
    let with = |status: &str| {
        json!({ "status": { "conditions": [{
            "type": "Ready", "status": status, "reason": "R", "message": "m", "lastTransitionTime": "",
        }] } })
    };
    assert_eq!(not_ready(&with("False")).as_deref(), Some("R: m"));
    assert_eq!((not_ready(&with("True")), not_ready(&json!({}))), (None, None));
}
