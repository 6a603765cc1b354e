//! Objects that tests make, built by chained words.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::api::Kind;

/// A `CompositeController`.
#[derive(Debug, Clone)]
#[must_use]
pub struct Composite(Value);

/// A `DecoratorController`.
#[derive(Debug, Clone)]
#[must_use]
pub struct Decorator(Value);

impl Composite {
    pub fn named(name: &str) -> Self {
        Self(json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1",
            "kind": "CompositeController",
            "metadata": { "name": name, "labels": {} },
            "spec": { "childResources": [], "hooks": {} },
        }))
    }

    /// As it is written.
    pub fn of(json: Value) -> Self {
        Self(json)
    }

    pub fn over(mut self, parent: &Kind) -> Self {
        self.0["spec"]["parentResource"] =
            json!({ "apiVersion": parent.api_version(), "resource": parent.plural });
        self
    }

    /// Only the parents with this label.
    pub fn of_parents_with(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["parentResource"]["labelSelector"]["matchLabels"][key] = json!(value);
        self
    }

    pub fn generating_selectors(mut self) -> Self {
        self.0["spec"]["generateSelector"] = json!(true);
        self
    }

    /// Each parent says in its spec which children are its own.
    pub fn by_own_selectors(mut self) -> Self {
        self.0["spec"]["generateSelector"] = json!(false);
        self
    }

    /// Declares a kind of children and what is done when one has to change.
    pub fn making(mut self, child: &Kind, method: &str) -> Self {
        let rule = json!({
            "apiVersion": child.api_version(),
            "resource": child.plural,
            "updateStrategy": { "method": method },
        });
        if let Some(rules) = self.0["spec"]["childResources"].as_array_mut() {
            rules.push(rule);
        }
        self
    }
}

/// Methods that set parts which the specs of all controllers have in common.
macro_rules! words_of {
    ($controller:ident) => {
        impl $controller {
            pub fn renamed(mut self, name: &str) -> Self {
                self.0["metadata"]["name"] = json!(name);
                self
            }

            pub fn labelled(mut self, key: &str, value: &str) -> Self {
                self.0["metadata"]["labels"][key] = json!(value);
                self
            }

            pub fn without_labels(mut self) -> Self {
                self.0["metadata"]["labels"] = json!({});
                self
            }

            /// All parents are looked at again each second.
            pub fn resyncing_each_second(self) -> Self {
                self.with("resyncPeriodSeconds", 1)
            }

            pub fn synced_by(mut self, hook: Hook) -> Self {
                self.0["spec"]["hooks"]["sync"] = hook.0;
                self
            }

            pub fn finalized_by(mut self, hook: Hook) -> Self {
                self.0["spec"]["hooks"]["finalize"] = hook.0;
                self
            }

            pub fn customized_by(mut self, hook: Hook) -> Self {
                self.0["spec"]["hooks"]["customize"] = hook.0;
                self
            }

            /// Any field of the spec.
            pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
                self.0["spec"][field] = value.into();
                self
            }

            pub fn json(self) -> Value {
                self.0
            }
        }
    };
}

words_of!(Composite);
words_of!(Decorator);

impl Decorator {
    pub fn named(name: &str) -> Self {
        Self(json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1",
            "kind": "DecoratorController",
            "metadata": { "name": name, "labels": {} },
            "spec": { "resources": [], "attachments": [], "hooks": {} },
        }))
    }

    /// One more rule: of this kind the objects that `rule` says, such as `{"labelSelector": {..}}`.
    pub fn decorating(self, kind: &Kind, mut rule: Value) -> Self {
        rule["apiVersion"] = json!(kind.api_version());
        rule["resource"] = json!(kind.plural);
        self.push("resources", rule)
    }

    /// Declares a kind of attachments and, but for `""`, what is done when one has to change.
    pub fn attaching(self, kind: &Kind, method: &str) -> Self {
        let mut rule = json!({ "apiVersion": kind.api_version(), "resource": kind.plural });
        if !method.is_empty() {
            rule["updateStrategy"] = json!({ "method": method });
        }
        self.push("attachments", rule)
    }

    fn push(mut self, field: &str, rule: Value) -> Self {
        if let Some(rules) = self.0["spec"][field].as_array_mut() {
            rules.push(rule);
        }
        self
    }
}

/// Hook that a controller calls.
#[derive(Debug, Clone)]
#[must_use]
pub struct Hook(Value);

impl Hook {
    /// The module under the default key of a `ConfigMap`.
    pub fn wasm(namespace: &str, config_map: &str) -> Self {
        Self(json!({ "wasm": { "configMap": { "namespace": namespace, "name": config_map } } }))
    }

    /// A script under a key of a `ConfigMap`.
    pub fn script(language: &str, namespace: &str, config_map: &str, key: &str) -> Self {
        let map = json!({ "namespace": namespace, "name": config_map, "key": key });
        Self(json!({ "script": { "language": language, "configMap": map } }))
    }

    /// A webhook.
    pub fn webhook(url: &str) -> Self {
        Self(json!({ "webhook": { "url": url } }))
    }

    /// `v1` or `v2`.
    pub fn version(mut self, version: &str) -> Self {
        self.0["version"] = json!(version);
        self
    }

    /// One field of the webhook, such as `timeout`.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["webhook"][field] = value.into();
        self
    }

    /// With another hook that is asked the same.
    pub fn shadowed_by(mut self, shadow: Self) -> Self {
        self.0["shadow"] = shadow.0;
        self
    }

    /// The fields of the module or the script.
    fn stored(&mut self) -> &mut Value {
        let way = if self.0["script"].is_null() { "wasm" } else { "script" };
        &mut self.0[way]
    }

    pub fn pinned_to(mut self, sha256: &str) -> Self {
        self.stored()["sha256"] = json!(sha256);
        self
    }

    pub fn with_settings(mut self, settings: Value) -> Self {
        self.stored()["settings"] = settings;
        self
    }

    /// A folder with a file for each key of an object; `kind` is `configMap` or `secret`.
    pub fn mounting(mut self, path: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mount = json!({ "path": path, kind: { "namespace": namespace, "name": name } });
        match &mut self.stored()["mounts"] {
            Value::Array(mounts) => mounts.push(mount),
            none => *none = json!([mount]),
        }
        self
    }

    /// One limit of the module or script, such as `timeout`.
    pub fn limited(mut self, limit: &str, to: impl Into<Value>) -> Self {
        self.stored()["limits"][limit] = to.into();
        self
    }

    /// A webhook beside what is there.
    pub fn and_webhook(mut self, url: &str) -> Self {
        self.0["webhook"] = json!({ "url": url });
        self
    }
}

/// A parent that says whom to greet.
#[derive(Debug, Clone)]
#[must_use]
pub struct Parent(Value);

impl Parent {
    pub fn named(kind: &Kind, name: &str) -> Self {
        Self(json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": { "name": name },
            "spec": {},
        }))
    }

    pub fn greeting(mut self, who: &str) -> Self {
        self.0["spec"]["who"] = json!(who);
        self
    }

    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = json!(value);
        self
    }

    /// Fields of the spec.
    pub fn with(mut self, spec: Value) -> Self {
        self.0["spec"] = spec;
        self
    }

    /// Children are those with this label.
    pub fn selecting(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["selector"]["matchLabels"][key] = json!(value);
        self
    }

    pub fn json(self) -> Value {
        self.0
    }
}

/// A `ConfigMap` that holds a Wasm module under the default key.
pub fn module(name: &str, wasm: &[u8]) -> Value {
    module_under(name, "hook.wasm", wasm)
}

/// A `ConfigMap` that holds a Wasm module under some key.
pub fn module_under(name: &str, key: &str, wasm: &[u8]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name },
        "binaryData": { key: ByteString(wasm.to_vec()) },
    })
}

/// A plain `ConfigMap`.
pub fn config_map(name: &str, labels: Value, data: Value) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    object["metadata"]["labels"] = labels;
    object["data"] = data;
    object
}

/// The definition of a namespaced kind with a status and any spec.
pub fn definition(kind: &Kind) -> Value {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": anything, "status": anything } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", kind.plural, kind.group) },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "plural": kind.plural,
                "singular": kind.kind.to_lowercase(),
            },
            "versions": [{
                "name": kind.version,
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    })
}

/// A condition of an object's status.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Whether a condition of that type, status and reason is there.
pub fn has_condition(object: &Value, kind: &str, status: &str, reason: &str) -> bool {
    condition(object, kind).is_some_and(|is| is["status"] == status && is["reason"] == reason)
}

/// Whether a condition of that type is true.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|is| is["status"] == "True")
}

/// A text anywhere in an object, empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}
