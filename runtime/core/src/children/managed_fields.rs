//! Managed fields of an object: the handover of those that dynamic apply wrote, and the other managers of one.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::json::merge::merge;

/// Fields that name an item of a list in managed fields. Any client may write those.
const MAX_KEYS: usize = 16;

/// The name that writes of dynamic apply carry, Metacontroller's as well.
pub const DYNAMIC_MANAGER: &str = "metacontroller";

/// The managed fields of an object once what dynamic apply wrote is what `manager` applied: a field that is no longer
/// wanted then goes with the next apply. `None` where dynamic apply wrote nothing.
/// See <https://github.com/kubernetes/kubernetes/issues/99003>.
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

/// The managers of a field other than `ours`, as the managed fields of an object say.
pub fn others<'a>(fields: &'a Value, path: &str, ours: &[&str]) -> BTreeSet<&'a str> {
    let entries = fields.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |entry: &'a Value, field: &str| entry.get(field).and_then(Value::as_str);
    let has = |entry: &&Value| entry.get("fieldsV1").is_some_and(|set| holds(set, path));
    let managers = entries.iter().filter(has).filter_map(|entry| text(entry, "manager"));
    managers.filter(|manager| !ours.contains(manager)).collect()
}

/// Whether a set of managed fields has the field at `path`, or the whole it is part of.
fn holds(set: &Value, path: &str) -> bool {
    let Some(set) = set.as_object() else { return false };
    let below = |rest: &str, set: &Value| {
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        rest.is_empty() || set.as_object().is_some_and(Map::is_empty) || holds(set, rest)
    };
    set.iter().any(|(key, set)| {
        if let Some(field) = key.strip_prefix("f:") {
            let rest =
                path.strip_prefix(field).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            return rest.is_some_and(|rest| below(rest, set));
        }
        let (Some(item), Some(keys)) = (path.strip_prefix('['), key.strip_prefix("k:")) else { return false };
        let (Some((named, rest)), Ok(keys)) = (item.split_once(']'), serde_json::from_str(keys)) else {
            return false;
        };
        let keys: Map<String, Value> = keys;
        let parts: BTreeSet<_> = named.split(',').collect();
        let is_key = |(field, value): (&String, &Value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            parts.contains(&*format!("{field}={value}"))
        };
        keys.iter().take(MAX_KEYS).any(is_key) && below(rest, set)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "json! is easier to write than to borrow")]
    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
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
    fn an_item_has_its_manager_by_its_first_keys_alone() {
        let keys = |count: usize| {
            let all: Map<_, _> = (0..count).map(|nth| (format!("a{nth:03}"), json!(1))).collect();
            let mut all = Value::Object(all);
            all["name"] = json!("web");
            let item = format!("k:{all}");
            json!([{"manager": "m", "fieldsV1": {"f:l": {item: {"f:x": {}}}}}])
        };
        let found = |count| others(&keys(count), "l[name=web].x", &[]).len();
        assert_eq!((found(MAX_KEYS - 1), found(MAX_KEYS)), (1, 0));
    }

    #[test]
    fn statuses_and_others_are_left_alone() {
        let mut status = entry("metacontroller", "Update", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        for managed in [json!([]), json!([status]), json!([entry("me", "Apply", json!({}))]), json!(null)] {
            assert_eq!(handed_over(&managed, "me"), None);
        }
    }

    #[test]
    fn the_other_manager_of_a_field_is_found() {
        let entry = |manager: &str, set: Value| json!({"manager": manager, "fieldsV1": set});
        let fields = json!([
            entry("hpa", json!({"f:spec": {"f:replicas": {}}})),
            entry(
                "vpa",
                json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}})
            ),
            entry("labels", json!({"f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}}})),
            entry("rules", json!({"f:spec": {"f:rules": {}}})),
            entry("us", json!({"f:spec": {"f:replicas": {}, "f:rules": {}}})),
        ]);
        for (path, manager) in [
            ("spec.replicas", "hpa"),
            ("spec.containers[name=web].image", "vpa"),
            ("metadata.labels.app.kubernetes.io/name", "labels"),
            ("spec.rules[0].host", "rules"),
        ] {
            assert_eq!(others(&fields, path, &["us"]), BTreeSet::from([manager]), "{path}");
        }
        for unmanaged in ["spec.containers[name=log].image", "spec.replica", "metadata.name"] {
            assert_eq!(others(&fields, unmanaged, &["us"]), BTreeSet::new(), "{unmanaged}");
        }
    }
}
