//! Count of equal reconciles in a row: the latest one stands for all of them, so that they leave room for others.
//!
//! A parent that is paused, whose hook fails, or whose deletions are held is reconciled again and again, and nothing changes but
//! the time.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::{PlannedWrite, ReconcileTrace, TracedStep};
use crate::hash::hash64;
use crate::reconcile::trigger::is_retry;

/// Reconciles before a trace that were the same in all but their times and the values of fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repeated {
    /// All of them, with the one that is shown.
    pub times: u64,
    /// When the first one began, in RFC 3339.
    pub since: String,
}

/// Hash of all that a trace says beside its times and the values of fields. Of one without steps only its end counts: it says as
/// much as any other.
pub(super) fn timeless_hash(trace: &ReconcileTrace) -> u64 {
    let mut all = hash64();
    trace.end.hash(&mut all);
    trace.throttled.hash(&mut all);
    if !trace.steps.is_empty() {
        // The number of a retry rises with each.
        let cause = if is_retry(&trace.cause) { "retry" } else { &trace.cause };
        (cause, &trace.changed_fields, trace.left_out).hash(&mut all);
        (trace.generation, &trace.resource_version).hash(&mut all);
        for step in &trace.steps {
            hash_timeless(step, &mut all);
        }
    }
    all.finish()
}

fn hash_timeless(step: &TracedStep, all: &mut impl Hasher) {
    match step {
        TracedStep::Called { hook, older, error, took_us: _, usage: _ } => (hook, older, error).hash(all),
        TracedStep::Related { earlier, rules, objects, found, error, took_us: _, usage: _ } => {
            (earlier, rules, objects, found, error).hash(all);
        }
        TracedStep::Wrote { verb, object, reason, warnings, end, took_us: _ } => {
            (verb, object, reason, warnings, end).hash(all);
        }
        // A client may change a value back to another one each time.
        TracedStep::Planned { writes, left, unchanged, left_out } => {
            for PlannedWrite { verb, object, drift, changes, values: _ } in writes {
                (verb, object, drift, changes).hash(all);
            }
            (left, unchanged, left_out).hash(all);
        }
        other => other.hash(all),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hash_of(change: impl Fn(&mut Value)) -> u64 {
        let mut trace = json!({
            "controller": "CompositeController c",
            "parent": {"group": "e", "resource": "ps", "kind": "P", "name": "p"},
            "generation": 1,
            "resourceVersion": "7",
            "began": "2026-11-27T10:20:31.120Z",
            "tookUs": 5,
            "cause": "retry 7",
            "steps": [
                {"step": "called", "hook": "sync", "tookUs": 3, "error": "it trapped"},
                {"step": "wrote", "verb": "status", "object": {"group": "e", "resource": "ps", "kind": "P", "name": "p"}, "tookUs": 3, "end": "changed"},
            ],
            "end": {"failed": "it trapped"},
            "nextUs": 9,
        });
        change(&mut trace);
        timeless_hash(&serde_json::from_value(trace).unwrap())
    }

    #[test]
    fn reconciles_are_the_same_whatever_their_times() {
        let usual = hash_of(|_| {});
        for (at, other) in [
            ("/began", json!("2027-01-01T00:00:00.000Z")),
            ("/tookUs", json!(7)),
            ("/nextUs", json!(70)),
            ("/cause", json!("retry 8")),
            ("/steps/0/tookUs", json!(70)),
            ("/steps/1/tookUs", json!(70)),
        ] {
            assert_eq!(hash_of(|trace| *trace.pointer_mut(at).unwrap() = other.clone()), usual, "{at}");
        }
        for (at, other) in [
            ("/cause", json!("spec changed")),
            ("/resourceVersion", json!("8")),
            ("/steps/0/error", json!("it ran out of memory")),
            ("/steps/1/verb", json!("replace")),
            ("/end", json!("wrote")),
        ] {
            assert_ne!(hash_of(|trace| *trace.pointer_mut(at).unwrap() = other.clone()), usual, "{at}");
        }
    }
}
