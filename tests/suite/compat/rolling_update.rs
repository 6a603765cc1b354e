//! Section 5 of the compatibility contract: revisions, claims, the gate, one child after the other.

use acceptance::api::{CONFIG_MAP, CONTROLLER_REVISION, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{
    Composite, Hook, condition, config_map, definition, has_condition, is_true, text, uid, version,
};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::wasm;

/// The kind of children: with a status, as one who looks after them writes it.
fn member(test: &Fixture) -> Kind {
    Kind::new(&test.kind().group, "v1", "Member", "members")
}

fn members(test: &Fixture) -> Objects {
    test.within(&member(test))
}

pub(crate) fn revisions(test: &Fixture) -> Objects {
    test.within(&CONTROLLER_REVISION)
}

/// As many members as the parent asks for, with its image; the status is an echo.
pub(crate) fn answer(asked: &Asked) -> Value {
    let (parent, spec) = (&asked.body["parent"], &asked.body["parent"]["spec"]);
    let group = text(parent, "/apiVersion");
    let all: Vec<_> = (0..spec["replicas"].as_u64().unwrap_or_default())
        .map(|nth| {
            json!({
                "apiVersion": group, "kind": "Member",
                "metadata": { "name": format!("m-{nth}"), "namespace": spec["place"], "labels": spec["labels"] },
                "spec": { "image": spec["image"] },
            })
        })
        .collect();
    json!({ "children": all, "status": { "conditions": parent["status"]["conditions"] } })
}

fn rolls(asked: &Asked) -> Answer {
    answer(asked).into()
}

/// A controller whose members are rolled out by this method, and its parent `p` with so many of image 1.
pub(crate) async fn rolling(
    test: &mut Fixture,
    method: &str,
    checks: Value,
    program: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> Result<Webhook> {
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.define(&member(test)).await?;
    test.serve()?;
    test.host(controller(test, method, checks, &webhook)).await?;
    Ok(webhook)
}

fn controller(test: &Fixture, method: &str, checks: Value, webhook: &Webhook) -> Composite {
    let mut controller = test
        .controller()
        .making(&member(test), method)
        .synced_by(Hook::webhook(&webhook.url("/sync")))
        .json();
    controller["spec"]["childResources"][0]["updateStrategy"]["statusChecks"] = checks;
    controller["spec"]["parentResource"]["revisionHistory"] = json!({ "fieldPaths": ["spec.image"] });
    Composite::of(controller)
}

fn ready() -> Value {
    json!({ "conditions": [{ "type": "Ready", "status": "True" }] })
}

pub(crate) async fn asks_for(test: &Fixture, spec: Value) -> Result<()> {
    test.parents().merge("p", &json!({ "spec": spec })).await.map(drop)
}

async fn says(test: &Fixture, name: &str, status: &str) -> Result<()> {
    let conditions = json!([{ "type": "Ready", "status": status }]);
    members(test).merge_status(name, &json!({ "status": { "conditions": conditions } })).await.map(drop)
}

/// Waits until the parent says this of its rollout, and finds the condition once.
pub(crate) async fn updated(test: &Fixture, status: &str, reason: &str, message: &str) -> Result<()> {
    let is = |parent: &Value| {
        has_condition(parent, "Updated", status, reason)
            && condition(parent, "Updated").is_some_and(|is| text(is, "/message").starts_with(message))
    };
    let parent = test.parents().until("p", &format!("{reason}: {message}"), is).await?;
    let all = parent["status"]["conditions"].as_array().into_iter().flatten();
    ensure!(all.filter(|one| one["type"] == "Updated").count() == 1, "{}", parent["status"]);
    Ok(())
}

/// The image of each member, in the order of their names.
fn images(all: &[Value]) -> Vec<i64> {
    let mut all: Vec<_> =
        all.iter().map(|one| (text(one, "/metadata/name"), one["spec"]["image"].as_i64())).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, image)| image.unwrap_or_default()).collect()
}

pub(crate) async fn have(test: &Fixture, wanted: &[i64]) -> Result<Vec<Value>> {
    members(test).until_all(&format!("images {wanted:?}"), |all| images(all) == wanted).await
}

/// Names that the revision of each image claims, oldest image first.
fn claims(revisions: &[Value]) -> Vec<(i64, Value)> {
    let image = |one: &Value| one["parentPatch"]["spec"]["image"].as_i64().unwrap_or_default();
    let mut all: Vec<_> =
        revisions.iter().map(|one| (image(one), one["children"][0]["names"].clone())).collect();
    all.sort_by_key(|(image, _)| *image);
    all
}

async fn claimed(test: &Fixture, wanted: &[(i64, &[&str])]) -> Result<Vec<Value>> {
    let wanted: Vec<_> = wanted.iter().map(|(image, names)| (*image, json!(names))).collect();
    revisions(test).until_all(&format!("claims {wanted:?}"), |all| claims(all) == wanted).await
}

/// Each step is a pass that the one before it caused: a brake would let the last ones wait for half a minute each.
pub(crate) async fn a_rollout_of_many_children_is_not_held_up(test: &mut Fixture) -> Result<()> {
    let _webhook = rolling(test, "RollingInPlace", json!({}), rolls).await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 30 }))).await?;
    have(test, &[1; 30]).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    have(test, &[2; 30]).await?;
    updated(test, "True", "OnLatestRevision", "latest ControllerRevision").await
}

pub(crate) async fn in_place_one_child_after_the_other_is_updated_as_far_as_the_gate_is_open(
    test: &mut Fixture,
) -> Result<()> {
    let _webhook = rolling(test, "RollingInPlace", ready(), rolls).await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 4 }))).await?;
    let first = have(test, &[1, 1, 1, 1]).await?;
    let revision = claimed(test, &[(1, &["m-0", "m-1", "m-2", "m-3"])]).await?.remove(0);
    let parent = test.parents().get("p").await?;
    let named = format!("greetings.{}-", test.kind().group);
    let name = text(&revision, "/metadata/name").to_owned();
    ensure!(name.starts_with(&named) && name.len() == named.len() + 40, "named {name}");
    let labels = json!({
        "controller-uid": uid(&parent),
        "metacontroller.k8s.io/apiGroup": test.kind().group,
        "metacontroller.k8s.io/resource": "greetings",
    });
    ensure!(revision["metadata"]["labels"] == labels, "{}", revision["metadata"]["labels"]);
    let owner = &revision["metadata"]["ownerReferences"][0];
    ensure!(owner["uid"] == parent["metadata"]["uid"] && owner["controller"] == true, "{owner}");
    updated(test, "True", "OnLatestRevision", &format!("latest ControllerRevision: {name}")).await?;

    asks_for(test, json!({ "image": 2 })).await?;
    let waits = "waiting for Member m-0: status.conditions has no Ready";
    updated(test, "False", "RolloutWaiting", waits).await?;
    have(test, &[2, 1, 1, 1]).await?;
    says(test, "m-0", "False").await?;
    let waits = r#"waiting for Member m-0: status of condition Ready is "False", not "True""#;
    updated(test, "False", "RolloutWaiting", waits).await?;
    says(test, "m-0", "True").await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-1").await?;
    have(test, &[2, 2, 1, 1]).await?;
    claimed(test, &[(1, &["m-2", "m-3"]), (2, &["m-0", "m-1"])]).await?;
    says(test, "m-1", "True").await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-2").await?;
    says(test, "m-2", "True").await?;
    updated(test, "True", "OnLatestRevision", "latest ControllerRevision: ").await?;
    let last = have(test, &[2, 2, 2, 2]).await?;
    claimed(test, &[(2, &["m-0", "m-1", "m-2", "m-3"])]).await?;
    ensure!(first.iter().zip(&last).all(|(first, last)| uid(first) == uid(last)), "made anew: {last:?}");
    Ok(())
}

pub(crate) async fn recreated_children_go_one_after_the_other_and_come_back_as_they_were_until_then(
    test: &mut Fixture,
) -> Result<()> {
    // No status at all is said, and which children are whose stands in the parent.
    let program = |asked: &Asked| json!({ "children": answer(asked)["children"] }).into();
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.define(&member(test)).await?;
    test.serve()?;
    let rolling = controller(test, "RollingRecreate", json!({}), &webhook);
    test.host(rolling.by_own_selectors()).await?;
    let labels = json!({ "app": "x" });
    let spec = json!({ "image": 1, "replicas": 4, "labels": labels, "selector": { "matchLabels": labels } });
    test.create(test.parent("p").with(spec)).await?;
    let first = have(test, &[1, 1, 1, 1]).await?;
    let revision = claimed(test, &[(1, &["m-0", "m-1", "m-2", "m-3"])]).await?.remove(0);
    ensure!(revision["metadata"]["labels"]["app"] == "x", "{}", revision["metadata"]["labels"]);

    asks_for(test, json!({ "image": 2 })).await?;
    let last = have(test, &[2, 2, 2, 2]).await?;
    claimed(test, &[(2, &["m-0", "m-1", "m-2", "m-3"])]).await?;
    updated(test, "True", "OnLatestRevision", "").await?;
    let rolled =
        |event: &Value| text(event, "/message").ends_with("moves it to the latest revision of its parent");
    test.until_event("p", "ChildDeleted", rolled).await?;
    ensure!(first.iter().zip(&last).all(|(first, last)| uid(first) != uid(last)), "kept: {last:?}");
    // What the hook was shown on the way.
    let kind = format!("Member.{}/v1", test.kind().group);
    let mut new = 0;
    for asked in webhook.asked().iter().filter(|asked| asked.body["parent"]["spec"]["image"] == 2) {
        let shown: Vec<_> = asked.body["children"][&kind].as_object().into_iter().flatten().collect();
        let now = shown.iter().filter(|(_, one)| one["spec"]["image"] == 2).count();
        ensure!((3..=4).contains(&shown.len()) && now <= new + 1, "{now} of {} after {new}", shown.len());
        new = new.max(now);
    }
    // The hook is not called any more.
    let before = claimed(test, &[(2, &["m-0", "m-1", "m-2", "m-3"])]).await?;
    asks_for(test, json!({ "more": 1 })).await?;
    let seen = |parent: &Value| parent["status"]["observedGeneration"] == parent["metadata"]["generation"];
    test.parents().until("p", "the change is seen", seen).await?;
    let after = revisions(test).list().await?;
    ensure!(version(&before[0]) == version(&after[0]), "written in vain: {after:?}");
    Ok(())
}

/// A closed gate, and all that may happen before it.
pub(crate) async fn a_rollout_outlives_its_server_and_changes_of_size_and_goes_back(
    test: &mut Fixture,
) -> Result<()> {
    // Who asks for the earliest time has it; a revision that asks for none has no say.
    let program = |asked: &Asked| {
        let mut said = answer(asked);
        let old = asked.body["parent"]["spec"]["image"] == 1;
        said["resyncAfterSeconds"] = if old { json!(0.2) } else { json!(0) };
        said.into()
    };
    let webhook = rolling(test, "RollingInPlace", ready(), program).await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 4 }))).await?;
    let before = have(test, &[1, 1, 1, 1]).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-0").await?;
    have(test, &[2, 1, 1, 1]).await?;

    test.server().kill().await?;
    test.server().start()?;
    webhook.until_asked_again(6).await?;
    have(test, &[2, 1, 1, 1]).await?;
    claimed(test, &[(1, &["m-1", "m-2", "m-3"]), (2, &["m-0"])]).await?;

    asks_for(test, json!({ "replicas": 5 })).await?;
    have(test, &[2, 1, 1, 1, 2]).await?;
    claimed(test, &[(1, &["m-1", "m-2", "m-3"]), (2, &["m-0", "m-4"])]).await?;
    asks_for(test, json!({ "replicas": 3 })).await?;
    have(test, &[2, 1, 1]).await?;
    claimed(test, &[(1, &["m-1", "m-2"]), (2, &["m-0"])]).await?;
    members(test).delete("m-2").await?;
    members(test).until("m-2", "made anew", |one| uid(one) != uid(&before[2])).await?;
    have(test, &[2, 1, 1]).await?;

    asks_for(test, json!({ "image": 1 })).await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-1").await?;
    have(test, &[2, 1, 1]).await?;
    for name in ["m-1", "m-2"] {
        says(test, name, "True").await?;
    }
    let after = have(test, &[1, 1, 1]).await?;
    claimed(test, &[(1, &["m-0", "m-1", "m-2"])]).await?;
    updated(test, "True", "OnLatestRevision", "").await?;
    // The generation counts changes of the spec.
    let changes: Vec<_> = after.iter().map(|one| one["metadata"]["generation"].clone()).collect();
    ensure!(changes == [3, 1, 1], "{changes:?}");
    Ok(())
}

pub(crate) async fn each_state_of_a_parent_has_the_related_objects_that_it_asks_for(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| {
        let image = &asked.body["parent"]["spec"]["image"];
        if asked.path == "/customize" {
            let rule =
                json!({ "apiVersion": "v1", "resource": "configmaps", "names": [format!("image-{image}")] });
            return json!({ "relatedResources": [rule] }).into();
        }
        let mut said = answer(asked);
        let shown = &asked.body["related"]["ConfigMap.v1"];
        for member in said["children"].as_array_mut().into_iter().flatten() {
            member["spec"]["shown"] = shown[format!("image-{image}")]["data"]["is"].clone();
        }
        said.into()
    };
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.define(&member(test)).await?;
    test.serve()?;
    let customized = controller(test, "RollingInPlace", ready(), &webhook);
    test.host(customized.customized_by(Hook::webhook(&webhook.url("/customize")))).await?;
    for (name, is) in [("image-1", "one"), ("image-2", "two")] {
        test.config_maps().create(config_map(name, json!({}), json!({ "is": is }))).await?;
    }
    let all = members(test);
    let shown = async |wanted: &[&str]| {
        let is = |all: &[Value]| all.iter().map(|one| text(one, "/spec/shown")).eq(wanted.iter().copied());
        all.until_all(&format!("shown {wanted:?}"), is).await
    };
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 3 }))).await?;
    shown(&["one", "one", "one"]).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    shown(&["two", "one", "one"]).await?;
    // A change of what the older state asks for wakes the parent, and is no change of the state.
    test.config_maps().merge("image-1", &json!({ "data": { "is": "uno" } })).await?;
    shown(&["two", "uno", "uno"]).await?;
    says(test, "m-0", "True").await?;
    shown(&["two", "two", "uno"]).await?;
    Ok(())
}

/// It ends when the answers about all of its states say so.
pub(crate) async fn a_parent_that_goes_in_the_middle_is_finalized_in_all_its_states(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => rolls(asked),
        // Both states: the older one is never done, so that it has to be given up.
        _ if asked.body["parent"]["spec"]["image"] == 1 => {
            json!({ "children": [], "finalized": false }).into()
        }
        _ => json!({ "children": [], "finalized": true }).into(),
    };
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.define(&member(test)).await?;
    test.serve()?;
    let finalized = controller(test, "RollingInPlace", ready(), &webhook);
    test.host(finalized.finalized_by(Hook::webhook(&webhook.url("/finalize")))).await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 3 }))).await?;
    have(test, &[1, 1, 1]).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-0").await?;
    test.parents().delete("p").await?;
    test.parents().until_gone("p").await?;
    let asked = webhook.asked();
    let about = |image: i64| {
        let is = |one: &&Asked| one.path == "/finalize" && one.body["parent"]["spec"]["image"] == image;
        asked.iter().filter(is).count()
    };
    ensure!(about(1) >= 1 && about(2) > about(1), "asked {} and {} times", about(1), about(2));
    ensure!(asked.iter().filter(|one| one.path == "/finalize").all(|one| one.body["finalizing"] == true));
    Ok(())
}

pub(crate) async fn a_parent_is_settled_until_a_user_changes_its_revisions(test: &mut Fixture) -> Result<()> {
    let child = config_map("child", json!({}), json!({ "is": "here" }));
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&json!({ "children": [child] }))?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&CONFIG_MAP, "RollingInPlace").synced_by(hook)).await?;
    test.create(test.parent("p").with(json!({ "image": 1 }))).await?;
    let rests = |cc: &Value| cc["status"]["settled"] == 1;
    test.until_controller("one settled parent", rests).await?;
    let names =
        |all: &[Value]| -> Vec<Value> { all.iter().map(|one| one["children"][0]["names"].clone()).collect() };
    let whole = |all: &[Value]| names(all) == [json!(["child"])];
    let all = revisions(test).until_all("the claim", whole).await?;
    let name = text(&all[0], "/metadata/name");
    revisions(test).merge(name, &json!({ "children": [] })).await?;
    revisions(test).until_all("the claim again", whole).await?;
    revisions(test).delete(name).await?;
    let anew = |now: &[Value]| whole(now) && uid(&now[0]) != uid(&all[0]);
    revisions(test).until_all("the revision anew", anew).await?;
    test.until_controller("rest", rests).await?;
    Ok(())
}

/// By server-side apply, too, a restart in the middle included.
pub(crate) async fn what_the_api_server_merges_is_rolled_out_to_the_end(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(rolls).await?;
    test.define_kind().await?;
    test.define(&member(test)).await?;
    test.serve()?;
    let applied = controller(test, "RollingRecreate", ready(), &webhook);
    test.host(applied.with("applyStrategy", "server-side-apply")).await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 3 }))).await?;
    let first = have(test, &[1, 1, 1]).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-0: status.conditions has no Ready")
        .await?;
    test.server().kill().await?;
    test.server().start()?;
    webhook.until_asked_again(2).await?;
    have(test, &[2, 1, 1]).await?;
    says(test, "m-0", "True").await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-1: status.conditions has no Ready")
        .await?;
    says(test, "m-1", "True").await?;
    let last = have(test, &[2, 2, 2]).await?;
    updated(test, "True", "OnLatestRevision", "").await?;
    ensure!(first.iter().zip(&last).all(|(first, last)| uid(first) != uid(last)), "kept: {last:?}");
    claimed(test, &[(2, &["m-0", "m-1", "m-2"])]).await.map(drop)
}

/// Revisions with bare names, labelled after a template, and children as Metacontroller leaves them in the middle.
pub(crate) async fn a_rollout_that_metacontroller_began_is_brought_to_its_end(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = Webhook::serve(rolls).await?;
    test.define_kind().await?;
    test.define(&member(test)).await?;
    let parent = test.create(test.parent("p").with(json!({ "image": 2, "replicas": 3 }))).await?;
    let api_version = test.kind().api_version();
    let owner = json!([{
        "apiVersion": api_version, "kind": test.kind().kind, "name": "p", "uid": uid(&parent),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    for (nth, image) in [2, 1, 1].into_iter().enumerate() {
        let labels = json!({ "controller-uid": uid(&parent) });
        let mut object = json!({
            "apiVersion": api_version, "kind": "Member",
            "metadata": { "name": format!("m-{nth}"), "namespace": test.name(), "labels": labels },
            "spec": { "image": image },
        });
        let applied = object.to_string();
        object["metadata"]["annotations"] =
            json!({ "metacontroller.k8s.io/last-applied-configuration": applied });
        object["metadata"]["ownerReferences"] = owner.clone();
        members(test).create(object).await?;
    }
    let labels = json!({
        "from": "a-template",
        "metacontroller.k8s.io/apiGroup": test.kind().group, "metacontroller.k8s.io/resource": "greetings",
    });
    for (image, names) in [(1, json!(["m-2", "m-1", "m-0", "gone"])), (2, json!(["m-0"]))] {
        let revision = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "ControllerRevision",
            "metadata": { "name": format!("theirs-{image}"), "labels": labels, "ownerReferences": owner },
            "parentPatch": { "spec": { "image": image } },
            "children": [{ "apiGroup": test.kind().group, "kind": "Member", "names": names }],
        });
        revisions(test).create(revision).await?;
    }
    let untouched = members(test).get("m-0").await?;
    test.serve()?;
    test.host(controller(test, "RollingInPlace", ready(), &webhook)).await?;
    updated(test, "False", "RolloutWaiting", "waiting for Member m-0").await?;
    claimed(test, &[(1, &["m-1", "m-2"]), (2, &["m-0"])]).await?;
    have(test, &[2, 1, 1]).await?;
    let still = members(test).get("m-0").await?;
    ensure!(version(&still) == version(&untouched), "written: {still}");
    for name in ["m-0", "m-1"] {
        says(test, name, "True").await?;
    }
    have(test, &[2, 2, 2]).await?;
    let kept = claimed(test, &[(2, &["m-0", "m-1", "m-2"])]).await?;
    ensure!(text(&kept[0], "/metadata/name") == "theirs-2", "{}", kept[0]);
    updated(test, "True", "OnLatestRevision", "latest ControllerRevision: theirs-2").await
}

/// Their revisions are in the namespace of the server.
pub(crate) async fn parents_without_a_namespace_are_rolled_out(test: &mut Fixture) -> Result<()> {
    let webhook = Webhook::serve(rolls).await?;
    let mut parents = definition(test.kind());
    parents["spec"]["scope"] = json!("Cluster");
    let name = text(&parents, "/metadata/name").to_owned();
    test.definitions().create(parents).await?;
    test.definitions().until(&name, "established", |crd| is_true(crd, "Established")).await?;
    test.define(&member(test)).await?;
    test.serve()?;
    test.host(controller(test, "RollingRecreate", json!({}), &webhook)).await?;
    let place = test.everywhere(test.kind());
    let spec = json!({ "image": 1, "replicas": 2, "place": test.name() });
    let parent = test.make(&place, test.parent("p").with(spec).json()).await?;
    have(test, &[1, 1]).await?;
    let theirs = |all: &[Value]| -> Vec<(i64, Value)> {
        let owned = |one: &&Value| one["metadata"]["ownerReferences"][0]["uid"] == parent["metadata"]["uid"];
        claims(&all.iter().filter(owned).cloned().collect::<Vec<_>>())
    };
    let names = json!(["m-0", "m-1"].map(|name| format!("{}/{name}", test.name())));
    let revisions = test.within_default(&CONTROLLER_REVISION);
    revisions.until_all("the first", |all| theirs(all) == [(1, names.clone())]).await?;
    place.merge("p", &json!({ "spec": { "image": 2 } })).await?;
    have(test, &[2, 2]).await?;
    let all = revisions.until_all("the second", |all| theirs(all) == [(2, names.clone())]).await?;
    let last = all.iter().find(|one| theirs(std::slice::from_ref(one)).len() == 1).context("none")?;
    let is = |parent: &Value| has_condition(parent, "Updated", "True", "OnLatestRevision");
    place.until("p", "on the latest revision", is).await?;
    // The garbage collector would, but takes its time to learn of a kind.
    revisions.delete(text(last, "/metadata/name")).await
}
