//! A cluster that goes back to a snapshot of etcd, as after a disaster: versions are given a second time, and what the server
//! remembers of the time between is no longer so. On a control plane of its own.

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Objects that are made and deleted after the snapshot, so that versions go back far.
const CHANGES: usize = 200;

fn copies(asked: &Asked) -> Value {
    let parent = &asked.body["parent"];
    let data = json!({ "who": parent["spec"]["who"] });
    json!({ "status": {}, "children": [config_map(text(parent, "/metadata/name"), json!({}), data)] })
}

async fn until_child(test: &Fixture, name: &str, who: &str) -> Result<Value> {
    let is = |child: &Value| child["data"]["who"] == who;
    test.config_maps().until(name, &format!("the child of {name} greets {who}"), is).await
}

fn version(object: &Value) -> Result<u64> {
    text(object, "/metadata/resourceVersion").parse().context("a version is no integer")
}

pub(crate) async fn a_restored_snapshot_is_listed_anew_and_its_parents_are_managed(
    test: &mut Fixture,
) -> Result<()> {
    let mut restored = Fixture::on_its_own_plane(test.name()).await?;
    let lived = goes_back(&mut restored).await;
    restored.end(lived).await
}

async fn goes_back(test: &mut Fixture) -> Result<()> {
    let hook = Webhook::serve(|asked| copies(asked).into()).await?;
    test.define_kind().await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    test.host(controller.synced_by(Hook::webhook(&hook.url("/")))).await?;
    for name in ["changed", "deleted"] {
        test.create(test.parent(name).greeting("before")).await?;
        until_child(test, name, "before").await?;
    }
    test.plane().take_snapshot().await?;

    let changed = json!({ "spec": { "who": "after" } });
    test.parents().merge("changed", &changed).await?;
    until_child(test, "changed", "after").await?;
    test.parents().delete("deleted").await?;
    test.config_maps().until_gone("deleted").await?;
    test.create(test.parent("made").greeting("after")).await?;
    let last = until_child(test, "made", "after").await?;
    for nth in 0..CHANGES {
        test.config_maps().create(config_map(&format!("change-{nth}"), json!({}), json!({}))).await?;
    }

    test.plane().restore_snapshot().await?;
    let pid = test.server().pid()?;
    let parent = test.parents().get("changed").await?;
    ensure!(version(&parent)? < version(&last)?, "versions did not go back");
    ensure!(parent["spec"]["who"] == "before", "the snapshot was not restored: {parent}");
    // It is as old as the spec again; the server has to see both anew.
    until_child(test, "changed", "before").await?;
    until_child(test, "deleted", "before").await?;
    test.server().until_log("a warning", |log| log.contains("a version went backwards")).await?;

    // Changes of parents and children are seen, though their versions were given before.
    test.config_maps().merge("deleted", &json!({ "data": { "who": "another" } })).await?;
    until_child(test, "deleted", "before").await?;
    test.parents().merge("changed", &changed).await?;
    until_child(test, "changed", "after").await?;
    for name in ["made", "new"] {
        test.create(test.parent(name).greeting("again")).await?;
        until_child(test, name, "again").await?;
    }
    test.parents().delete("made").await?;
    test.config_maps().until_gone("made").await?;
    ensure!(test.server().pid()? == pid, "the server is another process");
    Ok(())
}
