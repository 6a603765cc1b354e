//! Fields that other clients of the cluster fill: an answer that has one of them empty does not ask for it.
//!
//! A hook written in Go answers `caBundle: ""` where it means nothing by it. Taken at its word, it would take the bundle
//! away that cert-manager injects, again and again.
//! See <https://github.com/cert-manager/cert-manager/issues/2899>.

use serde_json::Value;

struct Injected {
    group: &'static str,
    kind: &'static str,
    /// `*`: each item of a list.
    path: &'static [&'static str],
    /// The field beside which another client fills it, where it does not always.
    /// See <https://github.com/kubernetes-sigs/cluster-api/issues/13489>.
    beside: Option<&'static str>,
}

const WEBHOOK_BUNDLE: &[&str] = &["webhooks", "*", "clientConfig", "caBundle"];

const INJECTED: [Injected; 5] = [
    injected("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", WEBHOOK_BUNDLE),
    injected("admissionregistration.k8s.io", "MutatingWebhookConfiguration", WEBHOOK_BUNDLE),
    injected(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &["spec", "conversion", "webhook", "clientConfig", "caBundle"],
    ),
    injected("apiregistration.k8s.io", "APIService", &["spec", "caBundle"]),
    Injected {
        beside: Some("aggregationRule"),
        ..injected("rbac.authorization.k8s.io", "ClusterRole", &["rules"])
    },
];

const fn injected(group: &'static str, kind: &'static str, path: &'static [&'static str]) -> Injected {
    Injected { group, kind, path, beside: None }
}

/// Whether `object` has an injected field, and it is empty.
pub(super) fn has_empty(object: &Value) -> bool {
    of(object).is_some_and(|it| is_empty_at(object, it.path))
}

/// Removes the injected field of `object` where it is empty.
pub(super) fn drop_empty(object: &mut Value) {
    if let Some(it) = of(object) {
        drop_at(object, it.path);
    }
}

fn of(object: &Value) -> Option<&'static Injected> {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    let (kind, (group, _version)) = (text("kind")?, text("apiVersion")?.split_once('/')?);
    let found = INJECTED.iter().find(|it| it.kind == kind && it.group == group)?;
    found.beside.is_none_or(|field| object.get(field).is_some_and(|value| !value.is_null())).then_some(found)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn is_empty_at(value: &Value, path: &[&str]) -> bool {
    match path {
        [] => is_empty(value),
        ["*", below @ ..] => {
            value.as_array().is_some_and(|items| items.iter().any(|item| is_empty_at(item, below)))
        }
        [field, below @ ..] => value.get(field).is_some_and(|value| is_empty_at(value, below)),
    }
}

fn drop_at(value: &mut Value, path: &[&str]) {
    match (path, value) {
        ([field], Value::Object(members)) if members.get(*field).is_some_and(is_empty) => {
            members.remove(*field);
        }
        (["*", below @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| drop_at(item, below)),
        ([field, below @ ..], Value::Object(members)) if !below.is_empty() => {
            members.get_mut(*field).into_iter().for_each(|value| drop_at(value, below));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dropped(mut object: Value) -> Value {
        let had = has_empty(&object);
        let before = object.clone();
        drop_empty(&mut object);
        assert_eq!(had, object != before);
        object
    }

    #[test]
    fn an_empty_bundle_is_none_and_another_one_stays() {
        let config = |bundles: [Value; 2]| {
            let webhooks = bundles.map(|bundle| json!({"name": "x", "clientConfig": {"caBundle": bundle}}));
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "webhooks": webhooks})
        };
        let mut expected = config([json!(""), json!("Cg==")]);
        let one = dropped(expected.clone());
        expected["webhooks"][0]["clientConfig"] = json!({});
        assert_eq!(one, expected);
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": {"caBundle": "", "group": ""}});
        assert_eq!(dropped(service)["spec"], json!({"group": ""}));
    }

    #[test]
    fn rules_are_filled_only_where_they_are_aggregated() {
        let role = |rule: Value, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "aggregationRule": rule, "rules": rules});
        let rules = |object: Value| dropped(object).get("rules").cloned();
        assert_eq!(rules(role(json!({}), json!([]))), None);
        assert_eq!(rules(role(json!(null), json!([]))), Some(json!([])));
        assert_eq!(rules(role(json!({}), json!([1]))), Some(json!([1])));
    }

    #[test]
    fn other_kinds_and_shapes_are_left() {
        for object in [
            json!({"apiVersion": "v1", "kind": "APIService", "spec": {"caBundle": ""}}),
            json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": ""}),
            json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": {"caBundle": null}}),
        ] {
            assert_eq!(dropped(object.clone()), object);
        }
    }
}
