//! Tests of a hook of a controller.

use serde_json::json;

use super::*;
use crate::api::policy::LimitBounds;

fn check(hook: Value) -> Result<Option<EnabledHook>, String> {
    let hook: HookSpec = serde_json::from_value(hook).unwrap();
    hook.check("spec.hooks.sync", &HookPolicy::default()).map_err(|error| error.to_string())
}

fn wasm(extra: &Value) -> Value {
    let mut wasm = json!({"configMap": {"namespace": "n", "name": "m"}});
    wasm.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({ "wasm": wasm })
}

#[test]
fn a_hook_with_neither_is_disabled() {
    assert_eq!(check(json!({"version": "v2"})), Ok(None));
}

#[test]
fn both_side_by_side_are_refused() {
    let mut hook = wasm(&json!({}));
    hook["webhook"] = json!({"url": "http://x"});
    assert!(
        check(hook)
            .unwrap_err()
            .starts_with("spec.hooks.sync: a hook is a webhook, a wasm module or a script, not several")
    );
}

#[test]
fn a_script_is_stored_and_checked_as_a_module_is() {
    let script = |extra: &Value| {
        let mut script = json!({"language": "python", "configMap": {"namespace": "n", "name": "m"}});
        script.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        check(json!({ "script": script }))
    };
    let module = |hook: Result<Option<EnabledHook>, String>| match hook.unwrap().unwrap().target {
        HookTarget::Wasm(hook) => hook.module,
        HookTarget::Webhook(_) => panic!(),
    };
    let python = module(script(&json!({})));
    assert_eq!((python.key.as_str(), python.language), ("hook.py", Some(Language::Python)));
    let javascript = module(script(&json!({"language": "javascript"})));
    assert_eq!((javascript.key.as_str(), javascript.language), ("hook.js", Some(Language::JavaScript)));
    for (extra, says) in [
        (
            json!({"configMap": {"namespace": "n", "name": "m", "key": "a/b"}}),
            "spec.hooks.sync.script.configMap.key: \"a/b\" is no name",
        ),
        (json!({"configMap": {"namespace": "n", "name": ""}}), "spec.hooks.sync.script.configMap"),
        (json!({"limits": {"memory": "513Mi"}}), "spec.hooks.sync.script.limits.memory: 513Mi is above"),
        (
            json!({"mounts": [{"path": "/hook", "configMap": {"namespace": "n", "name": "m"}}]}),
            "spec.hooks.sync.script.mounts[0].path: \"/hook\" is where the script itself lies",
        ),
    ] {
        let error = script(&extra).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
    let policy = HookPolicy { require_pin: true, ..HookPolicy::default() };
    let script = json!({"script": {"language": "python", "configMap": {"namespace": "n", "name": "m"}}});
    let hook: HookSpec = serde_json::from_value(script).unwrap();
    assert_eq!(hook.check("sync", &policy).unwrap_err().field, "sync.script.sha256");
}

#[test]
fn a_shadow_is_a_hook_of_the_same_version() {
    let shadow = |hook: Value| {
        let hook: HookSpec = serde_json::from_value(hook).unwrap();
        let checked = hook.check_shadow("spec.hooks.sync.shadow", &HookPolicy::default());
        checked.map_err(|error| error.to_string())
    };
    let webhook = json!({"url": "http://x"});
    assert_eq!(shadow(json!({ "webhook": webhook })), Ok(None));
    let module = wasm(&json!({}));
    let checked = shadow(json!({ "version": "v2", "webhook": webhook, "shadow": module })).unwrap().unwrap();
    assert_eq!((checked.version, checked.via()), (HookVersion::V2, HookTransport::Wasm));
    for (hook, says) in [
        (json!({ "shadow": module }), "spec.hooks.sync.shadow: there is no hook to compare it with"),
        (json!({ "webhook": webhook, "shadow": {} }), "spec.hooks.sync.shadow: names neither"),
        (
            json!({ "webhook": webhook, "shadow": {"webhook": {"url": "x"}} }),
            "spec.hooks.sync.shadow.webhook.url: ",
        ),
        (
            json!({ "webhook": webhook, "shadow": {"webhook": webhook, "wasm": module["wasm"]} }),
            "spec.hooks.sync.shadow: a hook is a webhook, a wasm module or a script",
        ),
    ] {
        let error = shadow(hook).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn answers_are_read_as_the_version_says_unless_the_webhook_says_otherwise() {
    let mode = |version: &str, webhook: Value| {
        let mut webhook = webhook;
        webhook["url"] = json!("http://h");
        check(json!({ "version": version, "webhook": webhook })).unwrap().unwrap().mode()
    };
    let says = |mode: &str| json!({ "responseUnMarshallMode": mode });
    assert_eq!(mode("v1", json!({})), UnmarshallMode::Loose);
    assert_eq!(mode("", json!({})), UnmarshallMode::Loose);
    assert_eq!(mode("v2", json!({})), UnmarshallMode::Strict);
    assert_eq!(mode("v1", says("strict")), UnmarshallMode::Strict);
    assert_eq!(mode("v2", says("loose")), UnmarshallMode::Loose);
}

#[test]
fn a_webhook_is_checked_under_the_hooks_field() {
    let error = check(json!({ "webhook": { "url": "x" } })).unwrap_err();
    assert!(error.starts_with("spec.hooks.sync.webhook.url: "), "{error}");
}

#[test]
fn what_is_not_said_has_its_default() {
    let Some(EnabledHook { version, target: HookTarget::Wasm(hook) }) = check(wasm(&json!({}))).unwrap()
    else {
        panic!()
    };
    assert_eq!(version, HookVersion::V1);
    assert_eq!((hook.module.key.as_str(), hook.mounts.len()), ("hook.wasm", 0));
    assert_eq!(hook.limits, LimitBounds::default().default);
}

#[test]
fn mounts_and_pins_are_checked_under_the_hooks_field() {
    let mount = json!({"path": "etc", "configMap": {"namespace": "n", "name": "m"}});
    let error = check(wasm(&json!({ "mounts": [mount] }))).unwrap_err();
    assert!(error.starts_with("spec.hooks.sync.wasm.mounts[0].path: \"etc\" is no absolute"), "{error}");
    let hook: HookSpec = serde_json::from_value(wasm(&json!({}))).unwrap();
    let policy = HookPolicy { require_pin: true, ..HookPolicy::default() };
    assert_eq!(hook.check("sync", &policy).unwrap_err().field, "sync.wasm.sha256");
}

#[test]
fn a_digest_of_the_status_is_a_pin() {
    let pin = "0".repeat(64);
    for written in [pin.clone(), format!("sha256:{pin}")] {
        let hook = check(wasm(&json!({ "sha256": written }))).unwrap();
        let Some(EnabledHook { target: HookTarget::Wasm(hook), .. }) = hook else { panic!() };
        assert_eq!(hook.module.sha256.as_ref(), Some(&pin));
    }
}

#[test]
fn limits_are_read_up_to_their_ceiling_and_refused_above_it() {
    let ceiling = json!({"memory": "512Mi", "timeout": "60s", "instructions": 100_000_000_000_u64, "output": "32Mi", "log": "1Mi"});
    let Some(EnabledHook { target: HookTarget::Wasm(hook), .. }) =
        check(wasm(&json!({ "limits": ceiling }))).unwrap()
    else {
        panic!()
    };
    assert_eq!(hook.limits, LimitBounds::default().ceiling);
    for (name, value, says) in [
        (
            "memory",
            json!("513Mi"),
            "spec.hooks.sync.wasm.limits.memory: 513Mi is above this server's ceiling of 512Mi",
        ),
        ("timeout", json!("61s"), "ceiling of 60s"),
        ("instructions", json!(100_000_000_001_u64), "ceiling of 100000000000"),
        ("output", json!("33Mi"), "ceiling of 32Mi"),
        ("log", json!("2Mi"), "ceiling of 1Mi"),
        ("memory", json!("lots"), "\"lots\" is no amount of bytes"),
        ("timeout", json!("0s"), "\"0s\" is no duration"),
        ("instructions", json!(0), "0 is too few"),
    ] {
        let error = check(wasm(&json!({"limits": {name: value}}))).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
