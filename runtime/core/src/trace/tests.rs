use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::object::testing::{a, resource};
use crate::reconcile::changed_fields::ChangedFields;
use crate::reconcile::outcome::StatusLeft;
use crate::reconcile::steps::Step;

#[test]
fn a_trace_of_an_older_server_is_read() {
    let older = json!({
        "controller": "CompositeController c",
        "parent": {"group": "e", "resource": "ps", "kind": "P", "namespace": "n", "name": "p"},
        "generation": 1,
        "resourceVersion": "7",
        "began": "2026-11-27T10:20:31.120Z",
        "tookUs": 5,
        "cause": "spec changed",
        "steps": [{"step": "recordedDeletions"}],
        "end": "wrote",
        "nextUs": 9,
    });
    let trace: ReconcileTrace = serde_json::from_value(older.clone()).unwrap();
    assert_eq!((trace.whole_cause().as_str(), trace.next_resync_us), ("spec changed", None));
    assert_eq!(serde_json::to_value(&trace).unwrap(), older, "what is not known takes no bytes");
}

fn reconciled<'a>(resource: &'a Resource, parent: &'a Object) -> TraceInput<'a> {
    TraceInput {
        controller: "CompositeController c",
        resource,
        parent,
        began: String::new(),
        took: Duration::ZERO,
        cause: ReconcileCause::default(),
        end: TraceEnd::Unchanged,
        related_failure: Vec::new(),
        next: NextReconcile::default(),
    }
}

#[test]
fn a_failure_is_kept_with_the_kinds_and_namespaces_that_it_may_name() {
    let (greetings, parent) = (resource("e/v1", "P"), a("e/v1", "P", "n/p").object());
    let reaches = |namespaces: usize| {
        let id = |nth: usize| ObjectId {
            resource: resource("v1", "Secret"),
            key: Key::new(&format!("n{}", nth % namespaces), &nth.to_string()),
        };
        let (all, end) = ((0..30).map(id).collect(), TraceEnd::Failed("Secret n0/0: no right".to_owned()));
        let reconciled = TraceInput { related_failure: all, end, ..reconciled(&greetings, &parent) };
        let (mut trace, _) = ReconcileTrace::new(reconciled, &[], 0);
        let found: Vec<_> = trace.related_failure.iter().map(|it| it.key().to_string()).collect();
        assert_eq!(trace.public_reason(), Some(RELATED_FAILED));
        trace.hide_end(Hidden::Forbidden);
        assert_eq!((trace.end, trace.related_failure), (TraceEnd::Failed(RELATED_FAILED.to_owned()), vec![]));
        found
    };
    assert_eq!(reaches(2), ["n0/", "n1/"]);
    // Who may list them in all namespaces may in each.
    assert_eq!(reaches(30), [""]);
}

#[test]
fn a_hidden_cause_has_no_fields() {
    let (greetings, parent) = (resource("e/v1", "P"), a("e/v1", "P", "n/p").object());
    let of = |related: Option<ObjectId>| {
        let version = |label: &str| a("v1", "Secret", "n/s").label("app", label).object();
        let fields = ChangedFields::between(&version("one"), &version("other"));
        let related = related.map(Arc::new);
        let cause = ReconcileCause { fields, related, .."Secret n/s changed".into() };
        let reconciled = TraceInput { cause, ..reconciled(&greetings, &parent) };
        let (mut trace, _) = ReconcileTrace::new(reconciled, &[], 0);
        assert_eq!(trace.changed_fields, ["metadata.labels.app"]);
        trace.hide_cause(Hidden::Forbidden);
        trace.whole_cause()
    };
    assert_eq!(of(None), "Secret n/s changed (metadata.labels.app)");
    let secret = ObjectId { resource: resource("v1", "Secret"), key: Key::new("n", "s") };
    assert_eq!(of(Some(secret)), "a related object changed");
}

#[test]
fn a_trace_has_changed_fields_the_status_and_the_next_resync() {
    let version = |label: &str| a("e/v1", "P", "n/p").label("app", label).object();
    let fields = ChangedFields::between(&version("hidden"), &version("other"));
    let (resource, parent) = (resource("e/v1", "P"), version("other"));
    let reconciled = TraceInput {
        cause: ReconcileCause { fields, .."labels changed".into() },
        next: NextReconcile { resync: Some(Duration::from_secs(3)), ..NextReconcile::default() },
        ..reconciled(&resource, &parent)
    };
    let time = StepTime { began: Duration::from_millis(3), ended: Duration::from_millis(5) };
    let steps = [TimedStep { step: Step::StatusLeft(StatusLeft::Unchanged), time }];
    let (trace, times) = ReconcileTrace::new(reconciled, &steps, 0);
    assert_eq!(times, [time]);
    assert_eq!(trace.whole_cause(), "labels changed (metadata.labels.app)");
    let json: Value = serde_json::to_value(&trace).unwrap();
    assert_eq!(json["steps"], json!([{"step": "statusLeft", "why": "unchanged"}]));
    assert_eq!((&json["nextResyncUs"], json["nextUs"].is_null()), (&json!(3_000_000), true));
    assert!(!json.to_string().contains("hidden"), "{json}");
    assert_eq!(serde_json::from_value::<ReconcileTrace>(json).unwrap(), trace);
}

#[test]
fn a_step_of_a_newer_server_is_read() {
    let newer = json!({"step": "danced", "with": {"the": "wolves"}});
    assert_eq!(serde_json::from_value::<TracedStep>(newer).unwrap(), TracedStep::Unknown);
}
