//! What the server says to the author of a hook that is accepted: on the parent, in Events.

use acceptance::api::{CONFIG_MAP, EVENT, POD};
use acceptance::fixture::Fixture;
use acceptance::objects::{definition, is_true, text};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::wasm;

fn says(message: &str) -> impl Fn(&Value) -> bool {
    move |event| text(event, "/message") == message && event["type"] == "Warning"
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
    test.host(controller.synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    let about_pods = |event: &Value| {
        let message = text(event, "/message");
        message.starts_with("create Pod") && message.ends_with("unknown field \"spec.containers[0].imagee\"")
    };
    test.until_event("p", "ApiWarning", about_pods).await?;
    test.until_event("p", "ApiWarning", |event| text(event, "/message").ends_with("unknown field \"dataa\""))
        .await?;
    let about_status = |event: &Value| text(event, "/message").ends_with("unknown field \"status.redy\"");
    test.until_event("p", "ApiWarning", about_status).await?;
    let ignored = "The sync hook's answer has the unknown field statuss; that has no effect";
    test.until_event("p", "AnswerIgnored", says(ignored)).await?;
    test.parents().until("p", "its status", |parent| parent["status"]["ready"] == 1).await?;
    // Two Pods with the same mistake are told of once.
    let events = test.within(&EVENT).list().await?;
    let of_pods: Vec<_> = events.iter().filter(|event| about_pods(event)).collect();
    ensure!(of_pods.len() == 1 && of_pods.iter().all(|event| event["count"] == 1), "{of_pods:?}");
    Ok(())
}
