//! Where a hook's module comes from, and what happens when it is not there, not good, or another one.

use acceptance::api::{CONFIG_MAP, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Hook, condition, config_map, has_condition, is_true, module_under, text, version};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::pages::symptoms;
use crate::wasm;

fn good() -> Result<Vec<u8>> {
    wasm::answers(&json!({ "children": [config_map("child", json!({}), json!({ "is": "here" }))] }))
}

pub(crate) fn digest(wasm: &[u8]) -> String {
    Sha256::digest(wasm).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A controller whose module does not load, and a parent that waits for it.
async fn does_not_load(test: &mut Fixture, hook: Hook, reason: &str, named: &str) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    test.create(test.parent("a")).await?;
    let says = |cc: &Value| {
        has_condition(cc, "ModulesLoaded", "False", reason)
            && has_condition(cc, "Ready", "False", "ModuleNotLoaded")
    };
    test.until_controller(&format!("ModulesLoaded=False: {reason}"), says).await?;
    let names_it = |event: &Value| event["type"] == "Warning" && text(event, "/message").contains(named);
    test.until_controller_event("CreateError", names_it).await?;
    ensure!(test.config_maps().find("child").await?.is_none(), "a child without a hook");
    Ok(())
}

async fn loads(test: &Fixture) -> Result<()> {
    test.config_maps().until("child", "made", |_| true).await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready") && is_true(cc, "ModulesLoaded")).await?;
    Ok(())
}

pub(crate) async fn a_missing_config_map_is_reported_and_heals(test: &mut Fixture) -> Result<()> {
    does_not_load(test, test.hook("absent"), "ConfigMapNotFound", "absent").await?;
    symptoms::is_shown(test, "there is no ConfigMap", &symptoms::controller(test.name())).await?;
    test.store("absent", &good()?).await?;
    loads(test).await
}

pub(crate) async fn a_missing_key_is_reported_and_heals(test: &mut Fixture) -> Result<()> {
    let place = test.config_maps();
    test.make(&place, module_under("hook", "other.wasm", &good()?)).await?;
    does_not_load(test, test.hook("hook"), "KeyNotFound", "hook.wasm").await?;
    symptoms::is_shown(test, "has no key", &symptoms::controller(test.name())).await?;
    test.store("hook", &good()?).await?;
    loads(test).await
}

pub(crate) async fn a_broken_module_is_reported_and_heals(test: &mut Fixture) -> Result<()> {
    test.store("hook", b"this is no module").await?;
    does_not_load(test, test.hook("hook"), "ModuleInvalid", "hook").await?;
    test.store("hook", &good()?).await?;
    loads(test).await
}

pub(crate) async fn a_module_with_another_digest_than_pinned_is_refused_and_heals(
    test: &mut Fixture,
) -> Result<()> {
    let (wanted, other) = (good()?, wasm::prints("{}")?);
    test.store("hook", &other).await?;
    let hook = test.hook("hook").pinned_to(&digest(&wanted));
    does_not_load(test, hook, "DigestMismatch", &digest(&wanted)).await?;
    test.store("hook", &wanted).await?;
    loads(test).await
}

pub(crate) async fn a_module_from_elsewhere_or_without_a_pin_is_refused_where_the_server_wants_it_so(
    test: &mut Fixture,
) -> Result<()> {
    let (module, namespace) = (good()?, test.name().to_owned());
    test.server().flag(&format!("--module-namespaces={namespace}"));
    test.server().flag("--require-pin");
    test.define_kind().await?;
    test.store("hook", &module).await?;
    test.serve()?;
    let pinned = test.hook("hook").pinned_to(&digest(&module));
    for (name, hook, field) in [
        ("unpinned", test.hook("hook"), "spec.hooks.sync.wasm.sha256: "),
        ("elsewhere", Hook::wasm("default", "hook"), "spec.hooks.sync.wasm.configMap.namespace: "),
    ] {
        let name = format!("{namespace}-{name}");
        test.host(test.controller().renamed(&name).synced_by(hook)).await?;
        let refused = |cc: &Value| {
            has_condition(cc, "Ready", "False", "InvalidSpec")
                && condition(cc, "Ready").is_some_and(|ready| text(ready, "/message").starts_with(field))
        };
        test.controllers().until(&name, &format!("refused by {field}"), refused).await?;
    }
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(pinned)).await?;
    test.create(test.parent("a")).await?;
    loads(test).await
}

pub(crate) async fn the_status_names_digest_and_size_of_the_module(test: &mut Fixture) -> Result<()> {
    let module = good()?;
    test.store("hook", &module).await?;
    test.define_kind().await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    let cc = test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    let sync = &cc["status"]["hooks"]["sync"];
    ensure!(sync["digest"] == format!("sha256:{}", digest(&module)), "{sync}");
    ensure!(sync["size"] == module.len(), "{sync}, the module has {} bytes", module.len());
    ensure!(cc["status"]["observedGeneration"] == cc["metadata"]["generation"], "{}", cc["status"]);
    Ok(())
}

/// A good module, then something that spoils it: the parent that comes afterwards shows that the good one still works.
async fn still_serves(
    test: &mut Fixture,
    spoil: impl AsyncFnOnce(&mut Fixture) -> Result<()>,
    (reason, said): (&str, &str),
) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("hello")?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&POD, "Recreate").synced_by(hook)).await?;
    test.create(test.parent("before")).await?;
    let before = test.pods().until("before", "made", |_| true).await?;
    let served = test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;

    spoil(test).await?;
    let says = |cc: &Value| has_condition(cc, "ModulesLoaded", "False", reason);
    let cc = test.until_controller(&format!("ModulesLoaded=False: {reason}"), says).await?;
    let message = condition(&cc, "ModulesLoaded").map_or("", |condition| text(condition, "/message"));
    ensure!(message.contains(said), "the condition does not say {said:?}: {message}");
    let digest = "/status/hooks/sync/digest";
    ensure!(text(&cc, digest) == text(&served, digest), "another digest serves: {}", cc["status"]);
    ensure!(is_true(&cc, "Ready"), "not ready: {}", cc["status"]);
    test.create(test.parent("after")).await?;
    test.pods().until("after", "made", |_| true).await?;
    let edit = json!({ "spec": { "resyncPeriodSeconds": 3600 } });
    test.controllers().merge(test.name(), &edit).await?;
    let edited = |cc: &Value| cc["status"]["observedGeneration"] == 2 && is_true(cc, "Ready");
    test.until_controller("ready with another spec", edited).await?;
    test.create(test.parent("later")).await?;
    test.pods().until("later", "made", |_| true).await?;
    let same = test.pods().get("before").await?;
    ensure!(version(&same) == version(&before), "the Pod that was there was written: {same}");
    Ok(())
}

pub(crate) async fn after_a_bad_module_the_last_good_one_goes_on_serving(test: &mut Fixture) -> Result<()> {
    let spoil = async |test: &mut Fixture| test.store("hook", b"this is no module").await;
    let said = format!("goes on being called, not sha256:{}", digest(b"this is no module"));
    still_serves(test, spoil, ("ModuleInvalid", &said)).await
}

pub(crate) async fn after_its_config_map_is_gone_a_module_goes_on_serving(test: &mut Fixture) -> Result<()> {
    let spoil = async |test: &mut Fixture| test.config_maps().delete("hook").await;
    still_serves(test, spoil, ("ConfigMapNotFound", "goes on being called")).await
}

pub(crate) async fn a_changed_module_syncs_parents_that_did_not_change(test: &mut Fixture) -> Result<()> {
    const PARENTS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let says = |number: u32| wasm::answers(&json!({ "status": { "number": number }, "children": [] }));
    test.define_kind().await?;
    test.store("hook", &says(1)?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().synced_by(hook)).await?;
    for name in PARENTS {
        test.create(test.parent(name)).await?;
    }
    for number in [1, 2] {
        test.store("hook", &says(number)?).await?;
        let all = |parents: &[Value]| parents.iter().all(|parent| parent["status"]["number"] == number);
        test.parents().until_all(&format!("number {number}"), all).await?;
    }
    Ok(())
}
