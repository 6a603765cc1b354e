//! Selection by a controller as it is stored, also by one whose spec cannot be run.

use serde::Deserialize;
use serde_json::Value;

use crate::api::ControllerKind;
use crate::api::decorator::TargetResource;
use crate::api::selection::{Selection, SelectionRule, finalizer};
use crate::object::Object;
use crate::object::id::Gvr;

/// How a controller selects among the objects of a kind; `None`: it does not reconcile this kind, in whatever version. A selector
/// that cannot be read selects all: such a controller does not run, and its status says why.
pub fn stored_selection(kind: ControllerKind, controller: &Object, parents: &Gvr) -> Option<Selection> {
    let controller_value = controller.value().ok()?;
    let entries = match kind {
        ControllerKind::Composite => {
            controller_value.pointer("/spec/parentResource").map(std::slice::from_ref)
        }
        ControllerKind::Decorator => {
            controller_value.pointer("/spec/resources").and_then(Value::as_array).map(Vec::as_slice)
        }
    };
    let of_kind = entries?.iter().filter(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        Gvr::new(text("apiVersion"), text("resource")).is_kin(parents)
    });
    let rules: Vec<_> = of_kind.map(|entry| rule(kind, entry)).collect();
    let finalizer = finalizer(kind, &controller.key.name);
    (!rules.is_empty()).then(|| Selection { rules, finalizer, ..Selection::default() })
}

fn rule(kind: ControllerKind, entry: &Value) -> SelectionRule {
    let Ok(mut stored) = TargetResource::deserialize(entry) else { return SelectionRule::default() };
    // CompositeControllers have no such selector.
    stored.annotation_selector = stored.annotation_selector.filter(|_| kind == ControllerKind::Decorator);
    stored.rule("").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::a;

    fn selects(kind: ControllerKind, spec: Value, object: &Object) -> Option<bool> {
        let controller = a("m/v1", kind.as_str(), "c").with("spec", spec).object();
        let things = Gvr::new("e.com/v1", "things");
        stored_selection(kind, &controller, &things).map(|selection| selection.includes(object))
    }

    fn labelled(version: &str, labels: &Value) -> Value {
        json!({ "apiVersion": format!("e.com/{version}"), "resource": "things", "labelSelector": labels })
    }

    #[test]
    fn a_composite_selects_by_kind_and_labels() {
        let object = a("e.com/v1", "Thing", "n/x").label("a", "b").object();
        let composite =
            |parent: Value| selects(ControllerKind::Composite, json!({ "parentResource": parent }), &object);
        assert_eq!(composite(labelled("v1", &Value::Null)), Some(true));
        assert_eq!(composite(labelled("v2", &json!({ "matchLabels": { "a": "b" } }))), Some(true));
        assert_eq!(composite(labelled("v1", &json!({ "matchLabels": { "a": "c" } }))), Some(false));
        assert_eq!(composite(json!({ "apiVersion": "v1", "resource": "things" })), None);
        assert_eq!(composite(Value::Null), None);
        let mut annotated = labelled("v1", &Value::Null);
        annotated["annotationSelector"] = json!({ "matchAnnotations": { "x": "y" } });
        assert_eq!(composite(annotated), Some(true), "it has no such field");
    }

    #[test]
    fn a_decorator_selects_by_any_of_its_entries() {
        let object = a("e.com/v1", "Thing", "n/x").label("a", "b").annotation("x", "y").object();
        let decorator =
            |resources: Value| selects(ControllerKind::Decorator, json!({ "resources": resources }), &object);
        let no = labelled("v1", &json!({ "matchLabels": { "a": "c" } }));
        let annotated = |value: &str| {
            let mut entry = labelled("v1", &json!({ "matchLabels": { "a": "b" } }));
            entry["annotationSelector"] = json!({ "matchAnnotations": { "x": value } });
            entry
        };
        assert_eq!(decorator(json!([no, annotated("y")])), Some(true));
        assert_eq!(decorator(json!([no, annotated("z")])), Some(false));
        assert_eq!(decorator(json!([])), None);
    }

    #[test]
    fn what_a_broken_selector_selects_is_not_known() {
        let object = a("e.com/v1", "Thing", "n/x").object();
        for broken in [json!("a=b"), json!({ "matchExpressions": [{ "key": "a", "operator": "Gt" }] })] {
            let spec = json!({ "parentResource": labelled("v1", &broken) });
            assert_eq!(selects(ControllerKind::Composite, spec, &object), Some(true));
        }
    }

    #[test]
    fn an_object_with_the_finalizer_is_still_reconciled() {
        let ours = finalizer(ControllerKind::Composite, "c");
        let object = a("e.com/v1", "Thing", "n/x").with("metadata.finalizers", json!([ours])).object();
        let spec = json!({ "parentResource": labelled("v1", &json!({ "matchLabels": { "a": "b" } })) });
        assert_eq!(selects(ControllerKind::Composite, spec, &object), Some(true));
    }
}
