//! Cases of children: compared, merged, written.

use acceptance::api::{CONFIG_MAP, DEPLOYMENT, Kind, SERVICE, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::{text, uid, version};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kit::{DYNAMIC, EACH_WAY, IN_PLACE, SERVER_SIDE, World, are_quiet, in_each, worlds};

const RBAC: &str = "rbac.authorization.k8s.io";

/// All worlds get the same answer.
async fn all_answer(test: &mut Fixture, worlds: &[World], children: &Value) -> Result<()> {
    for world in worlds {
        world.answers(test, children.clone()).await?;
    }
    Ok(())
}

fn deployment(env: &Value) -> Value {
    let container = json!({ "name": "web", "image": "web", "env": env });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "x" } },
            "template": { "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [container] } },
        },
    })
}

/// C02: `$(VAR)` expands only what stands before it.
pub(crate) async fn c02_the_order_of_env_is_that_of_the_answer(test: &mut Fixture) -> Result<()> {
    let rolling =
        [("RollingInPlace", DYNAMIC), ("RollingRecreate", DYNAMIC), ("RollingInPlace", SERVER_SIDE)];
    let ways: Vec<_> = EACH_WAY.into_iter().chain(rolling).collect();
    let worlds = worlds(test, &ways, &[&DEPLOYMENT]).await?;
    let variable = |name: &str| json!({ "name": name, "value": if name == "A" { "$(B)-x" } else { "1" } });
    for names in [["A", "B"].as_slice(), &["B", "A"], &["B", "NEW", "A"], &["A"]] {
        let env: Value = names.iter().map(|name| variable(name)).collect();
        for world in &worlds {
            world.answers(test, json!([deployment(&env)])).await?;
        }
        let has_order = |child: &Value| child["spec"]["template"]["spec"]["containers"][0]["env"] == env;
        in_each(test, &worlds, &DEPLOYMENT, "x", has_order).await?;
    }
    are_quiet(test, &worlds, &[&DEPLOYMENT]).await
}

/// C04: another client adds to the lists of a `ServiceAccount`, as `OpenShift` does.
pub(crate) async fn c04_a_service_account_keeps_what_another_client_added(test: &mut Fixture) -> Result<()> {
    let ways = EACH_WAY.into_iter().filter(|way| way.1 == DYNAMIC).collect::<Vec<_>>();
    let worlds = worlds(test, &ways, &[&SERVICE_ACCOUNT]).await?;
    let account =
        |name: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    let ours = json!([{ "name": "ours" }]);
    let theirs = json!([{ "name": "s-dockercfg-1" }]);
    let both = json!([{ "name": "ours" }, { "name": "s-dockercfg-1" }]);
    let tokens = json!([{ "name": "tok-1" }]);
    let mut with_ours = account("s");
    with_ours["imagePullSecrets"] = ours.clone();
    all_answer(test, &worlds, &json!([with_ours, account("bare")])).await?;
    in_each(test, &worlds, &SERVICE_ACCOUNT, "s", |it| it["imagePullSecrets"] == ours).await?;
    in_each(test, &worlds, &SERVICE_ACCOUNT, "bare", |_| true).await?;
    let rows = [("s", &both), ("bare", &theirs)];
    for world in &worlds {
        let accounts = world.objects(test, &SERVICE_ACCOUNT);
        for (name, pull) in rows {
            accounts.merge(name, &json!({ "secrets": tokens, "imagePullSecrets": pull })).await?;
        }
    }
    are_quiet(test, &worlds, &[&SERVICE_ACCOUNT]).await?;
    for world in &worlds {
        for (name, pull) in rows {
            let account = world.objects(test, &SERVICE_ACCOUNT).get(name).await?;
            ensure!((&account["imagePullSecrets"], &account["secrets"]) == (pull, &tokens), "{account}");
        }
    }
    Ok(())
}

fn role_binding(subjects: &[&Value]) -> Value {
    json!([{
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": "x" },
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": "empty" }, "subjects": subjects,
    }])
}

/// C04: another client adds a subject of the same name to a `RoleBinding`.
pub(crate) async fn c04_a_role_binding_keeps_the_subject_of_another_client(test: &mut Fixture) -> Result<()> {
    let (kind, roles) = (rbac("RoleBinding"), rbac("Role"));
    let ways = EACH_WAY.into_iter().filter(|way| way.1 == DYNAMIC).collect::<Vec<_>>();
    let worlds = worlds(test, &ways, &[&kind]).await?;
    let account = |namespace: &str, name: &str| json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name });
    let (ours, theirs, next) = (account("ours", "a"), account("theirs", "a"), account("ours", "b"));
    for world in &worlds {
        let role = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": "empty" }, "rules": [],
        });
        test.make(&world.objects(test, &roles), role).await?;
    }
    all_answer(test, &worlds, &role_binding(&[&ours])).await?;
    in_each(test, &worlds, &kind, "x", |it| it["subjects"] == json!([ours])).await?;
    let mut made = Vec::new();
    for world in &worlds {
        let change = json!({ "subjects": [ours, theirs] });
        made.push(world.objects(test, &kind).merge("x", &change).await?);
    }
    are_quiet(test, &worlds, &[&kind]).await?;
    for (world, made) in worlds.iter().zip(&made) {
        let bindings = world.objects(test, &kind);
        let both = bindings.get("x").await?;
        ensure!(version(&both) == version(made), "{:?}: {both}", world.way);
        // What is theirs stays in place; a binding that is made anew has what is ours alone.
        let after_drift = if world.way.0 == "InPlace" { vec![&ours, &theirs] } else { vec![&ours] };
        bindings.merge("x", &json!({ "subjects": [theirs] })).await?;
        bindings.until("x", "corrected", |it| has_all(it, &after_drift)).await?;
        world.answers(test, role_binding(&[&next])).await?;
        let after_change = if world.way.0 == "InPlace" { vec![&next, &theirs] } else { vec![&next] };
        let is_next = |it: &Value| has_all(it, &after_change);
        let after = bindings.until("x", "with another subject of ours", is_next).await?;
        ensure!((uid(&after) == uid(made)) == (world.way.0 == "InPlace"), "{:?}: {after}", world.way);
    }
    are_quiet(test, &worlds, &[&kind]).await
}

/// The binding has these subjects and no other, in any order.
fn has_all(binding: &Value, subjects: &[&Value]) -> bool {
    let found = binding["subjects"].as_array();
    found.is_some_and(|all| {
        all.len() == subjects.len() && subjects.iter().all(|subject| all.contains(subject))
    })
}

fn rbac(kind: &str) -> Kind {
    Kind::new(RBAC, "v1", kind, &format!("{}s", kind.to_lowercase()))
}

fn stateful_set(image: &str, storage: &str) -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "x" },
        "spec": {
            "replicas": 1, "serviceName": "x", "selector": { "matchLabels": { "app": "x" } },
            "template": {
                "metadata": { "labels": { "app": "x" } },
                "spec": { "containers": [{ "name": "web", "image": image }] },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": storage } } },
            }],
        },
    }])
}

/// C01: a `StatefulSet` with templates of volume claims is updated for ever.
pub(crate) async fn c01_claim_templates_with_defaults_are_no_difference(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("apps", "v1", "StatefulSet", "statefulsets");
    let worlds = worlds(test, &EACH_WAY, &[&kind]).await?;
    let has = |set: &Value, image: &str, storage: &str| {
        let claim = &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"];
        set["spec"]["template"]["spec"]["containers"][0]["image"] == image && *claim == storage
    };
    all_answer(test, &worlds, &stateful_set("one", "1Gi")).await?;
    in_each(test, &worlds, &kind, "x", |set| has(set, "one", "1Gi")).await?;
    for world in &worlds {
        world.is_still(test, &[&kind]).await?;
        let before = world.reconciles(test)?.written;
        world.answers(test, stateful_set("two", "1Gi")).await?;
        world.objects(test, &kind).until("x", "another image", |set| has(set, "two", "1Gi")).await?;
        world.is_still(test, &[&kind]).await?;
        let written = world.reconciles(test)?.written - before;
        // The other one is the status of the parent.
        ensure!(world.way.0 != "InPlace" || written <= 2, "{:?}: written {written} times", world.way);
    }
    are_quiet(test, &worlds, &[&kind]).await?;
    for world in &worlds {
        let sets = world.objects(test, &kind);
        let before = sets.get("x").await?;
        world.answers(test, stateful_set("two", "2Gi")).await?;
        if world.way.0 == "InPlace" {
            let refused = |event: &Value| text(event, "/message").contains("updates to statefulset spec");
            world.is_bounded(test, refused).await?;
            let after = sets.get("x").await?;
            ensure!(uid(&after) == uid(&before) && has(&after, "two", "1Gi"), "{after}");
        } else {
            let is_new = |set: &Value| uid(set) != uid(&before) && has(set, "two", "2Gi");
            let after = sets.until("x", "made anew", is_new).await?;
            world.is_still(test, &[&kind]).await?;
            ensure!(uid(&sets.get("x").await?) == uid(&after), "made anew twice");
        }
    }
    Ok(())
}

/// C09: hooks in Go print fields that they do not set.
pub(crate) async fn c09_what_typed_go_prints_empty_is_no_difference(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&DEPLOYMENT, &CONFIG_MAP]).await?;
    let mut typed = deployment(&json!([]));
    typed["metadata"]["creationTimestamp"] = Value::Null;
    typed["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    typed["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    typed["spec"]["strategy"] = json!({});
    typed["status"] = json!({});
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "creationTimestamp": null },
        "data": { "a": "1" },
    });
    all_answer(test, &worlds, &json!([typed, map])).await?;
    in_each(test, &worlds, &CONFIG_MAP, "x", |map| map["data"]["a"] == "1").await?;
    in_each(test, &worlds, &DEPLOYMENT, "x", |it| it["status"]["observedGeneration"] == 1).await?;
    are_quiet(test, &worlds, &[&DEPLOYMENT, &CONFIG_MAP]).await
}

fn rich_deployment(success_threshold: &Value) -> Value {
    let mut probe = json!({ "httpGet": { "port": 80 }, "periodSeconds": 1 });
    if !success_threshold.is_null() {
        probe["successThreshold"] = success_threshold.clone();
    }
    let env = json!([{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]);
    let mut rich = deployment(&env);
    let spec = &mut rich["spec"]["template"]["spec"];
    spec["containers"][0]["readinessProbe"] = probe;
    spec["containers"] = json!([spec["containers"][0], { "name": "side", "image": "side" }]);
    spec["initContainers"] = json!([{ "name": "init", "image": "init" }]);
    spec["volumes"] = json!([
        { "name": "config", "configMap": { "name": "c" } },
        { "name": "many", "projected": { "sources": [{ "configMap": { "name": "c" } }] } },
    ]);
    rich
}

/// C10: the API server fills defaults deep in lists.
pub(crate) async fn c10_defaults_deep_in_lists_are_no_difference(test: &mut Fixture) -> Result<()> {
    let jobs = Kind::new("batch", "v1", "CronJob", "cronjobs");
    let kinds: [&Kind; 3] = [&DEPLOYMENT, &SERVICE, &jobs];
    let worlds = worlds(test, &EACH_WAY, &kinds).await?;
    let answer = |threshold: &Value| {
        json!([
            rich_deployment(threshold),
            {
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "x" },
                "spec": { "selector": { "app": "x" }, "ports": [{ "port": 80 }] },
            },
            {
                "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "x" },
                "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": { "spec": {
                    "restartPolicy": "Never", "containers": [{ "name": "job", "image": "job" }],
                } } } } },
            },
        ])
    };
    all_answer(test, &worlds, &answer(&Value::Null)).await?;
    for kind in kinds {
        in_each(test, &worlds, kind, "x", |_| true).await?;
    }
    in_each(test, &worlds, &DEPLOYMENT, "x", |it| it["status"]["observedGeneration"] == 1).await?;
    are_quiet(test, &worlds, &kinds).await?;
    for world in &worlds {
        let before = world.objects(test, &DEPLOYMENT).get("x").await?;
        world.answers(test, answer(&json!(1))).await?;
        world.is_still(test, &kinds).await?;
        let deployments = world.objects(test, &DEPLOYMENT);
        let after = deployments.get("x").await?;
        ensure!(uid(&after) == uid(&before), "{:?}: made anew for a default", world.way);
        ensure!(after["spec"] == before["spec"], "{:?}: {after}", world.way);

        let mut spec = after["spec"].clone();
        spec["template"]["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = json!(9);
        let drifted = deployments.merge("x", &json!({ "spec": spec })).await?;
        let is_corrected = |it: &Value| {
            it["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] == 1
                && version(it) != version(&drifted)
        };
        let corrected = deployments.until("x", "corrected", is_corrected).await?;
        if world.way.0 == "InPlace" {
            ensure!(uid(&corrected) == uid(&before), "made anew: {corrected}");
        }
        world.is_still(test, &kinds).await?;
    }
    Ok(())
}

/// C12: an empty object in a `NetworkPolicy` has a meaning.
pub(crate) async fn c12_empty_peers_of_a_network_policy_keep_their_sense(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies");
    let worlds = worlds(test, &EACH_WAY, &[&kind]).await?;
    let pods = json!([{ "from": [{ "podSelector": {} }] }]);
    let namespaces = json!([{ "from": [{ "namespaceSelector": {} }] }]);
    let (all, none) = (json!([{}]), json!([]));
    for ingress in [&pods, &namespaces, &all, &none, &Value::Null, &all, &Value::Null] {
        let mut policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "x" },
            "spec": { "podSelector": {}, "policyTypes": ["Ingress"] },
        });
        if !ingress.is_null() {
            policy["spec"]["ingress"] = ingress.clone();
        }
        all_answer(test, &worlds, &json!([policy])).await?;
        let stored = if *ingress == none { &Value::Null } else { ingress };
        let means_it = |policy: &Value| {
            policy["spec"]["ingress"] == *stored && policy["spec"]["policyTypes"] == json!(["Ingress"])
        };
        in_each(test, &worlds, &kind, "x", means_it).await?;
        for world in &worlds {
            world.is_still(test, &[&kind]).await?;
            ensure!(means_it(&world.objects(test, &kind).get("x").await?), "{:?}: {ingress}", world.way);
        }
    }
    are_quiet(test, &worlds, &[&kind]).await
}

/// C03: a variable stands twice in an answer, and later once.
pub(crate) async fn c03_a_variable_that_stands_twice_is_repaired(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE, &[&DEPLOYMENT]).await?;
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let twice = json!([variable("T", "a"), variable("U", "b"), variable("T", "a")]);
    let once = json!([variable("T", "a"), variable("U", "b")]);
    let env = |it: &Value| it["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    for world in &worlds {
        let deployments = world.objects(test, &DEPLOYMENT);
        world.answers(test, json!([deployment(&twice)])).await?;
        if world.way.1 == SERVER_SIDE {
            let is_named = |event: &Value| {
                let message = text(event, "/message");
                message.contains("Deployment") && message.contains("name=\"T\"")
            };
            world.is_bounded(test, is_named).await?;
        } else {
            deployments.until("x", "as it was answered", |it| env(it) == twice).await?;
            let is_named = |event: &Value| text(event, "/message").contains("hides previous definition");
            world.until_event(test, "ApiWarning", is_named).await?;
            world.is_still(test, &[&DEPLOYMENT]).await?;
        }
        world.answers(test, json!([deployment(&once)])).await?;
        deployments.until("x", "repaired", |it| env(it) == once).await?;
        world.is_quiet(test, &[&DEPLOYMENT]).await?;
        ensure!(env(&deployments.get("x").await?) == once);
    }
    Ok(())
}
