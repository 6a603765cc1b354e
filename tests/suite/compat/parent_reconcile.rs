//! Section 3 of the compatibility contract: which parents are reconciled, claims of children, labels, status.

use acceptance::api::{CONFIG_MAP, Kind, POD};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, config_map, text, uid, version};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

pub(super) const FOREIGN: &str = "example.com/foreign";

/// A controller of `ConfigMap`s with a sync webhook.
pub(super) async fn synced(
    test: &mut Fixture,
    program: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    change: impl FnOnce(Composite, &Webhook) -> Composite,
) -> Result<Webhook> {
    let webhook = Webhook::serve(program).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    let controller = change(controller.synced_by(Hook::webhook(&webhook.url("/sync"))), &webhook);
    test.host(controller).await?;
    Ok(webhook)
}

pub(super) fn finalized(controller: Composite, webhook: &Webhook) -> Composite {
    controller.finalized_by(Hook::webhook(&webhook.url("/finalize")))
}

pub(super) fn child(name: &str) -> Value {
    config_map(name, json!({}), json!({ "is": name }))
}

pub(super) fn labelled(name: &str, app: &str) -> Value {
    config_map(name, json!({ "app": app }), json!({ "is": name }))
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(super) fn names(asked: &Asked) -> Vec<&str> {
    let children = asked.body["children"]["ConfigMap.v1"].as_object();
    children.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

pub(super) fn is_going(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

pub(super) fn is_about(asked: &Asked, path: &str, parent: &str) -> bool {
    asked.path == path && asked.body["parent"]["metadata"]["name"] == parent
}

/// A foreign finalizer holds the parent; the test removes it at its end.
pub(super) async fn hold(test: &Fixture, parent: &str) -> Result<()> {
    let held = test.parents().get(parent).await?;
    let all: Vec<_> = finalizers(&held).into_iter().chain([FOREIGN]).collect();
    test.parents().merge(parent, &json!({ "metadata": { "finalizers": all } })).await?;
    Ok(())
}

pub(super) async fn let_go(test: &Fixture, parent: &str) -> Result<()> {
    let held = test.parents().get(parent).await?;
    let all: Vec<_> = finalizers(&held).into_iter().filter(|one| *one != FOREIGN).collect();
    test.parents().merge(parent, &json!({ "metadata": { "finalizers": all } })).await?;
    test.parents().until_gone(parent).await
}

pub(crate) async fn a_parent_is_reconciled_while_its_labels_match_and_then_left(
    test: &mut Fixture,
) -> Result<()> {
    let answer = |asked: &Asked| {
        let name = text(&asked.body, "/parent/metadata/name").to_owned();
        json!({ "children": [child(&name)], "status": { "seen": true } }).into()
    };
    let webhook = synced(test, answer, |c, _| c.of_parents_with("on", "yes")).await?;
    test.create(test.parent("off")).await?;
    test.create(test.parent("on").labelled("on", "yes")).await?;
    let made = test.config_maps().until("on", "made", |_| true).await?;
    ensure!(!webhook.asked().iter().any(|asked| is_about(asked, "/sync", "off")), "asked about the other");
    test.parents().merge("off", &json!({ "metadata": { "labels": { "on": "yes" } } })).await?;
    test.config_maps().until("off", "made once it matches", |_| true).await?;
    test.parents().merge("on", &json!({ "metadata": { "labels": { "on": null } } })).await?;
    // What comes after is told of in order: by then the change above has been seen.
    test.parents().merge("off", &json!({ "spec": { "more": 1 } })).await?;
    webhook.until_asked("about the change", |asked| asked.body["parent"]["spec"]["more"] == 1).await?;
    let still = test.config_maps().get("on").await?;
    ensure!(
        version(&still) == version(&made),
        "the children of a parent that no longer matches were touched"
    );
    Ok(())
}

pub(crate) async fn a_parent_with_no_valid_selector_is_an_error_until_it_goes(
    test: &mut Fixture,
) -> Result<()> {
    let program = |asked: &Asked| match asked.path.as_str() {
        "/sync" => json!({ "children": [labelled("a", "p")] }).into(),
        _ => json!({ "children": [], "finalized": names(asked).is_empty() }).into(),
    };
    let webhook = synced(test, program, |c, webhook| finalized(c, webhook).by_own_selectors()).await?;
    test.create(test.parent("none")).await?;
    let says = |event: &Value| text(event, "/message").contains("spec.selector");
    test.until_event("none", "SyncError", says).await?;
    ensure!(webhook.count() == 0, "asked about a parent without a selector");
    test.create(test.parent("p").selecting("app", "p")).await?;
    test.config_maps().until("a", "made", |_| true).await?;
    test.parents().merge("p", &json!({ "spec": { "selector": { "matchLabels": 7 } } })).await?;
    test.until_event("p", "SyncError", says).await?;
    test.parents().delete("p").await?;
    test.parents().until_gone("p").await?;
    test.config_maps().until_gone("a").await
}

pub(crate) async fn claims_follow_owner_labels_and_deletion(test: &mut Fixture) -> Result<()> {
    // The parent wants what it has, less what is marked.
    let program = |asked: &Asked| {
        let have = names(asked).into_iter().filter(|name| *name != "unwanted");
        json!({ "children": have.map(|name| labelled(name, "p")).collect::<Vec<_>>() }).into()
    };
    let webhook = synced(test, program, |c, _| c.by_own_selectors()).await?;
    let place = test.config_maps();
    let owner = test.make(&place, child("owner")).await?;
    let other = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner), "controller": true,
    }]);
    for object in [labelled("adopted", "p"), labelled("unwanted", "p"), labelled("stranger", "other")] {
        test.make(&place, object).await?;
    }
    let mut foreign = labelled("foreign", "p");
    foreign["metadata"]["ownerReferences"] = other.clone();
    let mut going = labelled("going", "p");
    going["metadata"]["finalizers"] = json!([FOREIGN]);
    // What a decorator made is left to it as long as it exists, under whatever server.
    let decorator = format!("{}-d", test.name());
    test.host_decorator(test.decorator().renamed(&decorator).without_labels()).await?;
    let mut attached = labelled("attached", "p");
    attached["metadata"]["annotations"] = json!({ "metacontroller.k8s.io/decorator-controller": decorator });
    for object in [foreign, going, attached] {
        test.make(&place, object).await?;
    }
    place.delete("going").await?;
    test.create(test.parent("p").selecting("app", "p")).await?;
    let adopted =
        place.until("adopted", "adopted", |one| one["metadata"]["ownerReferences"].is_array()).await?;
    let parent = test.parents().get("p").await?;
    let reference = json!([{
        "apiVersion": test.kind().api_version(), "kind": test.kind().kind, "name": "p", "uid": uid(&parent),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    ensure!(adopted["metadata"]["ownerReferences"] == reference, "{adopted}");
    place.until_gone("unwanted").await?;
    let asked = webhook.until_asked("with the adopted", |asked| names(asked).contains(&"adopted")).await?;
    ensure!(names(&asked) == ["adopted", "unwanted"], "{:?}", names(&asked));
    place.merge("adopted", &json!({ "metadata": { "labels": { "app": "other" } } })).await?;
    let free = |one: &Value| one["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
    place.until("adopted", "released", free).await?;
    ensure!(place.get("foreign").await?["metadata"]["ownerReferences"] == other);
    for left in ["stranger", "going", "attached"] {
        ensure!(free(&place.get(left).await?), "{left} was adopted");
    }
    place.merge("going", &json!({ "metadata": { "finalizers": null } })).await?;
    Ok(())
}

pub(crate) async fn a_parent_that_goes_neither_adopts_nor_releases(test: &mut Fixture) -> Result<()> {
    let program = |asked: &Asked| {
        let count = names(asked).len();
        let status = json!({ "children": count, "going": is_going(&asked.body["parent"]) });
        json!({ "children": [labelled("a", "p"), labelled("b", "p")], "status": status }).into()
    };
    let _webhook = synced(test, program, |c, _| c.by_own_selectors()).await?;
    test.create(test.parent("p").selecting("app", "p")).await?;
    test.parents().until("p", "has two", |p| p["status"]["children"] == 2).await?;
    hold(test, "p").await?;
    test.parents().delete("p").await?;
    // The server knows, too: else it releases what stops to match.
    test.parents().until("p", "going", |p| p["status"]["going"] == true).await?;
    test.config_maps().merge("a", &json!({ "metadata": { "labels": { "app": "x" } } })).await?;
    test.parents().until("p", "one stopped matching", |p| p["status"]["children"] == 1).await?;
    test.make(&test.config_maps(), labelled("orphan", "p")).await?;
    test.config_maps().merge("a", &json!({ "metadata": { "labels": { "app": "p" } } })).await?;
    test.parents().until("p", "it matches again", |p| p["status"]["children"] == 2).await?;
    let orphan = test.config_maps().get("orphan").await?;
    ensure!(orphan["metadata"].get("ownerReferences").is_none(), "{orphan}");
    let_go(test, "p").await
}

pub(crate) async fn a_child_that_does_not_match_refuses_the_whole_answer(test: &mut Fixture) -> Result<()> {
    let answer = |asked: &Asked| {
        let bad = asked.body["parent"]["spec"]["bad"] == true;
        json!({ "children": [labelled("a", "p"), labelled("b", if bad { "x" } else { "p" })], "status": { "bad": bad } }).into()
    };
    let _webhook = synced(test, answer, |c, _| c.by_own_selectors()).await?;
    let mut parent = test.parent("p").selecting("app", "p").json();
    parent["spec"]["bad"] = json!(true);
    test.make(&test.parents(), parent).await?;
    let says = |event: &Value| text(event, "/message").contains("don't match parent selector");
    test.until_event("p", "SyncError", says).await?;
    ensure!(test.config_maps().find("a").await?.is_none(), "a child was written");
    ensure!(test.parents().get("p").await?.get("status").is_none(), "the status was written");
    test.parents().merge("p", &json!({ "spec": { "bad": false } })).await?;
    let a = test.config_maps().until("a", "made", |_| true).await?;
    ensure!(a["metadata"]["labels"] == json!({ "app": "p" }), "labels were added: {a}");
    Ok(())
}

pub(crate) async fn the_status_is_replaced_whole_written_beside_failures_and_not_without_need(
    test: &mut Fixture,
) -> Result<()> {
    let answer = |asked: &Asked| match text(&asked.body, "/parent/spec/mode") {
        "fails" => json!({ "status": { "a": 2, "observedGeneration": 77 }, "children": [
            // The API server refuses it: a ConfigMap's data are texts.
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "bad" }, "data": { "a": 1 } },
            child("good"),
        ] })
        .into(),
        "none" => json!({ "children": [child("good")] }).into(),
        _ => json!({ "status": { "a": 1, "b": 1 }, "children": [] }).into(),
    };
    let webhook = synced(test, answer, |c, _| c.resyncing_each_second()).await?;
    test.create(test.parent("p")).await?;
    let first = json!({ "a": 1, "b": 1, "observedGeneration": 1 });
    let settled = test.parents().until("p", "its status", |p| p["status"] == first).await?;
    webhook.until_asked_again(3).await?;
    let still = test.parents().get("p").await?;
    ensure!(version(&still) == version(&settled), "written without need: {still}");
    test.parents().merge("p", &json!({ "spec": { "mode": "fails" } })).await?;
    let second = json!({ "a": 2, "observedGeneration": 2 });
    test.parents().until("p", "its status beside a failure", |p| p["status"] == second).await?;
    test.config_maps().until("good", "made beside a failure", |_| true).await?;
    test.until_event("p", "SyncError", |event| text(event, "/message").contains("bad")).await?;
    test.parents().merge("p", &json!({ "spec": { "mode": "none" } })).await?;
    let third = json!({ "observedGeneration": 3 });
    test.parents().until("p", "no status", |p| p["status"] == third).await?;
    Ok(())
}

pub(crate) async fn unmanaged_children_of_webhooks_are_created_once_and_reported(
    test: &mut Fixture,
) -> Result<()> {
    let place = test.name().to_owned();
    let answer = move |_: &Asked| {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "unmanaged" } });
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1,
            "metadata": { "name": format!("unmanaged-{place}") },
        });
        json!({ "children": [secret, class, child("kept")], "status": { "n": 1 } }).into()
    };
    let priority = Kind::new("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
    let secret = Kind::new("", "v1", "Secret", "secrets");
    let webhook = synced(test, answer, |c, _| c.making(&POD, "InPlace")).await?;
    test.create(test.parent("p")).await?;
    test.within(&secret).until("unmanaged", "made", |_| true).await?;
    let name = format!("unmanaged-{}", test.name());
    test.everywhere(&priority).until(&name, "made", |_| true).await?;
    test.config_maps().until("kept", "made", |_| true).await?;
    for says in
        ["a v1 Secret, which the controller's spec does not declare", "a scheduling.k8s.io/v1 PriorityClass"]
    {
        test.until_event("p", "UnmanagedChild", |event| text(event, "/message").contains(says)).await?;
    }
    test.parents().until("p", "synced", |p| p["status"]["n"] == 1).await?;
    test.parents().merge("p", &json!({ "spec": { "more": 1 } })).await?;
    let more = |asked: &Asked| asked.body["parent"]["spec"]["more"] == 1;
    webhook.until_asked("once more", more).await?;
    test.create(test.parent("q")).await?;
    test.parents().until("q", "synced after it", |q| q["status"]["n"] == 1).await?;
    let times = webhook.asked().iter().filter(|asked| more(asked)).count();
    ensure!(times <= 2, "asked {times} times: what is there already is no failure");
    test.everywhere(&priority).delete(&name).await
}

pub(crate) async fn a_built_in_kind_with_a_status_can_be_a_parent(test: &mut Fixture) -> Result<()> {
    let ingress = Kind::new("networking.k8s.io", "v1", "Ingress", "ingresses");
    let address = json!({ "ip": "192.0.2.1", "ipMode": "VIP" });
    let status = json!({ "loadBalancer": { "ingress": [address] } });
    let webhook = Webhook::answering(json!({ "children": [child("of-ingress")], "status": status })).await?;
    test.serve()?;
    let controller = test.controller().over(&ingress).making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&webhook.url("/sync")))).await?;
    let parents = test.within(&ingress);
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let parent = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "p" },
        "spec": { "defaultBackend": backend },
    });
    test.make(&parents, parent).await?;
    test.config_maps().until("of-ingress", "made", |_| true).await?;
    let told = |p: &Value| p["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1";
    let told = parents.until("p", "its status", told).await?;
    ensure!(told["spec"]["defaultBackend"] == backend, "the spec was touched: {told}");
    Ok(())
}
