//! YAML for people to read: one line for each scalar, strings in quotes where they could be taken for something else.

use serde_json::Value;

use metahook_server::telemetry::is_harmful;

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
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        assert!(text.contains("\\u202e") && !text.contains('\u{202e}'), "{text}");
        assert_eq!(print(&json!({})), "{}\n");
    }

    #[test]
    fn objects_look_as_kubectl_prints_them() {
        let pod = json!({"kind": "Pod", "spec": {"containers": [{"args": ["a", "b"], "image": "x:1"}]}});
        let expected = "kind: Pod\nspec:\n  containers:\n  - args:\n    - a\n    - b\n    image: \"x:1\"\n";
        assert_eq!(print(&pod), expected);
    }
}
