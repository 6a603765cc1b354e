//! Cases of children that other clients change, too.

use acceptance::api::{CONFIG_MAP, DEPLOYMENT, EVENT, Kind};
use acceptance::fixture::Fixture;
use acceptance::objects::{text, uid, version};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kit::{DYNAMIC, EACH_WAY, IN_PLACE, SERVER_SIDE, World, are_quiet, in_each, wide_worlds, worlds};

const RBAC: &str = "rbac.authorization.k8s.io";
const LAST_APPLIED: &str = "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration";

fn aggregated(name: &str, rules: &Value) -> Value {
    let mut role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": name },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "to": name } }] },
    });
    if !rules.is_null() {
        role["rules"] = rules.clone();
    }
    json!([role])
}

/// C05: the rules of an aggregated `ClusterRole` are emptied again and again.
pub(crate) async fn c05_the_rules_of_an_aggregated_role_stay(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new(RBAC, "v1", "ClusterRole", "clusterroles");
    let worlds = wide_worlds(test, &IN_PLACE, &[&kind]).await?;
    for world in &worlds {
        let name = world.controller.clone();
        let roles = world.objects(test, &kind);
        for (nth, rules) in [json!([]), Value::Null, json!([])].iter().enumerate() {
            world.answers(test, aggregated(&name, rules)).await?;
            let one = json!({ "apiGroups": [""], "resources": [format!("things{nth}")], "verbs": ["get"] });
            let part = json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
                "metadata": { "name": format!("{name}-{nth}"), "labels": { "to": &name } },
                "rules": [one],
            });
            test.make(&roles, part).await?;
            let has_all = |role: &Value| role["rules"].as_array().map_or(0, Vec::len) == nth + 1;
            roles.until(&name, "aggregated", has_all).await?;
            world.is_still(test, &[&kind]).await?;
            let role = roles.get(&name).await?;
            ensure!(has_all(&role), "{role}");
        }
    }
    are_quiet(test, &worlds, &[&kind]).await
}

fn annotated(own: &str) -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "x" } },
            "template": {
                "metadata": { "labels": { "app": "x" }, "annotations": { "own": own } },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            },
        },
    }])
}

/// C06: `kubectl rollout restart` is undone.
pub(crate) async fn c06_a_rollout_restart_by_kubectl_stays(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&DEPLOYMENT]).await?;
    let of_template = |it: &Value, key: &str| it["spec"]["template"]["metadata"]["annotations"][key].clone();
    let revision = |it: &Value| {
        text(it, "/metadata/annotations/deployment.kubernetes.io~1revision").parse().unwrap_or(0_u32)
    };
    for world in &worlds {
        world.answers(test, annotated("1")).await?;
    }
    in_each(test, &worlds, &DEPLOYMENT, "x", |it| revision(it) == 1).await?;
    for world in &worlds {
        let deployments = world.objects(test, &DEPLOYMENT);
        let made = deployments.get("x").await?;
        let restart = ["rollout", "restart", "deployment/x", "-n", &world.namespace];
        test.plane().kubectl().run(&restart).await?;
        let restarted = deployments.until("x", "its second revision", |it| revision(it) == 2).await?;
        let at = of_template(&restarted, "kubectl.kubernetes.io/restartedAt");
        world.is_still(test, &[&DEPLOYMENT]).await?;
        let still = deployments.get("x").await?;
        ensure!(uid(&still) == uid(&made), "{:?}: made anew for a restart", world.way);
        ensure!(at.is_string() && of_template(&still, "kubectl.kubernetes.io/restartedAt") == at, "{still}");

        world.answers(test, annotated("2")).await?;
        if world.way.0 == "Recreate" {
            let is_new =
                |it: &Value| uid(it) != uid(&made) && of_template(it, "own") == "2" && revision(it) == 1;
            deployments.until("x", "made anew", is_new).await?;
            continue;
        }
        let changed = |it: &Value| of_template(it, "own") == "2" && revision(it) == 3;
        let after = deployments.until("x", "its third revision", changed).await?;
        ensure!(of_template(&after, "kubectl.kubernetes.io/restartedAt") == at, "{after}");
        ensure!(uid(&after) == uid(&made), "{after}");
    }
    are_quiet(test, &worlds, &[&DEPLOYMENT]).await
}

const WEBHOOKS: &str = "admissionregistration.k8s.io";
const THEIRS: &str = "dGhlaXJz";

fn webhooks(name: &str, bundle: &Value) -> Value {
    let mut config = json!({ "service": { "namespace": name, "name": "none" } });
    if !bundle.is_null() {
        config["caBundle"] = bundle.clone();
    }
    let webhook = |name: &str, config: Value| {
        json!({
            "name": format!("{name}.example.com"), "clientConfig": config, "failurePolicy": "Ignore",
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": ["nothing.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["nothings"],
            }],
        })
    };
    let other = json!({ "service": { "namespace": name, "name": "other" }, "caBundle": "b3RoZXI=" });
    json!([{
        "apiVersion": format!("{WEBHOOKS}/v1"), "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": [webhook("one", config), webhook("two", other)],
    }])
}

fn bundle(config: &Value) -> &str {
    text(config, "/webhooks/0/clientConfig/caBundle")
}

/// Another client writes its bundle where it is not there.
async fn inject(test: &Fixture, world: &World, kind: &Kind) -> Result<()> {
    let configs = world.objects(test, kind);
    let config = configs.get(&world.controller).await?;
    if bundle(&config) != THEIRS {
        let mut webhooks = config["webhooks"].clone();
        webhooks[0]["clientConfig"]["caBundle"] = json!(THEIRS);
        let version = json!({ "resourceVersion": version(&config) });
        // Where the server was faster, the next look finds what it wrote.
        drop(configs.merge(&world.controller, &json!({ "metadata": version, "webhooks": webhooks })).await);
    }
    Ok(())
}

/// C07: cert-manager injects a bundle that the hook has empty, or that the hook has, too.
pub(crate) async fn c07_an_injected_bundle_stays(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new(WEBHOOKS, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
    let worlds = wide_worlds(test, &EACH_WAY, &[&kind]).await?;
    for world in &worlds {
        world.answers(test, webhooks(&world.controller, &Value::Null)).await?;
    }
    for world in &worlds {
        let configs = world.objects(test, &kind);
        configs.until(&world.controller, "made", |_| true).await?;
        inject(test, world, &kind).await?;
        world.is_still(test, &[&kind]).await?;
        world.answers(test, webhooks(&world.controller, &json!(""))).await?;
    }
    are_quiet(test, &worlds, &[&kind]).await?;
    for world in &worlds {
        let config = world.objects(test, &kind).get(&world.controller).await?;
        ensure!(bundle(&config) == THEIRS, "{:?}: {config}", world.way);
    }
    for world in worlds.iter().filter(|world| world.way.0 == "InPlace") {
        let before = world.reconciles(test)?.written;
        world.answers(test, webhooks(&world.controller, &json!("Cg=="))).await?;
        until("the Event", PATIENCE, async || {
            inject(test, world, &kind).await?;
            let fields = "reason=ValueFlapping";
            let events = world.objects(test, &EVENT).list_where(fields).await?;
            let names = |event: &&Value| {
                text(event, "/involvedObject/name") == world.controller
                    && text(event, "/message").contains("caBundle")
            };
            Ok(match events.iter().find(names) {
                Some(event) if text(event, "/message").contains("one.example.com") => Ok(()),
                found => Err(format!("{found:?}")),
            })
        })
        .await?;
        // Five corrections at once, and the status of the parent.
        let written = world.reconciles(test)?.written - before;
        ensure!(written <= 8, "{:?}: written {written} times", world.way);
        let config = world.objects(test, &kind).get(&world.controller).await?;
        ensure!(config["webhooks"][1]["clientConfig"]["caBundle"] == "b3RoZXI=", "{config}");
    }
    Ok(())
}

/// C08: a writer of another version has the metrics of an autoscaler in another order.
pub(crate) async fn c08_metrics_in_another_order_are_corrected_in_place(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    let worlds = worlds(test, &EACH_WAY, &[&kind]).await?;
    let metric = |name: &str| {
        let target = json!({ "type": "Utilization", "averageUtilization": 50 });
        json!({ "type": "Resource", "resource": { "name": name, "target": target } })
    };
    let metrics = json!([metric("cpu"), metric("memory")]);
    let answer = json!([{
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "x" },
        "spec": {
            "minReplicas": 1, "maxReplicas": 2, "metrics": metrics,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "none" },
        },
    }]);
    for world in &worlds {
        world.answers(test, answer.clone()).await?;
    }
    in_each(test, &worlds, &kind, "x", |it| it["spec"]["metrics"] == metrics).await?;
    for world in &worlds {
        world.is_still(test, &[&kind]).await?;
        let made = world.objects(test, &kind).get("x").await?;
        let before = world.reconciles(test)?;
        let (kubectl, namespace) = (test.plane().kubectl(), format!("-n={}", world.namespace));
        let v1 = kubectl.run(&["get", "hpa.v1.autoscaling", "x", &namespace, "-o=json"]).await?;
        let file = test.plane().scratch().join(format!("{}-v1.json", world.namespace));
        std::fs::write(&file, v1)?;
        kubectl.run(&["replace", &namespace, &format!("-f={}", file.display())]).await?;
        world.is_still(test, &[&kind]).await?;
        let after = world.objects(test, &kind).get("x").await?;
        ensure!(uid(&after) == uid(&made), "{:?}: made anew for an order", world.way);
        ensure!(after["spec"]["metrics"] == metrics, "{:?}: {after}", world.way);
        let written = world.reconciles(test)?.written - before.written;
        ensure!(written <= 1, "{:?}: written {written} times", world.way);
    }
    are_quiet(test, &worlds, &[&kind]).await
}

/// C11: a field that is dropped after a change of the apply strategy stays for ever.
pub(crate) async fn c11_a_field_dropped_after_a_change_of_strategy_goes(test: &mut Fixture) -> Result<()> {
    let things = Kind::new(&format!("things.{}.example.com", test.name()), "v1", "Thing", "things");
    test.define(&things).await?;
    let kinds: [&Kind; 2] = [&CONFIG_MAP, &things];
    let worlds = worlds(test, &[("InPlace", DYNAMIC)], &kinds).await?;
    let world = worlds.first().context("no world")?;
    let mut later = test.controller().renamed(&world.controller).with("applyStrategy", SERVER_SIDE);
    for kind in kinds {
        later = later.making(kind, "InPlace");
    }
    test.grant(later.synced_by(test.hook("echo").version("v2"))).await?;
    let switch = |way: &str| json!({ "spec": { "applyStrategy": way } });
    let answer = |data: Value, item: Value| {
        json!([
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" }, "data": data },
            {
                "apiVersion": things.api_version(), "kind": "Thing", "metadata": { "name": "x" },
                "spec": { "list": [item, { "k": "other" }] },
            },
        ])
    };
    let (maps, all_things) = (world.objects(test, &CONFIG_MAP), world.objects(test, &things));
    let is_made = |it: &Value| it["spec"]["list"][0] == json!({ "k": "1", "l": "1" });
    world.answers(test, answer(json!({ "a": "1", "b": "1" }), json!({ "k": "1", "l": "1" }))).await?;
    let first = maps.until("x", "made", |map| map["data"]["b"] == "1").await?;
    let thing = all_things.until("x", "made", is_made).await?;
    maps.merge("x", &json!({ "data": { "c": "theirs" } })).await?;

    test.controllers().merge(&world.controller, &switch(SERVER_SIDE)).await?;
    let is_recorded = |it: &Value| !text(it, LAST_APPLIED).is_empty();
    maps.until("x", "handed over", |map| !is_recorded(map)).await?;
    world.answers(test, answer(json!({ "a": "1" }), json!({ "k": "1" }))).await?;
    maps.until("x", "rid of b", |map| map["data"] == json!({ "a": "1", "c": "theirs" })).await?;
    let is_short = |it: &Value| it["spec"]["list"] == json!([{ "k": "1" }, { "k": "other" }]);
    all_things.until("x", "rid of l", is_short).await?;
    let namespace = format!("-n={}", world.namespace);
    let get = [
        "get",
        "configmap",
        "x",
        &namespace,
        "--show-managed-fields",
        "-o=jsonpath={.metadata.managedFields}",
    ];
    let managers = test.plane().kubectl().run(&get).await?;
    ensure!(managers.contains("f:a") && !managers.contains("f:b"), "{managers}");
    world.is_still(test, &kinds).await?;

    test.controllers().merge(&world.controller, &switch(DYNAMIC)).await?;
    maps.until("x", "recorded again", is_recorded).await?;
    world.answers(test, answer(json!({ "a": "1", "d": "1" }), json!({ "k": "1" }))).await?;
    let is_merged = |map: &Value| map["data"] == json!({ "a": "1", "c": "theirs", "d": "1" });
    let last = maps.until("x", "merged", is_merged).await?;
    ensure!(uid(&last) == uid(&first) && uid(&all_things.get("x").await?) == uid(&thing), "made anew");
    world.is_quiet(test, &kinds).await
}
