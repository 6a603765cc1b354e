//! CustomResourceDefinitions of controllers: what is written where another version of one is in the cluster.

use serde_json::{Map, Value};

/// Why a stored definition cannot be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is being deleted, and all its objects with it: wait until it is gone, then apply it again")]
pub struct Deleting;

/// The stored object with our spec, and with our labels and annotations beside those that it has. Nothing of an older
/// spec stays: its rules might refuse what ours allows.
pub fn replacement(mut stored: Value, ours: &Value) -> Result<Value, Deleting> {
    if stored.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(Deleting);
    }
    for (path, field) in [("/metadata/labels", "labels"), ("/metadata/annotations", "annotations")] {
        let wanted = ours.pointer(path).and_then(Value::as_object);
        let metadata = stored.get_mut("metadata").and_then(Value::as_object_mut);
        if let (Some(wanted), Some(metadata)) = (wanted, metadata) {
            let there = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(there) = there {
                there.extend(wanted.clone());
            }
        }
    }
    if let (Value::Object(stored), Some(spec)) = (&mut stored, ours.get("spec")) {
        stored.insert("spec".to_owned(), spec.clone());
        stored.remove("status");
    }
    Ok(stored)
}

/// Checks that the API server serves the objects of a definition; the error says why not, as far as the API server
/// does.
pub fn is_established(definition: &Value) -> Result<(), String> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    let has = |kind: &str, status: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|one| {
            one.get("type").is_some_and(|is| is == kind) && one.get("status").is_some_and(|is| is == status)
        })
    };
    if has("Established", "True").is_some() && has("NamesAccepted", "False").is_none() {
        return Ok(());
    }
    let message = |one: &Value| one.get("message").and_then(Value::as_str).map(str::to_owned);
    let why = has("NamesAccepted", "False").or_else(|| has("Established", "False")).and_then(message);
    Err(why.unwrap_or_else(|| "the API server does not serve it yet".to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "c.example.com", "annotations": { "ours": "new" } },
            "spec": { "group": "example.com", "versions": [{ "name": "v1" }] },
        })
    }

    #[test]
    fn our_spec_takes_the_place_of_the_stored_one_and_what_others_wrote_stays() {
        let stored = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "c.example.com",
                "uid": "u",
                "resourceVersion": "7",
                "labels": { "team": "a" },
                "annotations": { "ours": "old", "meta.helm.sh/release-name": "r" },
            },
            "spec": { "group": "example.com", "versions": [{ "name": "v1", "schema": "stricter" }], "conversion": {} },
            "status": { "storedVersions": ["v1"] },
        });
        assert_eq!(
            replacement(stored, &ours()).unwrap(),
            json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": "c.example.com",
                    "uid": "u",
                    "resourceVersion": "7",
                    "labels": { "team": "a" },
                    "annotations": { "ours": "new", "meta.helm.sh/release-name": "r" },
                },
                "spec": { "group": "example.com", "versions": [{ "name": "v1" }] },
            })
        );
    }

    #[test]
    fn a_definition_without_annotations_gets_ours() {
        let stored = json!({ "metadata": { "name": "c.example.com" }, "spec": {} });
        let written = replacement(stored, &ours()).unwrap();
        assert_eq!(written.pointer("/metadata/annotations"), Some(&json!({ "ours": "new" })));
    }

    #[test]
    fn one_that_is_being_deleted_is_not_replaced() {
        let stored = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": {} });
        assert_eq!(replacement(stored, &ours()), Err(Deleting));
    }

    #[test]
    fn established_means_served_under_all_its_names() {
        let with = |conditions: Value| is_established(&json!({ "status": { "conditions": conditions } }));
        let accepted = json!({ "type": "NamesAccepted", "status": "True" });
        let taken =
            json!({ "type": "NamesAccepted", "status": "False", "message": "\"cc\" is already in use" });
        let established = json!({ "type": "Established", "status": "True" });
        assert_eq!(with(json!([accepted, established])), Ok(()));
        assert_eq!(with(json!([taken, established])), Err("\"cc\" is already in use".to_owned()));
        assert_eq!(is_established(&json!({})), Err("the API server does not serve it yet".to_owned()));
    }
}
