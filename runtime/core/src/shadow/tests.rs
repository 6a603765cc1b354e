//! Tests of shadows: what counts as different, and what does not.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::hook::HookTransport;
use crate::api::webhook::UnmarshallMode;
use crate::children::write_history::WriteHistory;
use crate::object::Object;
use crate::reconcile::testing::{child, config, decorator, input, kept, no_past, parent, parts};

fn by_webhook(config: &ControllerConfig) -> ControllerConfig {
    let mut config = config.clone();
    (config.hooks.sync.via, config.hooks.sync.mode) = (HookTransport::Webhook, UnmarshallMode::Loose);
    config
}

fn compare_over(
    config: &ControllerConfig,
    pods: &[Arc<Object>],
    hook: &Value,
    shadow: &Value,
) -> Result<Vec<String>, String> {
    let (input, webhook) = (input(config, parent(), parts(), pods), by_webhook(config));
    let (hook, shadow, history) = (hook.to_string(), shadow.to_string(), WriteHistory::default());
    let compared = Compared {
        children: &kept(config, &input),
        input: &input,
        past: no_past(&history),
        hook: (&webhook, hook.as_bytes()),
        shadow: (config, shadow.as_bytes()),
    };
    compared.places(&|_| true).map_err(|error| error.to_string())
}

fn compare(hook: &Value, shadow: &Value) -> Vec<String> {
    compare_over(&config(), &[], hook, shadow).unwrap()
}

fn pod(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn answer(children: &[Value]) -> Value {
    json!({"children": children, "status": {"phase": "a", "count": 1}})
}

#[test]
fn each_part_of_an_answer_is_compared() {
    let usual = || answer(&[pod("x", &json!({"hostname": "h", "priority": 1}))]);
    let with = |pointer: &str, value: Value| {
        let mut answer = usual();
        *answer.pointer_mut(pointer).unwrap() = value;
        answer
    };
    let and = |field: &str, value: Value| {
        let mut answer = usual();
        answer[field] = value;
        answer
    };
    assert_eq!(compare(&usual(), &usual()), [""; 0]);
    for (shadow, place) in [
        (with("/children/0/spec/hostname", json!("i")), "Pod.v1: spec.hostname"),
        (with("/children/0/spec", json!({"hostname": "h"})), "Pod.v1: spec.priority"),
        (with("/children", json!([])), "Pod.v1: missing"),
        (with("/status/phase", json!("b")), "status.phase"),
        (and("resyncAfterSeconds", json!(5)), "resyncAfterSeconds"),
        (and("finalized", json!(true)), "finalized"),
    ] {
        assert_eq!(compare(&usual(), &shadow), [place], "{shadow}");
    }
    let more = answer(&[usual()["children"][0].clone(), pod("y", &json!({}))]);
    assert_eq!(compare(&usual(), &more), ["Pod.v1: added"]);
    let renamed = answer(&[pod("y", &json!({"hostname": "h", "priority": 1}))]);
    assert_eq!(compare(&usual(), &renamed), ["Pod.v1: added", "Pod.v1: missing"]);
}

#[test]
fn decorations_are_compared() {
    let compare = |shadow: Value| {
        let hook = json!({"attachments": [], "labels": {"a": "1", "b": null}, "annotations": {"c": "2"}});
        compare_over(&decorator(), &[], &hook, &shadow).unwrap()
    };
    let same = json!({"attachments": [], "annotations": {"c": "2"}, "labels": {"b": null, "a": "1"}});
    assert_eq!(compare(same), [""; 0]);
    let other = json!({"attachments": [], "labels": {"a": "2"}, "annotations": {"d": "2"}});
    assert_eq!(compare(other), ["annotations[c]", "annotations[d]", "labels[a]", "labels[b]"]);
}

#[test]
fn what_both_leave_as_it_is_is_alike_however_it_is_spelt() {
    let spec = |value: Value| answer(&[pod("x", &json!({ "priority": value, "hostname": null }))]);
    let observed = child("x").with("spec.priority", json!(1)).object();
    assert_eq!(compare(&spec(json!(1)), &spec(json!(1.0))), [""; 0]);
    let same =
        compare_over(&config(), &[observed], &spec(json!(1)), &answer(&[pod("x", &json!({"priority": 1}))]));
    assert_eq!(same, Ok(vec![]));
}

#[test]
fn an_answer_that_cannot_be_carried_out_is_a_failure() {
    let usual = answer(&[]);
    let undeclared = json!({"children": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}]});
    for (shadow, says) in [
        (json!([]), "must be an object"),
        (json!({"children": "none"}), "children must be a list"),
        (undeclared, "Secret"),
    ] {
        let error = compare_over(&config(), &[], &usual, &shadow).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let full = compare_over(&config(), &[child("x").object()], &usual, &answer(&[pod("x", &json!({}))]));
    assert_eq!(full, Ok(vec!["Pod.v1: added".to_owned()]));
}

#[test]
fn places_are_bounded() {
    let spec = |value: u32, keys: usize| {
        let labels: Map<_, _> =
            (0..keys).map(|nth| (format!("{nth:0>60}"), json!(value.to_string()))).collect();
        answer(&[pod("x", &json!({ "nodeSelector": labels }))])
    };
    assert_eq!(compare(&spec(1, MAX_PLACES), &spec(2, MAX_PLACES)).len(), MAX_PLACES);
    assert_eq!(compare(&spec(1, MAX_PLACES + 1), &spec(2, MAX_PLACES + 1)).len(), MAX_PLACES);
    let long = |value: u32| answer(&[pod("x", &json!({ "x".repeat(5000): value }))]);
    assert_eq!(compare(&long(1), &long(2))[0].len(), MAX_PLACE);
}

#[test]
fn rules_are_compared_as_a_set() {
    let rule = |resource: &str| RequestedRule {
        gvr: crate::object::id::Gvr::new("v1", resource),
        labels: None,
        namespaces: None,
        namespace: None,
        names: crate::related::rule::Names::default(),
    };
    let hook = [(0, rule("secrets")), (1, rule("pods"))];
    assert_eq!(rule_places(&hook, &[(0, rule("pods")), (1, rule("secrets"))]), [""; 0]);
    let places = rule_places(&hook, &[(0, rule("pods")), (1, rule("nodes"))]);
    assert_eq!(places, ["relatedResources of v1 nodes: added", "relatedResources of v1 secrets: missing"]);
}

proptest! {
    /// A changed leaf is found by exactly its path.
    #[test]
    fn one_changed_leaf_is_one_place(
        leaves in prop::collection::btree_map("[a-z]{1,8}", 0..100_i64, 1..10),
        which in any::<prop::sample::Index>(),
    ) {
        let changed = (*which.get(&leaves.keys().collect::<Vec<_>>())).clone();
        let spec = |leaves: &std::collections::BTreeMap<String, i64>| answer(&[pod("x", &json!({ "a": { "b": leaves } }))]);
        let mut other = leaves.clone();
        *other.get_mut(&changed).unwrap() += 1000;
        prop_assert_eq!(compare(&spec(&leaves), &spec(&leaves)), [""; 0]);
        prop_assert_eq!(compare(&spec(&leaves), &spec(&other)), [format!("Pod.v1: spec.a.b.{changed}")]);
    }
}
