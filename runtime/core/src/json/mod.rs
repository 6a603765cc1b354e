//! JSON values: text byte for byte as Go's `encoding/json` writes it, merges, comparisons, what people are shown.
//!
//! The last-applied annotation is compared as a string by Metacontroller: any other bytes would make it
//! rewrite or recreate every child after a rollback.

pub mod difference;
pub mod hidden;
mod identity;
pub mod lists;
pub mod merge;
pub mod places;
pub mod size;
mod spelling;
pub mod yaml;

use std::fmt::Write;

use serde_json::{Map, Number, Value};

use self::spelling::{Spelling, write_value};

/// The type of a value, for messages.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// # Guarantees
/// Keys in byte order whatever map type `serde_json` was built with; no whitespace.
pub fn to_go_string(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value::<Go>(&mut out, value);
    out
}

/// How `encoding/json` spells JSON.
struct Go;

impl Spelling for Go {
    fn write_number(out: &mut String, number: &Number) {
        write_number(out, number);
    }

    fn write_text(out: &mut String, text: &str) {
        write_text(out, text);
    }

    fn members(members: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        sorted.into_iter()
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => {
                push(out, format_args!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Go decodes a number into int64 where it fits and into float64 otherwise, and prints what it decoded.
fn write_number(out: &mut String, number: &Number) {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => push(out, format_args!("{integer}")),
        (None, Some(float)) => write_float(out, float),
        (None, None) => push(out, format_args!("{number}")),
    }
}

/// Shortest digits that read back the same; an exponent below 1e-6 and from 1e21 on.
fn write_float(out: &mut String, float: f64) {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                push(out, format_args!("{digits}e+{exponent}"));
            }
            _ => out.push_str(&text),
        }
    } else {
        push(out, format_args!("{float}"));
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    out.write_fmt(text).unwrap_or_default();
}

/// The object in a field; one that is absent or null becomes an empty one. `None` where something else stands there.
pub(crate) fn object_in<'a>(
    members: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    let value = members.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reprint(text: &str) -> String {
        to_go_string(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn keys_are_sorted_and_nothing_is_indented() {
        assert_eq!(
            reprint(r#"{ "b" : 1, "a" : [ 1, {} ], "é": null, "B": true }"#),
            r#"{"B":true,"a":[1,{}],"b":1,"é":null}"#
        );
    }

    #[test]
    fn text_is_escaped_as_go_escapes_it() {
        let text = json!("<a href=\"x\">&\\ \u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}\u{2029}ü😀");
        let expected =
            "\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\\\ \\b\\f\\n\\r\\t\\u0001\u{7f}\\u2028\\u2029ü😀\"";
        assert_eq!(to_go_string(&text), expected);
    }

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        for (text, expected) in [
            ("1", "1"),
            ("1.0", "1"),
            ("-7", "-7"),
            ("0.5", "0.5"),
            ("1e3", "1000"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("123456789e21", "1.23456789e+29"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.5e-9", "1.5e-9"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854776000"),
            ("18446744073709551615", "18446744073709552000"),
            ("0.1", "0.1"),
            ("-0.0", "-0"),
        ] {
            assert_eq!(reprint(text), expected, "{text}");
        }
    }
}
