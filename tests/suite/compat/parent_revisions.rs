//! Section 5 of the compatibility contract: the states of a parent in a rollout, and the revisions that hold them.

use acceptance::api::{CONFIG_MAP, CONTROLLER_REVISION};
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, definition, has_condition, is_true, text, uid, version};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rolling_update::{
    answer, asks_for, claimed, claims, controller, have, member, members, ready, revisions, rolls, says,
    updated,
};
use crate::wasm;

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
