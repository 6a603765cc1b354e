//! Shadows of hooks: what they answer is compared and counted, and nothing of it is carried out.

use std::time::{Duration, Instant};

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true, text};
use acceptance::wait::{PATIENCE, until};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::settling::scrape_text;
use crate::wasm;

fn answer(is: &str) -> Value {
    json!({ "children": [config_map("child", json!({}), json!({ "is": is }))], "status": { "is": is } })
}

/// A webhook that makes the child; the shadow is the module in the `ConfigMap` `shadow`.
async fn webhook_with_module(test: &mut Fixture, shadow: &[u8]) -> Result<Webhook> {
    let webhook = Webhook::answering(answer("real")).await?;
    test.define_kind().await?;
    test.store("shadow", shadow).await?;
    test.serve()?;
    let hook = Hook::webhook(&webhook.url("/sync")).shadowed_by(test.hook("shadow"));
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    Ok(webhook)
}

fn counts<'a>(cc: &'a Value, what: &str) -> &'a Value {
    &cc["status"]["shadows"]["sync"][what]
}

pub(crate) async fn a_shadow_that_agrees_is_said_to(test: &mut Fixture) -> Result<()> {
    let address = free_address()?;
    test.server().flag(&format!("--metrics-address={address}"));
    let webhook = webhook_with_module(test, &wasm::answers(&answer("real"))?).await?;
    test.create(test.parent("a")).await?;
    test.create(test.parent("b")).await?;
    let agrees = |cc: &Value| {
        has_condition(cc, "ShadowAgrees", "True", "AnswersAgree")
            && counts(cc, "equal").as_u64() >= Some(1)
            && *counts(cc, "different") == 0
    };
    test.until_controller("its shadow agrees", agrees).await?;
    let name = test.name().to_owned();
    let counted = |page: &str| {
        let series = format!(
            r#"metahook_shadow_answers_total{{controller_name="{name}",controller_type="CompositeController",result="equal"}} "#
        );
        let count = page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok());
        count >= Some(2)
    };
    until("the metric", PATIENCE, async || {
        let page = scrape_text(address).await?;
        Ok(if counted(&page) { Ok(()) } else { Err(page) })
    })
    .await?;
    ensure!(webhook.count() >= 2, "the webhook was asked {} times", webhook.count());
    Ok(())
}

pub(crate) async fn a_shadow_that_differs_is_told_by_its_paths_and_changes_nothing(
    test: &mut Fixture,
) -> Result<()> {
    let children = ["child", "extra"].map(|name| config_map(name, json!({}), json!({ "is": "shadow" })));
    let other = json!({ "children": children, "status": { "is": "shadow" } });
    let _webhook = webhook_with_module(test, &wasm::answers(&other)?).await?;
    test.create(test.parent("a")).await?;
    let differs = |cc: &Value| has_condition(cc, "ShadowAgrees", "False", "AnswersDiffer");
    let cc = test.until_controller("its shadow differs", differs).await?;
    let all = counts(&cc, "differences").as_array().cloned().unwrap_or_default();
    let mut paths: Vec<_> = all.iter().map(|one| text(one, "/path")).collect();
    paths.sort_unstable();
    ensure!(paths == ["ConfigMap.v1: added", "ConfigMap.v1: data.is", "status.is"], "{}", cc["status"]);
    ensure!(all.iter().all(|one| text(one, "/example").ends_with("/a")), "{}", cc["status"]);
    ensure!(is_true(&cc, "Ready") && cc["status"]["failing"] == 0, "{}", cc["status"]);
    let message = condition(&cc, "ShadowAgrees").map_or("", |it| text(it, "/message"));
    ensure!(message.contains("answers differ; of the sync hook's most at"), "{message}");
    let child =
        test.config_maps().until("child", "the webhook's", |child| child["data"]["is"] == "real").await?;
    test.parents().until("a", "the webhook's status", |parent| parent["status"]["is"] == "real").await?;
    ensure!(test.config_maps().find("extra").await?.is_none(), "the shadow's child was made: {child}");

    // Another module is counted anew.
    test.store("shadow", &wasm::answers(&answer("real"))?).await?;
    let equal = |cc: &Value| is_true(cc, "ShadowAgrees") && *counts(cc, "different") == 0;
    for nth in 0.. {
        test.parents().merge("a", &json!({ "spec": { "nth": nth } })).await?;
        let seen =
            move |parent: &Value| parent["status"]["observedGeneration"] == parent["metadata"]["generation"];
        test.parents().until("a", "synced", seen).await?;
        if equal(&test.controllers().get(test.name()).await?) {
            break;
        }
        ensure!(
            nth < 600,
            "the new module never agrees: {}",
            test.controllers().get(test.name()).await?["status"]
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Each controller works as if there were no shadow, and says what is wrong with it.
pub(crate) async fn a_shadow_that_fails_harms_nothing(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("module-traps", &wasm::traps()?).await?;
    test.store("module-loops", &wasm::loops()?).await?;
    test.store("module-no-json", &wasm::prints("no json")?).await?;
    test.serve()?;
    let closed = free_address()?;
    let rows = [
        ("traps", test.hook("module-traps"), "ShadowFails", "unreachable"),
        (
            "loops",
            test.hook("module-loops").limited("instructions", 1_000_000),
            "ShadowFails",
            "instructions",
        ),
        ("no-json", test.hook("module-no-json"), "ShadowFails", "JSON"),
        ("missing", test.hook("missing"), "ShadowFails", "missing"),
        ("closed", Hook::webhook(&format!("http://{closed}/")), "ShadowFails", "cannot be reached"),
        (
            "refused",
            test.hook("module-traps").limited("memory", "1Gi"),
            "ShadowRefused",
            "spec.hooks.sync.shadow.wasm.limits.memory",
        ),
    ];
    let webhook = Webhook::serve(|asked| {
        let child = config_map(asked.path.trim_start_matches('/'), json!({}), json!({}));
        Answer::from(json!({ "children": [child] }))
    })
    .await?;
    for (name, shadow, ..) in rows.clone() {
        let hook = Hook::webhook(&webhook.url(&format!("/{name}"))).shadowed_by(shadow);
        let controller = test.controller().renamed(&format!("{}-{name}", test.name()));
        test.host(controller.making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    }
    test.create(test.parent("a")).await?;
    for (name, _, reason, says) in rows {
        test.config_maps().until(name, "made", |_| true).await?;
        let told = |cc: &Value| {
            has_condition(cc, "ShadowAgrees", "False", reason)
                && condition(cc, "ShadowAgrees").is_some_and(|it| text(it, "/message").contains(says))
                && is_true(cc, "Ready")
                && cc["status"]["failing"] == 0
        };
        let controller = format!("{}-{name}", test.name());
        test.controllers().until(&controller, &format!("{reason}: {says}"), told).await?;
    }
    Ok(())
}

/// With one place for a controller, a shadow that loops for a minute would keep it from its hook.
pub(crate) async fn a_hook_does_not_wait_for_its_shadow(test: &mut Fixture) -> Result<()> {
    const SHADOW: Duration = Duration::from_mins(1);
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&answer("real"))?).await?;
    test.store("loops", &wasm::loops()?).await?;
    test.server().flag("--hook-concurrency=2");
    test.serve()?;
    let timeout = format!("{}s", SHADOW.as_secs());
    let shadow = test.hook("loops").limited("instructions", 100_000_000_000_u64).limited("timeout", timeout);
    let hook = test.hook("hook").shadowed_by(shadow);
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    test.config_maps().until("child", "made", |_| true).await?;
    let asked = Instant::now();
    // From the second change on, the call of the shadow about the one before is under way.
    for nth in 0..10 {
        test.parents().merge("a", &json!({ "spec": { "nth": nth } })).await?;
        let synced =
            |parent: &Value| parent["status"]["observedGeneration"] == parent["metadata"]["generation"];
        test.parents().until("a", "synced beside its shadow", synced).await?;
    }
    ensure!(asked.elapsed() < SHADOW / 2, "the hook waited for its shadow");
    Ok(())
}

/// The other way round, of a `DecoratorController` with all hooks.
pub(crate) async fn a_webhook_may_be_the_shadow_of_a_module(test: &mut Fixture) -> Result<()> {
    let rule = json!({ "apiVersion": "v1", "resource": "services", "labelSelector": {} });
    let webhook = Webhook::serve(move |asked: &Asked| {
        let (rules, finalized) = (json!([rule]), asked.body["finalizing"] == true);
        Answer::from(match asked.path.as_str() {
            "/customize" => json!({ "relatedResources": rules }),
            _ => json!({ "attachments": [], "labels": { "by": "shadow" }, "finalized": finalized }),
        })
    })
    .await?;
    test.define_kind().await?;
    test.store("sync", &wasm::answers(&json!({ "attachments": [], "labels": { "by": "hook" } }))?).await?;
    test.store("rules", &wasm::answers(&json!({ "relatedResources": [] }))?).await?;
    let end = json!({ "attachments": [], "labels": { "by": "hook" }, "finalized": true });
    test.store("finalize", &wasm::answers(&end)?).await?;
    test.serve()?;
    let of = |path: &str| Hook::webhook(&webhook.url(path));
    let kind = test.kind().clone();
    let controller = test
        .decorator()
        .decorating(&kind, json!({}))
        .synced_by(test.hook("sync").shadowed_by(of("/sync")))
        .customized_by(test.hook("rules").shadowed_by(of("/customize")))
        .finalized_by(test.hook("finalize").shadowed_by(of("/finalize")));
    test.host_decorator(controller).await?;
    test.create(test.parent("a")).await?;
    test.parents().until("a", "decorated", |parent| parent["metadata"]["labels"]["by"] == "hook").await?;
    let asked = webhook.until_asked("to sync", |asked| asked.path == "/sync").await?;
    ensure!(asked.body["object"]["metadata"]["name"] == "a" && asked.body["attachments"] == json!({}));
    let path = |dc: &Value, hook: &str| dc["status"]["shadows"][hook]["differences"][0]["path"].clone();
    let told = |dc: &Value| {
        path(dc, "sync") == "labels[by]" && path(dc, "customize") == "relatedResources of v1 services: added"
    };
    test.decorators().until(test.name(), "both differ", told).await?;
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    let finalized = |dc: &Value| path(dc, "finalize") == "labels[by]";
    test.decorators().until(test.name(), "the last one differs, too", finalized).await?;
    Ok(())
}
