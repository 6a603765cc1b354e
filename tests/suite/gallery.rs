//! The gallery of guests: each on the real control plane, and with the cases of its folder.

use acceptance::api::{Kind, SERVICE};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::text;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

/// The guests whose folders have cases.
const WITH_CASES: [&str; 2] = ["bluegreen", "service-per-pod"];

pub(crate) async fn the_cases_of_each_guest_pass(test: &mut Fixture) -> Result<()> {
    for name in WITH_CASES {
        let module = test.plane().scratch().join(format!("{name}.wasm"));
        std::fs::write(&module, guest(name)?)?;
        let cases = paths::workspace().join("guests").join(name).join("tests");
        let ended =
            Command::new(paths::server()?).arg("test").arg(cases).arg("--module").arg(module).output();
        let ended = ended.await?;
        let said = String::from_utf8_lossy(&ended.stdout);
        ensure!(ended.status.success() && said.ends_with(" passed, 0 failed\n"), "{name}: {said}");
    }
    Ok(())
}

/// Pods become ready by hand, as a kubelet would tell it.
pub(crate) async fn bluegreen_switches_when_the_new_side_is_ready(test: &mut Fixture) -> Result<()> {
    const COLOUR: &str = "bluegreen.example.com/colour";
    let sets = Kind::new("apps", "v1", "ReplicaSet", "replicasets");
    test.define_kind().await?;
    test.store("hook", &guest("bluegreen")?).await?;
    test.serve()?;
    let controller = test.controller().making(&sets, "InPlace").making(&SERVICE, "InPlace");
    test.host(controller.synced_by(test.hook("hook").version("v2"))).await?;
    let template = |image: &str| json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
    test.create(test.parent("shop").with(json!({ "replicas": 2, "template": template("one") }))).await?;

    let (sets, services, pods) = (test.within(&sets), test.within(&SERVICE), test.pods());
    let selects = |colour: &'static str| move |service: &Value| service["spec"]["selector"][COLOUR] == colour;
    let of = |colour: &'static str, image: &'static str| {
        move |pod: &&Value| {
            pod["metadata"]["labels"][COLOUR] == colour && pod["spec"]["containers"][0]["image"] == image
        }
    };
    services.until("shop", "blue", selects("blue")).await?;
    pods.until_all("two Pods", |all| all.iter().filter(of("blue", "one")).count() == 2).await?;
    let phase = |phase: &'static str, live: &'static str| {
        move |parent: &Value| parent["status"]["phase"] == phase && parent["status"]["live"] == live
    };
    test.parents().until("shop", "at rest", phase("Stable", "blue")).await?;

    test.parents().merge("shop", &json!({ "spec": { "template": template("two") } })).await?;
    let two = |all: &[Value]| all.iter().filter(of("green", "two")).count() == 2;
    let all = pods.until_all("two of each side", two).await?;
    test.parents().until("shop", "under way", phase("Rolling", "blue")).await?;
    let ready =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    for (nth, pod) in all.iter().filter(of("green", "two")).enumerate() {
        ensure!(
            services.get("shop").await.is_ok_and(|it| selects("blue")(&it)),
            "it switched after {nth} Pods"
        );
        pods.merge_status(text(pod, "/metadata/name"), &ready).await?;
    }
    services.until("shop", "green", selects("green")).await?;
    test.parents().until("shop", "at rest again", phase("Stable", "green")).await?;
    sets.until("shop-blue", "at rest", |set| set["spec"]["replicas"] == 0).await?;
    pods.until_all("the Pods of green alone", |all| all.len() == 2 && two(all)).await?;
    Ok(())
}

/// As its `StatefulSet` controller makes them, there are Pods without a node; the Services do not wait for them.
pub(crate) async fn service_per_pod_follows_its_stateful_set(test: &mut Fixture) -> Result<()> {
    const PORTS: &str = "metahook.dev/service-per-pod";
    let sets = Kind::new("apps", "v1", "StatefulSet", "statefulsets");
    test.store("hook", &guest("service-per-pod")?).await?;
    test.serve()?;
    let (label, hook) = (test.label(), test.hook("hook").version("v2"));
    let (key, value) = label.split_once('=').context("a label")?;
    let rule = json!({
        "labelSelector": { "matchLabels": { key: value } },
        "annotationSelector": { "matchExpressions": [{ "key": PORTS, "operator": "Exists" }] },
    });
    let controller = test.decorator().decorating(&sets, rule).attaching(&SERVICE, "InPlace");
    test.host_decorator(controller.synced_by(hook.clone()).finalized_by(hook)).await?;

    let (sets, services) = (test.within(&sets), test.within(&SERVICE));
    let pod = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "web", "labels": { key: value }, "annotations": { PORTS: "80:8080" } },
        "spec": { "replicas": 2, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } }, "template": pod },
    });
    let made = test.make(&sets, set).await?;
    let names = |expected: &'static [&'static str]| {
        move |all: &[Value]| all.iter().map(|one| text(one, "/metadata/name")).eq(expected.iter().copied())
    };
    let all = services.until_all("one for each Pod", names(&["web-0", "web-1"])).await?;
    ensure!(
        all[1]["spec"]["selector"] == json!({ "statefulset.kubernetes.io/pod-name": "web-1" }),
        "{all:#?}"
    );
    sets.merge("web", &json!({ "spec": { "replicas": 3 } })).await?;
    services.until_all("one more", names(&["web-0", "web-1", "web-2"])).await?;
    sets.merge("web", &json!({ "spec": { "replicas": 1 } })).await?;
    services.until_all("that of the first", names(&["web-0"])).await?;
    let port = |wanted: i64| move |one: &Value| one["spec"]["ports"][0]["port"] == wanted;
    sets.merge("web", &json!({ "metadata": { "annotations": { PORTS: "81" } } })).await?;
    services.until("web-0", "its new port", port(81)).await?;

    sets.merge("web", &json!({ "metadata": { "annotations": { PORTS: "many" } } })).await?;
    let says = |event: &Value| text(event, "/message").contains("many is no port: write numbers");
    test.until_event_on(&made, "SyncError", says).await?;
    ensure!(services.find("web-0").await?.is_some_and(|one| port(81)(&one)), "an error changed something");
    // Without the annotation they go, and the StatefulSet stays without a finalizer.
    sets.merge("web", &json!({ "metadata": { "annotations": { PORTS: null } } })).await?;
    services.until_all("none", names(&[])).await?;
    let free = |set: &Value| set["metadata"].get("finalizers").is_none();
    sets.until("web", "free", free).await?;
    sets.merge("web", &json!({ "metadata": { "annotations": { PORTS: "82" } } })).await?;
    services.until("web-0", "there again", port(82)).await?;
    sets.delete("web").await?;
    sets.until_gone("web").await?;
    ensure!(services.list().await?.is_empty(), "a Service outlives its StatefulSet");
    Ok(())
}
