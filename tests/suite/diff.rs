//! `metahook diff`: what hooks would change in the cluster, found out without a write.

use std::path::PathBuf;
use std::process::Output;

use acceptance::api::{CONFIG_MAP, Kind, POD, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{config_map, text, uid, version};
use acceptance::rights::kubeconfig_of;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::secrecy::base64;
use crate::wasm;

/// A command in the namespace of the test: its exit code, and what it says on stdout and stderr.
pub(crate) async fn run(test: &mut Fixture, words: &[&str]) -> Result<(Option<i32>, String, String)> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let name = test.name().to_owned();
    let line = [words, &["-n", &name, "--kubeconfig", &kubeconfig]].concat();
    let Output { status, stdout, stderr } = test.server().output(&line).await?;
    let read = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status.code(), read(stdout), read(stderr)))
}

/// `metahook diff` with these words.
pub(crate) async fn compare(test: &mut Fixture, words: &[&str]) -> Result<(Option<i32>, String, String)> {
    run(test, &[&["diff"], words].concat()).await
}

/// The command is expected to end with this code, and to say all of this.
pub(crate) async fn says(test: &mut Fixture, words: &[&str], code: i32, all: &[&str]) -> Result<String> {
    let (ended, out, say) = compare(test, words).await?;
    let said = format!("{out}\n{say}");
    ensure!(ended == Some(code), "{words:?} ended with {ended:?}: {said}");
    for one in all {
        ensure!(said.contains(one), "{words:?} does not say {one:?}: {said}");
    }
    Ok(said)
}

pub(crate) fn file(test: &Fixture, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = test.plane().scratch().join(format!("{}-{name}", test.name()));
    std::fs::write(&path, bytes)?;
    Ok(path)
}

/// Uids and versions of all objects of these kinds in the test's namespace.
pub(crate) async fn states(test: &Fixture, kinds: &[&Kind]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for kind in kinds {
        let found = test.within(kind).list().await?;
        all.extend(found.iter().map(|one| format!("{} {}", uid(one), version(one))));
    }
    all.sort();
    Ok(all)
}

/// Three parents, each with its Pod, under a module that the cluster stores.
pub(crate) async fn what_a_module_would_change_is_shown_and_not_written(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("hello")?).await?;
    test.serve()?;
    test.host(test.controller().making(&POD, "Recreate").synced_by(test.hook("hook"))).await?;
    for name in ["a", "b", "c"] {
        test.create(test.parent(name)).await?;
        test.parents().until(name, "a Pod", |parent| parent["status"]["pods"] == 1).await?;
    }
    let name = test.name().to_owned();
    let of = ["--controller", &name];
    let with =
        |more: &[&'static str]| -> Vec<&str> { of.iter().copied().chain(more.iter().copied()).collect() };
    says(test, &with(&[]), 0, &["3 parents: 3 same, 0 differ, 0 failed"]).await?;

    let kind = test.kind().clone();
    let before = states(test, &[&kind, &POD]).await?;
    let empty = file(test, "empty.wasm", &wasm::answers(&json!({ "children": [] }))?)?;
    let empty = empty.display().to_string();
    let all: Vec<_> = of.iter().copied().chain(["--module", &empty]).collect();
    let said = says(test, &all, 1, &["3 parents: 0 same, 3 differ (3 delete), 0 failed"]).await?;
    let deleted = format!(": delete Pod {name}/b");
    ensure!(said.contains(&deleted) && said.contains("\n- kind: Pod\n"), "{said}");
    let one: Vec<_> = all.iter().copied().chain(["b"]).collect();
    says(test, &one, 1, &["1 parent: 0 same, 1 differ (1 delete)", &deleted]).await?;
    let json: Vec<_> = all.iter().copied().chain(["-o", "json"]).collect();
    let json: Value = serde_json::from_str(&compare(test, &json).await?.1)?;
    ensure!(text(&json, "/parents/0/changes/0/change") == "delete", "{json}");
    ensure!(json["summary"]["changes"]["delete"] == 3 && json["summary"]["failed"] == 0, "{json}");
    ensure!(states(test, &[&kind, &POD]).await? == before, "something was written");

    let broken = file(test, "broken.wasm", &wasm::answers(&json!({ "children": "no list" }))?)?;
    let broken = broken.display().to_string();
    let all: Vec<_> = of.iter().copied().chain(["--module", &broken]).collect();
    says(test, &all, 2, &["3 parents: 0 same, 0 differ, 3 failed", "children", "and 2 more"]).await?;
    says(test, &with(&["nobody"]), 2, &["nobody: the cluster has no such object"]).await?;
    says(test, &with(&["other/a"]), 2, &["other/a: --namespace is "]).await?;
    says(test, &with(&["x/"]), 2, &["\"x/\" is no name of an object"]).await?;
    says(test, &with(&["a", "a"]), 0, &["1 parent: 1 same"]).await?;
    says(test, &["--controller", "no-such"], 2, &["the controller \"no-such\" does not exist"]).await?;
    ensure!(states(test, &[&kind, &POD]).await? == before, "something was written");
    Ok(())
}

/// Objects that are changed, made again and made anew, under both strategies.
pub(crate) async fn the_api_server_tries_each_write_of_a_new_module(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let map = |name: &str, value: &str| config_map(name, json!({}), json!({ "k": value }));
    let answer = |children: Vec<Value>| wasm::answers(&json!({ "children": children, "status": {} }));
    test.store("hook", &answer(vec![map("changed", "old"), map("same", "old")])?).await?;
    test.serve()?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"));
    let hosted = test.host(controller).await?;
    test.create(test.parent("p")).await?;
    test.config_maps().until("same", "made", |_| true).await?;
    let controllers = test.controllers();
    let name = test.name().to_owned();
    test.until_controller("settled", |cc| cc["status"]["settled"] == 1).await?;
    let before = states(test, &[&CONFIG_MAP]).await?;
    let new = answer(vec![map("changed", "new"), map("same", "old"), map("made", "new")])?;
    let new = file(test, "new.wasm", &new)?.display().to_string();
    let controller = ["--controller", &name, "--module", &new];
    let changes =
        ["- ", "-   k: old", "+   k: new", "1 parent: 0 same, 1 differ (1 create, 1 update), 0 failed"];
    says(test, &controller, 1, &changes).await?;
    let applied = [&controller[..], &["--apply-strategy", "server-side-apply"]].concat();
    says(test, &applied, 1, &["(1 create, 2 update), 0 failed"]).await?;

    // The file of a controller that makes its children again.
    let mut recreating = hosted.clone();
    recreating["spec"]["childResources"][0]["updateStrategy"]["method"] = json!("Recreate");
    let fields = recreating["metadata"].as_object_mut().context("no metadata")?;
    fields.retain(|field, _| matches!(field.as_str(), "name" | "labels"));
    let spec = file(test, "controller.json", recreating.to_string().as_bytes())?.display().to_string();
    let words = ["-f", &spec, "--module", &new];
    says(test, &words, 1, &["recreate ConfigMap", "-   k: old", "(1 create, 1 recreate)"]).await?;
    // A field that the API server refuses.
    let refused =
        answer(vec![json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "Wrong" } })])?;
    let refused = file(test, "refused.wasm", &refused)?.display().to_string();
    says(test, &["--controller", &name, "--module", &refused], 2, &["metadata.name", "1 failed"]).await?;
    a_dry_run_without_its_right_names_it(test, &controller).await?;
    ensure!(states(test, &[&CONFIG_MAP]).await? == before, "something was written");
    ensure!(uid(&controllers.get(&name).await?) == uid(&hosted), "the controller was written");
    Ok(())
}

/// A dry run needs the rights of its write.
async fn a_dry_run_without_its_right_names_it(test: &mut Fixture, words: &[&str]) -> Result<()> {
    let (name, kubectl) = (test.name().to_owned(), test.plane().kubectl());
    test.make(&test.within(&SERVICE_ACCOUNT), json!({ "metadata": { "name": "reader" } })).await?;
    let account = format!("--serviceaccount={name}:reader");
    let role = format!("--clusterrole={name}-reader");
    kubectl
        .run(&["create", "clusterrole", &format!("{name}-reader"), "--verb=get,list", "--resource=*.*"])
        .await?;
    kubectl.run(&["create", "clusterrolebinding", &format!("{name}-reader"), &role, &account]).await?;
    let kubeconfig = kubeconfig_of(test.plane(), &name, "reader").await?.display().to_string();
    let line = [&["diff", "--kubeconfig", &kubeconfig][..], words].concat();
    let output = test.server().output(&line).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(2) && said.contains("cannot create resource \"configmaps\""),
        "{said}"
    );
    for kind in ["clusterrole", "clusterrolebinding"] {
        kubectl.run(&["delete", kind, &format!("{name}-reader")]).await?;
    }
    Ok(())
}

/// A Secret's value is not printed, and that it changes is.
pub(crate) async fn values_of_secrets_are_not_printed(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let secret = |value: &str| {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "key": value } });
        wasm::answers(&json!({ "children": [secret], "status": {} }))
    };
    test.store("hook", &secret("a-first-value")?).await?;
    let namespaces = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&namespaces);
    test.serve()?;
    test.host(test.controller().making(&SECRET, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    test.within(&SECRET).until("s", "made", |_| true).await?;
    test.until_controller("settled", |cc| cc["status"]["settled"] == 1).await?;
    let new = file(test, "new.wasm", &secret("a-second-value")?)?.display().to_string();
    let name = test.name().to_owned();
    for format in ["text", "json"] {
        let words = ["--controller", &name, "--module", &new, "-o", format, &namespaces];
        let said = says(test, &words, 1, &["update"]).await?;
        for value in ["a-first-value", "a-second-value"] {
            ensure!(!said.contains(value) && !said.contains(&base64(value)), "{said}");
        }
    }
    Ok(())
}
