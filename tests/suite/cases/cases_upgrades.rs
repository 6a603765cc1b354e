//! Cases of upgrades and odd answers.

use acceptance::api::{CONFIG_MAP, DEPLOYMENT, Kind};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{condition, config_map, is_true, text, uid, version};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::compat::decorated::define;

use super::kit::{EACH_WAY, IN_PLACE, PARENT, in_each, worlds};

/// C44: an object of a Helm release has the name of a child and no owner.
pub(crate) async fn c44_an_object_of_a_helm_user_is_not_taken_over(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &IN_PLACE, &[&CONFIG_MAP]).await?;
    let child = |name: &str| config_map(name, json!({}), json!({ "ours": "1" }));
    for world in &worlds {
        let maps = world.objects(test, &CONFIG_MAP);
        let mut before = Vec::new();
        for name in ["x", "y"] {
            let helm = json!({ "app.kubernetes.io/managed-by": "Helm" });
            let mut map = config_map(name, helm, json!({ "theirs": "1" }));
            map["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("release");
            before.push(maps.create_as("helm", map).await?);
            world.answers(test, json!([child(name)])).await?;
            let told = |event: &Value| {
                let message = text(event, "/message");
                message.contains(&format!("/{name}: an object"))
                    && message.contains("exists already: it has no controller")
            };
            world.until_event(test, "SyncError", told).await?;
        }
        for map in &before {
            let after = maps.get(text(map, "/metadata/name")).await?;
            ensure!(version(&after) == version(map), "{after}");
        }
        world.answers(test, json!([child("x"), child("y")])).await?;
        maps.delete("x").await?;
        let parent = world.parents(test).get(PARENT).await?;
        maps.merge("y", &json!({ "metadata": { "labels": { "controller-uid": uid(&parent) } } })).await?;
        let ours = |map: &Value| {
            map["data"]["ours"] == "1" && text(map, "/metadata/ownerReferences/0/uid") == uid(&parent)
        };
        let anew = maps.until("x", "made anew", ours).await?;
        ensure!(anew["data"].get("theirs").is_none(), "{anew}");
        let adopted = maps.until("y", "adopted", ours).await?;
        ensure!(adopted["data"]["theirs"] == "1", "{adopted}");
        world.is_quiet(test, &[&CONFIG_MAP]).await?;
    }
    Ok(())
}

/// A child of each kind, whose lists and maps have these contents.
fn both(labels: &Value, data: &Value, env: &Value) -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": { "name": "m", "namespace": "", "labels": labels },
    });
    let container = json!({ "name": "web", "image": "web", "env": env });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "d" } },
            "template": { "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [container] } },
        },
    });
    json!([map, deployment])
}

/// C45: lists and maps that become empty are overlooked, and so is an empty name.
pub(crate) async fn c45_empty_lists_maps_and_names_mean_what_they_say(test: &mut Fixture) -> Result<()> {
    let worlds = worlds(test, &EACH_WAY, &[&CONFIG_MAP, &DEPLOYMENT]).await?;
    let kinds = [&*CONFIG_MAP, &*DEPLOYMENT];
    let names = ["one", "two", "three"];
    let map = |name: &str| config_map(name, json!({}), json!({ "a": "1" }));
    for world in &worlds {
        let three = json!({ "status": { "is": "1" }, "children": names.map(map) });
        world.answers_text(test, &three.to_string()).await?;
    }
    for name in names {
        in_each(test, &worlds, &CONFIG_MAP, name, |_| true).await?;
    }
    for world in &worlds {
        let parents = world.parents(test);
        parents.until(PARENT, "has a status", |parent| parent["status"]["is"] == "1").await?;
        world.answers_text(test, r#"{"status": null, "children": []}"#).await?;
        for name in names {
            world.objects(test, &CONFIG_MAP).until_gone(name).await?;
        }
        let bare = |parent: &Value| parent["status"].get("is").is_none();
        parents.until(PARENT, "rid of its status", bare).await?;
        world.answers(test, json!([map("good"), map("")])).await?;
        let told = |event: &Value| text(event, "/message").contains("children[1].metadata.name");
        world.until_event(test, "SyncError", told).await?;
        ensure!(world.objects(test, &CONFIG_MAP).find("good").await?.is_none(), "a part was written");
    }

    let variable = json!([{ "name": "A", "value": "1" }]);
    for (none, with_labels) in [(json!({}), json!({})), (Value::Null, json!({ "x": "1" }))] {
        let full = both(&json!({ "x": "1" }), &json!({ "a": "1" }), &variable);
        for world in &worlds {
            world.answers(test, full.clone()).await?;
        }
        in_each(test, &worlds, &CONFIG_MAP, "m", |map| map["data"]["a"] == "1").await?;
        let env = |child: &Value| child["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        in_each(test, &worlds, &DEPLOYMENT, "d", |child| env(child) == variable).await?;
        for world in &worlds {
            let theirs = json!({ "metadata": { "labels": { "y": "2" } }, "data": { "b": "2" } });
            world.objects(test, &CONFIG_MAP).merge("m", &theirs).await?;
            world.answers(test, both(&with_labels, &none, &json!([]))).await?;
        }
        let bare = |map: &Value| {
            map["data"].get("a").is_none() && map["metadata"]["labels"].get("x") == with_labels.get("x")
        };
        in_each(test, &worlds, &CONFIG_MAP, "m", bare).await?;
        in_each(test, &worlds, &DEPLOYMENT, "d", |child| env(child).is_null()).await?;
        for world in worlds.iter().filter(|world| world.way.0 == "InPlace") {
            let map = world.objects(test, &CONFIG_MAP).get("m").await?;
            let theirs = (&map["data"], &map["metadata"]["labels"]["y"]);
            ensure!(theirs == (&json!({ "b": "2" }), &json!("2")), "{:?}: {map}", world.way);
        }
    }
    for world in &worlds {
        world.is_quiet(test, &kinds).await?;
    }
    Ok(())
}

const PARENTS: [&str; 5] = ["p0", "p1", "p2", "p3", "p4"];

/// The definition of a kind goes, and whatever is of that kind.
async fn undefine(test: &Fixture, kind: &Kind) -> Result<()> {
    let name = format!("{}.{}", kind.plural, kind.group);
    test.definitions().delete(&name).await?;
    let gadgets = test.within(kind);
    for gadget in gadgets.list().await.unwrap_or_default() {
        let name = text(&gadget, "/metadata/name");
        gadgets.until(name, "going", |it| it["metadata"].get("deletionTimestamp").is_some()).await?;
        gadgets.merge(name, &json!({ "metadata": { "finalizers": null } })).await?;
    }
    test.definitions().until_gone(&name).await
}

/// C43: the definition of a child's kind goes while children are held, comes back for the cluster, then for namespaces.
pub(crate) async fn c43_a_kind_of_children_comes_and_goes_and_has_another_scope(
    test: &mut Fixture,
) -> Result<()> {
    let gadget = Kind::new(&format!("gadgets.{}", test.kind().group), "v1", "Gadget", "gadgets");
    test.define_kind().await?;
    test.define(&gadget).await?;
    test.store("echo", &guest("probe_echo")?).await?;
    test.server().flag("--discovery-interval=2s");
    test.serve()?;
    let hook = test.hook("echo").version("v2");
    let controller = test.controller().making(&gadget, "InPlace").synced_by(hook.clone());
    test.host(controller.finalized_by(hook)).await?;
    let gadgets = test.within(&gadget);
    for name in PARENTS {
        let child = json!({
            "apiVersion": gadget.api_version(), "kind": "Gadget", "metadata": { "name": name }, "spec": {},
        });
        let answer = json!({ "status": {}, "children": [child] }).to_string();
        test.create(test.parent(name).with(json!({ "answer": answer }))).await?;
    }
    for name in PARENTS {
        gadgets.until(name, "made", |_| true).await?;
        gadgets.merge(name, &json!({ "metadata": { "finalizers": ["cases.test/held"] } })).await?;
    }
    undefine(test, &gadget).await?;
    let missing = |cc: &Value| {
        condition(cc, "KindsServed")
            .is_some_and(|kinds| kinds["status"] == "False" && text(kinds, "/message").contains("gadgets"))
    };
    test.until_controller("the kind is missing", missing).await?;
    define(test, &gadget, |spec| spec["scope"] = json!("Cluster")).await?;
    let told = |event: &Value| {
        let message = text(event, "/message");
        message.contains("Gadget")
            && message.contains("has no namespace; a parent in a namespace cannot own it")
    };
    test.until_event("p0", "SyncError", told).await?;
    test.parents().delete("p4").await?;
    test.parents().until_gone("p4").await?;
    undefine(test, &gadget).await?;
    test.until_controller("the kind is missing again", missing).await?;
    test.define(&gadget).await?;
    for name in PARENTS.iter().filter(|name| **name != "p4") {
        gadgets.until(name, "made again", |_| true).await?;
    }
    test.until_controller("ready", |cc| is_true(cc, "Ready") && is_true(cc, "KindsServed")).await?;
    test.server().runs()
}
