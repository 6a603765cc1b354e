//! JSON for people to read: without the values of Secrets, and without credentials in URLs.

use serde_json::{Map, Value};

use crate::json::difference::{Difference, differences};
use crate::{counted, shorten};

/// Stands where a value was.
const HIDDEN: &str = "(hidden)";

/// A body that is larger is not shown: to read it takes many times its size.
const MAX_BODY: usize = 256 * 1024;

/// How many differences of an object are shown, and how many bytes of each value.
const MAX_DIFFERENCES: usize = 50;
const MAX_VALUE: usize = 200;

/// Bytes of a value that is printed. A larger one is named by its size: to print it takes longer than its beginning is worth.
const MAX_PRINTED: usize = 4096;

/// What a Secret may have beside values. A misspelt `stringdata` has values, too.
const OF_SECRETS: [&str; 5] =
    ["type", "immutable", "metadata.labels", "metadata.finalizers", "metadata.ownerReferences"];

/// Annotations that repeat what an object was made of.
const RECORDS: [&str; 2] =
    ["metacontroller.k8s.io/last-applied-configuration", "kubectl.kubernetes.io/last-applied-configuration"];

/// The body of a request or an answer of a hook, in one line.
pub fn shown_body(body: &[u8]) -> String {
    let bytes = body.len();
    if bytes > MAX_BODY {
        return format!("({bytes} bytes, more than the {MAX_BODY} that are shown)");
    }
    match serde_json::from_slice(body) {
        Ok(mut value) => {
            hide(&mut value);
            value.to_string()
        }
        // It may hold anything.
        Err(_) => format!("({bytes} bytes that are no JSON)"),
    }
}

/// Changes that a write makes, as `path: found -> wanted`. `is_whole`: fields that `wanted` does not name go.
pub fn shown_differences(wanted: &Value, found: &Value, is_whole: bool) -> String {
    let is_secret = [wanted, found].into_iter().filter_map(Value::as_object).any(is_secret);
    let mut all = differences(wanted, found, None);
    all.retain(|one| is_whole || !one.wanted.is_null());
    let more = all.len().saturating_sub(MAX_DIFFERENCES);
    let mut shown: Vec<_> =
        all.iter().take(MAX_DIFFERENCES).map(|one| shown_difference(one, is_secret)).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join("; ")
}

fn shown_difference(difference: &Difference, is_secret: bool) -> String {
    let text = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
    let [found, wanted] = shown_values(difference, is_secret, MAX_VALUE).map(text);
    format!("{}: {found} -> {wanted}", difference.path)
}

/// What is found at a place, and what is wanted there, as JSON of at most `max` bytes; `None`: nothing.
pub fn shown_values(difference: &Difference, is_secret: bool, max: usize) -> [Option<String>; 2] {
    let Difference { path, wanted, found, .. } = difference;
    let is_value =
        |field: &str| path.strip_prefix(field).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    let is_hidden = RECORDS.iter().any(|record| path.ends_with(record))
        || is_secret && !OF_SECRETS.into_iter().any(is_value);
    let text = |value: &Value| {
        if value.is_null() {
            return None;
        }
        if is_hidden {
            return Some(HIDDEN.to_owned());
        }
        if room_after(value, MAX_PRINTED).is_none() {
            return Some(size_of(value));
        }
        let mut value = value.clone();
        hide(&mut value);
        Some(shorten(&value.to_string(), max))
    };
    [text(found), text(wanted)]
}

/// The room that is left of so many bytes after a value; `None`: it has more.
fn room_after(value: &Value, room: usize) -> Option<usize> {
    let room = room.checked_sub(2)?;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(room),
        Value::String(text) => room.checked_sub(text.len()),
        Value::Array(items) => items.iter().try_fold(room, |room, item| room_after(item, room)),
        Value::Object(members) => members
            .iter()
            .try_fold(room, |room, (name, value)| room_after(value, room.checked_sub(name.len())?)),
    }
}

fn size_of(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("({})", counted(items.len(), "item", "items")),
        Value::Object(members) => format!("({})", counted(members.len(), "field", "fields")),
        other => format!("(a text of {} bytes)", other.as_str().unwrap_or_default().len()),
    }
}

/// Takes the values of all Secrets out, wherever in `value` they are, and what stands before the `@` of a URL.
pub fn hide(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if is_secret(members) {
                hide_values(members);
            }
            members.values_mut().for_each(hide);
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::String(text) => hide_credentials(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether an object is a Secret of Kubernetes.
pub fn is_secret(object: &Map<String, Value>) -> bool {
    let text = |field| object.get(field).and_then(Value::as_str);
    text("kind") == Some("Secret") && text("apiVersion").is_none_or(|version| version == "v1")
}

fn hide_values(secret: &mut Map<String, Value>) {
    for field in ["data", "stringData"] {
        match secret.get_mut(field) {
            Some(Value::Object(data)) => data.values_mut().for_each(|value| *value = HIDDEN.into()),
            Some(Value::Null) | None => {}
            Some(other) => *other = HIDDEN.into(),
        }
    }
    if let Some(metadata) = secret.get_mut("metadata") {
        hide_records(metadata);
    }
}

/// Takes out the annotations that repeat what an object was made of, wherever in `value` they are.
pub fn remove_records(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Object(annotations)) = members.get_mut("annotations") {
                let before = annotations.len();
                annotations.retain(|name, _| !RECORDS.contains(&name.as_str()));
                if annotations.is_empty() && before > 0 {
                    members.remove("annotations");
                }
            }
            members.values_mut().for_each(remove_records);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_records),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn hide_records(metadata: &mut Value) {
    for record in RECORDS {
        if let Some(value) = metadata.get_mut("annotations").and_then(|all| all.get_mut(record)) {
            *value = HIDDEN.into();
        }
    }
}

/// `http://user:password@host` as `http://(hidden)@host`, everywhere in a text.
fn hide_credentials(text: &mut String) {
    let (mut shown, mut rest) = (String::new(), text.as_str());
    while let Some((before, after)) = rest.split_once("://") {
        shown.extend([before, "://"]);
        let end = after.find(|c: char| "/?#\"'".contains(c) || c.is_whitespace()).unwrap_or(after.len());
        rest = after;
        if let Some(sign) = after.get(..end).and_then(|authority| authority.rfind('@')) {
            shown.push_str(HIDDEN);
            rest = after.get(sign..).unwrap_or_default();
        }
    }
    shown.push_str(rest);
    *text = shown;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(value: &Value) -> String {
        shown_body(value.to_string().as_bytes())
    }

    #[test]
    fn records_are_removed_and_nothing_else_is() {
        let object = |annotations: Value| json!({"items": [{"metadata": {"annotations": annotations}}]});
        let mut value = object(json!({RECORDS[0]: "{}", RECORDS[1]: "{}", "a": "b"}));
        remove_records(&mut value);
        assert_eq!(value, object(json!({"a": "b"})));
        let mut value = json!({"a": {"annotations": {}}, "b": {"annotations": {RECORDS[0]: "{}"}}});
        remove_records(&mut value);
        assert_eq!(value, json!({"a": {"annotations": {}}, "b": {}}));
    }

    #[test]
    fn values_of_secrets_are_hidden_wherever_they_are() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"a": "c2VzYW1l"}, "stringData": {"b": "sesame"},
            "metadata": {"name": "s", "annotations": {
                RECORDS[0]: "{\"data\":{\"a\":\"sesame\"}}", RECORDS[1]: "sesame", "other": "stays",
            }},
        });
        let without_version = json!({"kind": "Secret", "data": "sesame", "stringData": ["sesame"]});
        let places = [
            secret.clone(),
            json!({"children": {"Secret.v1": {"s": secret}}, "related": {}}),
            json!({"children": [{"kind": "List", "items": [secret]}]}),
            without_version,
        ];
        for place in places {
            let shown = shown(&place);
            assert!(!shown.contains("sesame") && !shown.contains("c2VzYW1l"), "{shown}");
            assert!(shown.contains(HIDDEN), "{shown}");
        }
        assert!(shown(&secret).contains("\"other\":\"stays\""));
    }

    #[test]
    fn other_objects_stay_as_they_are() {
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}),
            json!({"apiVersion": "example.com/v1", "kind": "Secret", "data": {"a": "b"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "data": null}),
            json!(["mail@example.com", "http://host/a@b", "a://b c@d", 1, null]),
        ] {
            assert_eq!(shown(&object), object.to_string());
        }
    }

    #[test]
    fn credentials_in_urls_are_hidden() {
        for (url, expected) in [
            ("http://Aladdin:sesame@host/path", "http://(hidden)@host/path"),
            ("https://sesame@host", "https://(hidden)@host"),
            ("http://a:p@ss@host", "http://(hidden)@host"),
            (
                "from http://a:b@host, to http://c:d@other/",
                "from http://(hidden)@host, to http://(hidden)@other/",
            ),
            ("://@", "://(hidden)@"),
        ] {
            assert_eq!(shown(&json!({"url": url})), json!({"url": expected}).to_string());
        }
    }

    #[test]
    fn differences_are_paths_with_what_is_found_and_wanted() {
        let found = json!({"spec": {"replicas": 1, "paused": true}, "status": {"ready": 1}});
        let wanted = json!({"spec": {"replicas": 2, "image": "a"}});
        let shown = |is_whole| shown_differences(&wanted, &found, is_whole);
        assert_eq!(shown(false), "spec.image: nothing -> \"a\"; spec.replicas: 1 -> 2");
        let whole = "spec.image: nothing -> \"a\"; spec.paused: true -> nothing; spec.replicas: 1 -> 2; status: {\"ready\":1} -> nothing";
        assert_eq!(shown(true), whole);
    }

    #[test]
    fn differences_of_secrets_name_the_key_alone() {
        let secret = |value: &str, note: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": value}, "type": note,
                "metadata": {"annotations": {RECORDS[0]: value}, "labels": {"a": note}}})
        };
        let shown = shown_differences(&secret("sesame", "x"), &secret("open sesame", "y"), true);
        assert!(!shown.contains("sesame") && shown.contains("data.a: (hidden) -> (hidden)"), "{shown}");
        assert!(shown.contains("metadata.labels.a: \"y\" -> \"x\""), "{shown}");
        let made = shown_differences(&secret("sesame", "x"), &json!({"kind": "Secret"}), true);
        assert!(!made.contains("sesame"), "{made}");
    }

    /// The API server leaves a misspelt field out, so that it differs each time.
    #[test]
    fn differences_of_misspelt_fields_of_secrets_are_not_shown() {
        let secret = |more: Value| {
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
            secret.as_object_mut().unwrap().insert("stringdata".to_owned(), more);
            secret
        };
        let shown = shown_differences(&secret(json!({"a": "sesame"})), &secret(Value::Null), true);
        assert_eq!(shown, "stringdata: nothing -> (hidden)");
        let shown = shown_differences(&secret(json!("sesame")), &secret(json!("open")), true);
        assert_eq!(shown, "stringdata: (hidden) -> (hidden)");
    }

    #[test]
    fn large_values_are_named_by_their_sizes() {
        let change = |value: Value| shown_differences(&json!({ "a": value }), &json!({}), true);
        // Quotes count, too.
        assert!(change(json!("b".repeat(MAX_PRINTED - 2))).starts_with("a: nothing -> \"bbb"));
        assert_eq!(change(json!("b".repeat(MAX_PRINTED - 1))), "a: nothing -> (a text of 4095 bytes)");
        assert_eq!(change(json!(vec![1; MAX_PRINTED])), "a: nothing -> (4096 items)");
        let fields: Map<_, _> = (0..1000).map(|nth| (format!("key-{nth}"), json!(1))).collect();
        assert_eq!(change(fields.into()), "a: nothing -> (1000 fields)");
    }

    #[test]
    fn differences_are_bounded() {
        let many = |count: usize, text: &str| json!({"data": (0..count).map(|nth| (nth.to_string(), json!(text))).collect::<Map<_, _>>()});
        let shown =
            |count, length| shown_differences(&many(count, &"a".repeat(length)), &many(count, "b"), true);
        assert_eq!(shown(MAX_DIFFERENCES, 1).split("; ").count(), MAX_DIFFERENCES);
        assert!(
            !shown(MAX_DIFFERENCES, 1).contains("more")
                && shown(MAX_DIFFERENCES + 1, 1).ends_with("; 1 more")
        );
        assert!(shown(1, 100_000).len() < MAX_VALUE + 40);
    }

    #[test]
    fn what_is_large_or_no_json_is_not_shown() {
        let text = |length: usize| format!("\"{}\"", "a".repeat(length - 2));
        assert_eq!(shown_body(text(MAX_BODY).as_bytes()).len(), MAX_BODY);
        let larger = shown_body(text(MAX_BODY + 1).as_bytes());
        assert_eq!(larger, "(262145 bytes, more than the 262144 that are shown)");
        assert_eq!(shown_body(b"{sesame"), "(7 bytes that are no JSON)");
    }
}
