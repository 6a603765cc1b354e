//! What both kinds of controllers have in common: hooks, account, kinds of children, resync period.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use crate::api::SpecError;
use crate::api::account::ServiceAccountRef;
use crate::api::composite::{
    ApplyStrategy, Composite, CompositeControllerSpec, ConditionCheck, UpdateMethod,
};
use crate::api::decorator::{Decorator, DecoratorControllerSpec};
use crate::api::deletion::{self, Grant, RelatedDeletion};
use crate::api::hook::{Call, EnabledHook, Hook, HookName, PerHook};
use crate::api::policy::HookPolicy;
use crate::api::snapshot::snapshot;
use crate::api::webhook::EndpointConfig;
use crate::cache::trigger::{Selection, SelectionRule};
use crate::object::Object;
use crate::object::id::{Gvr, is_api_version};
use crate::object::selector::{LabelSelector, Selector};
use crate::reconcile::phase;

/// The two kinds of controllers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerKind {
    #[default]
    Composite,
    Decorator,
}

impl ControllerKind {
    /// As it stands in `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Composite => "CompositeController",
            Self::Decorator => "DecoratorController",
        }
    }

    /// What hooks call the children of an object.
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

/// A controller of either kind that can be run.
#[derive(Debug, Clone, PartialEq)]
pub enum Checked {
    Composite(Composite),
    Decorator(Decorator),
}

/// Why an object is no controller that can be run.
#[derive(Debug, thiserror::Error)]
pub enum Unrunnable {
    #[error("the spec cannot be read: {0}")]
    Unreadable(serde_json::Error),
    #[error(transparent)]
    Refused(#[from] ControllerError),
}

impl Checked {
    /// Reads and checks a controller; the second is its spec as hooks see it.
    pub fn of(
        kind: ControllerKind,
        controller: &Object,
        policy: &HookPolicy,
    ) -> Result<(Self, String), Unrunnable> {
        #[derive(Deserialize)]
        struct Specified<S> {
            spec: S,
        }
        let (name, json) = (&controller.key.name, controller.json());
        match kind {
            ControllerKind::Composite => {
                let Specified { spec } = serde_json::from_str::<Specified<CompositeControllerSpec>>(json)
                    .map_err(Unrunnable::Unreadable)?;
                Ok((Self::Composite(spec.check(name, policy)?), snapshot(controller, &spec)))
            }
            ControllerKind::Decorator => {
                let Specified { spec } = serde_json::from_str::<Specified<DecoratorControllerSpec>>(json)
                    .map_err(Unrunnable::Unreadable)?;
                Ok((Self::Decorator(spec.check(name, policy)?), snapshot(controller, &spec)))
            }
        }
    }

    pub fn common(&self) -> &Common {
        match self {
            Self::Composite(composite) => &composite.common,
            Self::Decorator(decorator) => &decorator.common,
        }
    }

    /// Which objects of one of its targets it looks at. `name`: the controller's.
    pub fn selection(&self, target: &Target, name: &str) -> Selection {
        let kind = match self {
            Self::Composite(_) => ControllerKind::Composite,
            Self::Decorator(_) => ControllerKind::Decorator,
        };
        Selection {
            rules: target.rules.clone(),
            finalizer: phase::finalizer(kind, name),
            finalizes: self.common().hooks.finalize.is_some(),
        }
    }

    /// The objects that it looks at: of a composite those of one kind.
    pub fn targets(&self) -> &[Target] {
        match self {
            Self::Composite(composite) => std::slice::from_ref(&composite.parent),
            Self::Decorator(decorator) => &decorator.targets,
        }
    }
}

/// Checked, for both kinds of controllers.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    pub hooks: PerHook<EnabledHook>,
    /// Who writes; the server itself when absent.
    pub account: Option<ServiceAccountRef>,
    /// Or attachments.
    pub children: Vec<ChildRule>,
    /// Kinds of related objects that hooks may delete.
    pub deletions: Vec<Grant>,
    /// Kinds of children that are declared more than once: the last time counts.
    pub declared_again: BTreeSet<Gvr>,
    /// All parents are looked at again this often.
    pub resync_period: Option<Duration>,
    /// The period that was asked for, where it is shorter than the shortest.
    pub too_often: Option<i32>,
    /// Hooks that are named and have neither a module nor a webhook.
    pub disabled_hooks: Vec<HookName>,
}

/// One kind of children and what happens to those that are not as desired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRule {
    pub resource: Gvr,
    pub method: UpdateMethod,
    /// `None`: as the server's flag says.
    pub apply: Option<ApplyStrategy>,
    /// What has to hold of children that a rolling update has reached before it reaches the next one.
    pub checks: Vec<ConditionCheck>,
}

/// One kind of objects that a controller looks at, and which of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub resource: Gvr,
    /// An object is selected by any of these.
    pub rules: Vec<SelectionRule>,
}

/// Why a controller does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(
        "spec.hooks.sync: the controller has no enabled sync hook, so there is nothing it could do: name a wasm module or a webhook (if the manifest names one, the cluster has CustomResourceDefinitions without wasm hooks, which drop it: apply those of this version)"
    )]
    NoSyncHook,
}

/// As stored.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) sync: Option<&'a Hook>,
    pub(super) finalize: Option<&'a Hook>,
    pub(super) customize: Option<&'a Hook>,
    pub(super) account: Option<&'a ServiceAccountRef>,
    pub(super) endpoints: Option<&'a [EndpointConfig]>,
    pub(super) deletions: Option<&'a [RelatedDeletion]>,
    pub(super) resync_period_seconds: Option<i32>,
}

impl Stored<'_> {
    /// `name`: the controller's, which becomes part of its finalizer. `children`: in the order of the spec.
    pub(super) fn check(
        self,
        name: &str,
        policy: &HookPolicy,
        children: impl Iterator<Item = Result<ChildRule, SpecError>>,
    ) -> Result<Common, ControllerError> {
        let mut disabled_hooks = Vec::new();
        let mut enabled = |name: HookName, hook: Option<&Hook>| {
            let Some(hook) = hook else { return Ok(None) };
            let checked = self.check_hook(name, hook, policy)?;
            if checked.is_none() {
                disabled_hooks.push(name);
            }
            Ok::<_, SpecError>(checked)
        };
        let finalize = enabled(HookName::Finalize, self.finalize)?;
        let customize = enabled(HookName::Customize, self.customize)?;
        let sync = enabled(HookName::Sync, self.sync)?.ok_or(ControllerError::NoSyncHook)?;
        if finalize.is_some() {
            phase::check_name(name)?;
        }
        let (children, declared_again) = each_once(children)?;
        let seconds = self.resync_period_seconds;
        Ok(Common {
            hooks: PerHook { sync, finalize, customize },
            account: self.account.cloned(),
            children,
            deletions: deletion::check(self.deletions)?,
            declared_again,
            resync_period: seconds.map(|seconds| Duration::from_secs(seconds.max(1).unsigned_abs().into())),
            too_often: seconds.filter(|seconds| *seconds < 1),
            disabled_hooks,
        })
    }

    fn check_hook(
        self,
        name: HookName,
        hook: &Hook,
        policy: &HookPolicy,
    ) -> Result<Option<EnabledHook>, SpecError> {
        let field = format!("spec.hooks.{name}");
        let Some(account) = self.account else {
            return self.check_endpoint(hook.check(&field, policy)?);
        };
        account.check("spec.serviceAccountRef")?;
        let mut checked = hook.check(&field, &policy.by_account())?;
        if let Some(hook) = &mut checked {
            hook.read_as(account);
        }
        self.check_endpoint(checked)
    }

    fn check_endpoint(self, hook: Option<EnabledHook>) -> Result<Option<EnabledHook>, SpecError> {
        if let Some(EnabledHook { call: Call::Webhook(target), .. }) = &hook {
            target.check_endpoint(self.endpoints.unwrap_or_default())?;
        }
        Ok(hook)
    }
}

/// The kinds of children, and those among them that are declared again, in whichever version: manifests that do so are
/// about, and mean the last entry of each kind.
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

/// A selector that a spec may be without.
pub(super) fn selector(field: &str, selector: Option<LabelSelector>) -> Result<Selector, SpecError> {
    Selector::of(&selector.unwrap_or_default()).map_err(|error| SpecError::new(field, error.to_string()))
}

/// What a spec names becomes part of the path under which the API server is asked for it.
pub(super) fn kind(field: &str, api_version: &str, resource: &str) -> Result<Gvr, SpecError> {
    if !is_api_version(api_version) {
        let problem = format!("{api_version:?} is no version: write it like v1 or apps/v1");
        return Err(SpecError::new(format!("{field}.apiVersion"), problem));
    }
    if resource.is_empty() || !resource.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')) {
        let problem = format!("{resource:?} names no resource: write its plural, lower case, like pods");
        return Err(SpecError::new(format!("{field}.resource"), problem));
    }
    Ok(Gvr::new(api_version, resource))
}
