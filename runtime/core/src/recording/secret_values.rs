//! Values of Secrets, replaced wherever recorded objects and answers repeat them.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::api::units::print_bytes;
use crate::children::claims::{ATTACHED_BY, MADE_BY};
use crate::json::hidden::is_secret;
use crate::json::to_go_string;

/// Stands for each value.
const REPLACED: &str = "replaced";

/// A value that is shorter is replaced in its Secret alone: elsewhere it may be any word.
const MIN_REPEATED: usize = 6;

/// Values that one text may repeat; a text with more is replaced as a whole. Values that overlap may be found many times.
const MAX_REPEATS: usize = 100_000;

/// Fields that say which object is meant. A value that is an ordinary word would make another object of it.
const IDENTITY: [&str; 6] = ["apiVersion", "kind", "name", "namespace", "resource", "uid"];

/// Fields whose own fields may have any name.
const DATA: [&str; 2] = ["data", "stringData"];

/// The values of some Secrets, as they are and in base64.
#[derive(Debug)]
pub struct SecretValues {
    repeated: BTreeSet<String>,
    bytes: usize,
    max_bytes: usize,
    has_secrets: bool,
}

/// Replaces the values of Secrets.
pub struct Replacer(AhoCorasick);

/// There are more values than the server looks for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the values of Secrets, in all forms in which they may be repeated, have more than {}, and are not looked for: record fewer \
     parents, or use --with-secrets",
    print_bytes(*.0 as u64)
)]
pub struct TooManyValues(usize);

impl SecretValues {
    /// `max_bytes`: of all values, each in the forms in which it may be repeated. To look for them takes some forty times as much
    /// memory.
    pub fn within(max_bytes: usize) -> Self {
        Self { repeated: BTreeSet::new(), bytes: 0, max_bytes, has_secrets: false }
    }

    /// Takes in the values of the Secrets that an object is, or holds.
    pub fn add(&mut self, object: &Value) {
        each(object, &mut |fields| {
            if !is_secret(fields) {
                return;
            }
            self.has_secrets = true;
            for value in values(fields, "data").into_iter().flatten().filter_map(Value::as_str) {
                self.insert(value);
                let text = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                if let Some(text) = text {
                    self.add_text(&text);
                }
            }
            for text in values(fields, "stringData").into_iter().flatten().filter_map(Value::as_str) {
                self.add_text(text);
            }
        });
    }

    /// Takes in one form of a value; beyond the bound it counts the bytes and keeps nothing.
    fn insert(&mut self, value: &str) {
        if value.len() < MIN_REPEATED || self.repeated.contains(value) {
            return;
        }
        self.bytes = self.bytes.saturating_add(value.len());
        if self.bytes <= self.max_bytes {
            self.repeated.insert(value.to_owned());
        }
    }

    /// Whether a Secret was taken in.
    pub fn has_secrets(&self) -> bool {
        self.has_secrets
    }

    /// Takes in a value: as it is, without blanks around it, and as the inside of a JSON text, as annotations repeat objects.
    pub fn add_text(&mut self, text: &str) {
        for text in [text, text.trim()] {
            self.insert(text);
            // Its other forms are as long.
            if self.bytes > self.max_bytes {
                return;
            }
            self.insert(&STANDARD.encode(text));
            let value = json!(text);
            let printed = [value.to_string(), to_go_string(&value)];
            let inside = printed.iter().filter_map(|text| text.strip_prefix('"')?.strip_suffix('"'));
            inside.for_each(|inside| self.insert(inside));
        }
    }

    /// # Errors
    /// There are too many values.
    pub fn replacer(&self) -> Result<Replacer, TooManyValues> {
        let too_many = TooManyValues(self.max_bytes);
        if self.bytes > self.max_bytes {
            return Err(too_many);
        }
        // Other kinds take far more memory.
        let matcher =
            AhoCorasick::builder().kind(Some(AhoCorasickKind::NoncontiguousNFA)).build(&self.repeated);
        matcher.map(Replacer).or(Err(too_many))
    }
}

impl Replacer {
    /// Replaces the values of Secrets, their annotations but those that say who made them, and each text that repeats a value.
    pub fn replace(&self, object: &mut Value) {
        match object {
            Value::Object(fields) => {
                if is_secret(fields) {
                    replace_values(fields);
                }
                for (name, value) in fields {
                    match value {
                        Value::String(_) if IDENTITY.contains(&name.as_str()) => {}
                        Value::Object(data) if DATA.contains(&name.as_str()) => {
                            data.values_mut().for_each(|value| self.replace(value));
                        }
                        value => self.replace(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::String(text) => {
                if let Some(replaced) = self.replaced(text) {
                    *text = replaced;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The text without the values that it repeats, where it does. Values that overlap are replaced together: no part of either
    /// is left.
    fn replaced(&self, text: &str) -> Option<String> {
        let mut places: Vec<(usize, usize)> = Vec::new();
        // They come by their ends.
        for (number, found) in self.0.find_overlapping_iter(text).enumerate() {
            if number >= MAX_REPEATS {
                return Some(REPLACED.to_owned());
            }
            let mut start = found.start();
            while let Some(before) = places.pop_if(|before| start < before.1) {
                start = start.min(before.0);
            }
            places.push((start, found.end()));
        }
        let (mut replaced, mut at) = (String::new(), 0);
        for (start, end) in &places {
            replaced.extend([text.get(at..*start)?, REPLACED]);
            at = *end;
        }
        replaced.push_str(text.get(at..)?);
        (!places.is_empty()).then_some(replaced)
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

fn values<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Option<impl Iterator<Item = &'a Value> + use<'a>> {
    Some(fields.get(name)?.as_object()?.values())
}

fn replace_values(fields: &mut Map<String, Value>) {
    let encoded = json!(STANDARD.encode(REPLACED));
    for (name, stand_in) in [("data", encoded), ("stringData", json!(REPLACED))] {
        match fields.get_mut(name) {
            Some(Value::Object(held)) => held.values_mut().for_each(|value| *value = stand_in.clone()),
            Some(odd) => *odd = stand_in,
            None => {}
        }
    }
    let annotations = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|name, _| [ATTACHED_BY, MADE_BY].contains(&&**name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: usize = 512 << 10;

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
        let copy = json!({
            "kind": "ConfigMap", "metadata": { "name": "top-secret" },
            "data": { "url": "https://u:top-secret@h", "ok": "yes" },
        });
        let mut values = SecretValues::within(MAX_BYTES);
        values.add(&list);
        values.add(&copy);
        let (mut list, mut copy, values) = (list, copy, values.replacer().unwrap());
        values.replace(&mut list);
        values.replace(&mut copy);
        let found = format!("{list}{copy}");
        assert!(!found.contains("u:top-secret") && !found.contains("dG9wLXNlY3JldA"), "{found}");
        assert_eq!(copy["metadata"]["name"], "top-secret", "it is the object's name");
        assert_eq!(copy["data"], json!({ "url": "https://u:replaced@h", "ok": "yes" }));
        // Below fields that name an object elsewhere, and under names of such fields.
        let below = |field: &str| {
            let mut odd = json!({ "spec": { field: list["spec"]["objects"][0] } });
            odd["spec"][field]["data"] = json!({ "k": "dG9wLXNlY3JldA==" });
            odd
        };
        let mut others = [
            below("resource"),
            below("name"),
            json!({ "kind": "Secret", "apiVersion": "v1", "data": "dG9wLXNlY3JldA==" }),
            json!({ "data": { "name": "top-secret", "encoded": "dG9wLXNlY3JldA==" } }),
        ];
        for other in &mut others {
            values.replace(other);
            let found = other.to_string();
            assert!(!found.contains("top-secret") && !found.contains("dG9wLXNlY3JldA"), "{found}");
        }
        let secret = &list["spec"]["objects"][0];
        assert_eq!(secret["data"], json!({ "k": "cmVwbGFjZWQ=", "short": "cmVwbGFjZWQ=" }));
        assert_eq!(secret["metadata"]["annotations"], json!({ MADE_BY: "c" }));
    }

    #[test]
    fn a_value_that_is_a_part_of_another_one_is_replaced_with_it() {
        let mut values = SecretValues::within(MAX_BYTES);
        for text in ["secret-of", "secret-of-all", "all-of-them"] {
            values.add_text(text);
        }
        let replacer = values.replacer().unwrap();
        let without = |text: &str| {
            let mut text = json!(text);
            replacer.replace(&mut text);
            text.as_str().unwrap().to_owned()
        };
        assert_eq!(without("x secret-of, all-of-them"), "x replaced, replaced");
        assert_eq!(without("secret-of-all"), "replaced");
        assert_eq!(without("ä secret-of-all-of-them ö"), "ä replaced ö", "they overlap");
        assert_eq!(without(&"secret-of".repeat(MAX_REPEATS)), REPLACED.repeat(MAX_REPEATS));
        assert_eq!(without(&"secret-of ".repeat(MAX_REPEATS + 1)), REPLACED);
    }

    #[test]
    fn there_are_values_up_to_a_bound() {
        // Each value counts twice: as it is, and in base64. Its JSON form is the same text.
        let of = |bytes: usize| {
            let mut values = SecretValues::within(MAX_BYTES);
            values.add_text(&"x".repeat(bytes));
            values
        };
        assert!(of(MAX_BYTES * 3 / 7 - 8).replacer().is_ok());
        assert_eq!(of(MAX_BYTES * 3 / 7 + 8).replacer().err(), Some(TooManyValues(MAX_BYTES)));
        let mut many = SecretValues::within(MAX_BYTES);
        for number in 0..300_000 {
            many.add_text(&format!("value-{number}"));
        }
        assert_eq!(many.replacer().err(), Some(TooManyValues(MAX_BYTES)));
        assert!(many.repeated.iter().map(String::len).sum::<usize>() <= MAX_BYTES);
    }

    #[test]
    fn a_value_is_found_without_its_end_of_line_and_in_annotations() {
        let key = "-----BEGIN KEY-----\na&b\"c\n";
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "key": key } });
        let mut values = SecretValues::within(MAX_BYTES);
        values.add(&secret);
        let values = values.replacer().unwrap();
        let copy = json!({ "data": { "key": key, "trimmed": format!("x{}y", key.trim()) } });
        let applied = [copy.to_string(), to_go_string(&copy)];
        let mut all = json!({ "copy": copy, "annotations": applied });
        values.replace(&mut all);
        let found = all.to_string();
        assert!(!found.contains("BEGIN KEY") && found.matches("replaced").count() >= 6, "{found}");
    }
}
