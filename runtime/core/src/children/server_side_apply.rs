//! Server-side apply: its requests, and the handover of fields that dynamic apply wrote.

use serde_json::{Map, Value, json};

use crate::children::Owner;
use crate::children::last_applied::{MADE_BY, Wanted, annotate, annotation, drop_the_servers, own};
use crate::hash::Fingerprint;
use crate::json::go;
use crate::json::merge::merge;

/// The name that writes of dynamic apply carry, Metacontroller's as well.
pub const DYNAMIC_MANAGER: &str = "metacontroller";

/// What is sent for a child: all that is wanted of it, and nothing that is not.
pub(super) fn body(owner: Owner<'_>, wanted: Wanted, observed: Option<&Value>) -> Value {
    let mut body = wanted.object;
    drop_the_servers(&mut body);
    prune_nulls(&mut body, observed);
    own(&mut body, owner.parent);
    // Fields that are not sent any longer would go. A child without them was made by another client.
    let made_by = observed.map_or(owner.maker(), |observed| annotation(observed, MADE_BY));
    if let Some(made_by) = made_by {
        annotate(&mut body, MADE_BY, made_by.to_owned());
    }
    body
}

/// Two bodies that say the same have the same.
pub(super) fn print(body: &Value) -> Fingerprint {
    Fingerprint::of(go::to_string(body).as_bytes())
}

/// A field that is wanted to be nothing is not sent; but where texts are expected the API server took a null for an
/// empty one, and that stays.
fn prune_nulls(value: &mut Value, observed: Option<&Value>) {
    match value {
        Value::Object(members) => {
            let observed = |name: &str| observed.and_then(|observed| observed.get(name));
            for (name, member) in members.iter_mut() {
                match observed(name) {
                    Some(Value::String(text)) if text.is_empty() && member.is_null() => *member = json!(""),
                    now => prune_nulls(member, now),
                }
            }
            members.retain(|_, member| !member.is_null());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune_nulls(item, None)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The managed fields of an object once what dynamic apply wrote is what `manager` applied: a field that is no longer
/// wanted then goes with the next apply. `None` where dynamic apply wrote nothing.
pub fn handed_over(fields: &Value, manager: &str) -> Option<Value> {
    let entries = fields.as_array()?;
    let text =
        |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is = |entry: &Value, operation: &str, manager: &str| {
        text(entry, "operation") == operation
            && text(entry, "manager") == manager
            && text(entry, "subresource").is_empty()
    };
    let (updated, mut others): (Vec<_>, Vec<_>) =
        entries.iter().cloned().partition(|entry| is(entry, "Update", DYNAMIC_MANAGER));
    let newest = updated.iter().max_by_key(|entry| text(entry, "time"))?.clone();
    let position = others.iter().position(|entry| is(entry, "Apply", manager));
    let mut ours = position.map_or(newest, |position| others.remove(position));
    let set_of = |entry: &Value| entry.get("fieldsV1").cloned().unwrap_or_else(|| json!({}));
    // Sets of fields are trees of objects: merging them is their union. Those of another version of the kind do not fit.
    let version = text(&ours, "apiVersion");
    let union = updated
        .iter()
        .filter(|entry| text(entry, "apiVersion") == version)
        .fold(set_of(&ours), |all, entry| merge(&all, None, &set_of(entry), None));
    if let Some(ours) = ours.as_object_mut() {
        let set = |ours: &mut Map<String, Value>, field: &str, value| ours.insert(field.to_owned(), value);
        set(ours, "manager", json!(manager));
        set(ours, "operation", json!("Apply"));
        set(ours, "fieldsV1", union);
    }
    others.insert(0, ours);
    Some(Value::Array(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "json! is easier to write than to borrow")]
    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn a_null_is_not_sent_but_where_it_became_an_empty_text() {
        let mut body = json!({"data": {"a": null, "b": null, "c": "d"}, "l": [{"x": null}], "o": null});
        prune_nulls(&mut body, Some(&json!({"data": {"a": "", "b": "theirs"}, "o": {}})));
        assert_eq!(body, json!({"data": {"a": "", "c": "d"}, "l": [{}]}));
    }

    #[test]
    fn what_dynamic_apply_wrote_becomes_applied() {
        let kubelet = entry("kubelet", "Update", json!({"f:x": {}}));
        let managed = json!([entry("metacontroller", "Update", json!({"f:data": {"f:a": {}}})), kubelet]);
        let expected = json!([entry("me", "Apply", json!({"f:data": {"f:a": {}}})), kubelet]);
        assert_eq!(handed_over(&managed, "me"), Some(expected));
    }

    #[test]
    fn it_joins_what_was_applied_before() {
        let managed = json!([
            entry("me", "Apply", json!({"f:data": {"f:a": {}}})),
            entry("metacontroller", "Update", json!({"f:data": {"f:b": {}}})),
        ]);
        let expected = json!([entry("me", "Apply", json!({"f:data": {"f:a": {}, "f:b": {}}}))]);
        assert_eq!(handed_over(&managed, "me"), Some(expected));
    }

    #[test]
    fn statuses_and_others_are_left_alone() {
        let mut status = entry("metacontroller", "Update", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        for managed in [json!([]), json!([status]), json!([entry("me", "Apply", json!({}))]), json!(null)] {
            assert_eq!(handed_over(&managed, "me"), None);
        }
    }
}
