//! CompositeController and its ControllerRevisions: the types as stored, and the checked form that a running controller reads.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::common::{
    ApplyStrategy, CheckedCommon, ChildRule, CommonSpec, ConditionCheck, Hooks, Target, UpdateMethod,
};
use crate::api::hook::HookSpec;
use crate::api::policy::HookPolicy;
use crate::api::selection::SelectionRule;
use crate::api::{ControllerError, SpecError, resource, selector};
use crate::object::selector::{LabelSelector, Selector};

/// Which kind of parents, which kinds of children, and the hooks that decide about the children.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeControllerSpec {
    /// The kind of the parents, and which of them the controller selects.
    pub parent_resource: ParentResource,
    /// The kinds of the children. An answer may have no other kinds.
    pub child_resources: Option<Vec<ChildResource>>,
    /// The hooks of the controller. A controller without an enabled sync hook does not run.
    pub hooks: Option<CompositeHooks>,
    /// When true, the server selects the children of a parent by the label `controller-uid`, which it sets on each child. When
    /// false, it selects them by the parent's `spec.selector`. Default: false.
    pub generate_selector: Option<bool>,
    /// Whether a parent's `spec.selector` may only exclude labels (`NotIn`, `DoesNotExist`), so that it matches nearly every
    /// object. Default: true for webhooks, false for modules and scripts.
    pub allow_negative_selectors: Option<bool>,
    #[serde(flatten)]
    pub common: CommonSpec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentResource {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
    /// Selects parents by their labels. Default: all parents.
    pub label_selector: Option<LabelSelector>,
    /// What makes a new revision of a parent, for rolling updates.
    pub revision_history: Option<RevisionHistory>,
    /// When true, a change of the parent's status alone starts no reconcile. Default: false.
    pub ignore_status_changes: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionHistory {
    /// Paths of the parent's fields that a ControllerRevision keeps, such as `spec.template`. A change of one of them makes a new
    /// revision. Default: `spec`.
    pub field_paths: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildResource {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
    /// How the server changes a child of this kind that differs from the answer.
    pub update_strategy: Option<ChildUpdateStrategy>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildUpdateStrategy {
    /// What the server does with a child that differs from the answer: nothing until another client deletes it (`OnDelete`), delete
    /// and create it again (`Recreate`), or update it (`InPlace`). The rolling methods do so with one child after the other.
    /// Default: `OnDelete`.
    pub method: Option<UpdateMethod>,
    /// How the server writes children of this kind. Default: `spec.applyStrategy`.
    pub apply_strategy: Option<ApplyStrategy>,
    /// What a rolling update waits for before it goes on to the next child. Hooks see this field even when it is empty.
    #[serde(default)]
    pub status_checks: StatusChecks,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusChecks {
    /// Conditions that an updated child must have.
    pub conditions: Option<Vec<ConditionCheck>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeHooks {
    #[serde(flatten)]
    pub hooks: Hooks,
    /// Kept for old manifests. The server never calls it.
    pub pre_update_child: Option<HookSpec>,
    /// Kept for old manifests. The server never calls it.
    pub post_update_child: Option<HookSpec>,
}

/// A CompositeController that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Composite {
    pub common: CheckedCommon,
    pub parent: Target,
    /// The fields of a parent that a ControllerRevision keeps.
    pub revision_paths: Vec<String>,
    pub generate_selector: bool,
    pub negative_selectors: bool,
}

impl CompositeControllerSpec {
    /// `name`: the controller's, which becomes part of its finalizer.
    pub fn check(&self, name: &str, policy: &HookPolicy) -> Result<Composite, ControllerError> {
        let children = self.child_resources.iter().flatten().enumerate();
        let children = children.map(|(nth, child)| self.child(nth, child));
        let hooks = self.hooks.as_ref().map(|stored| &stored.hooks);
        let common = self.common.check(name, hooks, policy, children)?;
        let parent = &self.parent_resource;
        let rule = SelectionRule {
            labels: selector("spec.parentResource.labelSelector", parent.label_selector.clone())?,
            annotations: Selector::default(),
            ignore_status: parent.ignore_status_changes.unwrap_or_default(),
        };
        let resource = resource("spec.parentResource", &parent.api_version, &parent.resource)?;
        let as_metacontroller = common.hooks.sync.via().follows_metacontroller();
        let parent = Target { resource, rules: vec![rule] };
        common.shown_secrets.check("spec.parentResource", &parent.resource)?;
        Ok(Composite {
            negative_selectors: self.allow_negative_selectors.unwrap_or(as_metacontroller),
            common,
            parent,
            revision_paths: self.revision_paths(),
            generate_selector: self.generate_selector.unwrap_or_default(),
        })
    }

    fn child(&self, nth: usize, child: &ChildResource) -> Result<ChildRule, SpecError> {
        let resource = resource(&format!("spec.childResources[{nth}]"), &child.api_version, &child.resource)?;
        let strategy = child.update_strategy.clone().unwrap_or_default();
        Ok(ChildRule {
            resource,
            method: strategy.method.unwrap_or_default(),
            apply: strategy.apply_strategy.or(self.common.apply_strategy),
            checks: strategy.status_checks.conditions.unwrap_or_default(),
        })
    }

    fn revision_paths(&self) -> Vec<String> {
        let given =
            self.parent_resource.revision_history.as_ref().and_then(|history| history.field_paths.clone());
        given.filter(|paths| !paths.is_empty()).unwrap_or_else(|| vec!["spec".to_owned()])
    }
}

/// A ControllerRevision without its metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRevision {
    /// The part of the parent that this revision keeps: the fields of `parentResource.revisionHistory.fieldPaths`.
    // Not as a map of anything: what is in its values would be dropped.
    #[schemars(with = "Value", extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub parent_patch: Map<String, Value>,
    /// The children that are at this revision, by kind.
    pub children: Option<Vec<RevisionChildNames>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionChildNames {
    /// Group of the kind; empty for the core group.
    pub api_group: String,
    /// The kind, such as `Pod`.
    pub kind: String,
    /// Names of the children.
    pub names: Vec<String>,
}
