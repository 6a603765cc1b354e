//! Access of a controller's account to what the controller reads before it starts, and to what it writes, as the API server is asked
//! about it.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::api::common::ApplyStrategy;
use crate::api::policy::ServiceAccountRef;
use crate::api::rbac::RequiredRights;
use crate::object::Object;

/// Questions about what one controller writes.
const MAX_QUESTIONS: usize = 200;

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

/// The right to write objects of one kind in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writes {
    verb: &'static str,
    /// Of the API group, empty for the core one.
    group: String,
    resource: String,
    subresource: &'static str,
}

impl Writes {
    /// The right to do anything, which saves all other questions.
    pub fn anything() -> Self {
        Self { verb: "*", group: "*".to_owned(), resource: "*".to_owned(), subresource: "*" }
    }

    /// The question that the API server is asked; without a namespace it is about all of them.
    pub fn review(&self, namespace: Option<&str>) -> Value {
        let Self { verb, group, resource, subresource } = self;
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace.unwrap_or_default(),
            }},
        })
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, subresource } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{verb} resource \"{resource}{slash}{subresource}\" in API group {group:?}")
    }
}

/// What a controller's account has to write. `None`: its spec is refused anyway.
pub fn to_work(kind: ControllerKind, controller: &Object, apply: ApplyStrategy) -> Option<Vec<Writes>> {
    let needed = required(kind, controller, apply)?.written().into_iter().filter(|one| one.is_needed);
    let writes = needed.flat_map(|one| {
        one.verbs.iter().filter(|verb| **verb != "get").map(move |verb| Writes {
            verb,
            group: one.kind.group.to_string(),
            resource: one.kind.resource.to_string(),
            subresource: one.subresource.trim_start_matches('/'),
        })
    });
    Some(writes.take(MAX_QUESTIONS).collect())
}

/// The account of a controller, and what it has to read before the controller can start: modules, mounts, certificates and
/// credentials. `None`: it has no account, or its spec is refused anyway.
pub fn to_start(kind: ControllerKind, controller: &Object) -> Option<(ServiceAccountRef, Vec<Reads>)> {
    // It decides about writes, which are not asked for here.
    let needs = required(kind, controller, ApplyStrategy::default())?;
    let account = needs.account()?.clone();
    account.check("spec.serviceAccountRef").ok()?;
    let reads = |(resource, namespace, name): (_, &str, &str)| Reads {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Some((account, needs.named_objects().map(reads).collect()))
}

fn required(kind: ControllerKind, controller: &Object, apply: ApplyStrategy) -> Option<RequiredRights> {
    #[derive(Deserialize)]
    struct Specified<S> {
        spec: S,
    }
    let (name, json) = (&controller.key.name, controller.json());
    let needs = match kind {
        ControllerKind::Composite => serde_json::from_str(json)
            .map(|Specified { spec }| RequiredRights::of_composite(name, &spec, apply)),
        ControllerKind::Decorator => serde_json::from_str(json)
            .map(|Specified { spec }| RequiredRights::of_decorator(name, &spec, apply)),
    };
    needs.ok()
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
    fn what_is_written_is_asked_for_verb_by_verb() {
        let asked = |kind, spec: Value, apply| {
            let controller = a("m/v1", "CompositeController", "c").with("spec", spec).object();
            let all = to_work(kind, &controller, apply).unwrap();
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let children = json!([{"apiVersion": "apps/v1", "resource": "deployments", "updateStrategy": {"method": "InPlace"}}]);
        let things = json!({"apiVersion": "e/v1", "resource": "things"});
        let composite = json!({"parentResource": things, "childResources": children});
        assert_eq!(
            asked(ControllerKind::Composite, composite.clone(), ApplyStrategy::DynamicApply),
            [
                "update resource \"things/status\" in API group \"e\"",
                "create resource \"deployments\" in API group \"apps\"",
                "update resource \"deployments\" in API group \"apps\"",
                "delete resource \"deployments\" in API group \"apps\"",
            ]
        );
        let applied = asked(ControllerKind::Composite, composite, ApplyStrategy::ServerSideApply);
        assert!(
            applied.contains(&"patch resource \"deployments\" in API group \"apps\"".to_owned()),
            "{applied:?}"
        );
        let finalizes =
            json!({"parentResource": things, "hooks": {"finalize": {"webhook": {"url": "http://x"}}}});
        assert_eq!(
            asked(ControllerKind::Composite, finalizes, ApplyStrategy::DynamicApply),
            [
                "update resource \"things\" in API group \"e\"",
                "patch resource \"things\" in API group \"e\"",
                "update resource \"things/status\" in API group \"e\"",
            ]
        );
        let decorator = json!({"resources": [things], "attachments": [], "hooks": {}});
        assert_eq!(
            asked(ControllerKind::Decorator, decorator, ApplyStrategy::DynamicApply),
            ["update resource \"things\" in API group \"e\"", "patch resource \"things\" in API group \"e\""]
        );
        let many = (0..300).map(|nth| json!({"apiVersion": "v1", "resource": format!("r{nth}")}));
        let many = json!({"parentResource": things, "childResources": many.collect::<Vec<_>>()});
        assert_eq!(asked(ControllerKind::Composite, many, ApplyStrategy::DynamicApply).len(), MAX_QUESTIONS);
    }

    #[test]
    fn a_question_is_about_all_namespaces_or_about_one() {
        let asked = |namespace| Writes::anything().review(namespace)["spec"]["resourceAttributes"].clone();
        let all = json!({"verb": "*", "group": "*", "resource": "*", "subresource": "*", "namespace": ""});
        assert_eq!(asked(None), all);
        assert_eq!(asked(Some("n"))["namespace"], "n");
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
