//! A check of values by the JSON Schemas that `metahook schema` prints.

use serde_json::Value;

/// Where a value is not as a JSON Schema says. Knows the words that are printed, and stops at all others: a crate that knows
/// them all would have wasmtime compiled twice, by the features that it asks for.
pub(crate) fn faults(document: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(document, document, value, "", &mut found);
    found
}

fn look(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let fields = schema.as_object().unwrap();
    let known = |name: &str| fields.get("properties").is_some_and(|all| all.get(name).is_some());
    let members = || value.as_object().into_iter().flatten();
    for (word, said) in fields {
        match word.as_str() {
            "$ref" => {
                let pointer = said.as_str().unwrap().strip_prefix('#').unwrap().replace("%20", " ");
                look(document, document.pointer(&pointer).unwrap(), value, at, found);
            }
            "anyOf" => {
                let one = |one| {
                    let mut below = Vec::new();
                    look(document, one, value, at, &mut below);
                    below.is_empty()
                };
                if !said.as_array().unwrap().iter().any(one) {
                    found.push(format!("{at} anyOf"));
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    look(document, said, item, &format!("{at}/{index}"), found);
                }
            }
            "properties" => {
                for (name, below) in members().filter(|(name, _)| known(name)) {
                    look(document, &said[name], below, &format!("{at}/{name}"), found);
                }
            }
            "additionalProperties" => {
                for (name, below) in members().filter(|(name, _)| !known(name)) {
                    match said {
                        Value::Bool(false) => found.push(format!("{at}/{name} additionalProperties")),
                        _ => look(document, said, below, &format!("{at}/{name}"), found),
                    }
                }
            }
            word if holds_for(word, said, value) => {}
            word => found.push(format!("{at} {word}")),
        }
    }
}

/// Knows the only pattern that there is: that of digests.
fn matches_pattern(pattern: &str, value: &str) -> bool {
    assert_eq!(pattern, "^(sha256:)?[0-9a-f]{64}$");
    let digits = value.strip_prefix("sha256:").unwrap_or(value);
    digits.len() == 64 && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

fn holds_for(word: &str, said: &Value, value: &Value) -> bool {
    let is = |of: &Value| match of.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no type: {other}"),
    };
    match word {
        "$schema" | "$defs" | "title" | "description" | "default" => true,
        "type" => said.as_array().map_or_else(|| is(said), |all| all.iter().any(is)),
        "const" => value == said,
        "enum" => said.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|value| value >= said.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|value| value <= said.as_f64().unwrap()),
        "minLength" | "maxLength" | "minItems" | "maxItems" => {
            let length = value
                .as_str()
                .map_or_else(|| value.as_array().map(Vec::len), |text| Some(text.chars().count()));
            let bound = usize::try_from(said.as_u64().unwrap()).unwrap();
            length
                .is_none_or(|length| if word.starts_with("min") { length >= bound } else { length <= bound })
        }
        "required" => value.as_object().is_none_or(|value| {
            said.as_array().unwrap().iter().all(|name| value.contains_key(name.as_str().unwrap()))
        }),
        "pattern" => value.as_str().is_none_or(|value| matches_pattern(said.as_str().unwrap(), value)),
        other => panic!("no word: {other}"),
    }
}
