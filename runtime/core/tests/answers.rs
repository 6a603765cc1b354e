//! Whatever bytes a hook answers, whatever its children became: a pass comes to a plan or to an error.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test: a broken fixture ends it")]

use std::sync::Arc;
use std::time::Duration;

use metahook_core::children;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Resource};
use metahook_core::object::map::ChildMap;
use metahook_core::plan;
use metahook_core::plan::Owner;
use metahook_core::plan::desired::{Bounds, Mark, Rule, Strays};
use metahook_core::plan::ledger::{Ledger, Past};
use metahook_core::plan::record::LAST_APPLIED;
use metahook_core::protocol::read::Reading;
use metahook_core::protocol::response::{self, Mode};
use metahook_core::spec::composite::UpdateMethod;
use metahook_core::spec::controller::ControllerKind;
use metahook_core::spec::hook::Via;
use proptest::prelude::*;
use serde_json::{Value, json};

/// What one pass decides, in words.
fn pass(answer: &[u8], observed: &[Value], method: UpdateMethod, via: Via) -> Result<String, String> {
    let resource = Resource {
        gvk: Gvk::new("v1", "ConfigMap"),
        plural: "configmaps".into(),
        namespaced: true,
        has_status: false,
    };
    let rules = [Rule::new(Arc::new(resource), method)];
    let parent = json!({
        "apiVersion": "example.com/v1", "kind": "Greeting",
        "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1 },
    });
    let parent = Object::parse(&parent.to_string(), None).unwrap();
    let mut children = ChildMap::default();
    for object in observed {
        children.insert(&rules[0].resource, Arc::new(Object::parse(&object.to_string(), None).unwrap()));
    }
    let reading = Reading { kind: ControllerKind::Composite, via, mode: Mode::Loose, max_children: 10 };
    let answer = response::sync(answer, reading).map_err(|error| error.to_string())?;
    let selector = children::selector(&parent, true).unwrap();
    let strays = match via {
        Via::Wasm => Strays::Refused,
        Via::Webhook => Strays::Created,
    };
    let bounds = Bounds { rules: &rules, selector: Some(&selector), mark: Mark::Uid, strays };
    let wanted =
        plan::desired::desired(&parent, bounds, answer.children).map_err(|error| error.to_string())?;
    let owner = Owner {
        parent: &parent,
        kind: ControllerKind::Composite,
        controller: "c",
        rules: &rules,
        hash_secrets: false,
    };
    let past = Past { ledger: &Ledger::default(), now: Duration::ZERO };
    let plan = plan::children::children(owner, &children, &wanted.desired, past);
    Ok(format!("{plan}{:?}", plan::status::status(&parent, answer.wish.status.unwrap_or_default())))
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "name", "", "..", "/", "\0", "\u{feff}", "%2f", "n", "v1"]).prop_map(str::to_owned),
        1 => ".{0,20}",
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word(), inner.clone(), 0..4).prop_map(|map| json!(map)),
            // As lists of containers and ports are.
            prop::collection::vec((word(), inner), 0..4).prop_map(|items| {
                items.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
            }),
        ]
    })
}

/// A child in order but for what is in it, now and then not even that.
fn child() -> impl Strategy<Value = Value> {
    let odd = prop::option::weighted(
        0.1,
        (prop::sample::select(vec!["", "/metadata", "/metadata/labels"]), anything()),
    );
    (prop::sample::select(vec!["x", "y", "z"]), anything(), anything(), anything(), odd).prop_map(
        |(name, data, spec, applied, odd)| {
            let mut child = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": name, "labels": {}, "annotations": { LAST_APPLIED: applied.to_string() } },
                "data": data, "spec": spec,
            });
            if let Some((at, odd)) = odd {
                *child.pointer_mut(at).unwrap() = odd;
            }
            child
        },
    )
}

/// A child as the API server gives it.
fn observed() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec((child(), anything()), 0..3).prop_map(|children| {
        let named = children.into_iter().zip(["x", "y", "w"]);
        named.map(|((mut child, data), name)| {
            if child.get("metadata").is_none_or(|metadata| !metadata.is_object()) {
                child = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
            }
            let annotations = child.pointer("/metadata/annotations").cloned().unwrap_or_default();
            child["metadata"] = json!({
                "name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "annotations": annotations,
            });
            child["data"] = data;
            child
        })
        .collect()
    })
}

fn answer() -> impl Strategy<Value = Value> {
    let status = prop_oneof![4 => anything().prop_map(|value| json!({ "is": value })), 1 => anything()];
    (prop::collection::vec(child(), 0..4), status, prop::option::weighted(0.2, anything())).prop_map(
        |(children, status, resync)| json!({ "children": children, "status": status, "resyncAfterSeconds": resync }),
    )
}

fn method() -> impl Strategy<Value = UpdateMethod> {
    prop::sample::select(vec![UpdateMethod::OnDelete, UpdateMethod::Recreate, UpdateMethod::InPlace])
}

fn via() -> impl Strategy<Value = Via> {
    prop::sample::select(vec![Via::Wasm, Via::Webhook])
}

#[test]
fn an_answer_in_order_comes_to_a_plan() {
    let answer =
        r#"{"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}],"status":{"is":1}}"#;
    let decided = pass(answer.as_bytes(), &[], UpdateMethod::InPlace, Via::Wasm).unwrap();
    assert!(decided.contains("create") && decided.contains("observedGeneration"), "{decided}");
}

proptest! {
    #[test]
    fn no_answer_makes_a_pass_panic(
        answer in answer(), observed in observed(), method in method(), via in via(),
    ) {
        // A plan or an error, whatever it is.
        drop(pass(answer.to_string().as_bytes(), &observed, method, via));
    }

    #[test]
    fn nor_does_one_with_a_piece_that_became_something_else(
        answer in answer(), observed in observed(), method in method(), via in via(),
        at in any::<prop::sample::Index>(), cut in 0..20_usize, piece in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = answer.to_string().into_bytes();
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, piece);
        drop(pass(&bytes, &observed, method, via));
    }
}
