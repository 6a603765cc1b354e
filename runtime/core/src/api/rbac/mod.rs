//! Roles that one controller needs: for what the server reads, and for what the controller's account (the server's, if it
//! has none) reads and writes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::common::{ApplyStrategy, CommonSpec, Hooks, UpdateMethod};
use crate::api::composite::{ChildResource, CompositeControllerSpec};
use crate::api::decorator::{Attachment, DecoratorControllerSpec};
use crate::api::named_objects::{Objects, objects};
use crate::api::policy::ServiceAccountRef;
use crate::object::id::Gvr;

/// The server's namespace, and the name of its ServiceAccount there, where nobody says otherwise.
pub const SERVER: &str = "metacontroller";

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
