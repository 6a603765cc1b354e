//! `metahook status CONTROLLER`: how one controller stands on the server that runs it, and for whom its parents are named.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use acceptance::api::{CONFIG_MAP, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, text};
use acceptance::paths;
use acceptance::process::{Process, Signal};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::explain::token_flag;

fn line(test: &Fixture, server: SocketAddr, more: &[&str]) -> Vec<String> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let (name, server) = (test.name(), server.to_string());
    let line = ["status", name, "--server", &server, "--kubeconfig", &kubeconfig];
    line.iter().chain(more).map(|&word| word.to_owned()).collect()
}

/// Asks until the answer has all of this.
async fn until_shown(test: &mut Fixture, server: SocketAddr, says: &[String]) -> Result<String> {
    let line = line(test, server, &[]);
    let server = test.server();
    until(&format!("`metahook status` says {says:?}"), PATIENCE, async || {
        let (said, _) = server.run(&line).await?;
        Ok(if says.iter().all(|it| said.contains(it)) { Ok(said) } else { Err(said) })
    })
    .await
}

/// A server that can be looked into, with the parents `good`, `bad-1` and `bad-2`. The hook answers so about the last two.
pub(crate) async fn two_of_three_fail(
    test: &mut Fixture,
    bad: impl Into<Answer>,
) -> Result<(SocketAddr, Webhook)> {
    test.define_kind().await?;
    let bad = bad.into();
    let hook = Webhook::serve(move |asked: &Asked| match text(&asked.body, "/parent/metadata/name") {
        "good" => json!({ "status": {}, "children": [] }).into(),
        _ => bad.clone(),
    });
    let hook = hook.await?;
    let server = free_address()?;
    test.server().flag(&format!("--inspection-address={server}"));
    for flag in ["--memory-budget=600Mi", "--trace-memory-max=8Mi"] {
        test.server().flag(flag);
    }
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(Hook::webhook(&hook.url("/"))))
        .await?;
    for name in ["bad-1", "bad-2", "good"] {
        test.create(test.parent(name)).await?;
    }
    Ok((server, hook))
}

pub(crate) async fn a_controller_is_shown_with_the_parents_that_fail(test: &mut Fixture) -> Result<()> {
    let (server, _hook) = two_of_three_fail(test, json!({ "children": "no list" })).await?;
    let kind = test.kind().kind.clone();
    let named: Vec<_> = ["bad-1", "bad-2"].map(|name| format!("{kind} {}/{name}", test.name())).into();
    let says = [
        format!("CompositeController {}\n", test.name()),
        "\nready       True ParentsFailing; status renewed ".to_owned(),
        "parents     3: 1 settled, 2 failing\n".to_owned(),
        "\nFailing now:\n  2 parents, last ".to_owned(),
        "s ago: HookAnswer: ".to_owned(),
        format!("\n      {}\n", named.join(", ")),
        "\nSlowest of the latest reconciles:\n".to_owned(),
        // Traces count in the budget.
        " of 592Mi; traces ".to_owned(),
        " of 8Mi; cached objects of all controllers ".to_owned(),
    ];
    let said = until_shown(test, server, &says).await?;
    ensure!(said.contains("\ncalls       since the controller was started: "), "no calls: {said}");

    let line_of_json = line(test, server, &["-o", "json"]);
    let json: Value = serde_json::from_str(&test.server().run(&line_of_json).await?.0)?;
    ensure!(json["running"]["parents"]["failing"] == 2, "{json}");
    ensure!(json["running"]["named"]["failing"][0]["count"] == 2, "{json}");
    ensure!(text(&json, "/reason") == "ParentsFailing" && json["status"].is_object(), "{json}");

    parents_are_named_for_users_who_may_list_them(test, server, &named).await?;

    let mut watching = watch(test, server)?;
    until_printed(&watching, 0, r#""failing":2"#).await?;
    test.server().stop().await?;
    let stopped = line(test, server, &[]);
    let failed = test.server().run(&stopped).await.err().context("a server that is stopped answers")?;
    let failed = format!("{failed:#}");
    ensure!(
        failed.contains("what the server knows of the controller is not shown")
            && failed.contains("does not answer"),
        "{failed}"
    );
    until_printed(&watching, 0, "the command goes on asking").await?;
    traces_leave_something_of_the_budget(test, server).await?;
    let printed = std::fs::read_to_string(watching.log())?.len();
    test.server().start()?;
    until_printed(&watching, printed, r#""failing":2"#).await?;
    watching.signal(Signal::Term);
    let status = watching.wait(PATIENCE).await?;
    ensure!(status.success(), "{status}: {}", watching.tail(20));
    Ok(())
}

/// The command that goes on printing.
fn watch(test: &Fixture, server: SocketAddr) -> Result<Process> {
    let line = line(test, server, &["--watch", "-o", "json"]);
    let log = test.plane().logs().join(format!("{}-watch.log", test.name()));
    Process::start("metahook status --watch", &paths::server()?, &line, &log)
}

/// Waits until the command has printed a text behind its first bytes.
async fn until_printed(watching: &Process, first: usize, text: &str) -> Result<()> {
    until(&format!("the watching command prints {text}"), PATIENCE, async || {
        let log = std::fs::read_to_string(watching.log())?;
        Ok(if log.get(first..).is_some_and(|more| more.contains(text)) { Ok(()) } else { Err(log) })
    })
    .await
}

async fn traces_leave_something_of_the_budget(test: &mut Fixture, server: SocketAddr) -> Result<()> {
    let inspected = format!("--inspection-address={server}");
    let line = ["serve", &inspected, "--memory-budget=4Mi", "--trace-memory-max=4Mi"];
    let refused = test.server().run(&line).await.err().context("a server without memory for reconciles")?;
    let refused = format!("{refused:#}");
    let says = "--trace-memory-max is 4Mi, and --memory-budget, in which it counts, is 4Mi: reconciles need 1Mi besides, so lower the one";
    ensure!(refused.contains(says), "{refused}");
    Ok(())
}

/// A webhook that counts in the status: no parent fails, and the controller is not well.
pub(crate) async fn a_hook_that_answers_differently_each_time_needs_attention(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let calls = AtomicUsize::new(0);
    let counts = Webhook::serve(move |_: &Asked| {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        json!({ "status": { "number": number }, "children": [] }).into()
    });
    let hook = counts.await?;
    let server = free_address()?;
    test.server().flag(&format!("--inspection-address={server}"));
    test.server().flag("--self-triggered-max=20");
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(Hook::webhook(&hook.url("/"))))
        .await?;
    test.create(test.parent("counted")).await?;
    let (kind, name) = (test.kind().kind.clone(), test.name().to_owned());
    let why = "each reconcile changes status.number";
    let remark = format!("Throttled: 1 parent is throttled: {name}/counted: {why}; see its Events\n");
    let says = [
        "\nready       True Running; ".to_owned(),
        format!("\nattention   {remark}"),
        format!("\nThrottled now, one reconcile each 10 s:\n  {kind} {name}/counted "),
        format!(": {why}\n"),
    ];
    until_shown(test, server, &says).await?;

    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let (all, _) = test.server().run(&["status", "--kubeconfig", &kubeconfig]).await?;
    ensure!(all.contains(&format!("\n  {name}: {remark}")), "{all}");
    let (json, _) = test.server().run(&["status", "--kubeconfig", &kubeconfig, "-o", "json"]).await?;
    let json: Vec<Value> = serde_json::from_str(&json)?;
    let one = json.iter().find(|it| it["name"] == *name).context("it is not in the list")?;
    ensure!(one["attention"][0]["condition"] == "AnswersSettle" && one["failing"] == 0, "{one}");
    Ok(())
}

async fn parents_are_named_for_users_who_may_list_them(
    test: &mut Fixture,
    server: SocketAddr,
    named: &[String],
) -> Result<()> {
    test.make(&test.within(&SERVICE_ACCOUNT), json!({ "metadata": { "name": "viewer" } })).await?;
    let name = test.name().to_owned();
    let kubectl = test.plane().kubectl();
    let flag = token_flag(test, "viewer").await?;
    let line = line(test, server, &[&flag]);
    let refused = test.server().run(&line).await.err().context("it is shown to a user without rights")?;
    let says = format!("User \"system:serviceaccount:{name}:viewer\" cannot get compositecontrollers");
    ensure!(format!("{refused:#}").contains(&says), "{refused:#}");

    let account = format!("--serviceaccount={name}:viewer");
    let parents = format!("{}.{}", test.kind().plural, test.kind().group);
    for (role, verb, resource, names) in [
        ("controllers", "get", "compositecontrollers.metacontroller.k8s.io", false),
        ("parents", "list", &*parents, true),
    ] {
        let role = format!("{name}-{role}");
        let (verb, resource) = (format!("--verb={verb}"), format!("--resource={resource}"));
        kubectl.run(&["create", "clusterrole", &role, &verb, &resource]).await?;
        let bound = format!("--clusterrole={role}");
        kubectl.run(&["create", "clusterrolebinding", &role, &bound, &account]).await?;
        let server = test.server();
        until(&format!("parents are named: {names}"), PATIENCE, async || {
            // The API server takes a moment to know of a role.
            let Ok((said, _)) = server.run(&line).await else { return Ok(Err("refused".to_owned())) };
            let are_named = named.iter().all(|it| said.contains(it));
            let are_hidden =
                said.contains("Parents are not named") && !named.iter().any(|it| said.contains(it));
            Ok(if names && are_named || !names && are_hidden { Ok(()) } else { Err(said) })
        })
        .await?;
    }
    for role in ["controllers", "parents"] {
        let role = format!("{name}-{role}");
        kubectl.run(&["delete", "clusterrole,clusterrolebinding", &role]).await?;
    }
    Ok(())
}
