//! `metahook diff` of parents in states that are not everyday: paused, being deleted, with orphans, with related objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use acceptance::api::{CONFIG_MAP, SECRET};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Hook, config_map, text, uid};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::diff::{compare, file, says};

/// A hook whose answer changes when the flag is set: a ConfigMap for each parent, until the finalize hook wants none.
async fn changing(changed: &Arc<AtomicBool>) -> Result<Webhook> {
    let changed = Arc::clone(changed);
    Webhook::serve(move |asked: &Asked| -> Answer {
        if asked.path == "/finalize" {
            return json!({ "status": {}, "children": [], "finalized": true }).into();
        }
        let value = if changed.load(Ordering::Relaxed) { "new" } else { "old" };
        let name = text(&asked.body, "/parent/metadata/name");
        let child = config_map(name, json!({}), json!({ "k": value }));
        json!({ "status": {}, "children": [child] }).into()
    })
    .await
}

/// What would follow the end of a pause is shown for the controller's, and a paused parent is counted.
pub(crate) async fn what_waits_for_the_end_of_a_pause_is_shown(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let changed = Arc::new(AtomicBool::new(false));
    let hook = changing(&changed).await?;
    test.serve()?;
    let controller =
        test.controller().making(&CONFIG_MAP, "InPlace").synced_by(Hook::webhook(&hook.url("/")));
    test.host(controller).await?;
    let name = test.name().to_owned();
    for parent in ["p", "q"] {
        test.create(test.parent(parent)).await?;
        test.config_maps().until(parent, "made", |_| true).await?;
    }
    test.until_controller("settled", |cc| cc["status"]["settled"] == 2).await?;
    let annotation = json!({ "metadata": { "annotations": { "metahook.dev/paused": "true" } } });
    test.parents().merge("q", &annotation).await?;
    test.controllers().merge(&name, &json!({ "spec": { "paused": true } })).await?;
    test.until_controller("paused", |cc| cc["status"]["paused"] == 2).await?;
    changed.store(true, Ordering::Relaxed);
    let all = [
        "the controller is paused: ",
        "+   k: new",
        "2 parents: 0 same, 1 differ (1 update), 1 paused, 0 failed",
    ];
    says(test, &["--controller", &name], 1, &all).await.map(drop)
}

/// Those deletions cannot be undone.
pub(crate) async fn deletions_of_related_objects_are_shown(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let goes = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&goes);
    let home = test.name().to_owned();
    let hook = Webhook::serve(move |asked: &Asked| -> Answer {
        if asked.path == "/customize" {
            let labels = json!({ "matchLabels": { "goes-with": home } });
            let rule = json!({ "apiVersion": "v1", "resource": "configmaps", "labelSelector": labels });
            return json!({ "relatedResources": [rule] }).into();
        }
        let seen = asked.body["related"]["ConfigMap.v1"].as_object().into_iter().flatten();
        let goes = flag.load(Ordering::Relaxed);
        let reference = |(_, map): (_, &Value)| {
            let (namespace, name) = (&map["metadata"]["namespace"], &map["metadata"]["name"]);
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "uid": uid(map), "namespace": namespace, "name": name })
        };
        let gone: Vec<_> = seen.filter(|_| goes).map(reference).collect();
        json!({ "status": {}, "children": [], "deleteRelated": gone }).into()
    });
    let hook = hook.await?;
    test.serve()?;
    let of = |path: &str| Hook::webhook(&hook.url(path)).version("v2");
    let controller = test.controller().making(&SECRET, "InPlace").synced_by(of("/sync"));
    let grants = json!([{ "apiVersion": "v1", "resource": "configmaps" }]);
    test.host(controller.customized_by(of("/customize")).with("relatedDeletion", grants)).await?;
    let label = json!({ "goes-with": test.name() });
    test.make(&test.config_maps(), config_map("related", label, json!({}))).await?;
    test.create(test.parent("p")).await?;
    test.until_controller("settled", |cc| cc["status"]["settled"] == 1).await?;
    test.server().stop().await?;
    let name = test.name().to_owned();
    says(test, &["--controller", &name], 0, &["1 parent: 1 same"]).await?;
    goes.store(true, Ordering::Relaxed);
    let all = [": delete ConfigMap ", "- kind: ConfigMap", "1 differ (1 delete), 0 failed"];
    says(test, &["--controller", &name], 1, &all).await?;
    test.config_maps().get("related").await?;
    test.server().start()
}

/// A hook that follows the time decides as on a server; one that a server would refuse is not called.
pub(crate) async fn hooks_see_the_time_and_a_pin_excludes_other_versions(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("probe_clock")?).await?;
    test.serve()?;
    let hosted =
        test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    let at = |parent: &Value| parent["status"]["seconds"].as_u64().unwrap_or_default();
    let parent = test.parents().until("p", "a time", |parent| at(parent) > 0).await?;
    test.server().stop().await?;
    let name = test.name().to_owned();
    let (code, out, _) = compare(test, &["--controller", &name, "-o", "json"]).await?;
    let json: Value = serde_json::from_str(&out)?;
    let now = json.pointer("/parents/0/changes/0/after").context("nothing changes")?;
    ensure!(code == Some(1) && at(now) >= at(&parent), "{json}");

    let mut own = hosted.clone();
    own["metadata"] = json!({ "name": name, "labels": hosted["metadata"]["labels"] });
    own["spec"]["hooks"]["sync"]["wasm"]["sha256"] = json!("0".repeat(64));
    let path = file(test, "pinned.json", own.to_string().as_bytes())?.display().to_string();
    says(test, &["-f", &path], 2, &["spec.hooks.sync: sha256 pins 0000", "a server would refuse it"]).await?;
    own["spec"]["hooks"]["sync"]["wasm"]["sha256"].take();
    own["metadata"]["name"] = json!(format!("{name}-new"));
    let path = file(test, "new.json", own.to_string().as_bytes())?.display().to_string();
    says(test, &["-f", &path], 1, &["1 parent: 0 same, 1 differ (1 status), 0 failed"]).await?;
    ensure!(test.controllers().find(&format!("{name}-new")).await?.is_none(), "the controller was made");
    test.server().start()
}

/// An orphan is shown to be adopted, and not to be made again; the children of a parent that is being deleted go.
pub(crate) async fn orphans_are_adopted_and_parents_finalized(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let hook = changing(&Arc::default()).await?;
    let of = |path: &str| Hook::webhook(&hook.url(path));
    test.serve()?;
    let controller = test.controller().renamed(&short(test)).making(&CONFIG_MAP, "Recreate");
    test.host(controller.synced_by(of("/sync")).finalized_by(of("/finalize"))).await?;
    let parent = test.create(test.parent("p")).await?;
    test.config_maps().until("p", "made", |_| true).await?;
    let settled = |cc: &Value| cc["status"]["settled"] == 1;
    let name = short(test);
    test.controllers().until(&name, "settled", settled).await?;
    test.server().stop().await?;
    says(test, &["--controller", &name], 0, &["1 parent: 1 same"]).await?;
    let orphaned = json!({ "metadata": { "ownerReferences": null } });
    test.config_maps().merge("p", &orphaned).await?;
    let said = says(test, &["--controller", &name], 1, &[": adopt ConfigMap "]).await?;
    ensure!(said.contains(uid(&parent)) && !said.contains("recreate"), "{said}");
    let owned = test.config_maps().get("p").await?;
    ensure!(owned["metadata"]["ownerReferences"].is_null(), "it was adopted: {owned}");

    test.parents().delete("p").await?;
    says(test, &["--controller", &name], 1, &[": finalizer Greeting "]).await?;
    ensure!(test.parents().find("p").await?.is_some(), "the parent was let go");
    test.server().start()
}

/// A name that a finalizer may have.
fn short(test: &Fixture) -> String {
    let unique: Vec<_> = test.name().rsplit('-').take(2).collect();
    format!("diff-{}", unique.join("-"))
}
