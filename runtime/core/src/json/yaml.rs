//! JSON that a YAML reader reads as JSON: bodies of server-side apply, whose content type is YAML.
//!
//! The API server reads them with goyaml v2 (`sigs.k8s.io/yaml`). It folds U+0085, U+2028 and U+2029 into blanks or line
//! feeds, refuses characters that YAML does not call printable, and takes a key without `?` only up to 1024 characters.
//! Tried on all characters: escapes of four digits are read as they are in JSON, pairs of surrogates are not (so
//! characters beyond U+FFFF stay as they are, all of which are accepted), and every number and every quoted word is what
//! it is in JSON. The API server makes a float of each number: integers beyond 2^53 are rounded whatever is sent.

use std::fmt::Write;

use serde_json::{Number, Value};

use super::spelling::{Spelling, write_value};

/// Length in bytes, quotes and escapes included, up to which a key is written as in JSON.
const MAX_PLAIN_KEY: usize = 1000;

/// # Guarantees
/// A YAML reader reads the value. It is JSON, unless a key is longer than 1000 bytes.
pub fn to_yaml_string(value: &Value) -> String {
    let mut out = String::with_capacity(1024);
    write_value::<Yaml>(&mut out, value);
    out
}

/// JSON that YAML does not read otherwise.
struct Yaml;

impl Spelling for Yaml {
    fn write_number(out: &mut String, number: &Number) {
        // Writing into a String cannot fail.
        write!(out, "{number}").unwrap_or_default();
    }

    fn write_text(out: &mut String, text: &str) {
        write_text(out, text);
    }

    fn write_key(out: &mut String, key: &str) {
        let start = out.len();
        write_text(out, key);
        if out.len() - start > MAX_PLAIN_KEY {
            out.insert_str(start, "? ");
            // A reader that looks for a plain `:` behind the key needs the blank.
            out.push(' ');
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some((place, c)) = rest.char_indices().find(|(_, c)| is_special(*c)) {
        let (plain, special) = rest.split_at(place);
        out.push_str(plain);
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ => write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
        }
        rest = special.get(c.len_utf8()..).unwrap_or_default();
    }
    out.push_str(rest);
    out.push('"');
}

/// All special characters lie below U+10000: an escape of four digits is enough.
fn is_special(c: char) -> bool {
    matches!(
        c,
        '\0'..='\x1f' | '"' | '\\' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_that_yaml_treats_specially_are_escaped() {
        let text = json!("\u{85} \u{2028} \u{2029}\u{7f}\u{80}\u{90}\u{9f}\u{feff}\u{fffe}\u{ffff}");
        let expected = r#""\u0085 \u2028 \u2029\u007f\u0080\u0090\u009f\ufeff\ufffe\uffff""#;
        assert_eq!(to_yaml_string(&text), expected);
        let text = json!("\u{0}\u{1f}\"\\\n\r\t/<&> ü\u{a0}\u{fffd}😀\u{1fffe}\u{10ffff}");
        let expected = "\"\\u0000\\u001f\\\"\\\\\\n\\r\\t/<&> ü\u{a0}\u{fffd}😀\u{1fffe}\u{10ffff}\"";
        assert_eq!(to_yaml_string(&text), expected);
    }

    #[test]
    fn keys_are_text_too() {
        assert_eq!(
            to_yaml_string(&json!({"\u{2028}": {"\u{85}": [1, -0.5, null, true]}})),
            r#"{"\u2028":{"\u0085":[1,-0.5,null,true]}}"#
        );
    }

    #[test]
    fn a_key_that_is_too_long_for_yaml_is_announced() {
        let (fits, long) = ("k".repeat(998), "k".repeat(999));
        assert_eq!(to_yaml_string(&json!({(fits.as_str()): 1})), format!(r#"{{"{fits}":1}}"#));
        assert_eq!(
            to_yaml_string(&json!({"a": 1, (long.as_str()): 1})),
            format!(r#"{{"a":1,? "{long}" :1}}"#)
        );
        let escaped = "\u{2028}".repeat(170);
        assert!(to_yaml_string(&json!({(escaped.as_str()): 1})).starts_with("{? "), "its escapes count");
    }

    /// Texts in which special characters are as frequent as others.
    fn any_text() -> impl Strategy<Value = String> {
        let special = proptest::sample::select(
            "\u{0}\t\n\r\u{1f} \"\\/:?#\u{7f}\u{80}\u{85}\u{9f}\u{a0}\u{2028}\u{2029}\u{d7ff}\u{e000}\u{feff}\u{fffd}\u{fffe}\u{ffff}\u{10000}\u{1ffff}\u{10ffff}"
                .chars()
                .collect::<Vec<_>>(),
        );
        proptest::collection::vec(prop_oneof![special, any::<char>()], 0..12)
            .prop_map(|all| all.into_iter().collect())
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any_text().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(any_text(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Whether YAML 1.1 allows a character outside of escapes, and takes it for no break of lines and no byte order
    /// mark.
    fn is_read_as_it_is(c: char) -> bool {
        matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
    }

    proptest! {
        #[test]
        fn it_is_the_same_value_in_json_and_printable_in_yaml(value in any_value()) {
            let text = to_yaml_string(&value);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            prop_assert!(text.chars().all(is_read_as_it_is), "{}", text);
        }
    }
}
