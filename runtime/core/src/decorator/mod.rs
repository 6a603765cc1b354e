//! Decoration: what a hook wants of an object itself (labels, annotations, status; of a CompositeController's parent the status
//! alone), and the writes that set it.

pub mod conflicts;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::children::Op;
use crate::json::difference::same;
use crate::object::Object;
use crate::object::id::ObjectId;

/// Labels or annotations by key: set to a text, or taken off. What is not named stays as it is.
pub type Changes = BTreeMap<String, Option<String>>;

/// Changes that a hook wants of an object itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoration {
    pub labels: Changes,
    pub annotations: Changes,
    /// All of the status; absent: it stays as it is.
    pub status: Option<Map<String, Value>>,
}

/// The write of the status of a decorated object, where it is another one and a resource of its own. It comes first; the
/// object in its answer is the one to call [`object_write`] with.
pub fn status_write(id: &ObjectId, object: &Object, decoration: &Decoration) -> Option<Op> {
    let wanted = decoration.status.as_ref().filter(|_| id.resource.has_status)?;
    let body = replaced(object, Value::Object(wanted.clone()))?;
    Some(Op::Status { id: id.clone(), body })
}

/// The write of a decorated object: labels, annotations, a status that is no resource of its own; `without` this
/// finalizer, which has a request of its own where nothing else differs.
///
/// # Guarantees
/// Nothing where nothing differs. Nothing else of the object changes.
pub fn object_write(
    id: &ObjectId,
    object: &Object,
    decoration: &Decoration,
    without: Option<&str>,
) -> Option<Op> {
    let unannotated =
        decoration.annotations.is_empty() || is_so(&object.annotations(), &decoration.annotations);
    let has_status = id.resource.has_status || decoration.status.is_none();
    if is_so(&object.labels, &decoration.labels) && unannotated && has_status {
        return None;
    }
    let before = object.value().ok()?;
    let mut body = before.clone();
    let metadata = body.get_mut("metadata")?.as_object_mut()?;
    change(metadata, "labels", &decoration.labels);
    change(metadata, "annotations", &decoration.annotations);
    if let (Some(ours), Some(Value::Array(all))) = (without, metadata.get_mut("finalizers")) {
        all.retain(|one| one.as_str() != Some(ours));
    }
    if let (false, Some(status)) = (id.resource.has_status, &decoration.status) {
        body.as_object_mut()?.insert("status".to_owned(), Value::Object(status.clone()));
    }
    (!same(&before, &body)).then(|| Op::Replace { id: id.clone(), body })
}

fn is_so(found: &BTreeMap<String, String>, wanted: &Changes) -> bool {
    wanted.iter().all(|(key, text)| found.get(key) == text.as_ref())
}

fn change(metadata: &mut Map<String, Value>, field: &str, changes: &Changes) {
    for (key, text) in changes {
        let members = metadata.get_mut(field).and_then(Value::as_object_mut);
        match (text, members) {
            (Some(text), Some(members)) => drop(members.insert(key.clone(), json!(text))),
            (Some(text), None) => drop(metadata.insert(field.to_owned(), json!({ key: text }))),
            (None, Some(members)) => drop(members.remove(key)),
            (None, None) => {}
        }
    }
}

/// The object to write to the status subresource, or `None` where the parent has this status already.
pub fn status(parent: &Object, mut status: Map<String, Value>) -> Option<Value> {
    status.insert("observedGeneration".to_owned(), json!(parent.generation));
    replaced(parent, Value::Object(status))
}

/// Body that replaces the whole status, where it is another one.
fn replaced(parent: &Object, wanted: Value) -> Option<Value> {
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

/// Whether a CustomResourceDefinition serves a group's resources: nothing but their status counts here; others are
/// checked whole.
fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

#[derive(Deserialize)]
struct Seen {
    #[serde(default)]
    status: Value,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::api::selection::FinalizerChange;
    use crate::object::testing::{Build, a, any_json, resource};

    fn id(has_status: bool) -> ObjectId {
        let mut resource = (*resource("e.com/v1", "Thing")).clone();
        resource.has_status = has_status;
        ObjectId { resource: Arc::new(resource), key: crate::object::id::Key::new("n", "x") }
    }

    fn thing() -> Build {
        a("e.com/v1", "Thing", "n/x").with("spec", json!({"a": [1, null]})).version("7")
    }

    fn changes(value: Value) -> Changes {
        serde_json::from_value(value).unwrap()
    }

    fn labels(value: Value) -> Decoration {
        Decoration { labels: changes(value), ..Decoration::default() }
    }

    fn says(value: &Value) -> Decoration {
        Decoration { status: value.as_object().cloned(), ..Decoration::default() }
    }

    fn body(op: Option<Op>) -> Option<Value> {
        op.map(|op| match op {
            Op::Status { body, .. } | Op::Replace { body, .. } => body,
            other => panic!("{other}"),
        })
    }

    fn written(build: Build, decoration: &Decoration) -> Option<Value> {
        body(object_write(&id(true), &build.object(), decoration, None))
    }

    #[test]
    fn labels_and_annotations_are_set_and_taken_off_and_others_stay() {
        let found = || thing().label("a", "1").label("b", "2").annotation("c", "3").annotation("d", "4");
        let decoration = Decoration {
            labels: changes(json!({"a": "x", "b": null, "new": "y", "gone": null})),
            annotations: changes(json!({"c": null})),
            status: None,
        };
        let mut expected = found().object().value().unwrap();
        expected["metadata"]["labels"] = json!({"a": "x", "new": "y"});
        expected["metadata"]["annotations"] = json!({"d": "4"});
        assert_eq!(written(found(), &decoration), Some(expected));
    }

    #[test]
    fn what_is_so_is_not_written() {
        assert_eq!(written(thing(), &Decoration::default()), None);
        assert_eq!(written(thing(), &labels(json!({"gone": null}))), None);
        assert_eq!(written(thing().label("a", "1"), &labels(json!({"a": "1", "gone": null}))), None);
        let escaped = Object::parse(
            r#"{"apiVersion":"e.com/v1","kind":"Thing","metadata":{"name":"x","annotations":{"a":"\u0062/"},"labels":null}}"#,
            None,
        );
        let decoration =
            Decoration { annotations: changes(json!({"a": "b/"})), ..labels(json!({"x": null})) };
        assert_eq!(object_write(&id(true), &escaped.unwrap(), &decoration, None), None);
        assert!(written(thing(), &labels(json!({"a": ""}))).is_some(), "an empty text is one");
    }

    #[test]
    fn the_finalizer_goes_with_another_write_and_causes_none() {
        let finalized = || thing().with("metadata.finalizers", json!(["other", "ours"]));
        let without = |build: Build, decoration: &Decoration| {
            body(object_write(&id(true), &build.object(), decoration, Some("ours")))
        };
        assert_eq!(without(finalized(), &Decoration::default()), None, "it has a request of its own");
        let both = without(finalized(), &labels(json!({"a": "b"}))).unwrap();
        assert_eq!(
            (&both["metadata"]["finalizers"], &both["metadata"]["labels"]),
            (&json!(["other"]), &json!({"a": "b"}))
        );
    }

    #[test]
    fn a_status_is_replaced_as_a_whole_where_it_differs() {
        let found = || thing().with("status", json!({"a": 1, "b": {"c": null}})).object();
        let write = |decoration: &Decoration| body(status_write(&id(true), &found(), decoration));
        let other = write(&says(&json!({"a": 2}))).unwrap();
        assert_eq!(
            (&other["status"], &other["metadata"]["resourceVersion"]),
            (&json!({"a": 2}), &json!("7"))
        );
        assert_eq!(write(&says(&json!({"b": {}, "a": 1.0}))), None, "it only looks different");
        assert_eq!(write(&Decoration::default()), None, "nothing is said about it");
        assert_eq!(write(&says(&json!({}))).unwrap()["status"], json!({}), "no field is a status, too");
        assert_eq!(
            body(object_write(&id(true), &found(), &says(&json!({"a": 2})), None)),
            None,
            "it is another write"
        );
    }

    #[test]
    fn a_status_that_is_no_resource_goes_with_the_object() {
        let found = thing().with("status", json!({"a": 1})).object();
        let decoration = says(&json!({"a": 2}));
        assert_eq!(status_write(&id(false), &found, &decoration), None);
        let whole = body(object_write(&id(false), &found, &decoration, None)).unwrap();
        assert_eq!((&whole["status"], &whole["spec"]), (&json!({"a": 2}), &json!({"a": [1, null]})));
        assert_eq!(object_write(&id(false), &found, &says(&json!({"a": 1})), None), None);
    }

    fn any_changes() -> impl Strategy<Value = Changes> {
        let text = prop::option::of(prop::sample::select(vec!["", "1", "2"]).prop_map(str::to_owned));
        prop::collection::btree_map(
            prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned),
            text,
            0..4,
        )
    }

    fn any_decoration() -> impl Strategy<Value = Decoration> {
        let status =
            prop::option::of(any_json().prop_map(|value| Map::from_iter([("is".to_owned(), value)])));
        (any_changes(), any_changes(), status).prop_map(|(labels, annotations, status)| Decoration {
            labels,
            annotations,
            status,
        })
    }

    fn any_thing() -> impl Strategy<Value = Value> {
        (any_changes(), any_changes(), prop::option::of(any_json()), prop::bool::ANY).prop_map(
            |(labels, annotations, status, ours)| {
                let mut thing = thing().object().value().unwrap();
                for (field, all) in [("labels", labels), ("annotations", annotations)] {
                    let all: BTreeMap<_, _> = all.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
                    if !all.is_empty() {
                        thing["metadata"][field] = json!(all);
                    }
                }
                thing["metadata"]["finalizers"] = if ours { json!(["x", "ours"]) } else { json!(["x"]) };
                if let Some(status) = status {
                    thing["status"] = json!({ "is": status });
                }
                thing
            },
        )
    }

    /// As the API server does: the status through one door, all else through the other.
    fn carry_out(before: &Value, op: Option<Op>) -> Value {
        let mut now = before.clone();
        match op {
            Some(Op::Status { body, .. }) => now["status"] = body["status"].clone(),
            Some(Op::Replace { body, .. }) => now = body,
            _ => {}
        }
        now
    }

    fn bare(mut value: Value) -> Value {
        value.as_object_mut().unwrap().remove("status");
        for field in ["labels", "annotations", "finalizers"] {
            value["metadata"].as_object_mut().unwrap().remove(field);
        }
        value
    }

    proptest! {
        /// Both writes lead to what is wanted, another reconcile finds nothing to do, and nothing else was touched.
        #[test]
        fn once_is_enough_and_nothing_else_is_touched(before in any_thing(), decoration in any_decoration(), has_status in any::<bool>()) {
            let (id, parse) = (id(has_status), |value: &Value| Object::parse(&value.to_string(), None).unwrap());
            let middle = carry_out(&before, status_write(&id, &parse(&before), &decoration));
            let mut now = carry_out(&middle, object_write(&id, &parse(&middle), &decoration, Some("ours")));
            FinalizerChange::Remove(&|one| one == "ours").apply(&mut now);
            let after = parse(&now);
            prop_assert_eq!(status_write(&id, &after, &decoration), None);
            prop_assert_eq!(object_write(&id, &after, &decoration, Some("ours")), None);
            prop_assert!(is_so(&after.labels, &decoration.labels) && is_so(&after.annotations(), &decoration.annotations));
            prop_assert_eq!(&after.finalizers, &["x"]);
            if let Some(wanted) = &decoration.status {
                prop_assert!(same(&now["status"], &json!(wanted)));
            } else {
                prop_assert_eq!(now.get("status"), before.get("status"));
            }
            for (field, changes) in [("labels", &decoration.labels), ("annotations", &decoration.annotations)] {
                for (key, text) in before["metadata"][field].as_object().into_iter().flatten() {
                    prop_assert!(changes.contains_key(key) || now["metadata"][field].get(key) == Some(text));
                }
            }
            prop_assert_eq!(bare(now), bare(before));
        }
    }

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
}
