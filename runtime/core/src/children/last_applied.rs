//! Desired state of a child as it is sent and recorded: by dynamic apply in an annotation, by server-side apply as a body.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::children::claims::{MADE_BY, own};
use crate::children::{Owner, Problem, injected};
use crate::hash::{Fingerprint, Fingerprinter};
use crate::json::difference::same;
use crate::json::lists::Lists;
use crate::json::{object_in, to_go_string};
use crate::object::id::Uid;

/// Annotation of each child: what was applied last, in the bytes that Metacontroller would write.
pub const LAST_APPLIED: &str = "metacontroller.k8s.io/last-applied-configuration";

/// Fields of the metadata that belong to the API server.
pub(super) const SYSTEM_FIELDS: [&str; 8] = [
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// A child as its hook wants it, less the annotations that are the server's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) object: Value,
    /// The object that is recorded as applied, where it is another one.
    record: Option<Value>,
}

impl Wanted {
    /// The wanted object and its record. With a `salt` the values of Secrets are recorded as hashes.
    pub(super) fn of(desired: &Value, salt: Option<&Uid>) -> Self {
        let mut object = desired.clone();
        plain_numbers(&mut object);
        if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
            annotations.remove(LAST_APPLIED);
            annotations.remove(MADE_BY);
        }
        let record = is_kept_otherwise(&object).then(|| object.clone());
        let record = record.map(|mut record| {
            if let Some(salt) = salt.filter(|_| is_secret(&record)) {
                hash(&mut record, salt);
            }
            fold(&mut object);
            record
        });
        Self { object, record }
    }

    pub(super) fn record(&self) -> &Value {
        self.record.as_ref().unwrap_or(&self.object)
    }

    /// Whether the record is the same as `last`, the one of the last apply.
    pub(super) fn is(&self, last: &Value) -> bool {
        let mut record = Cow::Borrowed(self.record());
        if holds_the_servers(&record) {
            drop_the_servers(record.to_mut());
        }
        same(last, &record)
    }
}

/// The object that was applied last, without the API server's fields, and the text that it is recorded as.
pub fn last_applied(observed: &Value) -> Result<Option<(Value, &str)>, Problem> {
    match annotation(observed, LAST_APPLIED) {
        None | Some("") => Ok(None),
        Some(text) => match serde_json::from_str(text) {
            Ok(mut last) => {
                drop_the_servers(&mut last);
                Ok(Some((last, text)))
            }
            Err(_invalid) => Err(Problem::LastApplied),
        },
    }
}

/// A hook may have copied them from a child that it saw, where they change with each write. They are recorded, since
/// Metacontroller compares the bytes of the record, but no reason for the next write.
pub(super) fn drop_the_servers(object: &mut Value) {
    let Value::Object(object) = object else { return };
    object.remove("status");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|field, _| !SYSTEM_FIELDS.contains(&field.as_str()));
    }
}

fn holds_the_servers(object: &Value) -> bool {
    let metadata = object.get("metadata").and_then(Value::as_object);
    let field = |field: &&str| metadata.is_some_and(|metadata| metadata.contains_key(*field));
    object.get("status").is_some() || SYSTEM_FIELDS.iter().any(field)
}

pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

pub(super) fn annotate(object: &mut Value, name: &str, text: String) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(annotations) = object_in(metadata, "annotations")
    {
        annotations.insert(name.to_owned(), Value::String(text));
    }
}

pub(super) fn is_secret(object: &Value) -> bool {
    let is = |field: &str, text: &str| object.get(field).and_then(Value::as_str) == Some(text);
    is("apiVersion", "v1") && is("kind", "Secret")
}

/// Whether the API server, or an injector, keeps an object as something else than what is recorded.
pub(super) fn is_kept_otherwise(object: &Value) -> bool {
    is_secret(object) || injected::has_empty(object)
}

/// Brings an object into the form in which it is compared and merged.
pub(super) fn fold(object: &mut Value) {
    if is_secret(object) {
        fold_texts(object);
    }
    injected::drop_empty(object);
}

/// `stringData` can only be written: the API server keeps it as `data`, and so it has to be compared.
/// See <https://github.com/VictoriaMetrics/operator/pull/1685>.
fn fold_texts(secret: &mut Value) {
    let Value::Object(secret) = secret else { return };
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    if let Some(data) = object_in(secret, "data") {
        for (key, text) in texts {
            let encoded = text.as_str().map_or(text.clone(), |text| json!(BASE64.encode(text)));
            data.insert(key, encoded);
        }
    }
}

/// Values that a record need only recognise, not give away.
fn hash(secret: &mut Value, salt: &Uid) {
    for field in ["data", "stringData"] {
        for (key, value) in secret.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten() {
            let mut all = Fingerprinter::default();
            for text in [salt.as_str(), field, key, &value.to_string()] {
                all.add(text.as_bytes());
            }
            *value = json!(format!("sha256:{}", BASE64.encode(all.finish().as_bytes())));
        }
    }
}

/// `1.0` as `1`: the API server takes no other for an integer, and hooks write both.
fn plain_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(plain_numbers),
        Value::Array(items) => items.iter_mut().for_each(plain_numbers),
        Value::Number(number) if number.is_f64() => {
            // Written so by Go, which reads it back as an integer.
            if let Ok(integer) = to_go_string(&Value::Number(number.clone())).parse::<i64>() {
                *number = integer.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Body that is sent for a child: all that is wanted of it, and nothing that is not.
pub(super) fn applied_body(
    owner: Owner<'_>,
    wanted: Wanted,
    observed: Option<&Value>,
    lists: Option<&Lists>,
) -> Value {
    let mut body = wanted.object;
    drop_the_servers(&mut body);
    prune_nulls(&mut body, observed, lists);
    own(&mut body, owner.parent);
    // Fields that are not sent any longer would go. A child without them was made by another client.
    let made_by = observed.map_or(owner.maker(), |observed| annotation(observed, MADE_BY));
    if let Some(made_by) = made_by {
        annotate(&mut body, MADE_BY, made_by.to_owned());
    }
    body
}

/// Fingerprint of a body, the same for equal bodies.
pub(super) fn applied_print(body: &Value) -> Fingerprint {
    Fingerprint::of(to_go_string(body).as_bytes())
}

/// A field that is wanted to be nothing is not sent, unless the schema lets a null be there; but where texts are expected the
/// API server took a null for an empty one, and that stays.
/// See <https://github.com/kubernetes-sigs/controller-runtime/issues/1356>.
fn prune_nulls(value: &mut Value, observed: Option<&Value>, lists: Option<&Lists>) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                let now = observed.and_then(|observed| observed.get(name));
                let below = lists.and_then(|lists| lists.member(name));
                match (&*member, now) {
                    (Value::Null, _) if below.is_some_and(|below| below.nullable) => true,
                    (Value::Null, Some(Value::String(text))) if text.is_empty() => {
                        *member = json!("");
                        true
                    }
                    (Value::Null, _) => false,
                    _ => {
                        prune_nulls(member, now, below);
                        true
                    }
                }
            });
        }
        Value::Array(items) => {
            let below = lists.and_then(Lists::item);
            for item in items {
                prune_nulls(item, None, below);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "y"}})
    }

    #[test]
    fn the_servers_annotations_are_no_part_of_what_is_wanted() {
        let desired = json!({"metadata": {"annotations": {LAST_APPLIED: "{}", MADE_BY: "x", "a": "b"}}});
        let wanted = Wanted::of(&desired, None);
        assert_eq!(wanted.object, json!({"metadata": {"annotations": {"a": "b"}}}));
        assert_eq!(wanted.record(), &wanted.object);
    }

    #[test]
    fn what_a_hook_copied_from_the_api_server_is_recorded_and_no_change() {
        let echo = |version: &str| json!({"metadata": {"name": "a", "resourceVersion": version, "uid": "u", "generation": 3}, "status": {"at": version}});
        let wanted = Wanted::of(&echo("1"), None);
        assert_eq!(*wanted.record(), echo("1"));
        let last = |value: Value| {
            let observed = json!({"metadata": {"annotations": {LAST_APPLIED: value.to_string()}}});
            last_applied(&observed).unwrap().unwrap().0
        };
        assert!(wanted.is(&last(echo("2"))) && wanted.is(&last(json!({"metadata": {"name": "a"}}))));
        assert!(!wanted.is(&last(json!({"metadata": {"name": "b"}}))));
    }

    #[test]
    fn texts_of_a_secret_are_compared_as_data_and_recorded_as_the_hook_wrote_them() {
        let wanted = Wanted::of(&secret(), None);
        assert_eq!(wanted.object["data"], json!({"a": "eA==", "b": "eQ=="}));
        assert_eq!(wanted.object.get("stringData"), None);
        assert_eq!(wanted.record(), &secret());
    }

    #[test]
    fn hashed_values_tell_nothing_but_whether_they_changed() {
        let of = |secret: &Value, salt: &str| Wanted::of(secret, Some(&Uid::new(salt))).record().clone();
        let usual = of(&secret(), "u");
        assert!(usual["data"]["a"].as_str().unwrap().starts_with("sha256:"));
        assert!(usual["stringData"]["b"].as_str().unwrap().starts_with("sha256:"));
        assert_eq!(usual, of(&secret(), "u"));
        let mut other = secret();
        other["data"]["a"] = json!("eQ==");
        assert_ne!(usual, of(&other, "u"), "another value");
        assert_ne!(usual["data"], of(&secret(), "v")["data"], "another parent");
    }

    #[test]
    fn whole_numbers_are_written_as_such() {
        let wanted = Wanted::of(&json!({"a": 30.0, "b": [0.5, -0.0], "c": 1e30}), None).object;
        assert_eq!(wanted.to_string(), r#"{"a":30,"b":[0.5,0],"c":1e+30}"#);
    }

    #[test]
    fn only_secrets_are_hashed() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": "b"}});
        assert_eq!(*Wanted::of(&map, Some(&Uid::new("u"))).record(), map);
    }

    #[test]
    fn a_null_is_not_sent_but_where_it_became_an_empty_text() {
        let mut body = json!({"data": {"a": null, "b": null, "c": "d"}, "l": [{"x": null}], "o": null});
        prune_nulls(&mut body, Some(&json!({"data": {"a": "", "b": "theirs"}, "o": {}})), None);
        assert_eq!(body, json!({"data": {"a": "", "c": "d"}, "l": [{}]}));
    }
    #[test]
    fn a_null_is_sent_where_the_schema_lets_it_be() {
        let open = Lists { open: true, ..Lists::default() };
        let mut body = json!({"a": null, "o": {"b": null}, "l": [{"c": null, "d": 1}]});
        let expected = body.clone();
        prune_nulls(&mut body, None, Some(&open));
        assert_eq!(body, expected);
        prune_nulls(&mut body, None, None);
        assert_eq!(body, json!({"o": {}, "l": [{"d": 1}]}));
    }
}
