//! Cases of values: immutable fields, secrets, names, what is copied from the parent.

use acceptance::api::{CONFIG_MAP, EVENT, Kind, POD, SECRET};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, Parent, text, uid};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cases_lifecycle::finalizes;
use super::kit::{EACH_WAY, IN_PLACE, PARENT, World, config, in_each, worlds};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn says(event: &Value, words: &[&str]) -> bool {
    let message = text(event, "/message");
    words.iter().all(|word| message.contains(word))
}

/// An answer as text, with these children.
fn answer(children: &Value) -> String {
    json!({ "status": {}, "children": children }).to_string()
}

fn failed(event: &Value) -> bool {
    says(event, &["3 children failed", "RoleBinding ", "/binding", "Job ", "/job", "ConfigMap ", "/fixed"])
}

/// A `RoleBinding`, a Job and a `ConfigMap` that cannot be changed, and one that can.
fn immutable(number: &str) -> Value {
    let mut fixed = config("fixed", &json!({ "is": number }));
    fixed["immutable"] = json!(true);
    let container = json!({ "name": "job", "image": number });
    json!([
        {
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": "binding" },
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": number },
        },
        {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "job" },
            "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } },
        },
        fixed,
        config("plain", &json!({ "is": number })),
    ])
}

/// C17: fields that cannot change, of three kinds, and a child beside them.
pub(crate) async fn c17_immutable_fields_fail_alone_or_are_made_anew(test: &mut Fixture) -> Result<()> {
    let job = Kind::new("batch", "v1", "Job", "jobs");
    let binding = Kind::new(RBAC, "v1", "RoleBinding", "rolebindings");
    let role = Kind::new(RBAC, "v1", "Role", "roles");
    let kinds: [&Kind; 3] = [&job, &binding, &CONFIG_MAP];
    let worlds = worlds(test, &EACH_WAY, &kinds).await?;
    for world in &worlds {
        for name in ["one", "two"] {
            // Whoever has all rights of a role, and so of an empty one, may bind it.
            let object = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": name }, "rules": [] });
            test.make(&world.objects(test, &role), object).await?;
        }
        world.answers(test, immutable("one")).await?;
    }
    in_each(test, &worlds, &job, "job", |_| true).await?;
    in_each(test, &worlds, &CONFIG_MAP, "fixed", |_| true).await?;
    in_each(test, &worlds, &binding, "binding", |_| true).await?;
    let mut before = Vec::new();
    for world in &worlds {
        world.until_settled(test).await?;
        before.push(world.children(test, &kinds).await?);
    }
    for world in &worlds {
        world.answers(test, immutable("two")).await?;
    }
    in_each(test, &worlds, &CONFIG_MAP, "plain", |it| it["data"]["is"] == "two").await?;
    for (world, before) in worlds.iter().zip(&before) {
        if world.way.0 == "InPlace" {
            fail_in_place(test, world, &kinds, before).await?;
        } else {
            are_made_anew(test, world, &kinds).await?;
        }
    }
    Ok(())
}

async fn fail_in_place(
    test: &mut Fixture,
    world: &World,
    kinds: &[&Kind; 3],
    before: &[(String, String)],
) -> Result<()> {
    world.is_bounded(test, failed).await?;
    world.answers(test, immutable("one")).await?;
    let first = |it: &Value| it["data"]["is"] == "one";
    world.objects(test, &CONFIG_MAP).until("plain", "as before", first).await?;
    world.is_quiet(test, kinds).await?;
    let uids = |all: &[(String, String)]| all.iter().map(|(uid, _)| uid.clone()).collect::<Vec<_>>();
    let after = world.children(test, kinds).await?;
    ensure!(uids(&after) == uids(before), "a child was made anew in place");
    Ok(())
}

async fn are_made_anew(test: &mut Fixture, world: &World, kinds: &[&Kind; 3]) -> Result<()> {
    let [job, binding, maps] = kinds.map(|kind| world.objects(test, kind));
    let image = |it: &Value| text(it, "/spec/template/spec/containers/0/image") == "two";
    let anew = job.until("job", "made anew", image).await?;
    binding.until("binding", "made anew", |it| it["roleRef"]["name"] == "two").await?;
    maps.until("fixed", "made anew", |it| it["data"]["is"] == "two").await?;
    let of_new = |pod: &Value| text(pod, "/metadata/ownerReferences/0/uid") == uid(&anew);
    let pods = world.objects(test, &POD);
    pods.until_all("those of the new Job alone", |all| !all.is_empty() && all.iter().all(of_new)).await?;
    world.is_quiet(test, kinds).await?;
    ensure!(uid(&job.get("job").await?) == uid(&anew), "the Job was made anew twice");
    Ok(())
}

/// The labels and annotations of a parent, as many hooks copy them, but for those that `drop` names.
fn copied(asked: &Asked, drop: &[&str]) -> Answer {
    let metadata = &asked.body["parent"]["metadata"];
    let but = |of: &Value| {
        let mut of = of.clone();
        if let Some(of) = of.as_object_mut() {
            of.retain(|key, _| !drop.contains(&key.as_str()));
        }
        of
    };
    let mut child = config("copy", &asked.body["parent"]["spec"]["data"]);
    child["metadata"]["labels"] = but(&metadata["labels"]);
    child["metadata"]["annotations"] = but(&metadata["annotations"]);
    json!({ "status": {}, "children": [child] }).into()
}

/// C20: a parent that is a child itself, whose labels and annotations go on to its children.
pub(crate) async fn c20_what_is_copied_from_a_parent_is_not_the_childs(test: &mut Fixture) -> Result<()> {
    let outer = Kind::new(&format!("outer.{}.example.com", test.name()), "v1", "Zone", "zones");
    test.define(&outer).await?;
    let worlds = worlds(test, &EACH_WAY, &[&CONFIG_MAP]).await?;
    let webhook = Webhook::serve(|asked| copied(asked, &[])).await?;
    for world in &worlds {
        world.is_synced_by(test, Hook::webhook(&webhook.url("/sync"))).await?;
    }
    let inner = test.kind().clone();
    let controller = test.controller().renamed(&format!("{}-outer", test.name())).over(&outer);
    let hook = test.hook("echo").version("v2");
    test.host(controller.making(&inner, "InPlace").synced_by(hook)).await?;
    let widget = |number: usize, data: &Value| {
        let metadata = json!({
            "name": PARENT, "labels": { "world": number.to_string() },
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" },
        });
        let spec = json!({ "data": data });
        answer(
            &json!([{ "apiVersion": inner.api_version(), "kind": inner.kind, "metadata": metadata, "spec": spec }]),
        )
    };
    let two = json!({ "a": "1", "b": "2" });
    for (number, world) in worlds.iter().enumerate() {
        let parent = Parent::named(&outer, "outer").with(json!({ "answer": widget(number, &two) }));
        test.make(&world.objects(test, &outer), parent.json()).await?;
    }
    let refused =
        |event: &Value| says(event, &["controller-uid", "remove `controller-uid` from the labels you copy"]);
    for world in &worlds {
        world.parents(test).until(PARENT, "made", |_| true).await?;
        world.until_event(test, "SyncError", refused).await?;
        ensure!(world.objects(test, &CONFIG_MAP).find("copy").await?.is_none(), "a child was written");
    }
    // A poke of the measure would go on to the child, too.
    webhook.program(|asked| copied(asked, &["controller-uid", "poke"]));
    for world in &worlds {
        world.poke(test).await?;
    }
    in_each(test, &worlds, &CONFIG_MAP, "copy", |it| it["data"] == two).await?;
    for (number, world) in worlds.iter().enumerate() {
        world.is_quiet(test, &[&CONFIG_MAP]).await?;
        let spec = json!({ "spec": { "answer": widget(number, &json!({ "a": "1" })) } });
        world.objects(test, &outer).merge("outer", &spec).await?;
    }
    // What is gone from the answer goes from the child: its record is its own.
    in_each(test, &worlds, &CONFIG_MAP, "copy", |it| it["data"] == json!({ "a": "1" })).await
}

const HIDDEN: &str = "a-hidden-value";
const HIDDEN_BASE64: &str = "YS1oaWRkZW4tdmFsdWU=";

/// C18: a Secret that its hook writes as `stringData`.
pub(crate) async fn c18_string_data_settles_and_a_dropped_key_goes(test: &mut Fixture) -> Result<()> {
    let ways = [EACH_WAY.as_slice(), &[EACH_WAY[0], EACH_WAY[3]]].concat();
    let worlds = worlds(test, &ways, &[&SECRET]).await?;
    let echo =
        Webhook::serve(|asked| Answer::text(text(&asked.body, "/parent/spec/answer").to_owned())).await?;
    for world in worlds.iter().skip(EACH_WAY.len()) {
        world.is_synced_by(test, Hook::webhook(&echo.url("/sync"))).await?;
    }
    let secret = |fields: Value| {
        let mut secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
        for field in ["data", "stringData"] {
            secret[field] = fields[field].clone();
        }
        json!([secret])
    };
    let all = json!({ "data": { "c": "eA==" }, "stringData": { "a": HIDDEN, "b": "ü\n" } });
    let fewer = json!({ "data": { "c": "eA==" }, "stringData": { "a": HIDDEN } });
    let moved = json!({ "data": { "c": "eA==", "a": HIDDEN_BASE64 }, "stringData": {} });
    for world in &worlds {
        world.answers(test, secret(all.clone())).await?;
    }
    let stored = json!({ "a": HIDDEN_BASE64, "b": "w7wK", "c": "eA==" });
    in_each(test, &worlds, &SECRET, "s", |it| it["data"] == stored).await?;
    for world in &worlds {
        world.is_quiet(test, &[&SECRET]).await?;
        world.answers(test, secret(fewer.clone())).await?;
    }
    let stored = json!({ "a": HIDDEN_BASE64, "c": "eA==" });
    in_each(test, &worlds, &SECRET, "s", |it| it["data"] == stored).await?;
    for world in &worlds {
        world.until_settled(test).await?;
        let (before, first) = (world.reconciles(test)?, world.objects(test, &SECRET).get("s").await?);
        world.answers(test, secret(moved.clone())).await?;
        world.until_settled(test).await?;
        let (after, is) = (world.reconciles(test)?, world.objects(test, &SECRET).get("s").await?);
        ensure!(uid(&first) == uid(&is) && is["data"] == stored, "{:?}: {is}", world.way);
        // The record, and the generation that the status is about.
        ensure!(after.written <= before.written + 2, "{:?}: {before:?}, {after:?}", world.way);
        let events = world.objects(test, &EVENT).list().await?;
        let told = events.iter().find(|event| hides(&event.to_string()));
        ensure!(told.is_none(), "an Event has a value: {told:?}");
    }
    let log = test.server().until_log("its log", |_| true).await?;
    ensure!(!hides(&log), "the log has a value");
    Ok(())
}

fn hides(text: &str) -> bool {
    text.contains(HIDDEN) || text.contains(HIDDEN_BASE64)
}

/// C16: a claim that the cluster has bound, and another size of it.
pub(crate) async fn c16_a_bound_claim_is_kept_and_a_size_refused_is_told(test: &mut Fixture) -> Result<()> {
    let claim = Kind::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    let volume = Kind::new("", "v1", "PersistentVolume", "persistentvolumes");
    let worlds = worlds(test, &EACH_WAY, &[&claim, &CONFIG_MAP]).await?;
    let children = |size: &str| {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": { "requests": { "storage": size } },
        });
        json!([
            { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "claim" }, "spec": spec },
            config("size", &json!({ "is": size })),
        ])
    };
    for world in &worlds {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "5Gi" }, "hostPath": { "path": "/nowhere" },
            // No claim of another world takes it.
            "claimRef": { "namespace": world.namespace, "name": "claim" },
        });
        let object = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": world.namespace }, "spec": spec });
        test.make(&test.everywhere(&volume), object).await?;
        world.answers(test, children("1Gi")).await?;
    }
    in_each(test, &worlds, &claim, "claim", |it| it["status"]["phase"] == "Bound").await?;
    for world in &worlds {
        world.is_quiet(test, &[&claim, &CONFIG_MAP]).await?;
    }
    for world in worlds.iter().filter(|world| world.way.0 == "InPlace") {
        let claims = world.objects(test, &claim);
        let before = claims.get("claim").await?;
        for (size, why) in [("2Gi", "resize"), ("500Mi", "less than")] {
            world.answers(test, children(size)).await?;
            world.objects(test, &CONFIG_MAP).until("size", "written", |it| it["data"]["is"] == size).await?;
            let told = world.until_event(test, "SyncError", |event| says(event, &["/claim: ", why])).await;
            told.with_context(|| format!("{size} under {:?}", world.way))?;
            let after = claims.get("claim").await?;
            ensure!(uid(&before) == uid(&after) && before["spec"] == after["spec"], "{after}");
        }
        world.is_bounded(test, |event| says(event, &["/claim: "])).await?;
    }
    Ok(())
}

/// C19: a parent whose name no label can have, and one whose name has dots.
pub(crate) async fn c19_a_label_of_a_long_name_fails_one_child_alone(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&CONFIG_MAP]).await?;
    let long = "n".repeat(80);
    for world in &worlds {
        world.answers(test, json!([])).await?;
        finalizes(test, world).await?;
        for (name, prefix) in [(long.as_str(), "l"), ("a.b.c", "d")] {
            let one = format!("{prefix}-one");
            let mut labelled = config(&one, &json!({}));
            labelled["metadata"]["labels"] = json!({ "owner": name });
            let children = json!([labelled, config(&format!("{prefix}-two"), &json!({}))]);
            let gone = json!({ "status": {}, "children": children, "finalized": true }).to_string();
            world
                .another_parent(test, name, json!({ "answer": answer(&children), "onDelete": gone }))
                .await?;
        }
    }
    for name in ["l-two", "d-one", "d-two"] {
        in_each(test, &worlds, &CONFIG_MAP, name, |_| true).await?;
    }
    for world in &worlds {
        let parents = world.parents(test);
        let of_long = format!("involvedObject.uid={},reason=SyncError", uid(&parents.get(&long).await?));
        let events = world.objects(test, &EVENT);
        let told = |event: &Value| says(event, &["/l-one: ", "63"]) && event["count"].as_u64() > Some(1);
        events.until_some(&of_long, "the label that is too long", told).await?;
        ensure!(
            world.objects(test, &CONFIG_MAP).find("l-one").await?.is_none(),
            "there is a label of 80 characters"
        );
        for name in [long.as_str(), "a.b.c"] {
            parents.delete(name).await?;
            parents.until_gone(name).await.with_context(|| format!("{:?}", world.way))?;
        }
    }
    Ok(())
}

/// C23: a child without a name, for which the API server would make one.
pub(crate) async fn c23_a_generated_name_is_refused_before_any_write(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &[IN_PLACE[0], IN_PLACE[1], IN_PLACE[0], IN_PLACE[0]], &[&CONFIG_MAP]).await?;
    let echo =
        Webhook::serve(|asked| Answer::text(text(&asked.body, "/parent/spec/answer").to_owned())).await?;
    for (world, version) in worlds.iter().skip(2).zip(["v1", "v2"]) {
        world.is_synced_by(test, Hook::webhook(&echo.url("/sync")).version(version)).await?;
    }
    let nameless = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "x-" } });
    for world in &worlds {
        world.answers(test, json!([config("named", &json!({})), nameless])).await?;
    }
    for world in &worlds {
        let refused = |event: &Value| {
            says(event, &["children[1]", "metadata.name"]) && event["count"].as_u64() > Some(1)
        };
        world.until_event(test, "SyncError", refused).await.with_context(|| world.controller.clone())?;
        let made = world.children(test, &[&CONFIG_MAP]).await?;
        ensure!(made.is_empty(), "{}: children were written: {made:?}", world.controller);
    }
    Ok(())
}
