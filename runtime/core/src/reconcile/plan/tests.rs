//! Tests of plans.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::common::Grant;
use crate::api::hook::HookTransport;
use crate::api::{ControllerKind, selection};
use crate::children::Skip;
use crate::children::claims::ATTACHED_BY;
use crate::children::last_applied::LAST_APPLIED;
use crate::children::write_history::WriteHistory;
use crate::object::Object;
use crate::object::id::Gvr;
use crate::object::selector::UID_LABEL;
use crate::object::testing::{Build, a, resource};
use crate::reconcile::input::InputParts;
use crate::reconcile::testing::{config, decorator, input, kept, no_past, parent, parts};
use crate::related::Related;

fn plan_for(
    config: &ControllerConfig,
    input: &ReconcileInput,
    answer: &Value,
) -> Result<ReconcilePlan, AnswerError> {
    let answer = answer.to_string();
    let answers = Answers { latest: answer.as_bytes(), older: &[] };
    config.plan(input, &kept(config, input), answers, no_past(&WriteHistory::default()), &|_| true)
}

fn planned(config: &ControllerConfig, parent: Build, pods: &[Arc<Object>], answer: &Value) -> ReconcilePlan {
    plan_for(config, &input(config, parent, parts(), pods), answer).unwrap()
}

#[test]
fn a_parent_that_is_being_deleted_still_gets_its_status() {
    let answer = json!({"status": {"a": 1}, "children": [{"kind": "Secret"}]});
    let plan = |parent: Build| {
        let config = config();
        plan_for(&config, &input(&config, parent, parts(), &[]), &answer)
    };
    assert!(plan(parent()).is_err());
    let plan = plan(parent().deleting()).unwrap();
    let status = json!({"a": 1}).as_object().cloned();
    assert_eq!((plan.children, plan.decoration.status), (Plan::default(), status));
}

#[test]
fn a_parent_is_finalized_when_nothing_is_left_to_delete() {
    let plan = |config: &ControllerConfig, secret: Build| {
        let mut related = Related::default();
        related.objects.insert(&resource("v1", "Secret"), secret.object());
        let input = input(config, parent(), InputParts { related, ..parts() }, &[]);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s", "uid": "u"});
        let mut answer = json!({"finalized": true, "deleteRelated": [secret]});
        answer[config.kind.name().children()] = json!([]);
        plan_for(config, &input, &answer)
            .map(|plan| (plan.deletions.len(), plan.finalized))
            .map_err(|error| error.to_string())
    };
    let secret = || a("v1", "Secret", "n/s").uid("u");
    for kind in [config().kind, KindConfig::Decorator] {
        let mut config = ControllerConfig { kind, ..config() };
        let refused = plan(&config, secret()).unwrap_err();
        assert!(refused.contains("spec does not let its hooks delete such objects"), "{refused}");
        config.hooks.sync.via = HookTransport::Webhook;
        assert_eq!(plan(&config, secret()), Ok((0, true)), "an unknown field");
        config.deletions = vec![Grant { resource: Gvr::new("v1", "secrets"), any_namespace: false }];
        assert_eq!(plan(&config, secret()), Ok((1, false)));
        assert_eq!(plan(&config, secret().deleting()), Ok((0, true)));
    }
}

#[test]
fn an_attachment_is_created_with_the_annotation() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}});
    let plan = planned(&decorator(), parent(), &[], &json!({"attachments": [pod]})).children;
    let [Op::Create { body, .. }] = plan.ops.as_slice() else { panic!("{plan:?}") };
    let record = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"metacontroller.k8s.io/decorator-controller":"c"},"name":"x","namespace":"n"}}"#;
    assert_eq!(body["metadata"]["annotations"], json!({ATTACHED_BY: "c", LAST_APPLIED: record}));
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "p");
    assert_eq!(body["metadata"].get("labels"), None);
}

#[test]
fn the_last_answer_decides_about_attachments() {
    let finalizer = selection::finalizer(ControllerKind::Decorator, "c");
    let going = |finalizers: Value| parent().deleting().with("metadata.finalizers", finalizers);
    let ops = |config: &ControllerConfig, parent: Build, answer: Value| {
        let pods = [a("v1", "Pod", "n/x")
            .controlled_by("p")
            .annotation(ATTACHED_BY, "c")
            .label(UID_LABEL, "p")
            .object()];
        planned(config, parent, &pods, &answer).children.ops.len()
    };
    let last = || json!({"attachments": [], "finalized": true});
    assert_eq!(ops(&decorator(), going(json!([finalizer])), last()), 1);
    assert_eq!(ops(&decorator(), going(json!([finalizer, "orphan"])), last()), 0);
    assert_eq!(ops(&decorator(), going(json!(["x"])), last()), 0, "it does not wait for us");
    assert_eq!(ops(&decorator(), parent(), last()), 1, "it lives on");
    let composite = ControllerConfig { kind: config().kind, ..decorator() };
    assert_eq!(ops(&composite, going(json!([finalizer])), json!({"children": [], "finalized": true})), 0);
}

#[test]
fn a_decorator_leaves_the_status_without_an_answer() {
    let decoration = |answer: Value| planned(&decorator(), parent(), &[], &answer).decoration;
    assert_eq!(decoration(json!({"attachments": []})), Decoration::default());
    let labels = [("a".to_owned(), None)].into();
    assert_eq!(
        decoration(json!({"attachments": [], "labels": {"a": null}, "status": {"b": 1}})),
        Decoration { labels, status: json!({"b": 1}).as_object().cloned(), ..Decoration::default() }
    );
}

#[test]
fn what_an_answer_of_a_webhook_names_in_another_way_is_not_deleted() {
    let mut config = config();
    config.hooks.sync.via = HookTransport::Webhook;
    let pods =
        ["n/x", "n/y"].map(|name| a("v1", "Pod", name).controlled_by("p").label(UID_LABEL, "p").object());
    let child =
        |version: &str, name: &str| json!({"apiVersion": version, "kind": "Pod", "metadata": {"name": name}});
    let ops = |children: Value| {
        let plan = planned(&config, parent(), &pods, &json!({ "children": children }));
        let deleted =
            plan.unwanted_children().iter().map(|(id, _)| id.key.name.to_string()).collect::<Vec<_>>();
        let unmanaged =
            plan.unwritten.unmanaged.iter().map(|one| one.key.name.to_string()).collect::<Vec<_>>();
        (deleted.join(" "), unmanaged.join(" "), plan.children.skips)
    };
    let (deleted, unmanaged, skips) = ops(json!([child("v2", "x")]));
    assert_eq!((deleted.as_str(), unmanaged.as_str()), ("y", "x"));
    assert_eq!(skips.iter().map(|(id, why)| (&*id.key.name, *why)).collect::<Vec<_>>(), [("x", Skip::Held)]);
    assert_eq!(ops(json!([])).0, "x y", "nothing holds what the answer leaves out");
    let (deleted, _, skips) = ops(json!([child("v2", "x"), child("v1", "x")]));
    assert_eq!(deleted, "y", "{skips:?}");
}

#[test]
fn children_without_their_namespace_stay_where_they_are() {
    let mut config = config();
    config.hooks.sync.via = HookTransport::Webhook;
    let pods = ["n/x", "m/x", "m/y"]
        .map(|name| a("v1", "Pod", name).controlled_by("p").label(UID_LABEL, "p").object());
    let lost = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}});
    let parent = a("e/v1", "P", "p").uid("p");
    let plan = planned(&config, parent, &pods, &json!({ "children": [lost] }));
    let deleted: Vec<_> = plan.unwanted_children().iter().map(|(id, _)| id.key.to_string()).collect();
    assert_eq!(deleted, ["m/y"]);
    assert!(!plan.unwritten.failed.is_empty());
}
