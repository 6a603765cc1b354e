//! Status of the parent: what the hook wants, with the generation that it saw, and when it is written.
//!
//! Where children were just written, the status waits for the next reconcile, which sees them; at most once, and not where
//! something failed or the parent is being deleted.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::json::difference::same;
use crate::object::Object;

/// The object to write to the status subresource, or `None` where the parent has this status already.
pub fn status(parent: &Object, mut status: Map<String, Value>) -> Option<Value> {
    status.insert("observedGeneration".to_owned(), json!(parent.generation));
    replaced(parent, Value::Object(status))
}

/// As above, for the whole status as it is to be.
pub(crate) fn replaced(parent: &Object, wanted: Value) -> Option<Value> {
    let seen: Result<Seen, _> = serde_json::from_str(parent.json());
    if seen.is_ok_and(|seen| same(&seen.status, &wanted)) {
        return None;
    }
    if !is_custom(&parent.gvk.group)
        && let Ok(Value::Object(mut whole)) = parent.value()
    {
        whole.insert("status".to_owned(), wanted);
        return Some(Value::Object(whole));
    }
    let mut metadata = json!({
        "name": &*parent.key.name,
        "uid": parent.uid.as_str(),
        "resourceVersion": parent.version.as_str(),
    });
    if let (false, Value::Object(metadata)) = (parent.key.namespace.is_empty(), &mut metadata) {
        metadata.insert("namespace".to_owned(), json!(&*parent.key.namespace));
    }
    Some(json!({
        "apiVersion": parent.gvk.api_version(),
        "kind": &*parent.gvk.kind,
        "metadata": metadata,
        "status": wanted,
    }))
}

/// Of resources that a CustomResourceDefinition serves nothing but the status counts here; others are checked whole.
fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// When the status that the hook wants is looked at, and written where it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusTiming {
    Now,
    /// The hook is about to see the children that were just written: what it says then is worth writing.
    NextPass,
}

/// What came of the pass so far, and of the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenSoFar {
    pub wrote_children: bool,
    pub failed: bool,
    /// The pass before put the status off, or the next one does not follow at once.
    pub due: bool,
}

/// # Guarantees
/// A status is put off by one pass at most; never when something failed, and never of a parent that is being deleted.
pub fn when(parent: &Object, so_far: WrittenSoFar) -> StatusTiming {
    let WrittenSoFar { wrote_children, failed, due } = so_far;
    if wrote_children && !(failed || due || parent.deleting) {
        StatusTiming::NextPass
    } else {
        StatusTiming::Now
    }
}

#[derive(Deserialize)]
struct Seen {
    #[serde(default)]
    status: Value,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::{Build, a};

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn the_generation_is_the_parents_whatever_the_hook_says() {
        let parent =
            a("e.com/v1", "P", "n/p").uid("u").version("7").with("metadata.generation", json!(3)).object();
        let body = status(&parent, map(&json!({"pods": 1, "observedGeneration": 99}))).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "e.com/v1", "kind": "P",
                "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "status": {"pods": 1, "observedGeneration": 3},
            })
        );
    }

    #[test]
    fn built_in_kinds_are_written_whole() {
        for (api_version, whole) in
            [("v1", true), ("apps/v1", true), ("events.k8s.io/v1", true), ("e.com/v1", false)]
        {
            let parent = a(api_version, "P", "n/p").with("spec", json!({"a": 1})).object();
            let body = status(&parent, map(&json!({"b": 1}))).unwrap();
            assert_eq!(body.get("spec").is_some(), whole, "{api_version}");
            assert_eq!(body["status"], json!({"b": 1, "observedGeneration": 0}));
        }
    }

    #[test]
    fn a_status_that_is_there_is_not_written_again() {
        let parent = a("e/v1", "P", "p").with("status", json!({"pods": 1, "observedGeneration": 0}));
        let parent = parent.object();
        assert_eq!(status(&parent, map(&json!({"pods": 1.0, "gone": null}))), None);
        assert!(status(&parent, map(&json!({"pods": 2}))).is_some());
        assert!(status(&parent, map(&json!({}))).is_some(), "a field that is no longer said goes");
    }

    #[test]
    fn a_status_waits_for_one_pass_where_children_were_written_and_nothing_speaks_against_it() {
        let parent = || a("e/v1", "P", "n/p");
        let wrote = WrittenSoFar { wrote_children: true, ..WrittenSoFar::default() };
        let when = |parent: Build, so_far| when(&parent.object(), so_far);
        assert_eq!(when(parent(), wrote), StatusTiming::NextPass);
        assert_eq!(when(parent(), WrittenSoFar::default()), StatusTiming::Now);
        for against in [WrittenSoFar { failed: true, ..wrote }, WrittenSoFar { due: true, ..wrote }] {
            assert_eq!(when(parent(), against), StatusTiming::Now, "{against:?}");
        }
        assert_eq!(when(parent().deleting(), wrote), StatusTiming::Now);
    }
}
