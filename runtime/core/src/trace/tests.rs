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

#[test]
fn a_trace_has_changed_fields_the_status_and_the_next_resync() {
    let version = |label: &str| a("e/v1", "P", "n/p").label("app", label).object();
    let fields = ChangedFields::between(&version("hidden"), &version("other"));
    let reconciled = Reconciled {
        controller: "CompositeController c",
        resource: &resource("e/v1", "P"),
        parent: &version("other"),
        began: String::new(),
        took: Duration::ZERO,
        cause: ReconcileCause { fields, .."labels changed".into() },
        end: TraceEnd::Unchanged,
        throttled: None,
        next: None,
        next_resync: Some(Duration::from_secs(3)),
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
