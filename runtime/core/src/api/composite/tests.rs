//! Tests of CompositeControllers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::api::as_stored;
use crate::api::hook::{HookName, HookTarget};
use crate::api::reason::EventReason;
use crate::api::shown_secrets::ShownSecrets;
use crate::api::{CheckedSpec, ONLY_FINALIZES};
use crate::object::id::Gvr;

fn spec(change: impl FnOnce(&mut Value)) -> CompositeControllerSpec {
    let mut spec = json!({
        "generateSelector": true,
        "parentResource": {"apiVersion": "example.com/v1", "resource": "helloworlds"},
        "childResources": [{"apiVersion": "v1", "resource": "pods", "updateStrategy": {"method": "Recreate"}}],
        "hooks": {"sync": {"wasm": {"configMap": {"namespace": "hello", "name": "hello-hook"}}}},
    });
    change(&mut spec);
    serde_json::from_value(spec).unwrap()
}

fn refusal(change: impl FnOnce(&mut Value)) -> String {
    spec(change).check("c", &HookPolicy::default()).unwrap_err().to_string()
}

#[test]
fn the_tutorials_controller_is_fine() {
    let checked = spec(|_| ()).check("c", &HookPolicy::default()).unwrap();
    assert_eq!(
        checked.common.children,
        [ChildRule {
            resource: Gvr::new("v1", "pods"),
            method: UpdateMethod::Recreate,
            apply: None,
            checks: vec![]
        }]
    );
    assert_eq!(checked.revision_paths, ["spec"]);
    assert!(checked.generate_selector && checked.parent.rules == [SelectionRule::default()]);
}

#[test]
fn selectors_that_only_exclude_are_refused_for_modules_and_as_the_spec_says() {
    let allowed =
        |change: fn(&mut Value)| spec(change).check("c", &HookPolicy::default()).unwrap().negative_selectors;
    let webhook = |spec: &mut Value| spec["hooks"]["sync"] = json!({"webhook": {"url": "http://x/y"}});
    assert!(!allowed(|_| ()));
    assert!(allowed(webhook));
    assert!(allowed(|spec| spec["allowNegativeSelectors"] = json!(true)));
    assert!(!allowed(|spec| {
        spec["hooks"]["sync"] = json!({"webhook": {"url": "http://x/y"}});
        spec["allowNegativeSelectors"] = json!(false);
    }));
}

#[test]
fn secrets_are_parents_of_modules_where_the_flag_says_so() {
    let parents = |spec: &mut Value| {
        spec["parentResource"] = json!({"apiVersion": "v1", "resource": "secrets"});
    };
    assert_eq!(
        refusal(parents),
        "spec.parentResource: modules and scripts are shown Secrets from nowhere (--mount-secret-namespaces): add the namespaces of those that are meant to the flag, or set spec.serviceAccountRef"
    );
    let policy = HookPolicy { mount_secret_namespaces: ["a".to_owned()].into(), ..HookPolicy::default() };
    let some = CheckedSpec::Composite(spec(parents).check("c", &policy).unwrap());
    let selection = some.selection(&some.targets()[0], "c");
    assert_eq!(selection.namespaces, Some(["a".to_owned()].into()));
    let [(EventReason::SecretsNotShown, warning)] = &*some.warnings() else { panic!() };
    assert!(warning.contains("Secrets from \"a\" only (--mount-secret-namespaces)"), "{warning}");
    for free in [
        json!({"hooks": {"sync": {"webhook": {"url": "http://x/y"}}}}),
        json!({"serviceAccountRef": {"namespace": "n", "name": "a"}}),
    ] {
        let spec = spec(|spec| {
            parents(spec);
            spec.as_object_mut().unwrap().extend(free.as_object().unwrap().clone());
        });
        let free = CheckedSpec::Composite(spec.check("c", &HookPolicy::default()).unwrap());
        assert_eq!(free.selection(&free.targets()[0], "c").namespaces, None);
        assert_eq!((free.warnings(), &free.common().shown_secrets), (vec![], &ShownSecrets::All));
    }
}

#[test]
fn listed_secrets_are_related_objects_of_modules_where_the_flag_says_so() {
    let secrets = Gvr::new("v1", "secrets");
    let related = |change: Value| {
        let spec = spec(|spec| {
            spec["relatedKinds"] = json!([{"apiVersion": "v1", "resource": "secrets"}]);
            spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        });
        let policy = HookPolicy { mount_secret_namespaces: ["a".to_owned()].into(), ..HookPolicy::default() };
        spec.check("c", &policy).unwrap().common.related_kinds
    };
    let module = related(json!({}));
    assert_eq!(module.allow(0, &secrets, Some("a")), Ok(()));
    assert!(module.allow(0, &secrets, Some("b")).is_err() && module.allow(0, &secrets, None).is_err());
    for free in [
        json!({"hooks": {"sync": {"webhook": {"url": "http://x/y"}}}}),
        json!({"serviceAccountRef": {"namespace": "n", "name": "a"}}),
    ] {
        assert_eq!(related(free).allow(0, &secrets, None), Ok(()));
    }
}

#[test]
fn without_a_strategy_children_are_updated_on_delete() {
    let checked = spec(|spec| spec["childResources"][0]["updateStrategy"] = json!({"method": ""}));
    assert_eq!(
        checked.check("c", &HookPolicy::default()).unwrap().common.children[0].method,
        UpdateMethod::OnDelete
    );
}

#[test]
fn a_controller_without_an_enabled_sync_hook_does_not_run() {
    for hooks in [json!(null), json!({}), json!({"sync": {}}), json!({"sync": {"version": "v2"}})] {
        let spec = spec(|spec| spec["hooks"] = hooks);
        assert_eq!(spec.check("c", &HookPolicy::default()), Err(ControllerError::NoSyncHook));
    }
    for text in [ControllerError::NoSyncHook.to_string(), ONLY_FINALIZES.to_owned()] {
        assert!(text.contains("name a wasm module, a script or a webhook"), "{text}");
    }
}

#[test]
fn a_controller_with_a_finalize_hook_alone_only_finalizes() {
    let spec = spec(|spec| spec["hooks"] = json!({"finalize": spec["hooks"]["sync"].clone()}));
    let common = spec.check("c", &HookPolicy::default()).unwrap().common;
    assert!(common.only_finalizes && common.hooks.finalize.is_some());
}

#[test]
fn a_disabled_finalize_hook_is_no_finalize_hook() {
    let spec = spec(|spec| spec["hooks"]["finalize"] = json!({}));
    assert_eq!(spec.check("c", &HookPolicy::default()).unwrap().common.disabled_hooks, [HookName::Finalize]);
}

#[test]
fn an_endpoint_configuration_in_use_is_checked() {
    let matching = refusal(|s| {
        s["hooks"]["finalize"] = json!({"webhook": {"url": "http://x/y"}});
        s["endpointConfigs"] = json!([{"host": "x", "caBundle": {}}]);
    });
    assert!(matching.starts_with("spec.endpointConfigs[0].caBundle: names no certificates"), "{matching}");
}

#[test]
fn a_rolling_update_has_its_checks_and_its_field_paths() {
    let checked = spec(|s| {
        s["childResources"][0]["updateStrategy"] = json!({"method": "RollingInPlace", "statusChecks": {"conditions": [{"type": "Ready", "status": "True"}]}});
        s["parentResource"]["revisionHistory"] = json!({"fieldPaths": ["spec.template"]});
    });
    let checked = checked.check("c", &HookPolicy::default()).unwrap();
    let ready = ConditionCheck { kind: "Ready".into(), status: Some("True".into()), reason: None };
    assert_eq!(
        (checked.common.children[0].method, &checked.common.children[0].checks),
        (UpdateMethod::RollingInPlace, &vec![ready])
    );
    assert_eq!(checked.revision_paths, ["spec.template"]);
    let empty = spec(|s| s["parentResource"]["revisionHistory"] = json!({"fieldPaths": []}));
    assert_eq!(empty.check("c", &HookPolicy::default()).unwrap().revision_paths, ["spec"]);
}

#[test]
fn with_an_account_of_its_own_a_controller_reads_by_its_rights() {
    let account = json!({"namespace": "n", "name": "a"});
    let spec = |account: &Value| {
        let mount = json!([{"path": "/x", "secret": {"namespace": "n", "name": "s"}}]);
        spec(|spec| {
            spec["hooks"]["sync"]["wasm"]["mounts"] = mount;
            spec["serviceAccountRef"] = account.clone();
        })
    };
    let own = spec(&account).check("c", &HookPolicy::default()).unwrap();
    let HookTarget::Wasm(hook) = &own.common.hooks.sync.target else { panic!() };
    assert_eq!(hook.module.reader.as_ref().map(ToString::to_string).as_deref(), Some("n/a"));
    assert_eq!((&hook.mounts[0].reader, &own.common.account), (&hook.module.reader, &hook.module.reader));
    let refused = spec(&Value::Null).check("c", &HookPolicy::default()).unwrap_err().to_string();
    assert!(refused.contains("--mount-secret-namespaces"), "{refused}");
    let refused = spec(&json!({"namespace": "n", "name": "A"})).check("c", &HookPolicy::default());
    assert!(refused.unwrap_err().to_string().starts_with("spec.serviceAccountRef.name: \"A\""));
}

#[test]
fn a_kind_is_written_as_it_says_else_as_the_controller_says() {
    let apply = |own: Value, all: Value| {
        let spec = spec(|spec| {
            spec["applyStrategy"] = all;
            spec["childResources"][0]["updateStrategy"]["applyStrategy"] = own;
        });
        spec.check("c", &HookPolicy::default()).unwrap().common.children[0].apply
    };
    let (dynamic, server) = (json!("dynamic-apply"), json!("server-side-apply"));
    assert_eq!(apply(json!(null), json!(null)), None);
    assert_eq!(apply(json!(null), server.clone()), Some(ApplyStrategy::ServerSideApply));
    assert_eq!(apply(dynamic, server), Some(ApplyStrategy::DynamicApply));
}

#[test]
fn what_is_no_kind_is_refused_by_field() {
    for (field, value, says) in [
        ("apiVersion", "v1/../../x", "spec.childResources[0].apiVersion: \"v1/../../x\" is no version"),
        ("apiVersion", "", "spec.childResources[0].apiVersion: \"\" is no version"),
        ("resource", "pods/log", "spec.childResources[0].resource: \"pods/log\" names no resource"),
    ] {
        let found = refusal(|s| s["childResources"][0][field] = json!(value));
        assert!(found.starts_with(says), "{found}");
    }
    let found = refusal(|s| s["parentResource"]["resource"] = json!(""));
    assert!(found.starts_with("spec.parentResource.resource: \"\" names no"), "{found}");
}

#[test]
fn of_a_kind_that_is_declared_again_the_last_entry_counts() {
    let again = spec(|s| {
        let mut last = s["childResources"][0].clone();
        last["updateStrategy"]["method"] = json!("InPlace");
        let other = json!({"apiVersion": "v1", "resource": "secrets"});
        s["childResources"].as_array_mut().unwrap().extend([other, last]);
    });
    let checked = again.check("c", &HookPolicy::default()).unwrap();
    let rules: Vec<_> =
        checked.common.children.iter().map(|rule| (rule.resource.to_string(), rule.method)).collect();
    let (pods, secrets) = ("v1 pods".to_owned(), "v1 secrets".to_owned());
    assert_eq!(rules, [(pods, UpdateMethod::InPlace), (secrets, UpdateMethod::OnDelete)]);
    assert_eq!(checked.common.declared_again, BTreeSet::from([Gvr::new("v1", "pods")]));
    let once = spec(|_| ()).check("c", &HookPolicy::default()).unwrap();
    assert!(once.common.declared_again.is_empty());
}

#[test]
fn hooks_see_empty_status_checks() {
    let text = as_stored(&spec(|_| ())).unwrap();
    assert_eq!(
        text["childResources"][0]["updateStrategy"],
        json!({"method": "Recreate", "statusChecks": {}})
    );
    assert_eq!(text["hooks"]["sync"]["version"], "v1");
}

#[test]
fn a_name_that_makes_no_finalizer_is_refused_with_a_finalize_hook() {
    let finalizing = |spec: &mut Value| spec["hooks"]["finalize"] = spec["hooks"]["sync"].clone();
    let check = |name: &str, change: fn(&mut Value)| spec(change).check(name, &HookPolicy::default());
    let (short, long) = ("c".repeat(43), "c".repeat(44));
    assert!(check(&short, finalizing).is_ok());
    assert!(check(&long, |_| ()).is_ok(), "without a finalize hook it has no finalizer");
    let says = check(&long, finalizing).unwrap_err().to_string();
    assert!(says.starts_with("metadata.name: 44 characters are too many"), "{says}");
}
