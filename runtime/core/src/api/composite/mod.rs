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

/// Children that are composed into one parent: which kinds, and the hooks that decide about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeControllerSpec {
    pub parent_resource: ParentResource,
    pub child_resources: Option<Vec<ChildResource>>,
    pub hooks: Option<CompositeHooks>,
    /// Select children by a label made from the parent's uid instead of `spec.selector` of the parent.
    pub generate_selector: Option<bool>,
    /// Let `spec.selector` of parents do no more than exclude labels (`NotIn`, `DoesNotExist`), so that it matches nearly
    /// every object. When absent: where the sync hook is a webhook, and not where it is a module.
    pub allow_negative_selectors: Option<bool>,
    #[serde(flatten)]
    pub common: CommonSpec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentResource {
    pub api_version: String,
    /// The plural name, lower case.
    pub resource: String,
    /// Only parents with these labels are handled.
    pub label_selector: Option<LabelSelector>,
    pub revision_history: Option<RevisionHistory>,
    /// A change of a parent's status alone starts no reconcile.
    pub ignore_status_changes: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionHistory {
    pub field_paths: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildResource {
    pub api_version: String,
    /// The plural name, lower case.
    pub resource: String,
    pub update_strategy: Option<ChildUpdateStrategy>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildUpdateStrategy {
    pub method: Option<UpdateMethod>,
    /// How children of this kind are written.
    pub apply_strategy: Option<ApplyStrategy>,
    /// Hooks see it also where it is empty.
    #[serde(default)]
    pub status_checks: StatusChecks,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusChecks {
    pub conditions: Option<Vec<ConditionCheck>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeHooks {
    #[serde(flatten)]
    pub hooks: Hooks,
    /// Accepted for old manifests; never called.
    pub pre_update_child: Option<HookSpec>,
    /// Accepted for old manifests; never called.
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
    /// The part of the parent that is kept: the fields named by `revisionHistory.fieldPaths`.
    // Not as a map of anything: what is in its values would be dropped.
    #[schemars(with = "Value", extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
    pub parent_patch: Map<String, Value>,
    pub children: Option<Vec<RevisionChildren>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionChildren {
    pub api_group: String,
    pub kind: String,
    pub names: Vec<String>,
}
