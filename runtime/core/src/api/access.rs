//! Access of a controller's account to what the controller cannot start without, as the API server is asked about it.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::api::common::ApplyStrategy;
use crate::api::policy::ServiceAccountRef;
use crate::api::rbac::RequiredRights;
use crate::object::Object;

/// The right to read one ConfigMap or Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reads {
    resource: &'static str,
    namespace: String,
    name: String,
}

impl Reads {
    /// The question that the API server is asked.
    pub fn review(&self) -> Value {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": "get", "resource": self.resource, "namespace": self.namespace, "name": self.name,
            }},
        })
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "get resource {:?} {}/{}", self.resource, self.namespace, self.name)
    }
}

/// The account of a controller, and what it has to read before the controller can start: modules, mounts, certificates and
/// credentials. `None`: it has no account, or its spec is refused anyway.
pub fn to_start(kind: ControllerKind, controller: &Object) -> Option<(ServiceAccountRef, Vec<Reads>)> {
    #[derive(Deserialize)]
    struct Specified<S> {
        spec: S,
    }
    let (name, json) = (&controller.key.name, controller.json());
    // It decides about writes, which are not asked for here.
    let apply = ApplyStrategy::default();
    let needs = match kind {
        ControllerKind::Composite => serde_json::from_str(json)
            .map(|Specified { spec }| RequiredRights::of_composite(name, &spec, apply)),
        ControllerKind::Decorator => serde_json::from_str(json)
            .map(|Specified { spec }| RequiredRights::of_decorator(name, &spec, apply)),
    };
    let needs = needs.ok()?;
    let account = needs.account()?.clone();
    account.check("spec.serviceAccountRef").ok()?;
    let reads = |(resource, namespace, name): (_, &str, &str)| Reads {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Some((account, needs.named_objects().map(reads).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::testing::a;

    fn controller(account: &Value) -> Arc<Object> {
        let wasm = json!({
            "configMap": {"namespace": "hello", "name": "hook"},
            "mounts": [{"path": "/a", "secret": {"namespace": "db", "name": "password"}}],
        });
        let spec = json!({
            "parentResource": {"apiVersion": "e/v1", "resource": "things"},
            "hooks": {"sync": {"wasm": wasm}},
            "serviceAccountRef": account,
        });
        a("m/v1", "CompositeController", "c").with("spec", spec).object()
    }

    #[test]
    fn a_controller_with_an_account_needs_its_module_and_mounts() {
        let account = json!({"namespace": "hello", "name": "greeter"});
        let (account, reads) = to_start(ControllerKind::Composite, &controller(&account)).unwrap();
        assert_eq!((&*account.namespace, &*account.name), ("hello", "greeter"));
        let texts: Vec<_> = reads.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["get resource \"secrets\" db/password", "get resource \"configmaps\" hello/hook"]);
        let asked = json!({"verb": "get", "resource": "secrets", "namespace": "db", "name": "password"});
        assert_eq!(reads[0].review()["spec"]["resourceAttributes"], asked);
    }

    #[test]
    fn one_without_an_account_or_with_a_wrong_spec_waits_for_nothing() {
        for account in [Value::Null, json!({"namespace": "no name", "name": "?"}), json!("x")] {
            assert_eq!(to_start(ControllerKind::Composite, &controller(&account)), None, "{account}");
        }
        let account = json!({"namespace": "hello", "name": "greeter"});
        assert_eq!(to_start(ControllerKind::Decorator, &controller(&account)), None, "it is of another kind");
    }
}
