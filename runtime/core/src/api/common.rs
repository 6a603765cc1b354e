//! Parts that the specs of both kinds of controllers share: as stored, and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::customize::RelatedKinds;
use crate::api::hook::{EnabledHook, HookName, HookSpec, HookTarget, PerHook};
use crate::api::policy::{BrakeLimits, DeletionBrakeSpec, HookPolicy, ServiceAccountRef};
use crate::api::selection::{self, SelectionRule};
use crate::api::shown_secrets::ShownSecrets;
use crate::api::webhook::EndpointConfig;
use crate::api::{self, ControllerError, SpecError};
use crate::object::id::Gvr;

// The fields of both specs. (A doc comment would take the place of the spec's own in the schema; so it would below.)
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonSpec {
    /// Certificates and credentials for all webhooks of a host. A webhook that names some of its own does not use them.
    pub endpoint_configs: Option<Vec<EndpointConfig>>,
    /// The server reconciles all parents again after this many seconds, one at least. Default: the server's flag `--cache-flush-interval`.
    pub resync_period_seconds: Option<i32>,
    /// How the server writes children whose kind names no strategy of its own: `dynamic-apply` merges in the server, with
    /// `server-side-apply` the API server merges. Default: the server's flag `--apply-strategy`.
    pub apply_strategy: Option<ApplyStrategy>,
    /// Kinds of related objects that hooks may delete. Default: none.
    pub related_deletion: Option<Vec<RelatedDeletion>>,
    /// Kinds that the customize hook may ask for. Modules and scripts may ask for Secrets only in the namespaces of the server's
    /// flag `--mount-secret-namespaces`, even when the list names Secrets, unless the controller has a `serviceAccountRef`.
    /// Default: all kinds.
    pub related_kinds: Option<Vec<RelatedKind>>,
    /// The ServiceAccount with whose rights the server reads and writes for this controller. Default: the server's own.
    pub service_account_ref: Option<ServiceAccountRef>,
    /// How many children the server deletes after a change of the hooks or of the spec, before the other deletions wait for a user.
    pub deletion_brake: Option<DeletionBrakeSpec>,
    /// While this is true, the server calls no hook of the controller and writes nothing. The deletion of a parent that has the
    /// finalizer waits. Default: false.
    pub paused: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hooks {
    /// The server calls it before the other hooks, to learn which related objects they are to see.
    pub customize: Option<HookSpec>,
    /// The server calls it for each parent whenever something changes. It answers with the children that should exist.
    pub sync: Option<HookSpec>,
    /// The server calls it in place of `sync` for a parent that is being deleted or is no longer selected. The parent goes once it
    /// answers `finalized: true`.
    pub finalize: Option<HookSpec>,
}

/// How children are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApplyStrategy {
    /// The server merges the desired child into the observed one; an annotation of the child keeps the last desired state.
    #[default]
    DynamicApply,
    /// The API server merges, by the owners of fields.
    ServerSideApply,
}

/// What the server does with a child that differs from the answer: nothing until another client deletes it (`OnDelete`), delete
/// and create it again (`Recreate`), or update it (`InPlace`). The rolling methods do so with one child after the other. Default: `OnDelete`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateMethod {
    /// The child stays as it is until something else deletes it; then it is created as desired.
    #[default]
    #[serde(alias = "")]
    OnDelete,
    /// It is deleted and made anew.
    Recreate,
    /// It is updated.
    InPlace,
    /// As Recreate, one child after the other.
    RollingRecreate,
    /// As InPlace, one child after the other.
    RollingInPlace,
}

impl UpdateMethod {
    /// One child after the other.
    pub fn is_rolling(self) -> bool {
        matches!(self, Self::RollingRecreate | Self::RollingInPlace)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConditionCheck {
    /// Type of the condition in the child's status.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status that the condition must have. Default: any.
    pub status: Option<String>,
    /// The reason that the condition must have. Default: any.
    pub reason: Option<String>,
}

/// Parts that the checked specs of both kinds share.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedCommon {
    pub hooks: PerHook<EnabledHook>,
    /// By the hook that each is compared with. One that is refused stops nothing else.
    pub shadows: BTreeMap<HookName, Result<EnabledHook, SpecError>>,
    /// The account that writes; the server itself when absent.
    pub account: Option<ServiceAccountRef>,
    /// Kinds of children; of a DecoratorController, of attachments.
    pub children: Vec<ChildRule>,
    /// Kinds of related objects that hooks may delete.
    pub deletions: Vec<Grant>,
    pub deletion_brake: BrakeLimits,
    /// Kinds that the rules of the customize hook may name.
    pub related_kinds: RelatedKinds,
    /// Namespaces whose Secrets may be parents and children.
    pub shown_secrets: ShownSecrets,
    /// Kinds of children that the spec declares more than once: the last entry counts.
    pub declared_again: BTreeSet<Gvr>,
    /// All parents are reconciled again after this time.
    pub resync_period: Option<Duration>,
    /// The resync period of the spec, where it is below the minimum of a second.
    pub short_resync: Option<i32>,
    /// Hooks that the spec names with neither a module nor a webhook.
    pub disabled_hooks: Vec<HookName>,
    /// There is no sync hook, but a finalize hook.
    pub only_finalizes: bool,
    /// No hook is called, and nothing is written.
    pub paused: bool,
}

/// One kind of children, and how the controller updates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRule {
    pub resource: Gvr,
    pub method: UpdateMethod,
    /// `None`: the server's flag decides.
    pub apply: Option<ApplyStrategy>,
    /// Conditions that an updated child has to meet before a rolling update goes on to the next one.
    pub checks: Vec<ConditionCheck>,
}

/// One kind of parents, and which of them the controller selects.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub resource: Gvr,
    /// Any one of these selects an object.
    pub rules: Vec<SelectionRule>,
}

impl CommonSpec {
    /// `name`: the controller's, which becomes part of its finalizer. `children`: in the order of the spec.
    pub(super) fn check(
        &self,
        name: &str,
        hooks: Option<&Hooks>,
        policy: &HookPolicy,
        children: impl Iterator<Item = Result<ChildRule, SpecError>>,
    ) -> Result<CheckedCommon, ControllerError> {
        let (mut disabled_hooks, mut shadows) = (Vec::new(), BTreeMap::new());
        let mut enabled = |name: HookName, hook: Option<&HookSpec>| {
            let Some(hook) = hook else { return Ok(None) };
            let field = format!("spec.hooks.{name}.shadow");
            let shadow = self.check_hook(policy, |policy| hook.check_shadow(&field, policy));
            shadows.extend(shadow.transpose().map(|shadow| (name, shadow)));
            let field = format!("spec.hooks.{name}");
            let checked = self.check_hook(policy, |policy| hook.check(&field, policy))?;
            if checked.is_none() {
                disabled_hooks.push(name);
            }
            Ok::<_, SpecError>(checked)
        };
        let finalize = enabled(HookName::Finalize, hooks.and_then(|hooks| hooks.finalize.as_ref()))?;
        let customize = enabled(HookName::Customize, hooks.and_then(|hooks| hooks.customize.as_ref()))?;
        let sync = enabled(HookName::Sync, hooks.and_then(|hooks| hooks.sync.as_ref()))?;
        let only_finalizes = sync.is_none();
        // Parents with the finalizer could never be deleted. The finalize hook stands in where there has to be a sync hook, and
        // is never called as one.
        // See <https://github.com/metacontroller/metacontroller/issues/948>.
        let sync = sync.or_else(|| finalize.clone()).ok_or(ControllerError::NoSyncHook)?;
        if finalize.is_some() {
            selection::check_finalizer(name)?;
        }
        let (children, declared_again) = each_once(children)?;
        let seconds = self.resync_period_seconds;
        let hooks = PerHook { sync, finalize, customize };
        Ok(CheckedCommon {
            related_kinds: self.check_related_kinds(&hooks, policy)?,
            shown_secrets: self.shown_secrets(&hooks, policy),
            hooks,
            shadows,
            account: self.service_account_ref.clone(),
            children,
            deletions: check_grants(self.related_deletion.as_deref())?,
            deletion_brake: self.deletion_brake.clone().unwrap_or_default().check(&policy.deletion_brake)?,
            declared_again,
            resync_period: seconds.map(|seconds| Duration::from_secs(seconds.max(1).unsigned_abs().into())),
            short_resync: seconds.filter(|seconds| *seconds < 1),
            disabled_hooks,
            only_finalizes,
            paused: self.paused.unwrap_or_default(),
        })
    }

    fn check_related_kinds(
        &self,
        hooks: &PerHook<EnabledHook>,
        policy: &HookPolicy,
    ) -> Result<RelatedKinds, SpecError> {
        if let Some(listed) = &self.related_kinds {
            let check = |(at, kind): (usize, &RelatedKind)| {
                api::resource(&format!("spec.relatedKinds[{at}]"), &kind.api_version, &kind.resource)
            };
            let kinds = listed.iter().enumerate().map(check).collect::<Result<_, _>>()?;
            return Ok(RelatedKinds::Listed { kinds, secrets: self.shown_secrets(hooks, policy) });
        }
        Ok(match &self.service_account_ref {
            Some(_) => RelatedKinds::ByAccount,
            None if are_shown_all_secrets(hooks) => RelatedKinds::Webhooks,
            None => RelatedKinds::SecretsIn(policy.mount_secret_namespaces.clone()),
        })
    }

    fn shown_secrets(&self, hooks: &PerHook<EnabledHook>, policy: &HookPolicy) -> ShownSecrets {
        if self.service_account_ref.is_some() || policy.secrets_by_account || are_shown_all_secrets(hooks) {
            return ShownSecrets::All;
        }
        ShownSecrets::In(policy.mount_secret_namespaces.clone())
    }

    fn check_hook(
        &self,
        policy: &HookPolicy,
        check: impl FnOnce(&HookPolicy) -> Result<Option<EnabledHook>, SpecError>,
    ) -> Result<Option<EnabledHook>, SpecError> {
        let mut checked = match &self.service_account_ref {
            None => check(policy)?,
            Some(account) => {
                account.check("spec.serviceAccountRef")?;
                check(&policy.by_account())?
            }
        };
        let account = self.service_account_ref.as_ref();
        match checked.as_mut().map(|hook| &mut hook.target) {
            Some(HookTarget::Webhook(target)) => {
                target.take_endpoint(self.endpoint_configs.as_deref().unwrap_or_default())?;
                target.trust.reader = account.cloned();
            }
            Some(HookTarget::Wasm(wasm)) => account.into_iter().for_each(|account| wasm.read_as(account)),
            None => {}
        }
        Ok(checked)
    }
}

/// Whether each of the hooks is shown Secrets of all namespaces.
fn are_shown_all_secrets(hooks: &PerHook<EnabledHook>) -> bool {
    hooks.iter().all(|(_, hook)| hook.via().is_shown_all_secrets())
}

/// Each kind of children once, and the kinds that the spec declares again, in any version: existing manifests do so and
/// mean the last entry.
fn each_once(
    declared: impl Iterator<Item = Result<ChildRule, SpecError>>,
) -> Result<(Vec<ChildRule>, BTreeSet<Gvr>), SpecError> {
    let (mut rules, mut again) = (Vec::<ChildRule>::new(), BTreeSet::new());
    for rule in declared {
        let rule = rule?;
        if let Some(earlier) = rules.iter_mut().find(|earlier| earlier.resource.is_kin(&rule.resource)) {
            again.insert(rule.resource.clone());
            *earlier = rule;
        } else {
            rules.push(rule);
        }
    }
    Ok((rules, again))
}

/// A kind of related objects that hooks may delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedDeletion {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
    /// Whether hooks may delete objects in other namespaces than the parent's. Default: false.
    pub any_namespace: Option<bool>,
}

/// A kind of which the customize hook may ask for objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedKind {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
}

/// Permission to delete objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub resource: Gvr,
    pub any_namespace: bool,
}

impl Grant {
    /// Whether the permission is one for this kind, in any version.
    pub fn grants(&self, resource: &Gvr) -> bool {
        self.resource.is_kin(resource)
    }
}

/// Each kind once; a grant has its place in the spec.
fn check_grants(granted: Option<&[RelatedDeletion]>) -> Result<Vec<Grant>, SpecError> {
    let mut grants = Vec::<Grant>::new();
    for (at, entry) in granted.into_iter().flatten().enumerate() {
        let field = format!("spec.relatedDeletion[{at}]");
        let resource = api::resource(&field, &entry.api_version, &entry.resource)?;
        if let Some(earlier) = grants.iter().position(|earlier| earlier.grants(&resource)) {
            let problem = format!(
                "{resource} is granted by spec.relatedDeletion[{earlier}] already: take one of the two out"
            );
            return Err(SpecError::new(field, problem));
        }
        grants.push(Grant { resource, any_namespace: entry.any_namespace.unwrap_or_default() });
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(granted: Value) -> Result<Vec<Grant>, String> {
        let granted: Vec<RelatedDeletion> = serde_json::from_value(granted).unwrap();
        check_grants(Some(&granted)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_grant_is_about_one_namespace_unless_it_says_otherwise() {
        let grants = checked(json!([
            {"apiVersion": "v1", "resource": "pods"},
            {"apiVersion": "apps/v1", "resource": "deployments", "anyNamespace": true},
        ]));
        let grants = grants.unwrap();
        assert_eq!(grants[0], Grant { resource: Gvr::new("v1", "pods"), any_namespace: false });
        assert!(grants[1].any_namespace && grants[1].grants(&Gvr::new("apps/v1beta1", "deployments")));
        assert!(!grants[1].grants(&Gvr::new("v1", "deployments")));
        assert_eq!(check_grants(None), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        let pods = json!({"apiVersion": "v1", "resource": "pods"});
        for (entry, says) in [
            (
                json!({"apiVersion": "", "resource": "pods"}),
                "spec.relatedDeletion[1].apiVersion: \"\" is no version",
            ),
            (
                json!({"apiVersion": "v1", "resource": ""}),
                "spec.relatedDeletion[1].resource: \"\" names no resource",
            ),
            (
                json!({"apiVersion": "v1", "resource": "pods/log"}),
                "spec.relatedDeletion[1].resource: \"pods/log\"",
            ),
            (
                json!({"apiVersion": "v2", "resource": "pods", "anyNamespace": true}),
                "spec.relatedDeletion[1]: v2 pods is granted by spec.relatedDeletion[0] already",
            ),
        ] {
            let error = checked(json!([pods, entry])).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
