//! Faults of a value by a schema: what the API server would drop, and what it would refuse.
//!
//! Schemas are those of CustomResourceDefinitions, and those that the API server publishes of its own kinds. Patterns and
//! rules in CEL are not looked at.

use metahook_core::json::type_of;
use metahook_core::shorten;
use serde_json::{Map, Value};
use strsim::levenshtein;

/// Faults of one object that are told.
pub const MAX_FAULTS: usize = 20;

/// Bytes of a value in a message.
const MAX_VALUE: usize = 80;

/// Names that differ by so many letters may be meant.
const MAX_LETTERS: usize = 2;

/// Bytes of a name that is compared with others: the time of a comparison is the product of both lengths.
const MAX_COMPARED: usize = 64;

/// Finds what `$ref` names.
pub(super) type Resolve<'a> = &'a dyn Fn(&str) -> Option<&'a Value>;

/// Collects the faults of one object.
pub(super) struct Faults<'a> {
    pub(super) resolve: Resolve<'a>,
    pub(super) found: Vec<String>,
}

impl<'a> Faults<'a> {
    pub(super) fn look(&mut self, schema: &'a Value, value: &Value, path: &str) {
        let schema = self.whole(schema);
        if self.found.len() >= MAX_FAULTS || value.is_null() {
            return;
        }
        if let Some(wanted) = wrong_type(schema, value) {
            let found = type_of(value);
            return self
                .add(format!("{path} is {found}, and the schema wants {wanted}: the API server refuses it"));
        }
        self.look_at_bounds(schema, value, path);
        match value {
            Value::Object(fields) => self.look_into(schema, fields, path),
            Value::Array(items) => {
                let Some(below) = schema.get("items") else { return };
                for (nth, item) in items.iter().enumerate() {
                    self.look(below, item, &format!("{path}[{nth}]"));
                }
            }
            _ => {}
        }
    }

    pub(super) fn look_into(&mut self, schema: &'a Value, fields: &Map<String, Value>, path: &str) {
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        for (name, value) in fields {
            let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match (known.and_then(|known| known.get(name)), others) {
                (Some(below), _) | (None, Some(below @ Value::Object(_))) => self.look(below, value, &at),
                (None, Some(Value::Bool(true))) => {}
                (None, _) if is_open(schema) => {}
                (None, _) => {
                    let names = known.into_iter().flat_map(Map::keys);
                    let meant =
                        nearest(name, names).map(|it| format!(" (is {it} meant?)")).unwrap_or_default();
                    let at = shorten(&at, MAX_VALUE * 4);
                    self.add(format!("{at} is not in the schema{meant}: the API server drops it"));
                }
            }
        }
        for name in
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            let has_default = known.and_then(|known| known.get(name)?.get("default")).is_some();
            if fields.get(name).is_none_or(Value::is_null) && !has_default {
                let of = if path.is_empty() { "it" } else { path };
                self.add(format!("{of} lacks {name}, which the schema requires: the API server refuses it"));
            }
        }
    }

    fn look_at_bounds(&mut self, schema: &Value, value: &Value, path: &str) {
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
            let (value, allowed) =
                (shorten(&value.to_string(), MAX_VALUE), shorten(&allowed.join(", "), 4 * MAX_VALUE));
            self.add(format!(
                "{path} is {value}, and the schema allows {allowed}: the API server refuses it"
            ));
        }
        let size = match value {
            Value::String(text) => Some((text.chars().count(), "minLength", "maxLength", "characters")),
            Value::Array(items) => Some((items.len(), "minItems", "maxItems", "items")),
            Value::Object(fields) => Some((fields.len(), "minProperties", "maxProperties", "fields")),
            _ => None,
        };
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let size = size.map(|(size, low, high, of)| {
            (f64::from(u32::try_from(size).unwrap_or(u32::MAX)), low, high, format!(" {of}"))
        });
        let number = value.as_f64().map(|number| (number, "minimum", "maximum", String::new()));
        let Some((size, low, high, of)) = size.or(number) else { return };
        if let Some(least) = bound(low).filter(|least| size < *least) {
            self.add(format!("{path} has or is {size}{of}, and {low} is {least}: the API server refuses it"));
        }
        if let Some(most) = bound(high).filter(|most| size > *most) {
            self.add(format!("{path} has or is {size}{of}, and {high} is {most}: the API server refuses it"));
        }
    }

    /// The schema that a reference names.
    fn whole(&self, schema: &'a Value) -> &'a Value {
        let name = schema.get("$ref").and_then(Value::as_str);
        name.and_then(|name| (self.resolve)(name)).unwrap_or(schema)
    }

    fn add(&mut self, fault: String) {
        if self.found.len() < MAX_FAULTS {
            self.found.push(fault);
        }
    }
}

/// Type that the schema wants in place of this value's.
fn wrong_type(schema: &Value, value: &Value) -> Option<&'static str> {
    let is_text_or_number = schema.get("x-kubernetes-int-or-string").is_some_and(|it| *it == true);
    if is_text_or_number {
        return (!value.is_string() && !value.is_number()).then_some("a number or a string");
    }
    let (is_it, wanted) = match schema.get("type").and_then(Value::as_str)? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a string"),
        "boolean" => (value.is_boolean(), "a boolean"),
        "number" => (value.is_number(), "a number"),
        "integer" => (value.as_f64().is_some_and(|number| number.fract() == 0.0), "an integer"),
        _ => return None,
    };
    (!is_it).then_some(wanted)
}

/// Whether the API server keeps fields that the schema does not name.
fn is_open(schema: &Value) -> bool {
    let keeps = schema.get("x-kubernetes-preserve-unknown-fields").is_some_and(|it| *it == true);
    keeps
        || (schema.get("properties").is_none()
            && schema.get("type").is_none_or(|it| it == "object")
            && schema.get("additionalProperties").is_none())
}

/// The name that may be meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let name = name.to_lowercase();
    let near = known.filter(|one| name.len().max(one.len()) <= MAX_COMPARED);
    let near = near.map(|one| (levenshtein(&name, &one.to_lowercase()), one));
    near.filter(|(letters, _)| *letters <= MAX_LETTERS)
        .min_by_key(|(letters, _)| *letters)
        .map(|(_, one)| one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(schema: &Value, value: &Value) -> Vec<String> {
        let list = json!({ "type": "array", "items": { "type": "integer" } });
        let mut faults = Faults { resolve: &|name| (name == "list").then_some(&list), found: Vec::new() };
        // Schemas of tests live as long as their test.
        faults.look(schema, value, "x");
        faults.found
    }

    #[test]
    fn what_is_not_in_the_schema_is_named_with_what_may_be_meant() {
        let schema = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
        assert!(faults(&schema, &json!({ "replicas": 1 })).is_empty());
        assert_eq!(
            faults(&schema, &json!({ "replicass": 1 })),
            ["x.replicass is not in the schema (is replicas meant?): the API server drops it"]
        );
        assert_eq!(
            faults(&schema, &json!({ "other": 1 })),
            ["x.other is not in the schema: the API server drops it"]
        );
        for open in [
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {} }),
            json!({ "type": "object", "additionalProperties": true }),
            json!({ "type": "object" }),
            json!({}),
        ] {
            assert!(faults(&open, &json!({ "other": 1 })).is_empty(), "{open}");
        }
        let closed = json!({ "type": "object", "properties": {} });
        assert_eq!(faults(&closed, &json!({ "other": 1 })).len(), 1);
    }

    #[test]
    fn types_bounds_and_what_is_required_are_looked_at_in_depth() {
        let cases = [
            (json!({ "type": "string" }), json!(1), "x is a number, and the schema wants a string"),
            (json!({ "type": "integer" }), json!(1.5), "wants an integer"),
            (
                json!({ "x-kubernetes-int-or-string": true }),
                json!([]),
                "x is a list, and the schema wants a number or a string",
            ),
            (json!({ "enum": ["a", "b"] }), json!("c"), r#"x is "c", and the schema allows "a", "b""#),
            (
                json!({ "type": "string", "maxLength": 2 }),
                json!("äöü"),
                "x has or is 3 characters, and maxLength is 2",
            ),
            (json!({ "type": "number", "minimum": 2 }), json!(1), "x has or is 1, and minimum is 2"),
            (json!({ "type": "object", "required": ["a"] }), json!({ "a": null }), "x lacks a, which"),
            (json!({ "$ref": "list" }), json!([1, "2"]), "x[1] is a string, and the schema wants an integer"),
            (json!({ "additionalProperties": { "type": "string" } }), json!({ "k": 1 }), "x.k is a number"),
        ];
        for (schema, value, says) in cases {
            let found = faults(&schema, &value);
            assert!(found.len() == 1 && found[0].contains(says), "{schema} {value}: {found:?}");
        }
        let fine = [
            (json!({ "type": "integer" }), json!(1.0)),
            (json!({ "type": "string", "maxLength": 3 }), json!("äöü")),
            (json!({ "type": "string" }), json!(null)),
            (json!({ "required": ["a"], "properties": { "a": { "default": 1 } } }), json!({})),
            (json!({ "$ref": "nothing" }), json!(1)),
        ];
        for (schema, value) in fine {
            assert!(faults(&schema, &value).is_empty(), "{schema} {value}");
        }
    }

    #[test]
    fn no_more_faults_are_told_than_the_bound() {
        let items = |count: usize| json!(vec!["no"; count]);
        let schema = json!({ "$ref": "list" });
        assert_eq!(faults(&schema, &items(MAX_FAULTS)).len(), MAX_FAULTS);
        assert_eq!(faults(&schema, &items(MAX_FAULTS + 1)).len(), MAX_FAULTS);
    }

    #[test]
    fn names_are_near_by_two_letters() {
        let (long, longer) = ("a".repeat(MAX_COMPARED), "a".repeat(MAX_COMPARED + 1));
        for (name, known, is_near) in [
            ("a", "A", true),
            ("mapps", "maps", true),
            ("acb", "abc", true),
            ("kid", "kind", true),
            ("abcdef", "abc", false),
            (&long, &long, true),
            (&longer, &longer, false),
        ] {
            let known = [known.to_owned()];
            assert_eq!(nearest(name, known.iter()).is_some(), is_near, "{name} {known:?}");
        }
        let known = ["abcd", "abd", "ab"].map(str::to_owned);
        assert_eq!(nearest("abc", known.iter()), Some(&known[0]), "the first of those that are as near");
    }
}
