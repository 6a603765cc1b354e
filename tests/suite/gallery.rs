//! The gallery of guests: each on the real control plane, and with the cases of its folder.

use acceptance::api::{Kind, SERVICE};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::text;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

/// The guests whose folders have cases.
const WITH_CASES: [&str; 1] = ["service-per-pod"];

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
