//! `metahook explain`: what took place at a parent and a child, asked of the running server, by users who may see it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, config_map, text};
use acceptance::paths;
use acceptance::process::{Process, Signal};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::compat::rolling_update::{answer, asks_for, rolling};
use crate::pages::symptoms;
use crate::wasm;

/// The command about an object. `more`: further flags.
pub(crate) fn line(
    test: &Fixture,
    server: SocketAddr,
    [kind, name]: [&str; 2],
    more: &[&str],
) -> Vec<String> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let server = server.to_string();
    let line = ["explain", kind, name, "-n", test.name(), "--server", &server, "--kubeconfig", &kubeconfig];
    line.iter().chain(more).map(|&word| word.to_owned()).collect()
}

/// What the command prints about an object, or its error.
pub(crate) async fn explain(
    test: &mut Fixture,
    server: SocketAddr,
    object: [&str; 2],
    more: &[&str],
) -> Result<String> {
    let line = line(test, server, object, more);
    Ok(test.server().run(&line).await?.0)
}

/// Flag that names a token of this ServiceAccount.
pub(crate) async fn token_flag(test: &Fixture, account: &str) -> Result<String> {
    let (name, plane) = (test.name(), test.plane());
    let file = plane.scratch().join(format!("{name}-{account}-token"));
    std::fs::write(&file, plane.kubectl().run(&["create", "token", account, "-n", name]).await?)?;
    Ok(format!("--token-file={}", file.display()))
}

/// Asks until the answer has all of this.
pub(crate) async fn until_explained(
    test: &mut Fixture,
    server: SocketAddr,
    object: [&str; 2],
    says: &[&str],
) -> Result<String> {
    let line = line(test, server, object, &["--count=100"]);
    let server = test.server();
    until(&format!("`metahook explain {object:?}` says {says:?}"), PATIENCE, async || {
        let (said, _) = server.run(&line).await?;
        Ok(if says.iter().all(|it| said.contains(it)) { Ok(said) } else { Err(said) })
    })
    .await
}

/// The full name of the kind of parents: other tests have kinds of the same name.
pub(crate) fn kind(test: &Fixture) -> String {
    format!("{}.{}", test.kind().plural, test.kind().group)
}

/// Starts the server with an address to ask.
pub(crate) fn server(test: &mut Fixture) -> Result<SocketAddr> {
    let address = free_address()?;
    test.server().flag(&format!("--inspection-address={address}"));
    test.serve()?;
    Ok(address)
}

pub(crate) async fn what_became_of_a_child_is_explained_also_when_it_is_gone(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let children = |names: &[&str]| {
        let children: Vec<_> =
            names.iter().map(|name| config_map(name, json!({}), json!({ "a": "b" }))).collect();
        wasm::answers(&json!({ "children": children }))
    };
    test.store("hook", &children(&["kept", "dropped"])?).await?;
    let server = server(test)?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    let kind = kind(test);
    test.create(test.parent("p")).await?;
    test.config_maps().until("dropped", "made", |_| true).await?;
    let made = ["first reconcile", "sync hook, ", " instructions, ", "create      ConfigMap "];
    until_explained(test, server, [&kind, "p"], &made).await?;

    test.config_maps().merge("kept", &json!({ "data": { "a": "changed" } })).await?;
    let drift = [r#"another client changed data.a from "b" to "changed""#, "ConfigMap ", " changed"];
    until_explained(test, server, ["configmap", "kept"], &drift).await?;

    test.store("hook", &children(&["kept"])?).await?;
    test.config_maps().until_gone("dropped").await?;
    let gone = ["module changed", "delete      ConfigMap ", "the answer of the sync hook does not list it"];
    until_explained(test, server, ["cm", "dropped"], &gone).await?;
    let unknown =
        explain(test, server, ["cmm", "dropped"], &[]).await.err().context("there is no such kind")?;
    ensure!(
        format!("{unknown:#}").contains("reconciles or makes objects of this kind; those that are: "),
        "{unknown:#}"
    );
    let said = until_explained(test, server, ["ConfigMap", "dropped"], &gone).await?;
    let child = format!("ConfigMap {}/dropped --server {server}", test.name());
    symptoms::is_shown(test, "… delete …", &[("pod demo/hello-0", child)]).await?;
    ensure!(
        said.contains(&format!("{} {}/p", test.kind().kind, test.name())),
        "the parent is not named: {said}"
    );

    let json = explain(test, server, [&kind, "p"], &["-o", "json", "--count=1"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    ensure!(json["reconciles"].as_array().map(Vec::len) == Some(1), "{json}");
    ensure!(text(&json, "/reconciles/0/parent/name") == "p", "{json}");
    let missing =
        explain(test, server, [&kind, "missing"], &[]).await.err().context("there is no such object")?;
    let missing = format!("{missing:#}");
    ensure!(
        missing.contains("there is no such object") && missing.contains("lists those that there are"),
        "{missing}"
    );
    Ok(())
}

pub(crate) async fn a_failing_and_a_paused_parent_are_explained(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let hook = Webhook::serve(|asked: &Asked| match text(&asked.body, "/parent/metadata/name") {
        "bad" => json!({ "children": "no list" }).into(),
        _ => json!({ "status": {}, "children": [] }).into(),
    });
    let hook = hook.await?;
    let server = server(test)?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(Hook::webhook(&hook.url("/"))))
        .await?;
    let kind = kind(test);
    for name in ["bad", "good"] {
        test.create(test.parent(name)).await?;
    }
    until_explained(test, server, [&kind, "bad"], &["FAILED", "failed      sync hook", "next        after "])
        .await?;
    until_explained(test, server, [&kind, "good"], &["nothing to write"]).await?;
    let paused = json!({ "metadata": { "annotations": { "metahook.dev/paused": "true" } } });
    test.parents().merge("good", &paused).await?;
    until_explained(test, server, [&kind, "good"], &["paused in "]).await.map(drop)
}

pub(crate) async fn rules_that_find_nothing_and_held_deletions_are_explained(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let answer = |children: usize| {
        let child =
            |nth| config_map(&format!("child-{nth}"), json!({}), json!({ "n": children.to_string() }));
        wasm::answers(&json!({ "children": (0..children).map(child).collect::<Vec<_>>() }))
    };
    test.store("hook", &answer(10)?).await?;
    let labels = json!({ "matchLabels": { "role": "prices" } });
    let rule = json!({ "apiVersion": "v1", "resource": "configmaps", "labelSelector": labels });
    test.store("rules", &wasm::answers(&json!({ "relatedResources": [rule] }))?).await?;
    let server = server(test)?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"));
    test.host(controller.customized_by(test.hook("rules"))).await?;
    let kind = kind(test);
    test.create(test.parent("p")).await?;
    let rules = [" 1 rule, 0 objects", "rule        asks for configmaps", "role=prices: finds nothing"];
    until_explained(test, server, [&kind, "p"], &rules).await?;
    symptoms::is_shown(test, "finds nothing", &explained_parent(test, server)).await?;

    let accepted =
        |cc: &Value| cc["status"]["settled"] == 1 && !text(cc, "/status/deletions/accepted").is_empty();
    test.until_controller("settled with its first module", accepted).await?;
    test.store("hook", &answer(0)?).await?;
    let name = test.name().to_owned();
    let rollback = format!("way out     where the change was wrong: metahook rollback {name}");
    let held = [
        "the answer deletes 10 children: nothing is written",
        "held        delete ConfigMap ",
        &rollback,
        "metahook.dev/allow-deletions=",
    ];
    until_explained(test, server, [&kind, "p"], &held).await?;
    let said = until_explained(test, server, ["cm", "child-9"], &["held        delete ConfigMap "]).await?;
    let (_, digest) = said.split_once("metahook.dev/allow-deletions=").context("no digest")?;
    let digest = digest.lines().next().context("no digest")?;
    let agreed = json!({ "metadata": { "annotations": { "metahook.dev/allow-deletions": digest } } });
    test.controllers().merge(&name, &agreed).await?;
    test.config_maps().until_gone("child-9").await
}

pub(crate) async fn triggers_of_a_settled_parent_are_explained(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let child = config_map("child", json!({}), json!({ "a": "b" }));
    test.store("hook", &wasm::answers(&json!({ "children": [child] }))?).await?;
    let server = server(test)?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").resyncing_each_second();
    test.host(controller.synced_by(test.hook("hook"))).await?;
    let kind = kind(test);
    test.create(test.parent("p")).await?;
    let settled =
        [": settled; since this reconcile ", " triggers changed nothing, the last one (resync) at "];
    let said = until_explained(test, server, [&kind, "p"], &settled).await?;
    ensure!(said.contains("next        the controller's resync after "), "{said}");
    ensure!(said.lines().next().is_some_and(|first| settled.iter().all(|it| first.contains(it))), "{said}");
    let line = line(test, server, [&kind, "p"], &["-o", "json"]);
    let running = test.server();
    let before: Value = serde_json::from_str(&running.run(&line).await?.0)?;
    ensure!(text(&before, "/reconciles/0/settled/lastCause") == "resync", "{before}");
    let earlier = &before["reconciles"][1];
    ensure!(earlier.is_object() && earlier["settled"].is_null(), "{before}");
    let triggers = |json: &Value| json["reconciles"][0]["settled"]["triggers"].as_u64().unwrap_or_default();
    until("more triggers change nothing", PATIENCE, async || {
        let now: Value = serde_json::from_str(&running.run(&line).await?.0)?;
        let is_later = text(&now, "/reconciles/0/settled/last") > text(&before, "/reconciles/0/settled/last");
        Ok(if triggers(&now) > triggers(&before) && is_later { Ok(()) } else { Err(now.to_string()) })
    })
    .await
}

pub(crate) async fn what_a_rollout_waits_for_is_explained(test: &mut Fixture) -> Result<()> {
    let server = free_address()?;
    test.server().flag(&format!("--inspection-address={server}"));
    let checks = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let _webhook = rolling(test, "RollingInPlace", checks, |asked| answer(asked).into()).await?;
    test.create(test.parent("p").with(json!({ "image": 1, "replicas": 2 }))).await?;
    let kind = kind(test);
    until_explained(test, server, [&kind, "p"], &["create      Member ", "m-1"]).await?;
    asks_for(test, json!({ "image": 2 })).await?;
    let waits = [
        "spec changed (spec.image), ",
        "m-1: it stays at an older revision until its turn in the rollout, which moves Member m-0 now",
        "m-1: it stays at an older revision until its turn in the rollout, which waits for Member m-0: status.conditions has no Ready",
        "p: unchanged",
    ];
    until_explained(test, server, [&kind, "p"], &waits).await?;
    symptoms::is_shown(test, "until its turn", &explained_parent(test, server)).await
}

/// The parent `p` that the page's command is about.
fn explained_parent(test: &Fixture, server: SocketAddr) -> [(&'static str, String); 1] {
    [("KIND NAME", format!("{} {}/p --server {server}", kind(test), test.name()))]
}

/// The reconciles that a command printed, a line each; other lines are remarks.
fn printed(following: &Process) -> Result<(Vec<Value>, Vec<String>)> {
    let log = std::fs::read_to_string(following.log())?;
    // The last line may be half written.
    let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let (reconciles, remarks): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('{'));
    let reconciles = reconciles.into_iter().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((reconciles, remarks.into_iter().map(str::to_owned).collect()))
}

/// Waits until so many of the reconciles that were printed are as described.
async fn until_printed(
    following: &Process,
    what: &str,
    count: usize,
    is: impl Fn(&Value) -> bool,
) -> Result<()> {
    until(what, PATIENCE, async || {
        let (reconciles, _) = printed(following)?;
        let found = reconciles.iter().filter(|&it| is(it)).count();
        Ok(if found == count { Ok(()) } else { Err(following.tail(20)) })
    })
    .await
}

pub(crate) async fn new_reconciles_are_followed_also_after_a_restart(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let child = config_map("child", json!({}), json!({ "a": "b" }));
    test.store("hook", &wasm::answers(&json!({ "children": [child] }))?).await?;
    let server = server(test)?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    let kind = kind(test);
    test.create(test.parent("p")).await?;
    until_explained(test, server, [&kind, "p"], &["first reconcile"]).await?;

    let line = line(test, server, [&kind, "p"], &["--follow", "--output=json"]);
    let log = test.plane().logs().join(format!("{}-explain.log", test.name()));
    let mut following = Process::start("metahook explain", &paths::server()?, &line, &log)?;
    let is_first = |it: &Value| text(it, "/cause") == "first reconcile";
    until_printed(&following, "the latest reconciles are printed", 1, is_first).await?;
    test.parents().merge("p", &json!({ "spec": { "changed": true } })).await?;
    let is_changed =
        |it: &Value| text(it, "/cause") == "spec changed" && text(it, "/changedFields/0").starts_with("spec");
    until_printed(&following, "the new reconcile is printed", 1, is_changed).await?;
    ensure!(printed(&following)?.1.is_empty(), "{}", following.tail(20));

    test.server().stop().await?;
    until("a remark", PATIENCE, async || {
        Ok(if printed(&following)?.1.is_empty() { Err(following.tail(20)) } else { Ok(()) })
    })
    .await?;
    test.server().start()?;
    until_printed(&following, "a reconcile of the next server is printed", 2, is_first).await?;
    following.signal(Signal::Term);
    let status = following.wait(PATIENCE).await?;
    ensure!(status.success(), "{status}: {}", following.tail(20));

    let (reconciles, remarks) = printed(&following)?;
    let [remark] = &remarks[..] else { anyhow::bail!("not one remark: {remarks:?}") };
    ensure!(
        remark.contains(" does not answer: ") && remark.contains("; the command goes on asking"),
        "{remark}"
    );
    let began: Vec<_> = reconciles.iter().map(|it| text(it, "/began")).collect();
    ensure!(began.is_sorted(), "not in order: {began:?}");
    let different: BTreeSet<_> = began.iter().collect();
    ensure!(different.len() == began.len(), "one was printed twice: {}", following.tail(20));
    Ok(())
}
