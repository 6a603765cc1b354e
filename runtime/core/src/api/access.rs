//! Access of a controller's account to what the controller reads before it starts, and to what it writes, as the API server is asked
//! about it.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::ControllerKind;
use crate::api::common::ApplyStrategy;
use crate::api::policy::ServiceAccountRef;
use crate::api::rbac::{Need, RequiredRights};
use crate::object::Object;
use crate::object::id::Resource;

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
    pub(super) verb: &'static str,
    /// The API group, empty for the core one.
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: &'static str,
}

impl Writes {
    /// The right to do anything, which saves all other questions.
    pub fn anything() -> Self {
        Self { verb: "*", group: "*".to_owned(), resource: "*".to_owned(), subresource: "*" }
    }

    /// Whether both are rights on one resource.
    pub(super) fn is_on_resource_of(&self, other: &Self) -> bool {
        let on = |one: &Self| (one.group.clone(), one.resource.clone(), one.subresource);
        on(self) == on(other)
    }

    /// Names the operation that the API server forbids to an account without the right.
    pub fn forbidden(&self) -> String {
        if self.subresource == "finalizers" { guarded(self) } else { self.to_string() }
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

/// Sent with an owner of this kind, which no API server serves.
const UNSERVED_OWNER: &str = "probe.metahook.dev/v1";

/// Phrase of refusals of an owner reference that blocks the deletion of its owner.
const REFUSED_BLOCK: &str = "cannot set blockOwnerDeletion";

/// Guard of owner references: the admission plugin `OwnerReferencesPermissionEnforcement`, which some clusters have on. It
/// names neither verb nor resource where it refuses a write.
/// See <https://github.com/operator-framework/operator-sdk/issues/4020>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerGuard {
    /// The client may not update the finalizers of the owner.
    Finalizers,
    /// The client may not delete the object that is to get another owner.
    Deletion,
}

impl OwnerGuard {
    /// The guard that refused a write with this message.
    pub fn of(message: &str) -> Option<Self> {
        if message.contains(REFUSED_BLOCK) && message.contains("you can't set finalizers on") {
            return Some(Self::Finalizers);
        }
        message.contains("cannot set an ownerRef on a resource you can't delete").then_some(Self::Deletion)
    }

    /// Names the operation that the API server forbids to the client, for an object with an owner among `parents`.
    pub fn forbids(self, parents: &Resource, object: &Resource) -> String {
        let (verb, of, subresource) = match self {
            Self::Finalizers => ("update", parents, "finalizers"),
            Self::Deletion => ("delete", object, ""),
        };
        let (group, resource) = (of.gvk.group.to_string(), of.plural.to_string());
        guarded(&Writes { verb, group, resource, subresource })
    }

    /// An Event about a controller, as a dry run: only the guard has something against its owner, whatever rights the client has
    /// but that to finalize anything.
    pub fn probe(controller: &Object) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {
                "generateName": "metahook-probe-", "namespace": "default",
                "ownerReferences": [{
                    "apiVersion": UNSERVED_OWNER, "kind": "Unserved", "name": "none", "uid": "none",
                    "blockOwnerDeletion": true,
                }],
            },
            "involvedObject": {
                "apiVersion": controller.gvk.api_version(), "kind": &*controller.gvk.kind,
                "name": &*controller.key.name, "uid": controller.uid.as_str(),
            },
            "reason": "Probe", "message": "a dry run", "type": "Normal",
            "source": {"component": "metacontroller"},
        })
    }

    /// Whether the API server has the guard, by its refusal of the probe.
    pub fn is_on(status: u16, message: &str) -> bool {
        status == 403 && message.contains(REFUSED_BLOCK)
    }
}

fn guarded(what: &Writes) -> String {
    format!(
        "{what}, which the admission plugin OwnerReferencesPermissionEnforcement asks for where an object gets an owner"
    )
}

/// Rights to write that a controller's account needs in any case. `None`: its spec is refused anyway.
pub fn to_work(kind: ControllerKind, controller: &Object, apply: ApplyStrategy) -> Option<Vec<Writes>> {
    writes(kind, controller, apply, Need::Always)
}

/// Rights to write that a controller's account needs besides where the API server has an [`OwnerGuard`].
pub fn to_own(kind: ControllerKind, controller: &Object) -> Option<Vec<Writes>> {
    writes(kind, controller, ApplyStrategy::default(), Need::WhereGuarded)
}

fn writes(
    kind: ControllerKind,
    controller: &Object,
    apply: ApplyStrategy,
    need: Need,
) -> Option<Vec<Writes>> {
    let needed = required(kind, controller, apply)?.written().into_iter().filter(|one| one.need == need);
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
    use crate::object::id::Gvk;
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
    fn the_finalizers_of_owners_are_asked_for_where_there_may_be_children() {
        let owns = |kind, spec: Value| {
            let controller = a("m/v1", "CompositeController", "c").with("spec", spec).object();
            let all = to_own(kind, &controller).unwrap();
            all.iter().map(Writes::forbidden).collect::<Vec<_>>()
        };
        let things = json!({"apiVersion": "e/v1", "resource": "things"});
        let maps = json!([{"apiVersion": "v1", "resource": "configmaps"}]);
        let forbidden = "update resource \"things/finalizers\" in API group \"e\", which the admission plugin OwnerReferencesPermissionEnforcement asks for where an object gets an owner";
        let composite = json!({"parentResource": things, "childResources": maps});
        assert_eq!(owns(ControllerKind::Composite, composite), [forbidden]);
        let decorator = json!({"resources": [things], "attachments": maps, "hooks": {}});
        assert_eq!(owns(ControllerKind::Decorator, decorator), [forbidden]);
        for (kind, spec) in [
            (ControllerKind::Composite, json!({"parentResource": things})),
            (ControllerKind::Decorator, json!({"resources": [things], "hooks": {}})),
        ] {
            assert!(owns(kind, spec).is_empty(), "it owns nothing");
        }
    }

    #[test]
    fn a_guard_of_owner_references_is_known_by_its_refusals() {
        let finalizers = "configmaps \"x\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
        let deletion =
            "configmaps \"x\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
        let unserved = "events \"x\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion probe.metahook.dev/v1 Kind Unserved: no matches for kind";
        let ungranted = "events is forbidden: User \"u\" cannot create resource \"events\"";
        for (message, guard, is_on) in [
            (finalizers, Some(OwnerGuard::Finalizers), true),
            (deletion, Some(OwnerGuard::Deletion), false),
            (unserved, None, true),
            (ungranted, None, false),
        ] {
            assert_eq!(
                (OwnerGuard::of(message), OwnerGuard::is_on(403, message)),
                (guard, is_on),
                "{message}"
            );
        }
        assert!(!OwnerGuard::is_on(201, unserved), "it was made");
        let kind = |group: &str, plural: &str| {
            let gvk = Gvk::new(group, "X");
            Resource { gvk, plural: plural.into(), namespaced: true, has_status: false }
        };
        let forbids = |guard: OwnerGuard| guard.forbids(&kind("e/v1", "things"), &kind("v1", "configmaps"));
        let text = forbids(OwnerGuard::Finalizers);
        assert!(text.starts_with("update resource \"things/finalizers\" in API group \"e\", "), "{text}");
        let text = forbids(OwnerGuard::Deletion);
        assert!(text.starts_with("delete resource \"configmaps\" in API group \"\", "), "{text}");
        let probe = OwnerGuard::probe(&controller(&Value::Null));
        assert_eq!(probe["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
        assert_eq!(probe["involvedObject"]["name"], "c");
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
