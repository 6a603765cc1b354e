//! Cases of the life of parents and children: deletions, what does not go, what is too large, fights with another client.

use std::time::Duration;

use acceptance::api::{CONFIG_MAP, DEPLOYMENT, EVENT, Kind, NAMESPACE, Objects, POD};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, has_condition, is_true, text, uid};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::kit::{DYNAMIC, EACH_WAY, IN_PLACE, PARENT, SERVER_SIDE, World, config, in_each, worlds};

const HELD: &str = "cases.test/hold";

/// From now on the world's controller has a finalize hook, the echo.
pub(crate) async fn finalizes(test: &mut Fixture, world: &World) -> Result<()> {
    let mut controller = test.controllers().get(&world.controller).await?;
    controller["spec"]["hooks"]["finalize"] = controller["spec"]["hooks"]["sync"].clone();
    test.grant(Composite::of(controller.clone())).await?;
    let hooks = json!({ "spec": { "hooks": controller["spec"]["hooks"] } });
    test.controllers().merge(&world.controller, &hooks).await.map(drop)
}

fn deployment(app: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": app } },
            "template": {
                "metadata": { "labels": { "app": app } },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            },
        },
    })
}

/// Whether the cluster's controllers have written what they have to say of a Deployment.
pub(crate) fn is_counted(deployment: &Value) -> bool {
    deployment["status"]["unavailableReplicas"] == deployment["spec"]["replicas"]
}

async fn hold(objects: &Objects, name: &str, finalizers: Value) -> Result<()> {
    objects.merge(name, &json!({ "metadata": { "finalizers": finalizers } })).await.map(drop)
}

fn uids(children: Vec<(String, String)>) -> Vec<String> {
    children.into_iter().map(|(uid, _)| uid).collect()
}

/// C25: the garbage collector deletes children before their parent, and they come back.
pub(crate) async fn c25_no_child_comes_back_in_a_foreground_deletion(test: &mut Fixture) -> Result<()> {
    let kinds = [&*CONFIG_MAP, &*DEPLOYMENT];
    let worlds = worlds(test, &[IN_PLACE[0], IN_PLACE[1], IN_PLACE[0]], &kinds).await?;
    let children = json!([
        config("one", &json!({})),
        config("two", &json!({})),
        config("held", &json!({})),
        deployment("x")
    ]);
    let gone = json!({ "status": {}, "children": children, "finalized": true }).to_string();
    for world in worlds.iter().skip(1) {
        finalizes(test, world).await?;
    }
    for world in &worlds {
        world.answers(test, children.clone()).await?;
        world.parents(test).merge(PARENT, &json!({ "spec": { "onDelete": gone } })).await?;
    }
    in_each(test, &worlds, &DEPLOYMENT, "x", |_| true).await?;
    let mut before = Vec::new();
    for world in &worlds {
        let maps = world.objects(test, &CONFIG_MAP);
        maps.until("held", "made", |_| true).await?;
        world.until_settled(test).await?;
        hold(&maps, "held", json!([HELD])).await?;
        before.push(uids(world.children(test, &kinds).await?));
        world.parents(test).delete_in_foreground(PARENT).await?;
    }
    for (world, before) in worlds.iter().zip(&before) {
        until("only the child that is held", PATIENCE, async || {
            world.poke(test).await?;
            let left = uids(world.children(test, &kinds).await?);
            ensure!(
                left.iter().all(|uid| before.contains(uid)),
                "a child came back: {left:?}, of {before:?}"
            );
            Ok(if left.len() == 1 { Ok(()) } else { Err(format!("{left:?}")) })
        })
        .await?;
        let parent = world.parents(test).get(PARENT).await?;
        hold(&world.objects(test, &CONFIG_MAP), "held", Value::Null).await?;
        world.parents(test).until_gone(PARENT).await?;
        for kind in kinds {
            let left = world.objects(test, kind).list().await?;
            let is_its = |it: &Value| text(it, "/metadata/ownerReferences/0/uid") == uid(&parent);
            ensure!(!left.iter().any(is_its), "a child came back: {left:?}");
        }
    }
    Ok(())
}

const PARENTS: usize = 20;

/// C26: a namespace goes, and with it parents whose finalize hook wants one more child.
pub(crate) async fn c26_a_namespace_that_goes_is_not_held_by_a_last_child(test: &mut Fixture) -> Result<()> {
    let ways = [IN_PLACE[0], IN_PLACE[1], IN_PLACE[0], IN_PLACE[0]];
    let worlds = worlds(test, &ways, &[&CONFIG_MAP]).await?;
    let namespaces = test.everywhere(&NAMESPACE);
    for (nth, world) in worlds.iter().enumerate().take(3) {
        finalizes(test, world).await?;
        world.answers(test, json!([])).await?;
        world.until_settled(test).await?;
        let last = json!({ "status": {}, "children": [config("goodbye", &json!({}))], "finalized": nth < 2 });
        for number in 0..PARENTS {
            world
                .another_parent(test, &format!("p{number}"), json!({ "onDelete": last.to_string() }))
                .await?;
        }
        namespaces.delete(&world.namespace).await?;
    }
    for world in worlds.iter().take(2) {
        namespaces.until_namespace_gone(&world.namespace).await?;
    }
    let waiting = &worlds[2];
    // No Event can be made there any more.
    let says = |it: &Value| {
        it["status"]["failing"] == PARENTS
            && condition(it, "Ready").is_some_and(|is| text(is, "/message").contains("being terminated"))
    };
    test.controllers().until(&waiting.controller, "the reason", says).await?;
    let beside = &worlds[3];
    let children = json!([config("beside", &json!({}))]);
    beside.answers(test, children).await?;
    beside.objects(test, &CONFIG_MAP).until("beside", "made meanwhile", |_| true).await?;
    let parents = waiting.parents(test);
    for parent in parents.list().await? {
        hold(&parents, text(&parent, "/metadata/name"), Value::Null).await?;
    }
    namespaces.until_namespace_gone(&waiting.namespace).await
}

/// C27: a child that is made anew, and does not go.
pub(crate) async fn c27_a_child_that_does_not_go_is_deleted_once(test: &mut Fixture) -> Result<()> {
    let ways = [("Recreate", DYNAMIC), ("Recreate", SERVER_SIDE)];
    let worlds = worlds(test, &ways, &[&DEPLOYMENT, &CONFIG_MAP]).await?;
    let children = |app: &str| json!([deployment(app), config("beside", &json!({ "app": app }))]);
    for world in &worlds {
        world.answers(test, children("x")).await?;
    }
    in_each(test, &worlds, &DEPLOYMENT, "x", |_| true).await?;
    for world in &worlds {
        let (deployments, maps) = (world.objects(test, &DEPLOYMENT), world.objects(test, &CONFIG_MAP));
        world.until_settled(test).await?;
        hold(&deployments, "x", json!([HELD])).await?;
        let before = deployments.get("x").await?;
        world.answers(test, children("y")).await?;
        maps.until("beside", "written at once", |it| it["data"]["app"] == "y").await?;
        let going = |it: &Value| it["metadata"].get("deletionTimestamp").is_some();
        deployments.until("x", "being deleted", going).await?;
        world.until_settled(test).await?;
        let asked = world.reconciles(test)?;
        for _ in 0..3 {
            let reconciles = world.reconciles(test)?;
            world.poke(test).await?;
            world.until_reconciled(test, &reconciles).await?;
        }
        let waited = world.reconciles(test)?;
        ensure!(asked.written == waited.written, "what is going was written: {asked:?}, {waited:?}");
        ensure!(waited.failed == 0, "{waited:?}");
        ensure!(uid(&deployments.get("x").await?) == uid(&before), "it is another one");
        hold(&deployments, "x", Value::Null).await?;
        let anew =
            |it: &Value| uid(it) != uid(&before) && it["spec"]["selector"]["matchLabels"]["app"] == "y";
        deployments
            .until("x", "made anew, and seen by its own controller", |it| anew(it) && is_counted(it))
            .await?;
        world.is_quiet(test, &[&DEPLOYMENT, &CONFIG_MAP]).await?;
        let events = world.objects(test, &EVENT).list().await?;
        ensure!(!events.iter().any(|event| event["reason"] == "SyncError"), "{events:?}");
    }
    Ok(())
}

/// An answer with a status of so many bytes as the parent says, and one child.
fn large_status(asked: &Asked) -> Value {
    let parent = &asked.body["parent"];
    let size =
        parent["spec"]["size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or_default();
    json!({ "status": { "text": "x".repeat(size) }, "children": [config(text(parent, "/metadata/name"), &json!({}))] })
}

/// C28: a status that is too large for etcd, or for a request.
pub(crate) async fn c28_a_status_that_is_too_large_holds_up_nothing_else(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE[..1], &[&CONFIG_MAP]).await?;
    let world = &worlds[0];
    let webhook = Webhook::serve(|asked| large_status(asked).into()).await?;
    world.is_synced_by(test, Hook::webhook(&webhook.url("/sync")).version("v2")).await?;
    let sizes = [1600 << 10, 3500 << 10];
    let mut failing = Vec::new();
    for number in 0..6 {
        let name = format!("p{number}");
        let parent = world.another_parent(test, &name, json!({ "size": sizes[number % 2] })).await?;
        failing.push((name, uid(&parent).to_owned()));
    }
    let maps = world.objects(test, &CONFIG_MAP);
    for (name, uid) in &failing {
        maps.until(name, "made", |_| true).await?;
        let told = |event: &Value| {
            let message = text(event, "/message");
            message.contains("too large") && message.len() <= 1024 && event["count"].as_u64() > Some(1)
        };
        let events = world.objects(test, &EVENT);
        let fields = format!("involvedObject.uid={uid},reason=SyncError");
        events.until_some(&fields, "the status is too large", told).await.with_context(|| name.clone())?;
    }
    let count = |it: &Value| it["status"]["failing"] == 6;
    let controller = test.controllers().until(&world.controller, "six parents failing", count).await?;
    ensure!(controller["status"].to_string().len() < 64 << 10, "a large status of the controller");
    world.another_parent(test, "beside", json!({ "size": 1 })).await?;
    let parents = world.parents(test);
    parents.until("beside", "served meanwhile", |it| it["status"]["text"] == "x").await?;
    for (name, _) in &failing {
        parents.merge(name, &json!({ "spec": { "size": 2 } })).await?;
        parents.until(name, "healed", |it| it["status"]["text"] == "xx").await?;
    }
    Ok(())
}

/// C31: another client writes one child again and again, and a second one once.
pub(crate) async fn c31_a_fight_about_one_child_holds_up_no_other(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE, &[&CONFIG_MAP]).await?;
    let ours = |it: &Value| it["data"]["k"] == "ours";
    let child = |name| config(name, &json!({ "k": "ours" }));
    let theirs = json!({ "data": { "k": "theirs" } });
    for world in &worlds {
        world.answers(test, json!([child("fought"), child("other")])).await?;
    }
    in_each(test, &worlds, &CONFIG_MAP, "fought", ours).await?;
    in_each(test, &worlds, &CONFIG_MAP, "other", ours).await?;
    for world in &worlds {
        world.until_settled(test).await?;
        let maps = world.objects(test, &CONFIG_MAP);
        let (fought, change) = (maps.clone(), theirs.clone());
        let fight = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                fought.merge("fought", &change).await.ok();
            }
        });
        let fought = |it: &Value| {
            condition(it, "ChildrenStable")
                .is_some_and(|is| is["status"] == "False" && text(is, "/message").contains("(data.k)"))
        };
        let told = test.controllers().until(&world.controller, "a fight", fought).await;
        let before = world.reconciles(test)?;
        maps.merge("other", &theirs).await?;
        let other = maps.until("other", "corrected meanwhile", ours).await;
        let after = world.reconciles(test)?;
        fight.abort();
        told.and(other).with_context(|| format!("{:?}", world.way))?;
        ensure!(after.written <= before.written + 3, "the fight goes on at once: {before:?}, {after:?}");
        maps.until("fought", "corrected after the fight", ours).await?;
    }
    Ok(())
}

/// C31: the condition of a short fight, once each correction lasts.
pub(crate) async fn c31_children_are_stable_again_after_a_fight(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE, &[&CONFIG_MAP]).await?;
    let ours = |it: &Value| it["data"]["k"] == "ours";
    for world in &worlds {
        world.answers(test, json!([config("fought", &json!({ "k": "ours" }))])).await?;
    }
    for world in &worlds {
        let maps = world.objects(test, &CONFIG_MAP);
        for _ in 0..CORRECTIONS_AT_ONCE {
            maps.until("fought", "corrected", ours).await?;
            maps.merge("fought", &json!({ "data": { "k": "theirs" } })).await?;
        }
        maps.until("fought", "corrected after the fight", ours).await?;
    }
    let is = |it: &Value, status: &str, reason: &str| has_condition(it, "ChildrenStable", status, reason);
    for world in &worlds {
        let flaps = |it: &Value| is(it, "False", "ValueFlapping");
        test.controllers().until(&world.controller, "a fight", flaps).await?;
    }
    for world in &worlds {
        until(&format!("{:?}: no fight", world.way), STABLE_AGAIN, async || {
            let controller = test.controllers().get(&world.controller).await?;
            let is_stable = is(&controller, "True", "NoForeignChanges") && is_true(&controller, "Ready");
            Ok(if is_stable { Ok(()) } else { Err(controller["status"].to_string()) })
        })
        .await?;
        ensure!(ours(&world.objects(test, &CONFIG_MAP).get("fought").await?), "{:?}", world.way);
        world.is_still(test, &[&CONFIG_MAP]).await?;
    }
    Ok(())
}

/// Corrections of one value that make a fight.
const CORRECTIONS_AT_ONCE: usize = 5;

/// The next correction would be due in five seconds, and nothing may change for a minute after that.
const STABLE_AGAIN: Duration = Duration::from_mins(3);

/// Each Pod of these namespaces gets a container, an init container and an annotation when it is made.
async fn inject(test: &mut Fixture, namespaces: &[&str]) -> Result<()> {
    let group = "admissionregistration.k8s.io";
    let of = |kind, plural| test.everywhere(&Kind::new(group, "v1", kind, plural));
    let policies = of("MutatingAdmissionPolicy", "mutatingadmissionpolicies");
    let bindings = of("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings");
    let metadata = json!({ "name": test.name() });
    let rules = [json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
    })];
    let expression = r#"Object{
        metadata: Object.metadata{ annotations: {"mesh.test": "injected"} },
        spec: Object.spec{
            initContainers: [Object.spec.initContainers{ name: "init", image: "init" }],
            containers: [Object.spec.containers{ name: "proxy", image: "proxy" }]
        }
    }"#;
    let policy = json!({
        "apiVersion": format!("{group}/v1"), "kind": "MutatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "matchConstraints": { "resourceRules": rules },
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } }],
        },
    });
    let those = json!([{ "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces }]);
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "MutatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": { "policyName": test.name(), "matchResources": { "namespaceSelector": { "matchExpressions": those } } },
    });
    test.make(&policies, policy).await?;
    test.make(&bindings, binding).await?;
    let pods = test.within_other(&POD, namespaces[0]);
    until("the policy in force", PATIENCE, async || {
        let made = pods.create(pod("canary", "web")).await?;
        pods.delete("canary").await?;
        pods.until_gone("canary").await?;
        let is_injected = made["spec"]["containers"].as_array().is_some_and(|all| all.len() == 2);
        Ok(if is_injected { Ok(()) } else { Err(made.to_string()) })
    })
    .await
}

fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "mesh": "1" } },
        "spec": { "containers": [{ "name": "web", "image": image }] },
    })
}

/// C22: Pods into which admission puts a sidecar.
pub(crate) async fn c22_injected_containers_recreate_no_pod(test: &mut Fixture) -> Result<()> {
    let ways = [EACH_WAY[1], EACH_WAY[3], ("RollingRecreate", DYNAMIC)];
    let worlds = worlds(test, &ways, &[&POD]).await?;
    let namespaces: Vec<_> = worlds.iter().map(|world| world.namespace.as_str()).collect();
    inject(test, &namespaces).await?;
    let names = ["a", "b", "c"];
    for image in ["one", "two"] {
        let children: Value = names.iter().map(|name| pod(name, image)).collect();
        for world in &worlds {
            world.answers(test, children.clone()).await?;
        }
        let is = |it: &Value| {
            let containers = it["spec"]["containers"].as_array();
            containers.is_some_and(|all| all.len() == 2 && all.iter().any(|one| one["image"] == image))
        };
        for name in names {
            in_each(test, &worlds, &POD, name, is).await?;
        }
        for world in &worlds {
            world.is_quiet(test, &[&POD]).await?;
            let log = test.server().until_log("its log", |_| true).await?;
            let of_world =
                |line: &&str| line.contains(&format!(r#""parent":"{}/{PARENT}""#, world.namespace));
            let recreated = log.lines().filter(of_world).filter(|line| line.contains(r#""op":"recreate""#));
            let recreated = recreated.filter(|line| line.contains(r#""message":"written""#)).count();
            let expected = if image == "one" { 0 } else { names.len() };
            ensure!(recreated <= expected, "{:?}: {recreated} Pods were recreated", world.way);
        }
    }
    Ok(())
}
