//! Builders and generators for the tests of this crate.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::{Gvk, Resource};

pub(crate) fn resource(api_version: &str, kind: &str) -> Arc<Resource> {
    let plural = format!("{}s", kind.to_lowercase());
    Arc::new(Resource {
        gvk: Gvk::new(api_version, kind),
        plural: plural.into(),
        namespaced: true,
        has_status: true,
    })
}

pub(crate) fn cluster_resource(api_version: &str, kind: &str) -> Arc<Resource> {
    Arc::new(Resource { namespaced: false, ..(*resource(api_version, kind)).clone() })
}

/// An object in the words of a test: `a("v1", "Pod", "n/x").uid("u").label("a", "b").object()`.
pub(crate) struct Build(Value);

pub(crate) fn a(api_version: &str, kind: &str, key: &str) -> Build {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let mut value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "1"}});
    if !namespace.is_empty() {
        value["metadata"]["namespace"] = json!(namespace);
    }
    Build(value)
}

impl Build {
    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        let mut at = &mut self.0;
        for step in pointer.split('.') {
            at = at.as_object_mut().unwrap().entry(step).or_insert_with(|| json!({}));
        }
        *at = value;
        self
    }

    pub(crate) fn uid(self, uid: &str) -> Self {
        self.with("metadata.uid", json!(uid))
    }

    pub(crate) fn version(self, version: &str) -> Self {
        self.with("metadata.resourceVersion", json!(version))
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        let labels = self.0["metadata"].as_object_mut().unwrap().entry("labels").or_insert_with(|| json!({}));
        labels[key] = json!(value);
        self
    }

    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        let all =
            self.0["metadata"].as_object_mut().unwrap().entry("annotations").or_insert_with(|| json!({}));
        all[key] = json!(value);
        self
    }

    pub(crate) fn controlled_by(self, uid: &str) -> Self {
        let owner = json!({"apiVersion": "example.com/v1", "kind": "Parent", "name": "p", "uid": uid, "controller": true});
        self.with("metadata.ownerReferences", json!([owner]))
    }

    pub(crate) fn deleting(self) -> Self {
        self.with("metadata.deletionTimestamp", json!("2026-01-01T00:00:00Z"))
    }

    /// The object as a cache holds it whole.
    pub(crate) fn cached(self) -> CachedObject {
        self.object().into()
    }

    pub(crate) fn object(self) -> Arc<Object> {
        Arc::new(Object::parse(&self.0.to_string(), None).unwrap())
    }
}

/// Objects as a cache holds them whole.
pub(crate) fn cached(objects: &[Arc<Object>]) -> Vec<CachedObject> {
    objects.iter().cloned().map(Into::into).collect()
}

/// Small JSON values over few keys, so that generated values meet each other.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (0..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let member = (prop_oneof![Just("name"), Just("port"), Just("a"), Just("b")], inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            prop::collection::vec(member, 0..4).prop_map(|members| Value::Object(
                members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>()
            )),
        ]
    })
}
