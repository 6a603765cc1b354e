//! Message about an object that is too large for the API server: which part of it is.
//! See <https://github.com/mogenius/renovate-operator/issues/616>.

use serde_json::Value;

use crate::children::last_applied::LAST_APPLIED;
use crate::json::size::ValueSize;

/// A part that is named has this share of the whole at least: one in two.
const SHARE: usize = 2;

/// Bytes of what was sent that show what is large: a smaller patch is about a large object.
const MIN_SHOWN: usize = 1 << 20;

/// Refusals of what is too large: of etcd, of the API server's connection to it, and of the API server.
const REFUSALS: [&str; 3] =
    ["request is too large", "trying to send message larger than max", "Request entity too large"];

/// The message of a refusal, with the size of what was sent, the bound, and what to do; `None`: it is about something else.
pub fn explained(message: &str, sent: &Value) -> Option<String> {
    REFUSALS.iter().find(|refusal| message.contains(**refusal))?;
    let whole = ValueSize::of(sent).text;
    if whole < MIN_SHOWN {
        return Some(format!(
            "the object is too large with this change: etcd takes 1.5Mi of an object, unless its --max-request-bytes says more: have it hold less ({message})"
        ));
    }
    let part = largest_part(sent)
        .map_or_else(String::new, |(path, size)| format!(", of which {path} has {}", kibi(size)));
    let whole = kibi(whole);
    Some(format!(
        "it is too large: {whole} as JSON{part}, and etcd takes 1.5Mi of an object, unless its --max-request-bytes says more: write less, or to several objects ({message})"
    ))
}

fn kibi(bytes: usize) -> String {
    format!("{}Ki", bytes.div_ceil(1 << 10))
}

/// The innermost part that has at least half of a document's bytes, such as `status.report` or `data["a.log"]`, with its bytes;
/// `None` where the document has no such part.
///
/// Metadata do not count where they repeat the rest, as last applied.
fn largest_part(document: &Value) -> Option<(String, usize)> {
    let repeat = document.pointer("/metadata/annotations").and_then(|all| all.get(LAST_APPLIED));
    let metadata = repeat.and_then(|_| document.get("metadata"));
    let is_counted = |part: &Value| !metadata.is_some_and(|metadata| std::ptr::eq(metadata, part));
    let whole = ValueSize::of(document).text - metadata.map_or(0, |metadata| ValueSize::of(metadata).text);
    let (mut path, mut part, mut found) = (String::new(), document, None);
    while let Some((step, inner, size)) =
        largest_within(part, is_counted).filter(|(_, _, size)| size * SHARE >= whole)
    {
        if step.starts_with('[') || path.is_empty() {
            path += &step;
        } else {
            path = format!("{path}.{step}");
        }
        part = inner;
        found = Some(size);
    }
    Some((path, found?))
}

/// The largest value of a list or an object, and how a path names it.
fn largest_within(part: &Value, is_counted: impl Fn(&Value) -> bool) -> Option<(String, &Value, usize)> {
    let sized = |inner| (inner, ValueSize::of(inner).text);
    match part {
        Value::Array(items) => {
            let (at, (inner, size)) =
                items.iter().map(sized).enumerate().max_by_key(|(_, (_, size))| *size)?;
            Some((format!("[{at}]"), inner, size))
        }
        Value::Object(members) => {
            let (key, (inner, size)) = members
                .iter()
                .filter(|(_, inner)| is_counted(inner))
                .map(|(key, inner)| (key, sized(inner)))
                .max_by_key(|(_, (_, size))| *size)?;
            let is_word = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let step = if is_word(key) { key.clone() } else { format!("[{key:?}]") };
            Some((step, inner, size))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_innermost_part_with_half_of_the_bytes_is_named() {
        let path = |document: &Value| largest_part(document).map(|(path, _)| path);
        let text = "x".repeat(1000);
        assert_eq!(path(&json!({ "data": { "a.log": text, "b": "c" } })).as_deref(), Some("data[\"a.log\"]"));
        assert_eq!(
            path(&json!({ "status": { "items": [1, { "report": text }] } })).as_deref(),
            Some("status.items[1].report")
        );
        assert_eq!(path(&json!({ "spec": { "a": text, "b": text, "c": text } })).as_deref(), Some("spec"));
        assert_eq!(path(&json!({ "a": text, "b": text, "c": text })), None);
        assert_eq!(path(&json!("text")), None);
        let applied = json!({ "annotations": { LAST_APPLIED: "x".repeat(3000) } });
        assert_eq!(path(&json!({ "data": { "a": text }, "metadata": applied })).as_deref(), Some("data.a"));
        let (_, size) = largest_part(&json!({ "data": text, "b": 1 })).unwrap();
        assert_eq!(size, 1002);
    }

    #[test]
    fn a_refusal_of_what_is_too_large_has_size_bound_and_part() {
        let sent = json!({ "kind": "P", "status": { "report": "x".repeat(2 << 20) } });
        for refusal in [
            "etcdserver: request is too large",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097197 vs. 2097152)",
            "Request entity too large: limit is 3145728",
        ] {
            let message = explained(refusal, &sent).unwrap();
            let expected = "it is too large: 2049Ki as JSON, of which status.report has 2049Ki, and etcd takes 1.5Mi of an object, ";
            assert!(message.starts_with(expected) && message.contains(refusal), "{message}");
        }
        let patch = json!({ "metadata": { "finalizers": ["a"] } });
        let message = explained("etcdserver: request is too large", &patch).unwrap();
        assert!(message.starts_with("the object is too large with this change: "), "{message}");
        assert_eq!(explained("spec.replicas: Invalid value", &sent), None);
    }
}
