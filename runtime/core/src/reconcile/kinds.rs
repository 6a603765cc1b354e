//! Kinds of a controller's spec as they are served, and the configuration that follows from both.

use std::sync::Arc;

use crate::api::CheckedSpec;
use crate::api::common::{Target, UpdateMethod};
use crate::api::composite::Composite;
use crate::children::desired::ChildKind;
use crate::object::id::{Gvk, Resource};
use crate::reconcile::config::{ControllerConfig, HookConfig, KindConfig};
use crate::reconcile::shown::ObservedBounds;
use crate::rollout::revisions::FieldPath;
use crate::rollout::{RollingConfig, RollingKind};

/// The kinds that a spec names.
#[derive(Debug, Clone, PartialEq)]
pub struct Kinds {
    /// In the order of the spec's targets; `None` is not served, and holds up no other one of a decorator's.
    pub parents: Vec<Option<Arc<Resource>>>,
    /// Declared kinds of children.
    pub rules: Vec<ChildKind>,
    /// The kind of revisions, where there are children that are updated one after the other.
    pub revisions: Option<Arc<Resource>>,
}

/// Result of discovery for a kind of parents, with an error where the kind is not served now.
#[derive(Debug, Clone, PartialEq)]
pub enum Discovered<E> {
    Served(Arc<Resource>),
    NotServed(E),
    /// The server behind an aggregated API does not answer: nothing is known about the kind.
    Unavailable(E),
}

/// Kinds that a decorator works on, one for each target, and why the others are missing.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoratedKinds<E> {
    /// In the order of the spec's targets.
    pub parents: Vec<Option<Arc<Resource>>>,
    /// One error for each kind that is not served or unavailable now.
    pub missing: Vec<E>,
}

impl<E> DecoratedKinds<E> {
    /// The targets of a decorator are independent: those that are served are enough. `running`: the kinds that the controller works
    /// on already. Of these an unavailable one stays, as its API may answer again at any time. Where nothing is left all errors
    /// are returned.
    /// See <https://github.com/metacontroller/metacontroller/pull/406>.
    pub fn of(
        discovered: impl IntoIterator<Item = Discovered<E>>,
        running: &[Option<Arc<Resource>>],
    ) -> Result<Self, Vec<E>> {
        let mut all = Self { parents: Vec::new(), missing: Vec::new() };
        for (at, discovered) in discovered.into_iter().enumerate() {
            let (parents, error) = match discovered {
                Discovered::Served(parents) => (Some(parents), None),
                Discovered::NotServed(error) => (None, Some(error)),
                Discovered::Unavailable(error) => (running.get(at).cloned().flatten(), Some(error)),
            };
            all.parents.push(parents);
            all.missing.extend(error);
        }
        let is_enough = all.missing.is_empty() || all.parents.iter().any(Option::is_some);
        if is_enough { Ok(all) } else { Err(all.missing) }
    }
}

/// The part of a configuration that neither the spec nor the kinds decide.
#[derive(Debug, Clone, Copy)]
pub struct ConfigParts<'a> {
    /// The controller's name.
    pub name: &'a str,
    /// The controller as hooks see it.
    pub snapshot: &'a str,
    /// Where revisions of parents without a namespace are kept.
    pub home: &'a str,
    pub max_children: usize,
    pub observed: ObservedBounds,
    /// Bytes that a webhook's answer may have.
    pub max_webhook_answer: usize,
}

/// A kind of parents of a CompositeController whose status has no request of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    #[error(
        "CRD [{api_version}, Kind={kind}] does not have subresource 'Status' enabled: add `subresources: {{status: {{}}}}` to the version of its CustomResourceDefinition"
    )]
    NotEnabled { api_version: String, kind: Arc<str> },
    #[error("{0} has no status, where a parent's is written: choose a kind that has one")]
    Never(Gvk),
}

impl StatusError {
    /// `is_custom`: a CustomResourceDefinition says what the kind is.
    pub fn of(parents: &Resource, is_custom: bool) -> Self {
        let gvk = &parents.gvk;
        if !is_custom {
            return Self::Never(gvk.clone());
        }
        Self::NotEnabled { api_version: gvk.api_version(), kind: Arc::clone(&gvk.kind) }
    }
}

impl Kinds {
    /// The configuration for the parents of one kind, a target of the spec.
    pub fn config(
        &self,
        spec: &CheckedSpec,
        (target, parents): (&Target, &Arc<Resource>),
        parts: ConfigParts<'_>,
    ) -> ControllerConfig {
        let common = spec.common();
        let kind = match spec {
            CheckedSpec::Composite(composite) => KindConfig::Composite {
                generate_selector: composite.generate_selector,
                negative_selectors: composite.negative_selectors,
                rolling: self.rolling(composite, parents, parts.home).map(Arc::new),
            },
            CheckedSpec::Decorator(_) => KindConfig::Decorator,
        };
        ControllerConfig {
            name: parts.name.to_owned(),
            kind,
            selection: spec.selection(target, parts.name),
            child_kinds: self.rules.clone(),
            snapshot: parts.snapshot.to_owned(),
            hooks: common.hooks.map(|_, hook| HookConfig::of(hook, parts.max_webhook_answer)),
            max_children: parts.max_children,
            observed: parts.observed,
            deletions: common.deletions.clone(),
            related_kinds: common.related_kinds.clone(),
            shown_secrets: common.shown_secrets.clone(),
            paused: common.paused,
        }
    }

    fn rolling(&self, checked: &Composite, parents: &Arc<Resource>, home: &str) -> Option<RollingConfig> {
        let rolling =
            self.rules.iter().zip(&checked.common.children).filter(|(rule, _)| rule.method.is_rolling());
        Some(RollingConfig {
            paths: checked.revision_paths.iter().map(|path| FieldPath::new(path)).collect(),
            kinds: rolling
                .map(|(rule, declared)| RollingKind {
                    resource: Arc::clone(&rule.resource),
                    in_place: rule.method == UpdateMethod::RollingInPlace,
                    checks: declared.checks.clone(),
                })
                .collect(),
            parents: Arc::clone(parents),
            revisions: Arc::clone(self.revisions.as_ref()?),
            home: home.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(plural: &str) -> Arc<Resource> {
        let gvk = Gvk::new("e/v1", plural);
        Arc::new(Resource { gvk, plural: plural.into(), namespaced: true, has_status: true })
    }

    #[test]
    fn a_broken_kind_stops_no_other_kind_of_a_decorator() {
        use Discovered::{NotServed, Served, Unavailable};
        let (pods, things) = (kind("pods"), kind("things"));
        let running = [Some(Arc::clone(&pods)), Some(Arc::clone(&things))];
        for (discovered, running, kept) in [
            (Unavailable("broken"), &[][..], None),
            (Unavailable("broken"), &[Some(Arc::clone(&pods)), None][..], None),
            (Unavailable("broken"), &running[..], Some(Arc::clone(&things))),
            (NotServed("broken"), &running[..], None),
        ] {
            let kinds = DecoratedKinds::of([Served(Arc::clone(&pods)), discovered], running).unwrap();
            assert_eq!(kinds.parents, [Some(Arc::clone(&pods)), kept]);
            assert_eq!(kinds.missing, ["broken"]);
        }
        let all = DecoratedKinds::<&str>::of([Served(Arc::clone(&pods)), Served(things)], &[]).unwrap();
        assert!(all.parents.iter().all(Option::is_some) && all.missing.is_empty());
        let none = DecoratedKinds::of([Unavailable("first"), NotServed("second")], &[]);
        assert_eq!(none, Err(vec!["first", "second"]), "there is nothing to decorate");
        let kept = DecoratedKinds::of([NotServed("first"), Unavailable("second")], &running).unwrap();
        assert_eq!(kept.missing, ["first", "second"]);
    }
}
