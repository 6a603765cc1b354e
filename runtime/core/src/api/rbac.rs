//! Roles that one controller needs: for what the server reads, and for what the controller's account (the server's, if it
//! has none) reads and writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::common::{ApplyStrategy, CommonSpec, Hooks, UpdateMethod};
use crate::api::composite::{ChildResource, CompositeControllerSpec};
use crate::api::decorator::{Attachment, DecoratorControllerSpec};
use crate::api::named_objects::{Objects, objects};
use crate::api::policy::ServiceAccountRef;
use crate::object::id::Gvr;

/// One kind that a controller's account writes, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenKind {
    pub(super) kind: Gvr,
    /// The subresource with its slash, or empty.
    pub(super) subresource: &'static str,
    pub(super) verbs: &'static [&'static str],
    pub(super) need: Need,
}

/// When a controller's account needs a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The controller cannot do its work without it.
    Always,
    /// Where the API server guards owner references.
    WhereGuarded,
    /// In some clusters, or for some answers.
    Sometimes,
}

/// Changes of its parents that a controller writes in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ParentChanges {
    #[default]
    Status,
    StatusAndFinalizers,
    /// Labels, annotations and finalizers; the status only where a hook says so.
    Decoration,
}

/// Objects that a controller reads and writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredRights {
    /// Prefix of the names of its roles.
    name: String,
    parents: BTreeSet<Gvr>,
    /// Kinds of children, and how the controller writes them.
    children: BTreeMap<Gvr, ApplyStrategy>,
    /// Kinds of related objects that its hooks may delete.
    deletes: BTreeSet<Gvr>,
    /// The controller keeps ControllerRevisions.
    rolls: bool,
    changes: ParentChanges,
    /// ConfigMaps and Secrets by namespace.
    objects: BTreeMap<String, Objects>,
    /// Kinds of related objects that its spec lists.
    related_kinds: BTreeSet<Gvr>,
    /// The controller reads related objects, whose kinds only its customize hook knows.
    pub customizes: bool,
    account: Option<ServiceAccountRef>,
}

impl RequiredRights {
    /// `apply`: the server's own strategy for writing children.
    pub fn of_composite(name: &str, spec: &CompositeControllerSpec, apply: ApplyStrategy) -> Self {
        let hooks = spec.hooks.as_ref().map(|stored| &stored.hooks);
        let children = spec.child_resources.as_deref().unwrap_or_default();
        let apply = spec.common.apply_strategy.unwrap_or(apply);
        let written = |child: &ChildResource| {
            let own = child.update_strategy.as_ref().and_then(|strategy| strategy.apply_strategy);
            (Gvr::new(&child.api_version, &child.resource), own.unwrap_or(apply))
        };
        let mut methods = children.iter().filter_map(|child| child.update_strategy.as_ref()?.method);
        Self {
            parents: [Gvr::new(&spec.parent_resource.api_version, &spec.parent_resource.resource)].into(),
            children: children.iter().map(written).collect(),
            rolls: methods.any(UpdateMethod::is_rolling),
            ..Self::of_common(format!("metahook-composite-{name}"), &spec.common, hooks)
        }
    }

    /// `apply`: the server's own strategy for writing attachments.
    pub fn of_decorator(name: &str, spec: &DecoratorControllerSpec, apply: ApplyStrategy) -> Self {
        let attachments = spec.attachments.as_deref().unwrap_or_default();
        let apply = spec.common.apply_strategy.unwrap_or(apply);
        let written = |one: &Attachment| {
            let own = one.update_strategy.as_ref().and_then(|strategy| strategy.apply_strategy);
            (Gvr::new(&one.api_version, &one.resource), own.unwrap_or(apply))
        };
        Self {
            parents: spec.resources.iter().map(|one| Gvr::new(&one.api_version, &one.resource)).collect(),
            children: attachments.iter().map(written).collect(),
            changes: ParentChanges::Decoration,
            ..Self::of_common(format!("metahook-decorator-{name}"), &spec.common, spec.hooks.as_ref())
        }
    }

    fn of_common(name: String, spec: &CommonSpec, hooks: Option<&Hooks>) -> Self {
        let granted = spec.related_deletion.iter().flatten();
        let related = spec.related_kinds.iter().flatten();
        Self {
            name,
            deletes: granted.map(|one| Gvr::new(&one.api_version, &one.resource)).collect(),
            objects: objects(spec.endpoint_configs.as_deref().unwrap_or_default(), hooks),
            related_kinds: related.map(|one| Gvr::new(&one.api_version, &one.resource)).collect(),
            customizes: spec.related_kinds.is_none() && hooks.is_some_and(|hooks| hooks.customize.is_some()),
            changes: if hooks.is_some_and(|hooks| hooks.finalize.is_some()) {
                ParentChanges::StatusAndFinalizers
            } else {
                ParentChanges::Status
            },
            account: spec.service_account_ref.clone(),
            ..Self::default()
        }
    }

    /// Name of the role that needs the rights to read related objects, as only the customize hook knows their kinds.
    pub fn related(&self) -> String {
        let whose = if self.account.is_some() { "writes" } else { "reads" };
        format!("{}-{whose}", self.name)
    }

    pub(super) fn account(&self) -> Option<&ServiceAccountRef> {
        self.account.as_ref()
    }

    /// Resource, namespace and name of the ConfigMaps and Secrets that the spec names.
    pub(super) fn named_objects(&self) -> impl Iterator<Item = (&'static str, &str, &str)> {
        self.objects.iter().flat_map(|(namespace, Objects { config_maps, secrets })| {
            let config_maps = config_maps.iter().map(|name| ("configmaps", name));
            let all = config_maps.chain(secrets.iter().map(|name| ("secrets", name)));
            all.map(move |(resource, name)| (resource, namespace.as_str(), name.as_str()))
        })
    }

    /// Roles and their bindings; `server` is the account that the server runs as.
    pub fn roles(&self, server: &ServiceAccountRef) -> Vec<Value> {
        let account = self.account.as_ref().unwrap_or(server);
        let related = self.related_kinds.iter().filter(|_| self.account.is_none());
        let reads: Vec<_> =
            self.parents.iter().chain(self.children.keys()).chain(related).map(read).collect();
        // The server reads for all controllers together; what it shows a controller's hooks, the account may read, too.
        let readers: Vec<_> = std::iter::once(server).chain(&self.account).collect();
        let mut all = Vec::from(bound(&format!("{}-reads", self.name), None, &reads, &readers));
        all.extend(bound(&format!("{}-writes", self.name), None, &self.writes(), &[account]));
        for (namespace, objects) in &self.objects {
            let rules = [("configmaps", &objects.config_maps), ("secrets", &objects.secrets)];
            let rules = rules.into_iter().filter(|(_, names)| !names.is_empty());
            let rules = rules.map(|(resource, names)| named(resource, names, &["get", "list", "watch"]));
            all.extend(bound(
                &format!("{}-hooks", self.name),
                Some(namespace),
                &rules.collect::<Vec<_>>(),
                &[account],
            ));
        }
        if let Some(ServiceAccountRef { namespace, name }) = &self.account {
            let rule = named("serviceaccounts", &[name.clone()].into(), &["impersonate"]);
            all.extend(bound(&format!("{}-acts", self.name), Some(namespace), &[rule], &[server]));
        }
        all
    }

    fn writes(&self) -> Vec<Value> {
        let mut rules: Vec<_> =
            self.written().iter().map(|one| rule(&one.kind, one.subresource, one.verbs)).collect();
        if self.account.is_some() {
            rules.extend(self.related_kinds.iter().map(read));
        }
        rules
    }

    /// Kinds that the controller's account writes.
    pub(super) fn written(&self) -> Vec<WrittenKind> {
        let of = |kind: &Gvr, subresource, verbs, need| WrittenKind {
            kind: kind.clone(),
            subresource,
            verbs,
            need,
        };
        let always = |is_needed| if is_needed { Need::Always } else { Need::Sometimes };
        let owns = self.rolls || !self.children.is_empty();
        let guarded = if owns { Need::WhereGuarded } else { Need::Sometimes };
        let mut all = Vec::new();
        for parent in &self.parents {
            all.push(of(
                parent,
                "",
                &["get", "update", "patch"],
                always(self.changes != ParentChanges::Status),
            ));
            all.push(of(parent, "/status", &["update"], always(self.changes != ParentChanges::Decoration)));
            all.push(of(parent, "/finalizers", &["update"], guarded));
        }
        all.extend(self.children.iter().map(|(child, apply)| match apply {
            ApplyStrategy::DynamicApply => {
                of(child, "", &["get", "create", "update", "delete"], Need::Always)
            }
            ApplyStrategy::ServerSideApply => {
                of(child, "", &["get", "create", "update", "patch", "delete"], Need::Always)
            }
        }));
        let deleted = self.deletes.iter().filter(|kind| !self.children.contains_key(*kind));
        all.extend(deleted.map(|kind| of(kind, "", &["delete"], Need::Always)));
        if self.rolls {
            let revisions = Gvr::new("metacontroller.k8s.io/v1alpha1", "controllerrevisions");
            all.push(of(&revisions, "", &["get", "create", "update", "delete"], Need::Always));
        }
        all
    }
}

fn read(kind: &Gvr) -> Value {
    rule(kind, "", &["get", "list", "watch"])
}

fn rule(kind: &Gvr, subresource: &str, verbs: &[&str]) -> Value {
    json!({
        "apiGroups": [&*kind.group],
        "resources": [format!("{}{subresource}", kind.resource)],
        "verbs": verbs,
    })
}

fn named(resource: &str, names: &BTreeSet<String>, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": verbs })
}

/// A role and its binding: in a namespace, or everywhere.
fn bound(name: &str, namespace: Option<&String>, rules: &[Value], to: &[&ServiceAccountRef]) -> [Value; 2] {
    const API: &str = "rbac.authorization.k8s.io";
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let metadata = match namespace {
        Some(namespace) => json!({ "name": name, "namespace": namespace }),
        None => json!({ "name": name }),
    };
    let version = format!("{API}/v1");
    let subject = |to: &&ServiceAccountRef| json!({ "kind": "ServiceAccount", "namespace": to.namespace, "name": to.name });
    [
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": version,
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": { "apiGroup": API, "kind": kind, "name": name },
            "subjects": to.iter().map(subject).collect::<Vec<_>>(),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServiceAccountRef {
        ServiceAccountRef { namespace: "metacontroller".to_owned(), name: "metacontroller".to_owned() }
    }

    fn composite(account: &Value) -> Vec<String> {
        let spec = json!({
            "parentResource": {"apiVersion": "example.com/v1", "resource": "greetings"},
            "childResources": [
                {"apiVersion": "v1", "resource": "pods", "updateStrategy": {"method": "RollingInPlace"}},
            ],
            "hooks": {
                "sync": {"wasm": {
                    "configMap": {"namespace": "hello", "name": "hook"},
                    "mounts": [
                        {"path": "/a", "secret": {"namespace": "db", "name": "password"}},
                        {"path": "/b", "configMap": {"namespace": "hello", "name": "texts"}},
                    ],
                }},
                "finalize": {"webhook": {"url": "http://x"}},
            },
            "serviceAccountRef": account,
        });
        let spec = serde_json::from_value(spec).unwrap();
        let needs = RequiredRights::of_composite("c", &spec, ApplyStrategy::DynamicApply);
        needs.roles(&server()).iter().map(text).collect()
    }

    /// A role by its rules, a binding by its subject.
    fn text(role: &Value) -> String {
        let place = role["metadata"]["namespace"].as_str().map(|place| format!(" in {place}"));
        let head = format!(
            "{} {}{}",
            role["kind"].as_str().unwrap(),
            role["metadata"]["name"].as_str().unwrap(),
            place.unwrap_or_default()
        );
        let words = |list: &Value| {
            let words: Vec<_> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            words.join(",")
        };
        let what = match role["rules"].as_array() {
            None => {
                let name = |to: &Value, field| to[field].as_str().unwrap().to_owned();
                let name = |to| format!("{}/{}", name(to, "namespace"), name(to, "name"));
                let names: Vec<_> = role["subjects"].as_array().unwrap().iter().map(name).collect();
                format!("to {}", names.join(", "))
            }
            Some(rules) => rules
                .iter()
                .map(|rule| {
                    let names = words(&rule["resourceNames"]);
                    let names = if names.is_empty() { names } else { format!(" {names}") };
                    format!("{}{names} {}", words(&rule["resources"]), words(&rule["verbs"]))
                })
                .collect::<Vec<_>>()
                .join("; "),
        };
        format!("{head}: {what}")
    }

    #[test]
    fn with_an_account_the_server_acts_the_account_writes_and_both_read() {
        let expected = [
            "ClusterRole metahook-composite-c-reads: greetings get,list,watch; pods get,list,watch",
            "ClusterRoleBinding metahook-composite-c-reads: to metacontroller/metacontroller, hello/greeter",
            "ClusterRole metahook-composite-c-writes: greetings get,update,patch; greetings/status update; greetings/finalizers update; pods get,create,update,delete; controllerrevisions get,create,update,delete",
            "ClusterRoleBinding metahook-composite-c-writes: to hello/greeter",
            "Role metahook-composite-c-hooks in db: secrets password get,list,watch",
            "RoleBinding metahook-composite-c-hooks in db: to hello/greeter",
            "Role metahook-composite-c-hooks in hello: configmaps hook,texts get,list,watch",
            "RoleBinding metahook-composite-c-hooks in hello: to hello/greeter",
            "Role metahook-composite-c-acts in hello: serviceaccounts greeter impersonate",
            "RoleBinding metahook-composite-c-acts in hello: to metacontroller/metacontroller",
        ];
        assert_eq!(composite(&json!({"namespace": "hello", "name": "greeter"})), expected);
    }

    #[test]
    fn without_an_account_the_server_does_it_all() {
        let roles = composite(&Value::Null);
        assert!(!roles.iter().any(|role| role.contains("impersonate")), "{roles:?}");
        assert!(
            roles
                .iter()
                .filter(|role| role.contains("Binding"))
                .all(|one| one.ends_with("to metacontroller/metacontroller"))
        );
    }

    #[test]
    fn related_kinds_of_the_spec_are_read_by_the_account_that_reads_them() {
        let roles = |account: Value| {
            let spec = json!({
                "resources": [{"apiVersion": "apps/v1", "resource": "deployments"}],
                "hooks": {"customize": {"webhook": {"url": "http://x"}}},
                "relatedKinds": [{"apiVersion": "v1", "resource": "secrets"}],
                "serviceAccountRef": account,
            });
            let spec = serde_json::from_value(spec).unwrap();
            let needs = RequiredRights::of_decorator("d", &spec, ApplyStrategy::ServerSideApply);
            assert!(!needs.customizes, "nothing is left to be said");
            let roles: Vec<_> = needs.roles(&server()).iter().map(text).collect();
            [0, 2].map(|role| roles[role].contains("; secrets get,list,watch"))
        };
        assert_eq!(roles(Value::Null), [true, false]);
        assert_eq!(roles(json!({"namespace": "n", "name": "a"})), [false, true]);
    }

    #[test]
    fn certificates_and_credentials_of_webhooks_are_read_by_name() {
        let at = |name: &str| json!({"namespace": "n", "name": name, "key": "k"});
        let spec = json!({
            "parentResource": {"apiVersion": "example.com/v1", "resource": "greetings"},
            "hooks": {"sync": {"webhook": {
                "url": "http://x", "caBundle": {"configMapRef": at("ca")}, "clientTLS": {"secretRef": at("client")},
                "authorization": {"secretRef": at("token")},
            }}},
            "endpointConfigs": [
                {"host": "x", "caBundle": {"secretRef": at("bundle")}, "basicAuth": {"secretRef": at("basic")}},
            ],
        });
        let spec = serde_json::from_value(spec).unwrap();
        let needs = RequiredRights::of_composite("c", &spec, ApplyStrategy::DynamicApply);
        let expected = "Role metahook-composite-c-hooks in n: configmaps ca get,list,watch; secrets basic,bundle,client,token get,list,watch";
        assert_eq!(text(&needs.roles(&server())[4]), expected);
    }

    #[test]
    fn what_a_shadow_needs_is_read_by_name() {
        let at = |name: &str| json!({"namespace": "n", "name": name});
        let spec = json!({
            "parentResource": {"apiVersion": "example.com/v1", "resource": "greetings"},
            "hooks": {
                "sync": {
                    "webhook": {"url": "http://x"},
                    "shadow": {"wasm": {"configMap": at("module"), "mounts": [{"path": "/m", "secret": at("mount")}]}},
                },
                "customize": {
                    "wasm": {"configMap": at("rules")},
                    "shadow": {"webhook": {"url": "http://x", "basicAuth": {"secretRef": at("basic")}}},
                },
            },
        });
        let spec = serde_json::from_value(spec).unwrap();
        let needs = RequiredRights::of_composite("c", &spec, ApplyStrategy::DynamicApply);
        let roles: Vec<_> = needs.roles(&server()).iter().map(text).collect();
        let expected = "Role metahook-composite-c-hooks in n: configmaps module,rules get,list,watch; secrets basic,mount get,list,watch";
        assert!(roles.iter().any(|role| role == expected), "{roles:#?}");
    }

    #[test]
    fn a_decorators_targets_are_its_parents() {
        let spec = json!({
            "resources": [{"apiVersion": "apps/v1", "resource": "deployments"}],
            "attachments": [{"apiVersion": "v1", "resource": "services"}],
            "hooks": {"customize": {"webhook": {"url": "http://x"}}},
            "relatedDeletion": [{"apiVersion": "v1", "resource": "pods"}, {"apiVersion": "v1", "resource": "services"}],
        });
        let spec = serde_json::from_value(spec).unwrap();
        let needs = RequiredRights::of_decorator("d", &spec, ApplyStrategy::ServerSideApply);
        assert!(needs.customizes);
        assert_eq!(needs.related(), "metahook-decorator-d-reads");
        let roles: Vec<_> = needs.roles(&server()).iter().map(text).collect();
        assert_eq!(
            roles[2],
            "ClusterRole metahook-decorator-d-writes: deployments get,update,patch; deployments/status update; deployments/finalizers update; services get,create,update,patch,delete; pods delete"
        );
    }
}
