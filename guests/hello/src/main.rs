//! The tutorial's hook: for each `HelloWorld` one Pod that prints a greeting.

use metahook_sdk::{Sync, SyncResponse};
use serde::Deserialize;
use serde_json::json;

#[derive(Default, Deserialize)]
struct Spec {
    who: Option<String>,
}

fn sync(request: &Sync<'_, Spec>) -> SyncResponse {
    let parent = &request.parent;
    let who = parent.spec.who.as_deref().unwrap_or("World");
    SyncResponse::new()
        .status(json!({ "pods": request.children.group("Pod.v1").len() }))
        .child(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": parent.metadata.name },
            "spec": {
                "restartPolicy": "OnFailure",
                "containers": [{ "name": "hello", "image": "busybox", "command": ["echo", format!("Hello, {who}!")] }]
            }
        }))
}

fn main() -> std::process::ExitCode {
    metahook_sdk::run(sync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_sdk::testing::Request;
    use serde_json::Value;

    fn hello(spec: &Value) -> Request {
        Request::of(json!({
            "apiVersion": "example.com/v1",
            "kind": "HelloWorld",
            "metadata": { "name": "your-name", "namespace": "hello" },
            "spec": spec
        }))
    }

    #[test]
    fn a_pod_named_as_the_parent_greets_who_is_asked_for() {
        let answer = hello(&json!({ "who": "Your Name" })).declared("Pod.v1").call(sync).unwrap();
        assert_eq!(answer.status, json!({ "pods": 0 }));
        assert_eq!(
            answer.children,
            [json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": "your-name" },
                "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [
                        { "name": "hello", "image": "busybox", "command": ["echo", "Hello, Your Name!"] }
                    ]
                }
            })]
        );
    }

    #[test]
    fn observed_pods_are_counted_and_change_nothing_else() {
        let first = hello(&json!({})).call(sync).unwrap();
        let request = first.children.iter().cloned().fold(hello(&json!({})), Request::observed);
        let again = request.call(sync).unwrap();
        assert_eq!(again.status, json!({ "pods": 1 }));
        assert_eq!(again.children, first.children);
    }

    #[test]
    fn the_world_is_greeted_where_no_name_is_given() {
        for spec in [json!(null), json!({}), json!({ "who": null })] {
            let answer = hello(&spec).call(sync).unwrap();
            assert_eq!(
                answer.children[0]["spec"]["containers"][0]["command"],
                json!(["echo", "Hello, World!"])
            );
        }
    }

    #[test]
    fn a_name_is_greeted_as_it_is_written() {
        for who in ["", "\"Ann\"\n", "Zoë 😀", "%s {who} \\"] {
            let answer = hello(&json!({ "who": who })).call(sync).unwrap();
            let greeting = format!("Hello, {who}!");
            assert_eq!(answer.children[0]["spec"]["containers"][0]["command"], json!(["echo", greeting]));
        }
    }

    #[test]
    fn a_spec_of_another_type_is_refused_by_name() {
        let why = hello(&json!({ "who": 5 })).call(sync).unwrap_err();
        assert!(why.starts_with("request.parent.spec.who: 5 where a string should be"), "{why}");
    }
}
