//! DecoratorController: the spec as stored, and the checked form a running controller reads.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::common::{ApplyStrategy, CheckedCommon, ChildRule, CommonSpec, Hooks, Target, UpdateMethod};
use crate::api::policy::HookPolicy;
use crate::api::selection::SelectionRule;
use crate::api::{ControllerError, SpecError, resource, selector};
use crate::object::id::Gvr;
use crate::object::selector::{Expression, LabelSelector};

/// Which objects to decorate, which kinds of attachments to create for them, and the hooks that decide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecoratorControllerSpec {
    /// The kinds of the objects to decorate, and which objects of each kind. An object is decorated when one entry selects it.
    pub resources: Vec<TargetResource>,
    /// The kinds of the attachments. An answer may have no other kinds.
    pub attachments: Option<Vec<Attachment>>,
    /// The hooks of the controller. A controller without an enabled sync hook does not run.
    pub hooks: Option<Hooks>,
    #[serde(flatten)]
    pub common: CommonSpec,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetResource {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
    /// Selects objects by their labels. Default: all objects.
    pub label_selector: Option<LabelSelector>,
    /// Selects objects by their annotations. Default: all objects.
    pub annotation_selector: Option<AnnotationSelector>,
    /// When true, a change of the object's status alone starts no reconcile. Default: false.
    pub ignore_status_changes: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnotationSelector {
    /// Annotations that an object must have, each with its value.
    pub match_annotations: Option<BTreeMap<String, String>>,
    /// Further conditions on annotations. An object must meet all of them.
    pub match_expressions: Option<Vec<Expression>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
    /// How the server changes an attachment of this kind that differs from the answer.
    pub update_strategy: Option<AttachmentUpdateStrategy>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentUpdateStrategy {
    /// What the server does with an attachment that differs from the answer: nothing until another client deletes it (`OnDelete`),
    /// delete and create it again (`Recreate`), or update it (`InPlace`). The rolling methods act as `Recreate` and `InPlace`.
    /// Default: `OnDelete`.
    pub method: Option<UpdateMethod>,
    /// How the server writes attachments of this kind. Default: `spec.applyStrategy`.
    pub apply_strategy: Option<ApplyStrategy>,
}

/// A DecoratorController that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Decorator {
    pub common: CheckedCommon,
    /// Each kind once, with all of its rules.
    pub targets: Vec<Target>,
    /// Kinds of targets that are declared once more: an object is selected by any of the entries.
    pub declared_again: BTreeSet<Gvr>,
    /// Kinds of targets that are declared once more in another version: the first version counts.
    pub other_versions: BTreeSet<Gvr>,
}

impl DecoratorControllerSpec {
    /// `name`: the controller's, which becomes part of its finalizer.
    pub fn check(&self, name: &str, policy: &HookPolicy) -> Result<Decorator, ControllerError> {
        let attachments = self.attachments.iter().flatten().enumerate();
        let attachments = attachments.map(|(nth, one)| self.attachment(nth, one));
        let common = self.common.check(name, self.hooks.as_ref(), policy, attachments)?;
        let mut targets = Vec::<Target>::new();
        let (mut declared_again, mut other_versions) = (BTreeSet::new(), BTreeSet::new());
        for (nth, target) in self.resources.iter().enumerate() {
            let field = format!("spec.resources[{nth}]");
            let target = target.check(&field)?;
            common.shown_secrets.check(&field, &target.resource)?;
            let Target { resource, rules } = target;
            if let Some(first) = targets.iter_mut().find(|first| first.resource.is_kin(&resource)) {
                first.rules.extend(rules);
                let repeated =
                    if first.resource == resource { &mut declared_again } else { &mut other_versions };
                repeated.insert(resource);
            } else {
                targets.push(Target { resource, rules });
            }
        }
        Ok(Decorator { common, targets, declared_again, other_versions })
    }

    fn attachment(&self, nth: usize, one: &Attachment) -> Result<ChildRule, SpecError> {
        let resource = resource(&format!("spec.attachments[{nth}]"), &one.api_version, &one.resource)?;
        let strategy = one.update_strategy.clone().unwrap_or_default();
        Ok(ChildRule {
            resource,
            method: match strategy.method.unwrap_or_default() {
                UpdateMethod::OnDelete => UpdateMethod::OnDelete,
                UpdateMethod::Recreate | UpdateMethod::RollingRecreate => UpdateMethod::Recreate,
                UpdateMethod::InPlace | UpdateMethod::RollingInPlace => UpdateMethod::InPlace,
            },
            apply: strategy.apply_strategy.or(self.common.apply_strategy),
            checks: Vec::new(),
        })
    }
}

impl TargetResource {
    fn check(&self, field: &str) -> Result<Target, SpecError> {
        let rules = vec![self.rule(field)?];
        Ok(Target { resource: resource(field, &self.api_version, &self.resource)?, rules })
    }

    pub(super) fn rule(&self, field: &str) -> Result<SelectionRule, SpecError> {
        let annotations = self.annotation_selector.clone().map(|of| LabelSelector {
            match_labels: of.match_annotations,
            match_expressions: of.match_expressions,
        });
        Ok(SelectionRule {
            labels: selector(&format!("{field}.labelSelector"), self.label_selector.clone())?,
            annotations: selector(&format!("{field}.annotationSelector"), annotations)?,
            ignore_status: self.ignore_status_changes.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::as_stored;
    use crate::object::selector::Selector;

    fn check(change: impl FnOnce(&mut Value)) -> Result<Decorator, String> {
        check_named("d", change)
    }

    fn check_named(name: &str, change: impl FnOnce(&mut Value)) -> Result<Decorator, String> {
        let mut spec = json!({
            "resources": [{"apiVersion": "apps/v1", "resource": "statefulsets"}],
            "attachments": [{"apiVersion": "v1", "resource": "services"}],
            "hooks": {"sync": {"webhook": {"url": "http://hook/sync"}}},
        });
        change(&mut spec);
        let spec: DecoratorControllerSpec = serde_json::from_value(spec).unwrap();
        spec.check(name, &HookPolicy::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn without_selectors_every_object_is_a_target() {
        let checked = check(|_| ()).unwrap();
        let all =
            Target { resource: Gvr::new("apps/v1", "statefulsets"), rules: vec![SelectionRule::default()] };
        assert_eq!(checked.targets, [all]);
        assert_eq!(check(|spec| spec["resources"] = json!([])).unwrap().targets, []);
    }

    #[test]
    fn secrets_are_decorated_by_webhooks_and_not_by_modules() {
        let secrets = |spec: &mut Value| {
            let secrets = json!({"apiVersion": "v1", "resource": "secrets"});
            spec["resources"].as_array_mut().unwrap().push(secrets);
        };
        assert_eq!(check(secrets).map(|checked| checked.targets.len()), Ok(2));
        let refused = check(|spec| {
            secrets(spec);
            let map = json!({"namespace": "n", "name": "m"});
            spec["hooks"]["finalize"] = json!({"wasm": {"configMap": map}});
        });
        let refused = refused.unwrap_err();
        assert!(refused.starts_with("spec.resources[1]: modules and scripts are shown Secrets from nowhere"));
    }

    #[test]
    fn rules_of_one_kind_are_gathered_under_the_version_that_comes_first() {
        let checked = check(|spec| {
            let target = |version: &str, resource: &str, label: &str| {
                json!({"apiVersion": version, "resource": resource, "labelSelector": {"matchLabels": {label: "1"}}})
            };
            spec["resources"] = json!([
                target("apps/v1", "deployments", "a"),
                target("v1", "pods", "b"),
                target("apps/v1beta1", "deployments", "c"),
                target("apps/v1", "deployments", "d"),
            ]);
            spec["resources"][3]["ignoreStatusChanges"] = json!(true);
            spec["resources"][3]["annotationSelector"] = json!({
                "matchAnnotations": {"e": "2"},
                "matchExpressions": [{"key": "f", "operator": "Exists"}],
            });
        })
        .unwrap();
        let by = |label: &str| SelectionRule { labels: Selector::equals(label, "1"), ..Default::default() };
        let last =
            SelectionRule { annotations: Selector::parse("e=2,f").unwrap(), ignore_status: true, ..by("d") };
        let deployments =
            Target { resource: Gvr::new("apps/v1", "deployments"), rules: vec![by("a"), by("c"), last] };
        let pods = Target { resource: Gvr::new("v1", "pods"), rules: vec![by("b")] };
        assert_eq!(checked.targets, [deployments, pods]);
        assert_eq!(checked.declared_again, [Gvr::new("apps/v1", "deployments")].into());
        assert_eq!(checked.other_versions, [Gvr::new("apps/v1beta1", "deployments")].into());
    }

    #[test]
    fn selectors_that_select_nothing_are_refused_by_field() {
        for (selector, says) in [
            (
                json!({"annotationSelector": {"matchAnnotations": {"a": "no label value"}}}),
                "spec.resources[0].annotationSelector: \"no label value\", asked for of key \"a\", is no value",
            ),
            (
                json!({"annotationSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x".repeat(64)]}]}}),
                "spec.resources[0].annotationSelector: \"xxx",
            ),
            (
                json!({"annotationSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}),
                "spec.resources[0].annotationSelector: operator \"Gt\" is none of",
            ),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}}),
                "spec.resources[0].labelSelector: \"a b\" is no key",
            ),
            (json!({"resource": "pods/status"}), "spec.resources[0].resource: \"pods/status\" names no"),
        ] {
            let change = |spec: &mut Value| {
                let target = spec["resources"][0].as_object_mut().unwrap();
                target.extend(selector.as_object().unwrap().clone());
            };
            let found = check(change).unwrap_err();
            assert!(found.starts_with(says), "{found}");
        }
    }

    #[test]
    fn attachments_are_never_rolled() {
        let method = |method: Value| {
            let strategy = json!({ "method": method });
            let checked = check(|spec| spec["attachments"][0]["updateStrategy"] = strategy).unwrap();
            checked.common.children[0].method
        };
        for (written, acts_as) in [
            (json!(null), UpdateMethod::OnDelete),
            (json!(""), UpdateMethod::OnDelete),
            (json!("InPlace"), UpdateMethod::InPlace),
            (json!("RollingInPlace"), UpdateMethod::InPlace),
            (json!("Recreate"), UpdateMethod::Recreate),
            (json!("RollingRecreate"), UpdateMethod::Recreate),
        ] {
            assert_eq!(method(written), acts_as);
        }
    }

    #[test]
    fn a_kind_is_written_as_it_says_else_as_the_controller_says() {
        let apply = |own: Value, all: Value| {
            let checked = check(|spec| {
                spec["applyStrategy"] = all;
                spec["attachments"][0]["updateStrategy"] = json!({ "applyStrategy": own });
            });
            checked.unwrap().common.children[0].apply
        };
        let (dynamic, server) = (json!("dynamic-apply"), json!("server-side-apply"));
        assert_eq!(apply(json!(null), json!(null)), None);
        assert_eq!(apply(json!(null), server.clone()), Some(ApplyStrategy::ServerSideApply));
        assert_eq!(apply(dynamic, server), Some(ApplyStrategy::DynamicApply));
    }

    #[test]
    fn what_no_controller_can_do_is_refused_as_of_composites() {
        let found = check(|spec| spec["hooks"] = json!({"finalize": {}})).unwrap_err();
        assert!(found.starts_with("spec.hooks.sync: the controller has no enabled sync hook"), "{found}");
        let finalizing = |spec: &mut Value| spec["hooks"]["finalize"] = spec["hooks"]["sync"].clone();
        assert!(check_named(&"d".repeat(43), finalizing).is_ok());
        let found = check_named(&"d".repeat(44), finalizing).unwrap_err();
        assert!(found.starts_with("metadata.name: 44 characters are too many"), "{found}");
        let found = check(|spec| spec["attachments"][0]["apiVersion"] = json!("")).unwrap_err();
        assert!(found.starts_with("spec.attachments[0].apiVersion: \"\" is no version"), "{found}");
    }

    #[test]
    fn hooks_see_the_spec_as_it_is_stored() {
        let spec = json!({
            "resources": [{"apiVersion": "v1", "resource": "pods", "annotationSelector": {"matchAnnotations": {"a": "b"}}}],
            "attachments": [{"apiVersion": "v1", "resource": "services", "updateStrategy": {"method": "InPlace"}}],
            "resyncPeriodSeconds": 3,
        });
        let typed: DecoratorControllerSpec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(as_stored(&typed).unwrap(), spec);
    }
}
