//! Section 5 of the compatibility contract: a rollout updates one child after the other, as far as their status lets it.

use acceptance::api::{CONTROLLER_REVISION, Kind, Objects};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, condition, has_condition, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// The kind of children: with a status, as one who looks after them writes it.
pub(super) fn member(test: &Fixture) -> Kind {
    Kind::new(&test.kind().group, "v1", "Member", "members")
}

pub(super) fn members(test: &Fixture) -> Objects {
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

pub(super) fn rolls(asked: &Asked) -> Answer {
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

pub(super) fn controller(test: &Fixture, method: &str, checks: Value, webhook: &Webhook) -> Composite {
    let mut controller = test
        .controller()
        .making(&member(test), method)
        .synced_by(Hook::webhook(&webhook.url("/sync")))
        .json();
    controller["spec"]["childResources"][0]["updateStrategy"]["statusChecks"] = checks;
    controller["spec"]["parentResource"]["revisionHistory"] = json!({ "fieldPaths": ["spec.image"] });
    Composite::of(controller)
}

pub(super) fn ready() -> Value {
    json!({ "conditions": [{ "type": "Ready", "status": "True" }] })
}

pub(crate) async fn asks_for(test: &Fixture, spec: Value) -> Result<()> {
    test.parents().merge("p", &json!({ "spec": spec })).await.map(drop)
}

pub(super) async fn says(test: &Fixture, name: &str, status: &str) -> Result<()> {
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
pub(super) fn claims(revisions: &[Value]) -> Vec<(i64, Value)> {
    let image = |one: &Value| one["parentPatch"]["spec"]["image"].as_i64().unwrap_or_default();
    let mut all: Vec<_> =
        revisions.iter().map(|one| (image(one), one["children"][0]["names"].clone())).collect();
    all.sort_by_key(|(image, _)| *image);
    all
}

pub(super) async fn claimed(test: &Fixture, wanted: &[(i64, &[&str])]) -> Result<Vec<Value>> {
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
