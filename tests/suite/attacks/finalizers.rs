//! Objects that could never be deleted: finalizers of ours that nothing takes off.

use std::time::{Duration, Instant};

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, has_condition, text};
use acceptance::wait::until;
use acceptance::webhook::{Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::attacks::form;
use crate::wasm;

/// Levels of the spec: JSON libraries give up at some 127.
const DEPTH: usize = 200;

fn finalized(asked: &Asked) -> Value {
    json!({ "children": [], "attachments": [], "finalized": asked.path == "/finalize" })
}

fn finalizers(object: &Value) -> usize {
    object["metadata"]["finalizers"].as_array().map_or(0, Vec::len)
}

/// Both are the only ones of their kind of parents, so that no other controller is about it.
pub(crate) async fn controllers_that_go_while_no_server_runs_leave_no_finalizer(
    test: &mut Fixture,
) -> Result<()> {
    let webhook = finalizing_controller(test).await?;
    finalizing_decorator(test, &webhook).await?;
    let count = form(3, 300);
    for nth in 0..count {
        test.create(test.parent(&format!("p{nth}"))).await?;
    }
    let all_have = |count: usize| move |all: &[Value]| all.iter().all(|parent| finalizers(parent) == count);
    test.parents().until_all("two finalizers each", all_have(2)).await?;
    test.server().kill().await?;
    test.controllers().delete(test.name()).await?;
    test.decorators().delete(test.name()).await?;
    let start = Instant::now();
    test.server().start()?;
    test.parents().until_all("no finalizers", all_have(0)).await?;
    test.at_most("finalizers off after a start", start.elapsed().as_secs_f64(), "s", 30.0)?;
    let name = test.name().to_owned();
    let is_record = |map: &Value| text(map, "/metadata/name").ends_with(&format!("controller-{name}"));
    let maps = test.within_default(&CONFIG_MAP);
    maps.until_all("no record", |all| !all.iter().any(is_record)).await?;
    Ok(())
}

/// Its sync hook was taken out of the spec.
pub(crate) async fn a_finalize_hook_alone_lets_parents_go(test: &mut Fixture) -> Result<()> {
    let webhook = finalizing_controller(test).await?;
    test.create(test.parent("p")).await?;
    test.parents().until("p", "has a finalizer", |parent| finalizers(parent) == 1).await?;
    test.controllers().merge(test.name(), &json!({ "spec": { "hooks": { "sync": null } } })).await?;
    test.until_controller("not ready", |cc| has_condition(cc, "Ready", "False", "NoSyncHook")).await?;
    test.parents().delete("p").await?;
    test.parents().until_gone("p").await?;
    ensure!(webhook.asked().iter().any(|asked| asked.path == "/finalize"), "the hook was not asked");
    test.until_controller("told all the same", |cc| has_condition(cc, "Ready", "False", "NoSyncHook"))
        .await?;
    Ok(())
}

/// The hook went with its namespace, so that the server that starts cannot call it.
pub(crate) async fn a_parent_whose_hook_is_gone_is_told_how_to_go(test: &mut Fixture) -> Result<()> {
    let answer = json!({ "children": [], "finalized": false });
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&answer)?).await?;
    // Else a kept version of the hook would clean up.
    test.server().flag("--kept-versions=0");
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().synced_by(hook.clone()).finalized_by(hook)).await?;
    test.create(test.parent("p")).await?;
    test.parents().until("p", "has a finalizer", |parent| finalizers(parent) == 1).await?;
    test.server().stop().await?;
    test.config_maps().delete("hook").await?;
    test.parents().delete("p").await?;
    test.server().start()?;
    let hook = format!("there is no ConfigMap {}/hook", test.name());
    let event =
        test.until_event("p", "FinalizerWaits", |event| text(event, "/message").contains(&hook)).await?;
    let waits = |cc: &Value| {
        let ready = condition(cc, "Ready").map_or("", |ready| text(ready, "/message"));
        ready.contains(&hook) && ready.contains("1 parent that is being deleted waits for it")
    };
    test.until_controller("says that a parent waits", waits).await?;
    let_go_as_told(test, &event).await?;
    test.until_controller("no parent waits", |cc| !waits(cc)).await?;
    Ok(())
}

/// The command of an Event `FinalizerWaits` lets the parent `p` go.
pub(crate) async fn let_go_as_told(test: &Fixture, event: &Value) -> Result<()> {
    let (_, command) = text(event, "/message").split_once(": kubectl ").context("no command")?;
    let words = command.replace('\'', "");
    test.plane().kubectl().run(&words.split(' ').collect::<Vec<_>>()).await?;
    test.parents().until_gone("p").await
}

/// Finalizers that the controller put on its parents when it had a finalize hook.
pub(crate) async fn a_controller_without_hooks_keeps_no_finalizers(test: &mut Fixture) -> Result<()> {
    finalizing_controller(test).await?;
    test.create(test.parent("p")).await?;
    test.parents().until("p", "has a finalizer", |parent| finalizers(parent) == 1).await?;
    let no_hooks = json!({ "spec": { "hooks": { "sync": null, "finalize": null } } });
    test.controllers().merge(test.name(), &no_hooks).await?;
    test.parents().until("p", "no finalizer", |parent| finalizers(parent) == 0).await?;
    test.until_controller("told", |cc| has_condition(cc, "Ready", "False", "NoSyncHook")).await?;
    Ok(())
}

/// Parents are written as they are, so that nothing has to understand their content.
pub(crate) async fn a_deep_parent_gets_its_finalizers_and_goes(test: &mut Fixture) -> Result<()> {
    let webhook = finalizing_controller(test).await?;
    finalizing_decorator(test, &webhook).await?;
    let spec = format!("{}0{}", r#"{"a":"#.repeat(DEPTH), "}".repeat(DEPTH));
    let parent = test.parent("deep").json().to_string().replace(r#""spec":{}"#, &format!(r#""spec":{spec}"#));
    let file = test.plane().scratch().join(format!("{}.json", test.name()));
    std::fs::write(&file, parent).context("no file for a parent")?;
    let (kubectl, namespace) = (test.plane().kubectl(), format!("--namespace={}", test.name()));
    let file = file.display().to_string();
    kubectl.run(&["create", &namespace, "-f", &file]).await?;
    let resource = format!("{}.{}/deep", test.kind().plural, test.kind().group);
    let get = ["get", &namespace, "-o=jsonpath={.metadata.finalizers}", &resource];
    until("both finalizers", Duration::from_secs(20), || async {
        let finalizers = kubectl.run(&get).await?;
        Ok(if finalizers.contains("/composite") && finalizers.contains("/decorator") {
            Ok(())
        } else {
            Err(finalizers)
        })
    })
    .await?;
    kubectl.run(&["delete", &namespace, "--timeout=20s", &resource]).await?;
    Ok(())
}

/// Serves, and hosts a controller whose webhook lets each parent go.
async fn finalizing_controller(test: &mut Fixture) -> Result<Webhook> {
    let webhook = Webhook::serve(|asked| finalized(asked).into()).await?;
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    Ok(webhook)
}

/// Hosts a decorator of the same parents with the same webhook.
async fn finalizing_decorator(test: &mut Fixture, webhook: &Webhook) -> Result<()> {
    let hook = |path: &str| Hook::webhook(&webhook.url(path));
    let decorator = test.decorator().decorating(test.kind(), json!({}));
    test.host_decorator(decorator.synced_by(hook("/sync")).finalized_by(hook("/finalize"))).await?;
    Ok(())
}
