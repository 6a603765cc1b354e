//! The gallery of guests: each on the real control plane, and with the cases of its folder.

use acceptance::api::{Kind, Objects, POD, SERVICE};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Composite, Parent, condition, text, uid};
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::tutorial::types;

/// The guests whose folders have cases.
const WITH_CASES: [&str; 3] = ["bluegreen", "catset", "service-per-pod"];

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

/// The controller of the guest, for parents of the test alone.
async fn catset(test: &mut Fixture, kind: &Kind, claims: &Kind) -> Result<Composite> {
    test.store("hook", &guest("catset")?).await?;
    let hook = test.hook("hook").version("v2");
    let controller = test.controller().over(kind).of_parents_with("of-test", test.name());
    let controller = controller.making(&POD, "RollingRecreate").making(claims, "OnDelete");
    let mut controller = controller.synced_by(hook.clone()).finalized_by(hook).json();
    controller["spec"]["parentResource"]["revisionHistory"] = json!({ "fieldPaths": ["spec.template"] });
    let checks = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    controller["spec"]["childResources"][0]["updateStrategy"]["statusChecks"] = checks;
    Ok(Composite::of(controller))
}

fn named(expected: &'static [&'static str]) -> impl Fn(&[Value]) -> bool {
    move |all: &[Value]| all.iter().map(|one| text(one, "/metadata/name")).eq(expected.iter().copied())
}

/// As a kubelet reports it.
async fn is_ready(pods: &Objects, name: &str) -> Result<()> {
    let ready =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.merge_status(name, &ready).await.map(drop)
}

pub(crate) async fn catset_makes_and_deletes_its_pods_one_at_a_time(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "CatSet", "catsets");
    let claims = Kind::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    let controller = catset(test, &kind, &claims).await?;
    test.serve()?;
    test.host(controller).await?;
    let (sets, claims, pods) = (test.within(&kind), test.within(&claims), test.pods());
    let template = |image: &str| json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
    let claim =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } });
    let spec = json!({
        "replicas": 2, "serviceName": "cats", "template": template("one"),
        "volumeClaimTemplates": [{ "metadata": { "name": "www" }, "spec": claim }],
    });
    let parent = Parent::named(&kind, "shop").labelled("of-test", test.name()).with(spec).json();
    test.make(&sets, parent).await?;
    let counts = |replicas: i64, ready: i64| {
        move |set: &Value| set["status"]["replicas"] == replicas && set["status"]["readyReplicas"] == ready
    };

    // The second Pod waits for the first one.
    pods.until_all("the first", named(&["shop-0"])).await?;
    sets.until("shop", "one that is not ready", counts(1, 0)).await?;
    ensure!(named(&["shop-0"])(&pods.list().await?), "the second Pod does not wait");
    is_ready(&pods, "shop-0").await?;
    let first = pods.until_all("both", named(&["shop-0", "shop-1"])).await?;
    is_ready(&pods, "shop-1").await?;
    sets.until("shop", "two that are ready", counts(2, 2)).await?;
    let both = claims.until_all("a claim each", named(&["www-shop-0", "www-shop-1"])).await?;

    // A new template: the last Pod first, and the first one when that is ready.
    sets.merge("shop", &json!({ "spec": { "template": template("two") } })).await?;
    let has = |image: &'static str| move |pod: &Value| pod["spec"]["containers"][0]["image"] == image;
    pods.until("shop-1", "the new image", has("two")).await?;
    sets.until("shop", "one that is not ready", counts(2, 1)).await?;
    ensure!(uid(&pods.get("shop-0").await?) == uid(&first[0]), "the first Pod does not wait");
    is_ready(&pods, "shop-1").await?;
    pods.until("shop-0", "the new image", has("two")).await?;
    is_ready(&pods, "shop-0").await?;
    sets.until("shop", "two that are ready", counts(2, 2)).await?;

    // Fewer Pods: the last one goes, and its claim stays for the next one of its number.
    sets.merge("shop", &json!({ "spec": { "replicas": 1 } })).await?;
    pods.until_all("one", named(&["shop-0"])).await?;
    sets.until("shop", "one that is ready", counts(1, 1)).await?;
    sets.merge("shop", &json!({ "spec": { "replicas": 2 } })).await?;
    pods.until_all("both again", named(&["shop-0", "shop-1"])).await?;
    is_ready(&pods, "shop-1").await?;
    sets.until("shop", "two that are ready", counts(2, 2)).await?;
    let now = claims.list().await?;
    ensure!(now.iter().map(uid).eq(both.iter().map(uid)), "the claims do not stay: {now:#?}");

    // The last Pod takes its time to go, and the first one waits for that.
    let holds = |by: Value| json!({ "metadata": { "finalizers": by } });
    pods.merge("shop-1", &holds(json!(["example.com/holds"]))).await?;
    sets.delete("shop").await?;
    sets.until("shop", "one that goes", counts(2, 1)).await?;
    ensure!(pods.get("shop-0").await?["metadata"]["deletionTimestamp"].is_null(), "the first one goes, too");
    pods.merge("shop-1", &holds(Value::Null)).await?;
    sets.until_gone("shop").await?;
    pods.until_all("none", named(&[])).await?;
    claims.until_all("none", named(&[])).await?;
    Ok(())
}

/// Volumes of the node's disk, one for each of the example's claims.
async fn volumes(test: &mut Fixture, numbers: std::ops::Range<usize>) -> Result<()> {
    let place = test.everywhere(&Kind::new("", "v1", "PersistentVolume", "persistentvolumes"));
    for number in numbers {
        let claim = json!({ "namespace": test.name(), "name": format!("www-shop-{number}") });
        let folder = json!({ "path": format!("/var/lib/catset/{number}"), "type": "DirectoryOrCreate" });
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": format!("{}-{number}", test.name()) },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Mi" },
                "claimRef": claim, "hostPath": folder,
            },
        });
        test.make(&place, volume).await?;
    }
    Ok(())
}

/// When the Pod became ready.
fn ready_since(pod: &Value) -> &str {
    condition(pod, "Ready").map_or("", |ready| text(ready, "/lastTransitionTime"))
}

pub(crate) async fn catset_runs_on_volumes_of_the_node(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "CatSet", "catsets");
    let claims = Kind::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    let controller = catset(test, &kind, &claims).await?;
    volumes(test, 0..3).await?;
    test.serve()?;
    test.host(controller).await?;
    let (kubectl, namespace) = (test.plane().kubectl(), test.name().to_owned());
    types(&kubectl, &format!("-n {namespace} apply -f guests/catset/example.yaml")).await?;
    types(&kubectl, &format!("-n {namespace} label catset shop of-test={namespace}")).await?;
    let (sets, pods) = (test.within(&kind), test.pods());
    let all = named(&["shop-0", "shop-1", "shop-2"]);
    let ready = |set: &Value| set["status"]["readyReplicas"] == 3;
    sets.until("shop", "three that are ready", ready).await?;
    let made = pods.until_all("three", &all).await?;
    for [earlier, later] in made.array_windows() {
        let later = text(later, "/metadata/creationTimestamp");
        ensure!(ready_since(earlier) <= later, "made at {later}, before {earlier} was ready");
    }
    let written = async |number: usize| {
        test.plane().on_node(&["cat", &format!("/var/lib/catset/{number}/index.html")]).await
    };
    ensure!(written(1).await? == "shop-1", "the Pod did not write to its volume");

    // A new template: new Pods, with the volumes of the old ones.
    let template = json!({ "spec": { "terminationGracePeriodSeconds": 2 } });
    sets.merge("shop", &json!({ "spec": { "template": template } })).await?;
    let renewed = |pods: &[Value]| {
        all(pods) && pods.iter().all(|pod| pod["spec"]["terminationGracePeriodSeconds"] == 2)
    };
    pods.until_all("three new ones", renewed).await?;
    sets.until("shop", "three that are ready again", ready).await?;
    ensure!(written(1).await? == "shop-1\nshop-1", "what was written is not there: {}", written(1).await?);

    // The last one goes first, and the next one when it has gone.
    sets.delete("shop").await?;
    let order = [named(&["shop-0", "shop-1", "shop-2"]), named(&["shop-0", "shop-1"]), named(&["shop-0"])];
    until("no Pod", PATIENCE, async || {
        let left = pods.list().await?;
        ensure!(left.is_empty() || order.iter().any(|is| is(&left)), "they go in another order: {left:#?}");
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{} are left", left.len())) })
    })
    .await?;
    sets.until_gone("shop").await?;
    test.within(&claims).until_all("none", named(&[])).await.map(drop)
}
