//! Tests of observed objects.

use serde_json::json;

use super::*;

#[test]
fn the_fields_of_every_reconcile_are_read_and_the_bytes_kept() {
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a\u0062","namespace":"n","uid":"u","resourceVersion":"12","generation":3,"labels":{"a":"b"},"creationTimestamp":"2025-12-31T23:59:58Z","annotations":{"x":"y","metahook.dev/controller":"c","metacontroller.k8s.io/decorator-controller":"d"},"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"o1"},{"apiVersion":"e/v1","kind":"Y","name":"y","uid":"o2","controller":true}],"finalizers":["f"],"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"z":1,"a":2}}"#;
    let object = Object::parse(text, None).unwrap();
    assert_eq!(object.json(), text);
    assert_eq!(object.key, Key::new("n", "ab"));
    assert_eq!((object.generation, object.made_by.as_deref()), (3, Some("c")));
    assert_eq!(object.attached_by.as_deref(), Some("d"));
    assert_eq!((object.created, object.applied), (20_251_231_235_958, false));
    assert_eq!(object.deletion_asked(), Some(20_260_101_000_000));
    assert!(object.deleting && object.controller == Some(Uid::new("o2")));
    assert!(object.controller != Some(Uid::new("o1")), "an owner that does not control is no controller");
}

#[test]
fn managed_fields_are_cut_wherever_they_stand() {
    for meta in [
        r#""managedFields":[{"a":"}]"}],"name":"x""#,
        r#""name":"x","managedFields":[{"a":"}]"}]"#,
        r#""labels":{},"managedFields":[],"name":"x""#,
        r#" "name" : "x" , "managedFields" : [ ] "#,
    ] {
        let text = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{meta}}},"managedFields":1}}"#);
        let object = Object::parse(&text, None).unwrap();
        let value = object.value().unwrap();
        assert_eq!(value["metadata"].get("managedFields"), None, "{text}");
        assert_eq!(value["metadata"]["name"], "x");
        assert_eq!(value["managedFields"], 1, "only those of the metadata");
    }
}

#[test]
fn an_item_of_a_list_gets_the_kind_of_the_list() {
    let object =
        Object::parse(r#" {"metadata":{"name":"x"}}"#, Some(&Gvk::new("apps/v1", "Deployment"))).unwrap();
    assert_eq!(
        object.value().unwrap(),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}})
    );
}

#[test]
fn versions_compare_as_integers_or_not_at_all() {
    assert!(Version::new("9").is_older_than(&Version::new("10")));
    assert!(!Version::new("10").is_older_than(&Version::new("10")));
    assert!(!Version::new("a").is_older_than(&Version::new("b")));
}

#[test]
fn names_follow_the_hook_version_and_the_scopes() {
    let (same, other, cluster) = (Key::new("n", "x"), Key::new("m", "x"), Key::new("", "x"));
    let v1 = |parent, key| Naming::Relative.name(parent, key);
    let v2 = |parent, key| Naming::Uniform.name(parent, key);
    assert_eq!(v1("n", &same).as_deref(), Some("x"));
    assert_eq!(v1("n", &other), None);
    assert_eq!(v1("n", &cluster), None);
    assert_eq!(v1("", &same).as_deref(), Some("n/x"));
    assert_eq!(v1("", &cluster).as_deref(), Some("x"));
    assert_eq!(v2("n", &same).as_deref(), Some("n/x"));
    assert_eq!(v2("n", &cluster).as_deref(), Some("x"));
    assert_eq!(v2("", &other).as_deref(), Some("m/x"));
}
