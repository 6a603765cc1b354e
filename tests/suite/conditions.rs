//! Conditions come back by themselves once their cause is gone. Reasons whose return another test shows are in the table of
//! `runtime/core/src/api/reason/mod.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use acceptance::api::{CONFIG_MAP, SECRET};
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Composite, Hook, config_map, has_condition, is_true};
use acceptance::proxy::{Fate, Proxy};
use acceptance::wait::PATIENCE;
use acceptance::webhook::{Answer, Webhook};
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::pages::symptoms;
use crate::wasm;

fn nothing() -> Result<Vec<u8>> {
    wasm::answers(&json!({ "children": [] }))
}

/// Lack of a controller, and how its status says so.
struct Lacks {
    name: &'static str,
    condition: &'static str,
    reason: &'static str,
}

const LACKS: [Lacks; 11] = [
    Lacks { name: "module-unreadable", condition: "ModulesLoaded", reason: "ConfigMapUnreadable" },
    Lacks { name: "mount-unreadable", condition: "ModulesLoaded", reason: "MountUnreadable" },
    Lacks { name: "trust-unreadable", condition: "ModulesLoaded", reason: "TrustUnreadable" },
    Lacks { name: "trust-missing", condition: "ModulesLoaded", reason: "TrustNotFound" },
    Lacks { name: "trust-invalid", condition: "ModulesLoaded", reason: "TrustInvalid" },
    Lacks { name: "index", condition: "ModulesLoaded", reason: "IndexInvalid" },
    Lacks { name: "two-modules", condition: "ModulesLoaded", reason: "KeysConflict" },
    Lacks { name: "large-mounts", condition: "ModulesLoaded", reason: "MountsTooLarge" },
    Lacks { name: "not-listed", condition: "Ready", reason: "NotListed" },
    Lacks { name: "no-hook", condition: "Ready", reason: "NoSyncHook" },
    Lacks { name: "refused", condition: "Ready", reason: "InvalidSpec" },
];

fn account(data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), json!(ByteString((*value).into())))).collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret" }, "data": data })
}

fn named(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

const WHOLE: [(&str, &str); 2] = [("username", "Aladdin"), ("password", "open sesame")];

/// The controller of each row, with what it does not lack.
async fn host(test: &mut Fixture, webhook: &Webhook) -> Result<()> {
    let (maps, secrets) = (test.config_maps(), test.within(&SECRET));
    for name in ["hook", "module-unreadable", "two-modules"] {
        test.store(name, &nothing()?).await?;
    }
    test.make(&maps, config_map("mount-unreadable", json!({}), json!({ "a": "b" }))).await?;
    maps.merge("two-modules", &json!({ "data": { "hook.wasm.json": "{}" } })).await?;
    test.make(&maps, config_map("index", json!({}), json!({ "hook.wasm.json": "{}" }))).await?;
    for name in LARGE {
        test.make(&maps, config_map(name, json!({}), json!({ "text": "x".repeat(900_000) }))).await?;
    }
    test.make(&secrets, named(account(&WHOLE), "trust-unreadable")).await?;
    test.make(&secrets, named(account(&[("username", "Aladdin")]), "trust-invalid")).await?;
    for Lacks { name, .. } in LACKS {
        let controller = controller(test, name, hook(test, name, webhook), webhook);
        test.host(controller).await?;
    }
    Ok(())
}

fn hook(test: &Fixture, name: &str, webhook: &Webhook) -> Option<Hook> {
    let mounting =
        |hook: Hook, map: &str| hook.mounting(&format!("/mnt/{map}"), "configMap", test.name(), map);
    match name {
        "module-unreadable" | "index" | "two-modules" => Some(test.hook(name)),
        "mount-unreadable" => Some(mounting(test.hook("hook"), name)),
        "large-mounts" => Some(LARGE.into_iter().fold(test.hook("hook"), mounting)),
        "no-hook" => None,
        "refused" => Some(test.hook("hook").limited("memory", "1Gi")),
        "not-listed" => Some(test.hook("hook")),
        _ => Some(Hook::webhook(&webhook.url("/sync"))),
    }
}

fn controller(test: &Fixture, name: &str, hook: Option<Hook>, webhook: &Webhook) -> Composite {
    let children = if name == "not-listed" { &*SECRET } else { &*CONFIG_MAP };
    let mut controller =
        test.controller().renamed(&format!("{}-{name}", test.name())).making(children, "InPlace");
    if name.starts_with("trust-") {
        let secret = json!({ "name": name, "namespace": test.name() });
        let endpoint =
            json!([{ "host": webhook.address().to_string(), "basicAuth": { "secretRef": secret } }]);
        controller = controller.with("endpointConfigs", endpoint);
    }
    match hook {
        Some(hook) => controller.synced_by(hook),
        None => controller,
    }
}

/// `ConfigMap`s that are too large together.
const LARGE: [&str; 5] = ["large-1", "large-2", "large-3", "large-4", "large-5"];

/// Puts right what each row lacks, but for what the proxy refuses.
async fn mend(test: &mut Fixture, webhook: &Webhook) -> Result<()> {
    let (maps, secrets) = (test.config_maps(), test.within(&SECRET));
    for name in ["index", "two-modules"] {
        maps.merge(name, &json!({ "data": { "hook.wasm.json": null } })).await?;
        test.store(name, &nothing()?).await?;
    }
    maps.merge(LARGE[0], &json!({ "data": { "text": "x" } })).await?;
    test.make(&secrets, named(account(&WHOLE), "trust-missing")).await?;
    secrets.merge("trust-invalid", &named(account(&WHOLE), "trust-invalid")).await?;
    for name in ["no-hook", "refused"] {
        let hook = test.hook("hook").limited("memory", "32Mi");
        let right = controller(test, name, Some(hook), webhook).json();
        test.controllers().merge(&format!("{}-{name}", test.name()), &right).await?;
    }
    Ok(())
}

pub(crate) async fn each_condition_of_what_a_controller_needs_comes_back_by_itself(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let webhook = Webhook::serve(|_| Answer::from(json!({ "children": [] }))).await?;
    let proxy = Proxy::start(test.plane().client().await?, test.plane().scratch()).await?;
    test.server().reach_by(proxy.kubeconfig());
    let refuses = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&refuses);
    proxy.meddle(move |request| {
        let is_meant =
            request.uri().path() == "/api/v1/secrets" || request.uri().to_string().contains("-unreadable");
        let is_read = request.method() == http::Method::GET;
        if is_read && is_meant && shared.load(Ordering::Relaxed) {
            Fate::Refuse(403, None)
        } else {
            Fate::Pass
        }
    });
    host(test, &webhook).await?;
    test.serve()?;
    let place = test.controllers();
    for Lacks { name, condition, reason } in LACKS {
        let lacks = |cc: &Value| has_condition(cc, condition, "False", reason);
        let controller = format!("{}-{name}", test.name());
        let lacking = place.until(&controller, reason, lacks).await?;
        // The condition repeats the API server's refusal once, in its words.
        let said = lacking["status"]["conditions"].to_string();
        ensure!(!said.contains("initial object list") && !said.contains("Status {"), "{said}");
    }
    refuses.store(false, Ordering::Relaxed);
    mend(test, &webhook).await?;
    for Lacks { name, condition, reason } in LACKS {
        let is_back = |cc: &Value| is_true(cc, condition) && is_true(cc, "Ready");
        let controller = format!("{}-{name}", test.name());
        place.until(&controller, "back", is_back).await.context(reason)?;
    }
    Ok(())
}

/// A shadow that traps, one that is missing and one whose spec is refused.
pub(crate) async fn a_shadow_that_failed_agrees_once_it_is_right(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("traps", &wasm::traps()?).await?;
    test.store("good", &nothing()?).await?;
    test.serve()?;
    let rows = [
        ("traps", test.hook("traps"), "ShadowFails"),
        ("missing", test.hook("missing"), "ShadowFails"),
        ("closed", Hook::webhook(&format!("http://{}/", free_address()?)), "ShadowFails"),
        ("refused", test.hook("good").limited("memory", "1Gi"), "ShadowRefused"),
    ];
    let controller = |test: &Fixture, name: &str, shadow: Hook| {
        let hook = test.hook("good").shadowed_by(shadow);
        let controller = test.controller().renamed(&format!("{}-{name}", test.name()));
        controller.making(&CONFIG_MAP, "InPlace").resyncing_each_second().synced_by(hook)
    };
    for (name, shadow, _) in rows.clone() {
        test.host(controller(test, name, shadow)).await?;
    }
    test.create(test.parent("a")).await?;
    for (name, _, reason) in &rows {
        let told = |cc: &Value| has_condition(cc, "ShadowAgrees", "False", reason);
        test.controllers().until(&format!("{}-{name}", test.name()), reason, told).await?;
    }
    test.store("traps", &nothing()?).await?;
    test.store("missing", &nothing()?).await?;
    for name in ["closed", "refused"] {
        let shadow = test.hook("good").limited("memory", "32Mi");
        let mut right = controller(test, name, shadow).json();
        right["spec"]["hooks"]["sync"]["shadow"]["webhook"] = Value::Null; // of a merge patch: it is taken out
        test.controllers().merge(&format!("{}-{name}", test.name()), &right).await?;
    }
    let agrees = |cc: &Value| has_condition(cc, "ShadowAgrees", "True", "AnswersAgree");
    for (name, ..) in rows {
        let controller = format!("{}-{name}", test.name());
        acceptance::wait::until("its shadow agrees", PATIENCE, async || {
            // A parent at rest is compared when it changes next.
            test.parents().merge("a", &json!({ "spec": { "at": format!("{:?}", Instant::now()) } })).await?;
            let cc = test.controllers().get(&controller).await?;
            Ok(if agrees(&cc) { Ok(()) } else { Err(cc["status"].to_string()) })
        })
        .await
        .context(name)?;
    }
    Ok(())
}

pub(crate) async fn a_hook_that_no_longer_asks_for_the_time_is_pure(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &wasm::asks_for_the_time()?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("a")).await?;
    let impure = |cc: &Value| has_condition(cc, "Pure", "False", "ReadsClock");
    test.until_controller("Pure=False: ReadsClock", impure).await?;
    symptoms::is_shown(test, "ReadsClock", &symptoms::controller(test.name())).await?;
    test.store("hook", &nothing()?).await?;
    let pure = |cc: &Value| has_condition(cc, "Pure", "True", "RequestsAlone");
    test.until_controller("a pure hook in its place", pure).await.map(drop)
}
