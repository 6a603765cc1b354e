//! Tests of the planning of children.

use serde_json::json;

use super::*;
use crate::api::ControllerKind;
use crate::api::common::UpdateMethod;
use crate::children::claims::owner_reference;
use crate::children::desired::ChildKind;
use crate::object::id::Key;
use crate::object::testing::{Build, a, resource};

fn observed() -> Build {
    let annotations = json!({ LAST_APPLIED: "{}" });
    a("v1", "Pod", "n/x").with("metadata.annotations", annotations).with("spec.image", json!("theirs"))
}

/// Verdict about a Pod whose image is not as wanted and, with `label`, a label neither.
fn judged(observed: Build, label: bool, probed: &DryRunResult, history: &WriteHistory) -> &'static str {
    let observed = observed.object();
    let id = ObjectId { resource: resource("v1", "Pod"), key: observed.key.clone() };
    let mut body = observed.value().unwrap();
    body["spec"]["image"] = json!("ours");
    if label {
        body["metadata"]["labels"] = json!({"ours": "1"});
    }
    let write = Op::Replace { id: id.clone(), body: body.clone() };
    let anew = Op::Recreate { id, uid: observed.uid.clone(), body, manager: None };
    match judge((write, anew), &observed, probed, history).unwrap() {
        DryRunVerdict::Do(op) => op.verb(),
        DryRunVerdict::AsItIs => "as it is",
        DryRunVerdict::Unknown => "unknown",
    }
}

#[test]
fn what_cannot_be_changed_is_made_anew_but_for_what_the_api_server_made_of_it_at_first() {
    let nothing = WriteHistory::default();
    let of = |generation: i64, label| {
        judged(
            observed().with("metadata.generation", json!(generation)),
            label,
            &DryRunResult::Refused,
            &nothing,
        )
    };
    assert_eq!([of(1, false), of(1, true), of(2, false)], ["as it is", "recreate", "recreate"]);
}

#[test]
fn the_place_that_a_write_changes_is_found_beside_its_record() {
    let object = |record: &str, time: &str, version: &str| json!({"metadata": {"name": "x", "resourceVersion": version, "annotations": {LAST_APPLIED: record, "at": time}}});
    let observed = object("{}", "1", "7");
    assert_eq!(first_change(&observed, &observed), None);
    assert_eq!(first_change(&observed, &object("{1}", "1", "8")), None);
    let changed = first_change(&observed, &object("{1}", "2", "7"));
    assert_eq!(changed.as_deref(), Some("metadata.annotations.at"));
}

#[test]
fn an_order_that_cannot_be_changed_is_left() {
    let pod = |names: [&str; 2]| {
        let env = names.map(|name| json!({"name": name}));
        a("v1", "Pod", "n/x").with("spec.env", json!(env)).with("spec.image", json!("ours"))
    };
    let observed = pod(["a", "b"]).object();
    let judged = |wanted: Build| {
        let id = ObjectId { resource: resource("v1", "Pod"), key: observed.key.clone() };
        let write = Op::Replace { id, body: wanted.object().value().unwrap() };
        judge((write.clone(), write), &observed, &DryRunResult::Refused, &WriteHistory::default()).unwrap()
    };
    assert_eq!(judged(pod(["b", "a"])), DryRunVerdict::AsItIs);
    let other = pod(["b", "a"]).with("spec.image", json!("theirs"));
    assert!(matches!(judged(other), DryRunVerdict::Do(Op::Replace { .. })));
}

#[test]
fn no_child_is_made_anew_for_items_that_others_add_to_a_list_of_one_owner() {
    let account = |names: &[&str]| {
        let secrets: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        a("v1", "ServiceAccount", "n/x").with("imagePullSecrets", json!(secrets))
    };
    let id = ObjectId { resource: resource("v1", "ServiceAccount"), key: Key::new("n", "x") };
    let verdict = |observed: &[&str], wanted: &[&str], history: &WriteHistory| {
        let (observed, becomes) = (account(observed).object(), account(wanted).object());
        let body = json!({ "imagePullSecrets": becomes.value().unwrap()["imagePullSecrets"] });
        let over = Some((observed.uid.clone(), observed.version.clone()));
        let write = Op::Apply { id: id.clone(), over, body: body.clone(), manager: "m".into() };
        let anew = Op::Recreate { id: id.clone(), uid: observed.uid.clone(), body, manager: None };
        let probed = DryRunResult::Becomes(Box::new(Object::clone(&becomes)));
        match judge((write, anew), &observed, &probed, history).unwrap() {
            DryRunVerdict::Do(op) => op.verb(),
            DryRunVerdict::AsItIs | DryRunVerdict::Unknown => "none",
        }
    };
    let (nothing, mut applied) = (WriteHistory::default(), WriteHistory::default());
    assert_eq!(verdict(&["ours", "theirs"], &["ours"], &nothing), "recreate", "it may have been ours");
    assert_eq!(verdict(&["theirs"], &["ours"], &nothing), "recreate");
    assert_eq!(verdict(&["a", "b"], &["b", "a"], &nothing), "recreate");
    let print = |names: &[&str]| {
        applied_print(
            &json!({ "imagePullSecrets": account(names).object().value().unwrap()["imagePullSecrets"] }),
        )
    };
    let observed = account(&["ours", "theirs"]).object();
    applied.record_response(&id, &observed, Some(print(&["ours", "theirs"])), &[], None);
    assert_eq!(verdict(&["ours", "theirs"], &["ours"], &applied), "recreate", "the answer changed");
    applied.record_response(&id, &observed, Some(print(&["ours"])), &[], None);
    assert_eq!(verdict(&["ours", "theirs"], &["ours"], &applied), "apply");
}

#[test]
fn without_dry_runs_only_what_is_known_to_have_changed_is_made_anew() {
    let (mut seen, nothing) = (WriteHistory::default(), WriteHistory::default());
    seen.answered(&observed().object().uid);
    for probed in [DryRunResult::Unable, DryRunResult::Forbidden] {
        assert_eq!(judged(observed(), false, &probed, &seen), "recreate");
        assert_eq!(judged(observed(), false, &probed, &nothing), "unknown");
    }
}

#[test]
fn what_is_not_recorded_as_it_was_sent_is_learned_at_once() {
    let parent = a("e/v1", "P", "n/p").uid("p").object();
    let rules = ["Pod", "Secret"].map(|kind| ChildKind::new(resource("v1", kind), UpdateMethod::InPlace));
    let owner = Owner {
        parent: &parent,
        kind: ControllerKind::Composite,
        controller: "c",
        child_kinds: &rules,
        hash_secrets: true,
    };
    let late = |kind: &str, record: &str| {
        let id = ObjectId { resource: resource("v1", kind), key: Key::new("n", "x") };
        let wanted = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "n"}, "data": {"a": "Yg=="}});
        let body = new_object(owner, &id, &wanted);
        let sent = annotation(&body, LAST_APPLIED).unwrap_or_default().replace("Yg==", record);
        let made = a("v1", kind, "n/x").with("metadata.annotations", json!({ LAST_APPLIED: sent }));
        let answer = made.with("data", json!({"a": "Yg=="})).object();
        let mut history = WriteHistory::default();
        wrote(&mut history, owner, &Op::Create { id: id.clone(), body }, &wanted, &answer);
        let is_settled = history
            .is_settled(&id, &answer, || Child { owner, kind: None, desired: &wanted, id: &id }.print());
        (read_late(&history, owner, &ChildMap::default()).len(), is_settled)
    };
    assert_eq!(late("Pod", "Yg=="), (1, true));
    assert_eq!(late("Pod", "other"), (0, false), "another client changed the record");
    assert_eq!(late("Secret", "Yg=="), (0, true), "hashes do not tell what was sent");
}

#[test]
fn applied_by_the_server_an_item_that_a_client_adds_to_a_list_is_drift() {
    let parent = a("e/v1", "P", "n/p").uid("p").object();
    let apply = Apply::ServerSide("me".into());
    let rules = [ChildKind { apply, ..ChildKind::new(resource("v1", "Pod"), UpdateMethod::InPlace) }];
    let owner = Owner {
        parent: &parent,
        kind: ControllerKind::Composite,
        controller: "c",
        child_kinds: &rules,
        hash_secrets: false,
    };
    let id = ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", "x") };
    let spec = |items: Value| json!({ "items": items });
    let wanted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "n"}, "spec": spec(json!([{"name": "a"}]))});
    let made = |items: Value| {
        let made = a("v1", "Pod", "n/x").with("spec", spec(items));
        made.with("metadata.ownerReferences", json!([owner_reference(&parent)])).object()
    };
    let mut history = WriteHistory::default();
    learn(&mut history, owner, &id, &wanted, &made(json!([{"name": "a"}])));
    assert!(is_as_wanted(owner, &id, &made(json!([{"name": "a"}])), &wanted, &history));
    assert!(!is_as_wanted(owner, &id, &made(json!([{"name": "a"}, {"name": "b"}])), &wanted, &history));
}

#[test]
fn a_write_of_a_child_names_the_places_that_it_changes_and_no_value() {
    let parent = a("e/v1", "P", "n/p").uid("p").object();
    let pods = resource("v1", "Pod");
    let rules = [ChildKind::new(Arc::clone(&pods), UpdateMethod::InPlace)];
    let owner = Owner {
        parent: &parent,
        kind: ControllerKind::Composite,
        controller: "c",
        child_kinds: &rules,
        hash_secrets: false,
    };
    let id = ObjectId { resource: Arc::clone(&pods), key: Key::new("n", "x") };
    let wanted = |data: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "n"}, "data": data});
    let body = new_object(owner, &id, &wanted(json!({"a": "1", "b": "2"})));
    let mut observed = ChildMap::default();
    let made = a("v1", "Pod", "n/x")
        .with("metadata.annotations", body["metadata"]["annotations"].clone())
        .with("metadata.ownerReferences", json!([owner_reference(&parent)]));
    observed.insert(&pods, made.with("data", json!({"a": "1", "b": "2"})).object());
    let plan = |data: Value| {
        let group = [(id.key.clone(), wanted(data))].into_iter().collect();
        let desired = [(Arc::clone(&pods), group)].into_iter().collect();
        let history = WriteHistory::default();
        let past = PastWrites { history: &history, now: std::time::Duration::ZERO };
        let plan = children(owner, &observed, &desired, past);
        plan.changes.iter().flat_map(|(_, changes)| changes.places()).collect::<Vec<_>>()
    };
    assert!(plan(json!({"a": "1", "b": "2"})).is_empty());
    assert_eq!(plan(json!({"a": "hidden", "b": "2"})), ["data.a"]);
    let many: Vec<_> = (0..9).map(|nth| (format!("k{nth}"), json!(""))).collect();
    let places = plan(many.into_iter().collect());
    assert_eq!((places.len(), places.last().map(String::as_str)), (6, Some("…")));
}
