//! Whatever bytes a hook answers, whatever its children became: a pass comes to a plan or to an error.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test: a broken fixture ends it")]

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::common::UpdateMethod;
use metahook_core::api::hook::{HookName, HookTransport, HookVersion, PerHook};
use metahook_core::api::selection::{Selection, SelectionRule};
use metahook_core::children::desired::ChildKind;
use metahook_core::children::last_applied::LAST_APPLIED;
use metahook_core::children::write_history::{PastWrites, WriteHistory};
use metahook_core::decorator;
use metahook_core::hash::Fingerprint;
use metahook_core::hook::MAX_ANSWER_MEMORY;
use metahook_core::hook::response::Mode;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, ObjectId, Resource};
use metahook_core::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use metahook_core::reconcile::input::{InputParts, ReconcileInput};
use metahook_core::reconcile::plan::{Answers, ReconcilePlan};
use metahook_core::reconcile::shown::ObservedBounds;
use metahook_core::related::Related;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Decision of one reconcile of either kind of controllers, in words.
fn pass(
    kind: KindConfig,
    answer: &[u8],
    observed: &[Value],
    (method, via): (UpdateMethod, HookTransport),
) -> Result<String, String> {
    let sync = HookConfig {
        version: HookVersion::V1,
        mode: Mode::Loose,
        settings: None,
        via,
        max_memory: MAX_ANSWER_MEMORY,
    };
    let config = ControllerConfig {
        name: "c".to_owned(),
        kind,
        selection: Selection { rules: vec![SelectionRule::default()], ..Selection::default() },
        child_kinds: vec![ChildKind::new(resource("v1", "ConfigMap"), method)],
        snapshot: "{}".to_owned(),
        hooks: PerHook { sync, finalize: None, customize: None },
        max_children: 10,
        observed: ObservedBounds::default(),
        deletions: Vec::new(),
        related_kinds: metahook_core::api::customize::RelatedKinds::ByAccount,
        shown_secrets: metahook_core::api::shown_secrets::ShownSecrets::All,
        paused: false,
    };
    let parent = json!({
        "apiVersion": "example.com/v1", "kind": "Greeting",
        "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1 },
    });
    let parent = Arc::new(Object::parse(&parent.to_string(), None).unwrap());
    let mut children = config.no_children();
    for object in observed {
        let object = Object::parse(&object.to_string(), None).unwrap();
        children.insert(&config.child_kinds[0].resource, Arc::new(object));
    }
    let parts = InputParts {
        hook: HookName::Sync,
        hooks: Fingerprint::of(b""),
        related: Related::default(),
        rollout: None,
        older_decorators: None,
    };
    let input = ReconcileInput::of(&config, &parent, parts, |_, _| Vec::new()).unwrap();
    let past = PastWrites { history: &WriteHistory::default(), now: Duration::ZERO };
    let answers = Answers { latest: answer, older: &[] };
    let plan = config.plan(&input, &children, answers, past, &|_| true).map_err(|error| error.to_string())?;
    let ReconcilePlan { children: plan, decoration, .. } = plan;
    let id = ObjectId { resource: resource("example.com/v1", "Greeting"), key: parent.key.clone() };
    Ok(match config.kind {
        KindConfig::Composite { .. } => {
            format!("{plan:?}{:?}", decorator::status(&parent, decoration.status.unwrap_or_default()))
        }
        KindConfig::Decorator => {
            let ops = [
                decorator::status_write(&id, &parent, &decoration),
                decorator::object_write(&id, &parent, &decoration, None),
            ];
            format!("{plan:?}{ops:?}")
        }
    })
}

const COMPOSITE: KindConfig =
    KindConfig::Composite { generate_selector: true, negative_selectors: false, rolling: None };

fn resource(api_version: &str, kind: &str) -> Arc<Resource> {
    Arc::new(Resource {
        gvk: Gvk::new(api_version, kind),
        plural: format!("{}s", kind.to_lowercase()).into(),
        namespaced: true,
        has_status: true,
    })
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
    let labels =
        prop::collection::btree_map(word(), prop::option::of(word()), 0..3).prop_map(|map| json!(map));
    let labels = prop_oneof![4 => labels, 1 => anything()];
    let children = prop::collection::vec(child(), 0..4);
    (children, status, labels, prop::option::weighted(0.2, anything())).prop_map(
        |(children, status, labels, resync)| {
            json!({
                "children": children, "attachments": children, "status": status,
                "labels": labels, "annotations": labels, "resyncAfterSeconds": resync,
            })
        },
    )
}

fn method() -> impl Strategy<Value = UpdateMethod> {
    prop::sample::select(vec![UpdateMethod::OnDelete, UpdateMethod::Recreate, UpdateMethod::InPlace])
}

fn kind() -> impl Strategy<Value = KindConfig> {
    prop_oneof![Just(COMPOSITE), Just(KindConfig::Decorator)]
}

fn via() -> impl Strategy<Value = HookTransport> {
    prop::sample::select(vec![HookTransport::Wasm, HookTransport::Webhook])
}

#[test]
fn an_answer_in_order_comes_to_a_plan() {
    let answer =
        r#"{"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}],"status":{"is":1}}"#;
    let way = (UpdateMethod::InPlace, HookTransport::Wasm);
    let decided = pass(COMPOSITE, answer.as_bytes(), &[], way).unwrap();
    assert!(decided.contains("Create") && decided.contains("observedGeneration"), "{decided}");
    let answer = r#"{"attachments":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}],"labels":{"a":"b"},"status":{"is":1}}"#;
    let decided = pass(KindConfig::Decorator, answer.as_bytes(), &[], way).unwrap();
    assert!(["Create", "Status", "Replace"].iter().all(|op| decided.contains(op)), "{decided}");
}

proptest! {
    #[test]
    fn no_answer_makes_a_reconcile_panic(
        kind in kind(), answer in answer(), observed in observed(), way in (method(), via()),
    ) {
        // A plan or an error, whatever it is.
        drop(pass(kind, answer.to_string().as_bytes(), &observed, way));
    }

    #[test]
    fn nor_does_one_with_a_piece_that_became_something_else(
        kind in kind(), answer in answer(), observed in observed(), way in (method(), via()),
        at in any::<prop::sample::Index>(), cut in 0..20_usize, piece in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = answer.to_string().into_bytes();
        let start = at.index(bytes.len());
        let end = (start + cut).min(bytes.len());
        bytes.splice(start..end, piece);
        drop(pass(kind, &bytes, &observed, way));
    }
}
