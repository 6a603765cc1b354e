//! Walk over a JSON value that is written, whatever its texts and numbers look like.

use serde_json::{Map, Number, Value};

/// Differences between two ways of writing JSON.
pub(super) trait Spelling {
    fn write_number(out: &mut String, number: &Number);

    fn write_text(out: &mut String, text: &str);

    fn write_key(out: &mut String, key: &str) {
        Self::write_text(out, key);
    }

    /// The members of an object, in the order in which they are written.
    fn members(members: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
        members.iter()
    }
}

pub(super) fn write_value<S: Spelling>(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(is) => out.push_str(if *is { "true" } else { "false" }),
        Value::Number(number) => S::write_number(out, number),
        Value::String(text) => S::write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value::<S>(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (key, member)) in S::members(members).enumerate() {
                if i > 0 {
                    out.push(',');
                }
                S::write_key(out, key);
                out.push(':');
                write_value::<S>(out, member);
            }
            out.push('}');
        }
    }
}
