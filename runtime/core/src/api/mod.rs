//! Our API objects: their types as stored, and the checked forms that a running controller reads.

pub mod access;
pub mod common;
pub mod composite;
pub mod customize;
pub mod decorator;
pub mod definition;
pub mod endpoint;
pub mod hook;
pub mod kept;
pub mod missing_rights;
pub mod mount;
mod named_objects;
pub mod packed;
mod per_hook;
pub mod policy;
pub mod rbac;
pub mod read_access;
pub mod reason;
pub mod selection;
pub mod server_objects;
pub mod shown_secrets;
pub mod status;
pub mod stored_hooks;
pub mod stored_selection;
pub mod trust;
pub mod units;
pub mod url;
pub mod webhook;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::reason::EventReason;
use crate::api::selection::Selection;
use crate::hash::Fingerprint;
use crate::json::to_go_string;
use crate::object::Object;
use crate::object::id::{Gvr, is_api_version};
use crate::object::selector::{LabelSelector, Selector};
use common::{CheckedCommon, Target};
use composite::{Composite, CompositeControllerSpec};
use decorator::{Decorator, DecoratorControllerSpec};
use policy::HookPolicy;

/// The two kinds of controllers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerKind {
    #[default]
    Composite,
    Decorator,
}

impl ControllerKind {
    /// The value of `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Composite => "CompositeController",
            Self::Decorator => "DecoratorController",
        }
    }

    /// The word of requests for the object that a hook is called for.
    pub(crate) fn parent(self) -> &'static str {
        match self {
            Self::Composite => "parent",
            Self::Decorator => "object",
        }
    }

    /// The word of requests and answers for the children of an object.
    pub fn children(self) -> &'static str {
        match self {
            Self::Composite => "children",
            Self::Decorator => "attachments",
        }
    }

    /// The field of the spec that declares their kinds.
    pub fn declares(self) -> &'static str {
        match self {
            Self::Composite => "spec.childResources",
            Self::Decorator => "spec.attachments",
        }
    }
}

/// The annotation that pauses a parent.
pub const PAUSED: &str = "metahook.dev/paused";

/// Digest of a controller's spec as it is stored. A pause is no other version of a controller.
pub fn spec_digest(controller: &Object) -> Fingerprint {
    let spec = controller.value().ok().and_then(|mut controller| controller.get_mut("spec").map(Value::take));
    let mut spec = spec.unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("paused");
    }
    Fingerprint::of(to_go_string(&spec).as_bytes())
}

/// A controller of either kind whose spec can be run.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckedSpec {
    Composite(Composite),
    Decorator(Decorator),
}

/// Reason why the spec of a controller object cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum UnusableSpec {
    #[error("the spec cannot be read: {0}")]
    Unreadable(serde_json::Error),
    #[error(transparent)]
    Refused(#[from] ControllerError),
}

impl CheckedSpec {
    /// Reads and checks a controller; the second is its spec as hooks see it.
    pub fn of(
        kind: ControllerKind,
        controller: &Object,
        policy: &HookPolicy,
    ) -> Result<(Self, String), UnusableSpec> {
        #[derive(Deserialize)]
        struct Specified<S> {
            spec: S,
        }
        let (name, json) = (&controller.key.name, controller.json());
        match kind {
            ControllerKind::Composite => {
                let Specified { spec } = serde_json::from_str::<Specified<CompositeControllerSpec>>(json)
                    .map_err(UnusableSpec::Unreadable)?;
                Ok((Self::Composite(spec.check(name, policy)?), snapshot(controller, &spec)))
            }
            ControllerKind::Decorator => {
                let Specified { spec } = serde_json::from_str::<Specified<DecoratorControllerSpec>>(json)
                    .map_err(UnusableSpec::Unreadable)?;
                Ok((Self::Decorator(spec.check(name, policy)?), snapshot(controller, &spec)))
            }
        }
    }

    pub fn common(&self) -> &CheckedCommon {
        match self {
            Self::Composite(composite) => &composite.common,
            Self::Decorator(decorator) => &decorator.common,
        }
    }

    /// Selects among the objects of one target. `name`: the controller's.
    pub fn selection(&self, target: &Target, name: &str) -> Selection {
        Selection {
            rules: target.rules.clone(),
            finalizer: selection::finalizer(self.kind(), name),
            finalizes: self.common().hooks.finalize.is_some(),
            only_finalizes: self.common().only_finalizes,
            namespaces: self.common().shown_secrets.namespaces_of(&target.resource),
        }
    }

    fn kind(&self) -> ControllerKind {
        match self {
            Self::Composite(_) => ControllerKind::Composite,
            Self::Decorator(_) => ControllerKind::Decorator,
        }
    }

    /// Events about parts of the spec that are most likely mistakes.
    pub fn warnings(&self) -> Vec<(EventReason, String)> {
        let mut all = Vec::new();
        let common = self.common();
        if common.only_finalizes {
            all.push((EventReason::CreateError, ONLY_FINALIZES.to_owned()));
        }
        for hook in &common.disabled_hooks {
            let text = format!(
                "spec.hooks.{hook} names neither a webhook nor a wasm module nor a script: it is not called"
            );
            all.push((EventReason::DisabledHook, text));
        }
        for kind in &common.declared_again {
            let declares = self.kind().declares();
            let text = format!(
                "{declares} declares {kind} more than once: the last entry counts, so take the others out"
            );
            all.push((EventReason::KindDeclaredAgain, text));
        }
        if let Self::Decorator(decorator) = self {
            for kind in &decorator.declared_again {
                let text = format!(
                    "spec.resources names {kind} more than once: an object is decorated where any of these entries selects it"
                );
                all.push((EventReason::KindDeclaredAgain, text));
            }
            for kind in &decorator.other_versions {
                let text = format!(
                    "spec.resources names {kind} in more than one version: the first entry's counts, with the selectors of all"
                );
                all.push((EventReason::KindInTwoVersions, text));
            }
        }
        let hidden =
            self.targets().iter().filter_map(|target| common.shown_secrets.warning(&target.resource));
        all.extend(hidden.map(|text| (EventReason::SecretsNotShown, text)));
        if let Some(seconds) = common.short_resync {
            let text = format!("spec.resyncPeriodSeconds: {seconds} is taken for 1, the shortest period");
            all.push((EventReason::ShortResync, text));
        }
        all
    }

    /// Kinds of parents; a CompositeController has one.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Composite(composite) => std::slice::from_ref(&composite.parent),
            Self::Decorator(decorator) => &decorator.targets,
        }
    }
}

/// The message about a controller without a sync hook that has a finalize hook.
pub const ONLY_FINALIZES: &str = "spec.hooks.sync: the controller has no enabled sync hook: its finalize hook is called for parents that go, and nothing else is done: name a wasm module, a script or a webhook";

/// Refusal of a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(
        "spec.hooks.sync: the controller has no enabled sync hook, so there is nothing it could do: name a wasm module, a script or a webhook (if the manifest names one, the cluster has CustomResourceDefinitions without wasm hooks or scripts, which drop it: apply those of this version)"
    )]
    NoSyncHook,
}

/// A field whose value cannot be used, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    pub field: String,
    pub problem: String,
}

impl SpecError {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// Refuses an empty name of an object, or of its namespace.
    fn check_names(field: &str, namespace: &str, name: &str) -> Result<(), Self> {
        let empty = [("namespace", namespace), ("name", name)].into_iter().find(|(_, text)| text.is_empty());
        empty.map_or(Ok(()), |(part, _)| Err(Self::new(format!("{field}.{part}"), "must not be empty")))
    }
}

/// The controller as its hooks see it, as it is when it starts. Left out are the fields that the type of the spec does not
/// have, and the status, which changes all the time.
pub fn snapshot(controller: &Object, spec: &impl Serialize) -> String {
    let mut value = controller.value().unwrap_or_default();
    if let (Some(fields), Some(spec)) = (value.as_object_mut(), as_stored(spec)) {
        fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
        fields.insert("spec".to_owned(), spec);
        fields.insert("status".to_owned(), json!({}));
    }
    Value::to_string(&value)
}

/// A spec or a status as JSON, without the fields that are absent.
pub fn as_stored(spec: &impl Serialize) -> Option<Value> {
    let mut value = serde_json::to_value(spec).ok()?;
    prune_absent(&mut value);
    Some(value)
}

/// Settings are the user's own JSON: a null there stays.
fn prune_absent(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            let fields = members.iter_mut().filter(|(name, _)| *name != "settings");
            fields.for_each(|(_, member)| prune_absent(member));
        }
        Value::Array(items) => items.iter_mut().for_each(prune_absent),
        _ => {}
    }
}

/// An absent selector selects everything.
fn selector(field: &str, stored: Option<LabelSelector>) -> Result<Selector, SpecError> {
    Selector::of(&stored.unwrap_or_default()).map_err(|error| SpecError::new(field, error.to_string()))
}

/// Both parts become part of a URL of the API server.
fn resource(field: &str, api_version: &str, plural: &str) -> Result<Gvr, SpecError> {
    if !is_api_version(api_version) {
        let problem = format!("{api_version:?} is no version: write it like v1 or apps/v1");
        return Err(SpecError::new(format!("{field}.apiVersion"), problem));
    }
    if plural.is_empty() || !plural.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')) {
        let problem = format!("{plural:?} names no resource: write its plural, lower case, like pods");
        return Err(SpecError::new(format!("{field}.resource"), problem));
    }
    Ok(Gvr::new(api_version, plural))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_likely_mistake_of_a_spec_gets_a_warning() {
        let pods = json!({"apiVersion": "v1", "resource": "pods"});
        let target = |version: &str| json!({"apiVersion": version, "resource": "deployments"});
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController",
            "metadata": {"name": "d", "uid": "d", "resourceVersion": "1"},
            "spec": {
                "resources": [target("apps/v1"), target("apps/v1"), target("apps/v1beta1")],
                "attachments": [pods, pods],
                "hooks": {"sync": {"webhook": {"url": "http://hook/sync"}}, "finalize": {}},
                "resyncPeriodSeconds": 0,
            },
        });
        let controller = Object::parse(&controller.to_string(), None).unwrap();
        let (spec, _) =
            CheckedSpec::of(ControllerKind::Decorator, &controller, &HookPolicy::default()).unwrap();
        let warnings = spec.warnings();
        let [disabled, child, target, version, resync] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        let reasons = [disabled, child, target, version, resync].map(|(reason, _)| *reason);
        let again = EventReason::KindDeclaredAgain;
        assert_eq!(
            reasons,
            [
                EventReason::DisabledHook,
                again,
                again,
                EventReason::KindInTwoVersions,
                EventReason::ShortResync
            ]
        );
        assert!(disabled.1.starts_with("spec.hooks.finalize names neither"), "{}", disabled.1);
        assert!(child.1.starts_with("spec.attachments declares v1 pods more"), "{}", child.1);
        assert!(target.1.starts_with("spec.resources names apps/v1 deployments more"), "{}", target.1);
        assert!(version.1.starts_with("spec.resources names apps/v1beta1 deployments in"), "{}", version.1);
        assert!(resync.1.starts_with("spec.resyncPeriodSeconds: 0 is taken for 1"), "{}", resync.1);
    }
}
