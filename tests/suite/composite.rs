//! Tests of `CompositeController`s: children and status of their parents, and the children's end.

use acceptance::api::{self, CONFIG_MAP, Kind, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{
    Hook, Parent, condition, config_map, definition, has_condition, is_true, text, uid, version,
};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::pages::symptoms;
use crate::wasm;

const GREETING: &str = "/spec/containers/0/command/1";

/// The tutorial up to its first Pod: gives back the Pod.
async fn tutorial(test: &mut Fixture) -> Result<Value> {
    test.define_kind().await?;
    greets(test).await
}

async fn greets(test: &mut Fixture) -> Result<Value> {
    test.store("hello-hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hello-hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    test.create(test.parent("your-name").greeting("Your Name")).await?;
    test.pods().until("your-name", "greets", |pod| text(pod, GREETING) == "Hello, Your Name!").await
}

/// A controller of `ConfigMap`s whose hook is a module that the test writes, and its one parent `a`.
async fn config_maps(test: &mut Fixture, response: &Value, method: &str) -> Result<Value> {
    test.define_kind().await?;
    test.store("hook", &wasm::answers(response)?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&CONFIG_MAP, method).synced_by(hook)).await?;
    test.create(test.parent("a")).await
}

pub(crate) async fn a_parent_gets_a_pod_with_the_greeting_its_owner_and_its_label(
    test: &mut Fixture,
) -> Result<()> {
    let pod = tutorial(test).await?;
    let parent = test.parents().get("your-name").await?;
    let owner = json!([{
        "apiVersion": test.kind().api_version(),
        "kind": test.kind().kind,
        "name": "your-name",
        "uid": uid(&parent),
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    ensure!(pod["metadata"]["ownerReferences"] == owner, "owned by {}", pod["metadata"]["ownerReferences"]);
    ensure!(
        pod["metadata"]["labels"] == json!({ "controller-uid": uid(&parent) }),
        "{}",
        pod["metadata"]["labels"]
    );
    let applied = text(&pod, "/metadata/annotations/metacontroller.k8s.io~1last-applied-configuration");
    let applied: Value = serde_json::from_str(applied)?;
    ensure!(applied.pointer(GREETING) == pod.pointer(GREETING), "last applied: {applied}");
    Ok(())
}

pub(crate) async fn the_status_is_what_the_hook_says_and_the_generation_it_saw(
    test: &mut Fixture,
) -> Result<()> {
    tutorial(test).await?;
    let first = json!({ "pods": 1, "observedGeneration": 1 });
    test.parents().until("your-name", "its status", |parent| parent["status"] == first).await?;
    test.parents().merge("your-name", &json!({ "spec": { "who": "My Name" } })).await?;
    let second = json!({ "pods": 1, "observedGeneration": 2 });
    test.parents().until("your-name", "its next status", |parent| parent["status"] == second).await?;
    Ok(())
}

pub(crate) async fn a_changed_parent_has_its_pod_deleted_and_made_anew(test: &mut Fixture) -> Result<()> {
    let first = tutorial(test).await?;
    test.parents().merge("your-name", &json!({ "spec": { "who": "My Name" } })).await?;
    let greets = |pod: &Value| text(pod, GREETING) == "Hello, My Name!";
    let second = test.pods().until("your-name", "greets anew", greets).await?;
    ensure!(uid(&first) != uid(&second), "the Pod was not made anew");
    let pods = test.pods().list().await?;
    ensure!(pods.len() == 1, "{} Pods", pods.len());
    Ok(())
}

pub(crate) async fn a_deleted_parent_has_its_pod_collected(test: &mut Fixture) -> Result<()> {
    test.take_known_kind();
    greets(test).await?;
    test.parents().delete("your-name").await?;
    test.pods().until_gone("your-name").await
}

pub(crate) async fn a_child_that_a_user_deletes_is_made_again(test: &mut Fixture) -> Result<()> {
    let first = tutorial(test).await?;
    test.pods().delete("your-name").await?;
    test.pods().until("your-name", "another uid", |pod| uid(pod) != uid(&first)).await?;
    Ok(())
}

pub(crate) async fn a_child_that_the_hook_no_longer_wants_is_deleted(test: &mut Fixture) -> Result<()> {
    let child = |name: &str| config_map(name, json!({}), json!({ "is": name }));
    config_maps(test, &json!({ "children": [child("kept"), child("dropped")] }), "InPlace").await?;
    let kept = test.config_maps().until("kept", "made", |_| true).await?;
    test.config_maps().until("dropped", "made", |_| true).await?;
    test.store("hook", &wasm::answers(&json!({ "children": [child("kept")] }))?).await?;
    test.config_maps().until_gone("dropped").await?;
    let still = test.config_maps().get("kept").await?;
    ensure!(version(&still) == version(&kept), "the child that stays was written: {still}");
    Ok(())
}

pub(crate) async fn in_place_a_child_keeps_what_others_added_and_loses_what_the_hook_dropped(
    test: &mut Fixture,
) -> Result<()> {
    let response = |data: Value| json!({ "children": [config_map("child", json!({ "ours": "1" }), data)] });
    config_maps(test, &response(json!({ "changed": "old", "dropped": "x" })), "InPlace").await?;
    let first = test.config_maps().until("child", "made", |_| true).await?;
    let foreign = json!({ "metadata": { "labels": { "foreign": "yes" } }, "data": { "added": "by hand" } });
    test.config_maps().merge("child", &foreign).await?;
    test.store("hook", &wasm::answers(&response(json!({ "changed": "new" })))?).await?;
    let changed = |child: &Value| child["data"]["changed"] == "new";
    let second = test.config_maps().until("child", "changed", changed).await?;
    ensure!(second["data"] == json!({ "changed": "new", "added": "by hand" }), "{}", second["data"]);
    let labels = &second["metadata"]["labels"];
    ensure!(labels["foreign"] == "yes" && labels["ours"] == "1", "{labels}");
    ensure!(uid(&first) == uid(&second), "the child was made anew");
    Ok(())
}

pub(crate) async fn without_a_method_a_child_that_is_there_is_left_as_it_is(
    test: &mut Fixture,
) -> Result<()> {
    let child = |name: &str, data: &str| config_map(name, json!({}), json!({ "is": data }));
    config_maps(test, &json!({ "children": [child("first", "old")] }), "OnDelete").await?;
    let first = test.config_maps().until("first", "made", |_| true).await?;
    let response = json!({ "children": [child("first", "new"), child("second", "new")] });
    test.store("hook", &wasm::answers(&response)?).await?;
    test.config_maps().until("second", "made", |_| true).await?;
    let still = test.config_maps().get("first").await?;
    ensure!(version(&still) == version(&first), "the child was written: {still}");
    let named = format!("ConfigMap {}/first (data.is)", test.name());
    test.until_event("a", "ChildrenDiffer", |event| text(event, "/message").starts_with(&named)).await?;
    let differs = |cc: &Value| {
        condition(cc, "ChildrenDiffer")
            .is_some_and(|is| is["status"] == "True" && text(is, "/message").contains(&named))
    };
    test.until_controller("ChildrenDiffer", differs).await?;
    symptoms::is_shown(test, "ChildrenDiffer", &symptoms::controller(test.name())).await?;
    test.config_maps().delete("first").await?;
    test.config_maps().until("first", "made anew", |child| child["data"]["is"] == "new").await?;
    let healed = |cc: &Value| has_condition(cc, "ChildrenDiffer", "False", "NoneDiffers");
    test.until_controller("healed", healed).await.map(drop)
}

/// Orphans with the parent's labels become children; a child that loses them is let go, and nothing else is touched.
pub(crate) async fn a_matching_orphan_is_adopted_and_a_child_that_stops_matching_is_released(
    test: &mut Fixture,
) -> Result<()> {
    let (ours, others) = (json!({ "app": "ours" }), json!({ "app": "others" }));
    let data = json!({ "is": "here" });
    let (place, orphans) = (test.config_maps(), ["orphan", "other"]);
    test.make(&place, config_map("orphan", ours.clone(), data.clone())).await?;
    let other = test.make(&place, config_map("other", others, data.clone())).await?;
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&json!({ "children": [config_map(orphans[0], ours, data)] }))?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().by_own_selectors().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let parent = test.create(test.parent("a").selecting("app", "ours")).await?;

    let owner = |child: &Value| text(child, "/metadata/ownerReferences/0/uid").to_owned();
    test.config_maps().until("orphan", "adopted", |child| owner(child) == uid(&parent)).await?;
    test.config_maps().merge("orphan", &json!({ "metadata": { "labels": { "app": "free" } } })).await?;
    test.config_maps().until("orphan", "released", |child| owner(child).is_empty()).await?;
    let same = test.config_maps().get("other").await?;
    ensure!(version(&same) == version(&other), "an orphan that never matched was written: {same}");
    Ok(())
}

/// The server holds the metadata alone of a large object that no controller made, until a hook may see it.
pub(crate) async fn large_objects_are_shown_whole_to_the_hooks_that_see_them(
    test: &mut Fixture,
) -> Result<()> {
    const SIZE: usize = 100_000;
    let large = json!({ "k": "x".repeat(SIZE) });
    // All stay as they are.
    let program = |asked: &Asked| -> Answer {
        if asked.path == "/customize" {
            let rule = json!({ "apiVersion": "v1", "resource": "configmaps", "labelSelector": { "matchLabels": { "app": "others" } } });
            return json!({ "relatedResources": [rule] }).into();
        }
        let body = |child: &Value| {
            let name = text(child, "/metadata/name");
            config_map(name, child["metadata"]["labels"].clone(), child["data"].clone())
        };
        let children = asked.body["children"]["ConfigMap.v1"].as_object();
        json!({ "children": children.into_iter().flat_map(|all| all.values()).map(body).collect::<Vec<_>>() })
            .into()
    };
    let webhook = Webhook::serve(program).await?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    let shows = |asked: &Asked, path: &str, of: &str, name: &str| {
        let shown = asked.body[of]["ConfigMap.v1"][name]["data"]["k"].as_str().map(str::len);
        asked.path == path && shown == Some(SIZE)
    };
    test.define_kind().await?;
    let parent = test.create(test.parent("a").selecting("app", "ours")).await?;
    let place = test.config_maps();
    let ours = json!({ "app": "ours" });
    test.make(&place, config_map("orphan", ours.clone(), large.clone())).await?;
    let mut kept = config_map("kept", ours, large.clone());
    kept["metadata"]["ownerReferences"] = json!([{
        "apiVersion": test.kind().api_version(), "kind": test.kind().kind, "name": "a", "uid": uid(&parent), "controller": true,
    }]);
    test.make(&place, kept).await?;
    let labels = json!({ "controller-uid": uid(&parent) });
    test.make(&place, config_map("generated", labels, large.clone())).await?;
    test.make(&place, config_map("other", json!({ "app": "others" }), large)).await?;
    test.serve()?;
    let controller = |test: &Fixture| test.controller().making(&CONFIG_MAP, "OnDelete");
    test.host(controller(test).by_own_selectors().synced_by(hook("/own"))).await?;
    for name in ["orphan", "kept"] {
        webhook.until_asked(name, |asked| shows(asked, "/own", "children", name)).await?;
    }
    let generating = controller(test).renamed(&format!("{}-generating", test.name())).generating_selectors();
    test.host(generating.synced_by(hook("/generated"))).await?;
    webhook.until_asked("generated", |asked| shows(asked, "/generated", "children", "generated")).await?;
    // Now all of the kind are needed whole, also those that were held by their metadata.
    let related = controller(test).renamed(&format!("{}-related", test.name())).generating_selectors();
    test.host(related.synced_by(hook("/related")).customized_by(hook("/customize"))).await?;
    webhook.until_asked("related", |asked| shows(asked, "/related", "related", "other")).await?;
    Ok(())
}

pub(crate) async fn a_parent_kind_that_is_defined_later_is_served_then(test: &mut Fixture) -> Result<()> {
    test.store("hello-hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hello-hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    let waits = |cc: &Value| has_condition(cc, "Ready", "False", "KindNotServed");
    test.until_controller("not ready: KindNotServed", waits).await?;
    symptoms::is_shown(test, "KindNotServed", &symptoms::controller(test.name())).await?;
    test.define_kind().await?;
    test.create(test.parent("late").greeting("Late")).await?;
    test.pods().until("late", "greets", |pod| text(pod, GREETING) == "Hello, Late!").await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready") && is_true(cc, "KindsServed")).await?;
    Ok(())
}

/// One child of a kind that the spec does not declare refuses the whole response, the other child included.
pub(crate) async fn a_parent_kind_that_loses_its_status_stops_the_controller_until_it_is_back(
    test: &mut Fixture,
) -> Result<()> {
    tutorial(test).await?;
    let mut definition = definition(test.kind());
    let (name, whole) = (text(&definition, "/metadata/name").to_owned(), definition["spec"].clone());
    definition["spec"]["versions"][0]["subresources"] = json!({});
    test.definitions().merge(&name, &json!({ "spec": definition["spec"] })).await?;
    let says = "does not have subresource 'Status' enabled";
    test.until_controller("not ready, as the kind has no status", |cc| {
        has_condition(cc, "KindsServed", "False", "KindNotServed") && cc.to_string().contains(says)
    })
    .await?;
    let kind = test.kind();
    let told = format!(
        "[{}] Sync error - ignoring, CRD [{}, Kind={}] {says}",
        test.name(),
        kind.api_version(),
        kind.kind
    );
    test.until_controller_event("SyncError", |event| text(event, "/message").starts_with(&told)).await?;
    test.definitions().merge(&name, &json!({ "spec": whole })).await?;
    test.until_controller("ready again", |cc| is_true(cc, "Ready") && is_true(cc, "KindsServed")).await?;
    test.parents().merge("your-name", &json!({ "spec": { "who": "Again" } })).await?;
    test.pods().until("your-name", "greets again", |pod| text(pod, GREETING) == "Hello, Again!").await?;
    Ok(())
}

pub(crate) async fn a_finalizer_left_by_metacontroller_comes_off(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hello-hook", &guest("hello")?).await?;
    test.serve()?;
    // A finalizer's name may not be longer than 63 characters.
    let short = test.name().rsplit('-').take(2).collect::<Vec<_>>().join("-");
    let controller = test.controller().renamed(&format!("left-{short}"));
    test.host(controller.making(&POD, "Recreate").synced_by(test.hook("hello-hook"))).await?;
    let mut parent = test.parent("your-name").json();
    let ours = format!("metacontroller.io/compositecontroller-left-{short}");
    parent["metadata"]["finalizers"] = json!(["example.com/theirs", ours]);
    test.make(&test.parents(), parent).await?;
    test.parents()
        .until("your-name", "has the others' finalizer only", |parent| {
            parent["metadata"]["finalizers"] == json!(["example.com/theirs"])
        })
        .await?;
    let none = json!({ "metadata": { "finalizers": null } });
    test.parents().merge("your-name", &none).await?;
    Ok(())
}

pub(crate) async fn a_status_that_the_api_server_drops_ends_in_a_settled_parent(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let mut definition = definition(test.kind());
    let name = text(&definition, "/metadata/name").to_owned();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({ "type": "object" });
    test.definitions().merge(&name, &json!({ "spec": definition["spec"] })).await?;
    greets(test).await?;
    // Each pass that goes on tells of itself, and the second one after a write finds nothing to do.
    let passes = |log: &str| log.lines().filter(|line| line.contains("\"synced\"")).count();
    let before = test
        .server()
        .until_log("a pass with nothing to write", |log| log.contains("\"wrote\":false"))
        .await?;
    test.parents().merge("your-name", &json!({ "metadata": { "labels": { "touched": "once" } } })).await?;
    let after = test.server().until_log("a pass for the change", |log| passes(log) > passes(&before)).await?;
    ensure!(passes(&after) <= passes(&before) + 3, "the parent goes on syncing itself:\n{after}");
    Ok(())
}

pub(crate) async fn parents_are_resynced_as_often_as_the_spec_says(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hello-hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hello-hook");
    test.host(test.controller().making(&POD, "Recreate").resyncing_each_second().synced_by(hook)).await?;
    test.create(test.parent("your-name").greeting("Your Name")).await?;
    let settled = |log: &str| log.lines().filter(|line| line.contains("\"settled\"")).count();
    test.server().until_log("three reconciles of a settled parent", |log| settled(log) >= 3).await?;
    Ok(())
}

pub(crate) async fn an_undeclared_child_kind_refuses_the_response_before_any_write(
    test: &mut Fixture,
) -> Result<()> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "undeclared" } });
    let declared = config_map("declared", json!({}), json!({ "is": "here" }));
    config_maps(test, &json!({ "children": [declared.clone(), secret] }), "InPlace").await?;
    let names_it = |event: &Value| {
        let message = text(event, "/message");
        message.starts_with("Sync error: ") && message.contains("children[1]") && message.contains("Secret")
    };
    test.until_event("a", "SyncError", names_it).await?;
    ensure!(test.config_maps().find("declared").await?.is_none(), "the declared child was made");
    ensure!(test.within(&api::SECRET).find("undeclared").await?.is_none(), "the undeclared child was made");

    test.store("hook", &wasm::answers(&json!({ "children": [declared] }))?).await?;
    test.config_maps().until("declared", "made", |_| true).await?;
    Ok(())
}

/// Two controllers over two kinds: neither sees the other's children, though the children's kind is the same.
pub(crate) async fn two_controllers_leave_each_others_children_alone(test: &mut Fixture) -> Result<()> {
    let response = |name: &str| json!({ "children": [config_map(name, json!({}), json!({ "of": name }))] });
    config_maps(test, &response("first"), "InPlace").await?;
    let second_kind = Kind::new(&format!("second.{}", test.kind().group), "v1", "Greeting", "greetings");
    test.define(&second_kind).await?;
    test.store("second-hook", &wasm::answers(&response("second"))?).await?;
    let name = format!("{}-second", test.name());
    let hook = Hook::wasm(test.name(), "second-hook");
    test.host(
        test.controller().renamed(&name).over(&second_kind).making(&CONFIG_MAP, "InPlace").synced_by(hook),
    )
    .await?;
    let place = test.within(&second_kind);
    test.make(&place, Parent::named(&second_kind, "a").json()).await?;

    let owner = |child: &Value| text(child, "/metadata/ownerReferences/0/apiVersion").to_owned();
    let first = test.config_maps().until("first", "made", |_| true).await?;
    let second = test.config_maps().until("second", "made", |_| true).await?;
    ensure!(owner(&first) == test.kind().api_version(), "first: {first}");
    ensure!(owner(&second) == second_kind.api_version(), "second: {second}");
    test.parents().until("a", "settled", |parent| parent["status"]["observedGeneration"] == 1).await?;
    let still = test.config_maps().get("first").await?;
    ensure!(version(&still) == version(&first), "the first controller's child was written: {still}");
    Ok(())
}
