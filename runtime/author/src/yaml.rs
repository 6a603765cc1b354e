//! YAML: read as kubectl reads it, and printed for people: one line for each scalar, strings in quotes where they could be
//! taken for something else.

use serde_json::Value;

use metahook_server::telemetry::is_harmful;

/// Reads a document by the rules of kubectl, which are those of YAML 1.1: `n`, `off` and `No` are `false`, `0644` is 420, and
/// `3.0` is 3.
pub fn read(text: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, strict_booleans: false };
    let mut value = serde_saphyr::from_str_with_options(text, options)?;
    whole_numbers(&mut value);
    Ok(value)
}

/// Integers up to 2^53 are what they seem.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Writes numbers without a fraction as integers.
#[expect(clippy::cast_possible_truncation, reason = "the bound is checked")]
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() <= MAX_WHOLE);
            *value = whole.map_or_else(|| value.take(), |whole| Value::from(whole as i64));
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// A document, with a line break at its end.
pub fn print(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(_) | Value::Array(_) if !is_empty(value) => block(&mut out, value, 0, false),
        scalar => {
            out.push_str(&inline(scalar));
            out.push('\n');
        }
    }
    out
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

/// `begun`: the first line has its indentation already.
fn block(out: &mut String, value: &Value, depth: usize, mut begun: bool) {
    let mut indent = |out: &mut String| {
        if !std::mem::take(&mut begun) {
            out.push_str(&"  ".repeat(depth));
        }
    };
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                indent(out);
                out.push_str(&text(key));
                out.push(':');
                if is_empty(value) {
                    out.push_str(&format_args!(" {}\n", inline(value)).to_string());
                } else {
                    out.push('\n');
                    // As kubectl prints them: items of a list stand below their key.
                    block(out, value, if value.is_array() { depth } else { depth + 1 }, false);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                indent(out);
                out.push_str("- ");
                if is_empty(item) {
                    out.push_str(&inline(item));
                    out.push('\n');
                } else {
                    block(out, item, depth + 1, true);
                }
            }
        }
        _ => {}
    }
}

/// A scalar, or an object or list without members.
fn inline(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        other => other.to_string(),
    }
}

fn text(string: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    let begins = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let word = string.to_ascii_lowercase();
    let is_taken = matches!(&*word, "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if begins && string.chars().all(is_plain) && !is_taken {
        return string.to_owned();
    }
    let quoted = Value::from(string).to_string();
    // What JSON leaves as it is and a terminal would obey.
    let escaped = |c: char| if is_harmful(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    quoted.chars().map(escaped).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_reads_as_the_value_again() {
        let value = json!({
            "a": {"b": [1, "two", {"c": [], "d": {}, "e": [[1, [2]], []]}, null, true]},
            "texts": ["true", "1", "1e3", "", " x", "a: b", "#", "-", "line\nline", "ü\u{202e}", "y", "~", "/a/b-c.d"],
            "app.kubernetes.io/name": "x", "odd key: {": "y",
        });
        let text = print(&value);
        assert_eq!(read(&text).unwrap(), value, "{text}");
        assert!(text.contains("\\u202e") && !text.contains('\u{202e}'), "{text}");
        assert_eq!(print(&json!({})), "{}\n");
    }

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        // What sigs.k8s.io/yaml 1.6 makes of `a: TEXT`.
        let table = [
            (
                vec!["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE", "!!bool y"],
                json!(true),
            ),
            (vec!["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"], json!(false)),
            (vec!["", "~", "null", "Null", "NULL"], json!(null)),
            (
                vec!["7", "07", "007", "0o7", "0_7", "+7", "0x7", "0x_7", "0b111", "7.", "7.0", "07e0"],
                json!(7),
            ),
            (vec!["0644", "420", "4.2e2", "0x1A4", "0o644"], json!(420)),
            (vec!["-07", "-0x7", "-0b111"], json!(-7)),
            (vec!["08", "8"], json!(8)),
            (vec!["1_000", "1e3"], json!(1000)),
            (vec![".5", "+.5", "0.50"], json!(0.5)),
            (vec!["9223372036854775808"], json!(9_223_372_036_854_775_808_u64)),
            (vec!["1:30", "'1:30'"], json!("1:30")),
            (vec!["2001-01-01"], json!("2001-01-01")),
            (vec!["'n'", "\"n\"", "!!str n"], json!("n")),
        ];
        for (texts, expected) in table {
            for text in texts {
                let found = read(&format!("a: {text}")).unwrap();
                assert_eq!(found.to_string(), json!({ "a": expected }).to_string(), "{text:?}");
            }
        }
        assert!(read("a: .inf").is_err(), "no JSON");
        assert_eq!(read("a: [{b: 3.0}]").unwrap().to_string(), r#"{"a":[{"b":3}]}"#);
    }

    #[test]
    fn objects_look_as_kubectl_prints_them() {
        let pod = json!({"kind": "Pod", "spec": {"containers": [{"args": ["a", "b"], "image": "x:1"}]}});
        let expected = "kind: Pod\nspec:\n  containers:\n  - args:\n    - a\n    - b\n    image: \"x:1\"\n";
        assert_eq!(print(&pod), expected);
    }
}
