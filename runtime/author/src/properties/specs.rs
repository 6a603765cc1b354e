//! Specs that a definition allows: the smallest, the largest, and those between that differ in one field or in their choices.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value, json};

/// Specs of one kind.
const MAX_SPECS: usize = 48;

/// Values of an `enum` that get a spec each.
const MAX_CHOICES: usize = 8;

/// Items and members where a schema names no bound, and the most where it does.
const SOME: u64 = 2;
const MOST: u64 = 8;

/// Characters of a text where a schema names no bound, and the most where it does.
const WORD: u64 = 5;
const LINE: u64 = 63;

/// Levels of a schema that are looked into.
const MAX_DEPTH: usize = 24;

/// How large a value is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// The spec has the fields alone that are required, or have a default.
    Least,
    /// The spec has all fields.
    Most,
}

#[derive(Debug, Clone, Copy)]
struct How {
    size: Size,
    /// Which value of each `enum`, and of each boolean.
    choice: usize,
}

/// Specs that the schema of whole objects allows, each once. Patterns and rules are not understood: a field that has one is
/// left out, and where it is required there is no spec.
pub(super) fn specs(schema: &Value) -> Vec<Value> {
    let Some(spec) = schema.pointer("/properties/spec") else { return Vec::new() };
    let make = |size, choice| value(spec, How { size, choice }, 0);
    let mut all: Vec<_> = [Size::Least, Size::Most].into_iter().filter_map(|size| make(size, 0)).collect();
    all.extend((1..MAX_CHOICES).filter_map(|choice| make(Size::Most, choice)));
    if let [Some(Value::Object(least)), Some(Value::Object(most))] =
        [make(Size::Least, 0), make(Size::Most, 0)]
    {
        for (field, value) in most.iter().filter(|(field, _)| !least.contains_key(*field)) {
            let (mut with, mut without) = (least.clone(), most.clone());
            with.insert(field.clone(), value.clone());
            without.remove(field);
            all.extend([Value::Object(with), Value::Object(without)]);
        }
    }
    let mut seen = BTreeSet::new();
    all.retain(|spec| seen.insert(spec.to_string()));
    all.truncate(MAX_SPECS);
    all
}

/// `None`: no value is known that the schema allows.
fn value(schema: &Value, how: How, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH || has_rules(schema) {
        return None;
    }
    if let (Size::Least, Some(default)) = (how.size, schema.get("default")) {
        return Some(default.clone());
    }
    if let Some(Value::Array(choices)) = schema.get("enum") {
        return choices.get(how.choice.checked_rem(choices.len())?).cloned();
    }
    if schema.get("x-kubernetes-int-or-string").is_some_and(|it| *it == true) {
        return Some(if how.choice.is_multiple_of(2) { json!(1) } else { json!("50%") });
    }
    match schema.get("type").and_then(Value::as_str)? {
        "boolean" => Some(json!(how.choice.is_multiple_of(2))),
        "string" => text(schema, how),
        "integer" | "number" => number(schema, how),
        "array" => {
            let item = || value(schema.get("items")?, how, depth + 1);
            let count = count(schema, ["minItems", "maxItems"], how, (SOME, MOST));
            // Equal items where they have to differ.
            let is_set = schema.get("x-kubernetes-list-type").is_some_and(|it| *it != "atomic");
            let count = if is_set { count.min(1) } else { count };
            (0..count).map(|_| item()).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        "object" => object(schema, how, depth).map(Value::Object),
        _ => None,
    }
}

/// The rules of a schema. Those about changes are left out: there was no spec before.
pub(super) fn rules(schema: &Value) -> impl Iterator<Item = &str> {
    let all = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|rule| rule.get("rule")?.as_str()).filter(|rule| !rule.contains("oldSelf"))
}

/// Whether a schema is one of several, or none of one.
pub(super) fn has_logic(schema: &Value) -> bool {
    ["allOf", "anyOf", "oneOf", "not"].iter().any(|word| schema.get(word).is_some())
}

/// Whether something else than the structure decides.
pub(super) fn has_rules(schema: &Value) -> bool {
    let is_either = schema.get("x-kubernetes-int-or-string").is_some_and(|it| *it == true);
    rules(schema).next().is_some() || has_logic(schema) && !is_either
}

fn object(schema: &Value, how: How, depth: usize) -> Option<Map<String, Value>> {
    let names = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| names.is_some_and(|all| all.iter().any(|one| one == name));
    let mut made = Map::new();
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, below) in fields.into_iter().flatten() {
        let is_set = is_required(name) || how.size == Size::Most || below.get("default").is_some();
        match if is_set { value(below, how, depth + 1) } else { None } {
            Some(value) => drop(made.insert(name.clone(), value)),
            None if is_required(name) => return None,
            None => {}
        }
    }
    if let Some(others @ Value::Object(_)) = schema.get("additionalProperties") {
        let count = count(schema, ["minProperties", "maxProperties"], how, (SOME, MOST));
        for nth in 0..count {
            made.insert(format!("key-{nth}"), value(others, how, depth + 1)?);
        }
    }
    Some(made)
}

/// How many items, members or characters.
fn count(schema: &Value, [least, most]: [&str; 2], how: How, (some, bound): (u64, u64)) -> u64 {
    let of = |field: &str| schema.get(field).and_then(Value::as_u64);
    let (least, most) = (of(least).unwrap_or(0), of(most));
    match how.size {
        Size::Least => least.min(bound),
        Size::Most => most.unwrap_or(some).min(bound).max(least.min(bound)),
    }
}

fn text(schema: &Value, how: How) -> Option<Value> {
    let format = schema.get("format").and_then(Value::as_str);
    match format {
        None if schema.get("pattern").is_some() => None,
        None => {
            let bounds = ["minLength", "maxLength"];
            let shortest = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
            let length = count(schema, bounds, how, (WORD, LINE));
            // A longer one than we make may be asked for.
            let is_enough = length >= shortest;
            is_enough.then(|| usize::try_from(length).ok().map(|length| json!("a".repeat(length)))).flatten()
        }
        Some("date-time") => Some(json!("2000-01-01T00:00:00Z")),
        Some("date") => Some(json!("2000-01-01")),
        Some("duration") => Some(json!("1m30s")),
        Some("byte") => Some(json!("YQ==")),
        Some("uuid") => Some(json!("00000000-0000-4000-8000-000000000000")),
        Some("ipv4" | "ip") => Some(json!("192.0.2.1")),
        Some(_) => None,
    }
}

fn number(schema: &Value, how: How) -> Option<Value> {
    if schema.get("multipleOf").is_some() {
        return None;
    }
    let is = |field: &str| schema.get(field).is_some_and(|it| *it == true);
    let of = |field: &str| schema.get(field).and_then(Value::as_f64);
    let step = |exclusive: &str| if is(exclusive) { 1.0 } else { 0.0 };
    let (least, most) = (
        of("minimum").map(|bound| bound + step("exclusiveMinimum")),
        of("maximum").map(|bound| bound - step("exclusiveMaximum")),
    );
    let value = match how.size {
        Size::Least => least.unwrap_or(0.0).min(most.unwrap_or(f64::MAX)),
        Size::Most => most.unwrap_or(1000.0).max(least.unwrap_or(f64::MIN)),
    };
    let is_inside = least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most);
    let is_integer = schema.get("type").is_some_and(|it| *it == "integer");
    let value = if is_integer { whole(value) } else { Number::from_f64(value) };
    value.filter(|_| is_inside).map(Value::Number)
}

/// Integers up to 2^53 are what they seem.
#[expect(clippy::cast_possible_truncation, reason = "the bound is checked")]
fn whole(value: f64) -> Option<Number> {
    (value.trunc().abs() <= 9_007_199_254_740_992.0).then(|| Number::from(value.trunc() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas::object_faults;
    use metahook_core::object::id::Gvk;

    fn of(spec: &Value) -> Value {
        json!({ "type": "object", "properties": { "spec": spec } })
    }

    #[test]
    fn the_smallest_and_the_largest_come_first_then_those_with_one_field_more_or_less() {
        let schema = of(&json!({ "type": "object", "required": ["size"], "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 7 },
            "mode": { "type": "string", "enum": ["a", "b"] },
            "names": { "type": "array", "maxItems": 100, "items": { "type": "string", "maxLength": 1 } },
        } }));
        let all = specs(&schema);
        let names = json!(["a", "a", "a", "a", "a", "a", "a", "a"]);
        assert_eq!(
            all[..3],
            [
                json!({ "size": 1 }),
                json!({ "size": 7, "mode": "a", "names": names }),
                json!({ "size": 7, "mode": "b", "names": names }),
            ]
        );
        let rest: BTreeSet<_> = all[3..].iter().map(Value::to_string).collect();
        assert!(rest.contains(&json!({ "size": 1, "mode": "a" }).to_string()), "{rest:?}");
        assert!(rest.contains(&json!({ "size": 7, "mode": "a" }).to_string()), "{rest:?}");
    }

    #[test]
    fn a_field_that_is_not_understood_is_left_out_and_where_it_is_required_there_is_no_spec() {
        let odd = [
            json!({ "type": "string", "pattern": "^[0-9]+$" }),
            json!({ "type": "string", "format": "hostname" }),
            json!({ "type": "integer", "multipleOf": 3 }),
            json!({ "type": "integer", "minimum": 2, "maximum": 1 }),
            json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self != ''" }] }),
            json!({ "anyOf": [{ "type": "string" }] }),
            json!({ "type": "string", "minLength": 64 }),
            json!({}),
        ];
        for odd in odd {
            let schema = |required: &[&str]| {
                of(
                    &json!({ "type": "object", "required": required, "properties": { "odd": odd, "on": { "type": "boolean" } } }),
                )
            };
            assert_eq!(
                specs(&schema(&[])),
                [json!({}), json!({ "on": true }), json!({ "on": false })],
                "{odd}"
            );
            assert_eq!(specs(&schema(&["odd"])), Vec::<Value>::new(), "{odd}");
        }
        let of_changes =
            json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] });
        assert!(specs(&of(&json!({ "type": "object", "properties": { "fixed": of_changes } }))).len() > 1);
    }

    #[test]
    fn all_have_bounds_whatever_a_definition_says() {
        let mut deep = json!({ "type": "string" });
        for _ in 0..=MAX_DEPTH {
            deep = json!({ "type": "object", "properties": { "below": deep } });
        }
        assert_eq!(specs(&of(&deep)).len(), 2);
        let many: Map<_, _> =
            (0..1000).map(|nth| (format!("f{nth}"), json!({ "type": "boolean" }))).collect();
        assert_eq!(specs(&of(&json!({ "type": "object", "properties": many }))).len(), MAX_SPECS);
        let large = json!({ "type": "array", "minItems": u64::MAX, "items": { "type": "string" } });
        let large = specs(&of(&json!({ "type": "object", "properties": { "large": large } })));
        assert!(large.iter().all(|spec| spec.to_string().len() < 1000));
    }

    #[test]
    fn what_is_made_is_as_the_schema_says() {
        let schema = of(&json!({ "type": "object", "required": ["size", "on"], "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 7 }, "on": { "type": "boolean" },
            "ratio": { "type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1 },
            "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "labels": { "type": "object", "maxProperties": 3, "additionalProperties": { "type": "string", "minLength": 2 } },
            "parts": { "type": "array", "minItems": 1, "items": { "type": "object", "required": ["name"], "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 500 }, "at": { "type": "string", "format": "date-time" },
            } } },
            "by": { "type": "integer", "default": 3 },
        } }));
        let all = specs(&schema);
        assert!(all.len() > 5, "{all:?}");
        for spec in all {
            let object =
                json!({ "apiVersion": "e.com/v1", "kind": "T", "metadata": { "name": "t" }, "spec": spec });
            let faults = object_faults(&Gvk::new("e.com/v1", "T"), Some(&schema), &object);
            assert_eq!(faults, Vec::<String>::new(), "{spec}");
        }
    }
}
