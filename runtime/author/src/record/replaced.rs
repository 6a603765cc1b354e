//! Values of Secrets, replaced wherever recorded objects repeat them.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use metahook_core::children::claims::{ATTACHED_BY, MADE_BY};
use serde_json::{Map, Value, json};

/// Stands for each value.
const REPLACED: &str = "replaced";

/// A value that is shorter is replaced in its Secret alone: elsewhere it may be any word.
const MIN_REPEATED: usize = 6;

/// The values of some Secrets, as they are and in base64.
#[derive(Debug, Default)]
pub(super) struct SecretValues(BTreeSet<String>);

impl SecretValues {
    /// Takes in the values of the Secrets that an object is, or holds.
    pub(super) fn add(&mut self, object: &Value) {
        each(object, &mut |fields| {
            if !is_secret(fields) {
                return;
            }
            for value in values(fields, "data").into_iter().flatten().filter_map(Value::as_str) {
                self.0.insert(value.to_owned());
                let decoded = serde_json::from_value::<ByteString>(json!(value));
                let text = decoded.ok().and_then(|bytes| String::from_utf8(bytes.0).ok());
                self.0.extend(text);
            }
            let plain = values(fields, "stringData").into_iter().flatten().filter_map(Value::as_str);
            self.0.extend(plain.map(str::to_owned));
        });
        self.0.retain(|value| value.len() >= MIN_REPEATED);
    }

    /// Replaces the values of Secrets, their annotations but those that say who made them, and each text that repeats a value.
    pub(super) fn replace(&self, object: &mut Value) {
        match object {
            Value::Object(fields) => {
                if is_secret(fields) {
                    replace_values(fields);
                }
                fields.values_mut().for_each(|value| self.replace(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::String(text) => {
                // The longest first: a value may be a part of another one.
                let mut repeated: Vec<_> = self.0.iter().filter(|value| text.contains(&**value)).collect();
                repeated.sort_by_key(|value| std::cmp::Reverse(value.len()));
                for value in repeated {
                    *text = text.replace(&**value, REPLACED);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn each(value: &Value, act: &mut impl FnMut(&Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            act(fields);
            fields.values().for_each(|value| each(value, act));
        }
        Value::Array(items) => items.iter().for_each(|item| each(item, act)),
        _ => {}
    }
}

fn is_secret(fields: &Map<String, Value>) -> bool {
    let is = |field: &str, text: &str| fields.get(field).is_some_and(|value| value == text);
    is("kind", "Secret") && is("apiVersion", "v1")
}

fn values<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Option<impl Iterator<Item = &'a Value> + use<'a>> {
    Some(fields.get(name)?.as_object()?.values())
}

fn replace_values(fields: &mut Map<String, Value>) {
    let encoded = json!(ByteString(REPLACED.as_bytes().to_vec()));
    for (name, stand_in) in [("data", encoded), ("stringData", json!(REPLACED))] {
        let held = fields.get_mut(name).and_then(Value::as_object_mut);
        held.into_iter().flat_map(Map::values_mut).for_each(|value| *value = stand_in.clone());
    }
    let annotations = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|name, _| [ATTACHED_BY, MADE_BY].contains(&&**name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_a_secret_is_left_wherever_it_is_repeated() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "s", "annotations": {
                "kapp.k14s.io/original": "{\"data\":{\"k\":\"dG9wLXNlY3JldA==\"}}", MADE_BY: "c",
            } },
            "data": { "k": "dG9wLXNlY3JldA==", "short": "eWVz" },
        });
        let list = json!({ "kind": "Work", "spec": { "objects": [secret] } });
        let copy = json!({ "kind": "ConfigMap", "data": { "url": "https://u:top-secret@h", "ok": "yes" } });
        let mut values = SecretValues::default();
        values.add(&list);
        values.add(&copy);
        let (mut list, mut copy) = (list, copy);
        values.replace(&mut list);
        values.replace(&mut copy);
        let found = format!("{list}{copy}");
        assert!(!found.contains("top-secret") && !found.contains("dG9wLXNlY3JldA"), "{found}");
        assert_eq!(copy["data"], json!({ "url": "https://u:replaced@h", "ok": "yes" }));
        let secret = &list["spec"]["objects"][0];
        assert_eq!(secret["data"], json!({ "k": "cmVwbGFjZWQ=", "short": "cmVwbGFjZWQ=" }));
        assert_eq!(secret["metadata"]["annotations"], json!({ MADE_BY: "c" }));
    }
}
