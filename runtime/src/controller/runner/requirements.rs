//! Requirements of a controller: the kinds that the API server serves and the modules of hooks, waited for, followed, reported.
//!
//! When a CustomResourceDefinition changes, the kinds are resolved again; a controller whose kinds are not what they were drains
//! and starts anew. It waits for all of them. Of the kinds that a decorator decorates, those that are served are enough.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use metahook_core::api::common::UpdateMethod;
use metahook_core::api::composite::Composite;
use metahook_core::api::hook::{HookName, PerHook};
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{Finding, HookStatus};
use metahook_core::api::{CheckedSpec, ControllerKind};
use metahook_core::children::desired::ChildKind;
use metahook_core::object::id::{Gvk, Gvr, Resource};
use metahook_core::rollout::revisions::FieldPath;
use metahook_core::rollout::{RollingConfig, RollingKind};
use tokio::sync::watch;

use crate::cluster::discovery::DiscoveryError;
use crate::controller::hooks::Hook;
use crate::controller::runner::ControllerRunner;
use crate::hook::wasm::source::HookSourceState;
use crate::telemetry::timestamp;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kinds {
    /// In the order of the spec's targets; `None` is not served, and holds up no other one of a decorator's.
    pub(crate) parents: Vec<Option<Arc<Resource>>>,
    /// Declared kinds of children.
    pub(crate) rules: Vec<ChildKind>,
    /// The kind of revisions, where there are children that are updated one after the other.
    pub(crate) revisions: Option<Arc<Resource>>,
}

impl Kinds {
    /// The kinds of children and of revisions, which are claimed alike.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.rules.iter().map(|rule| &rule.resource).chain(&self.revisions)
    }

    /// Message about targets that are not served.
    fn missing(&self, checked: &CheckedSpec) -> Option<String> {
        let all = checked.targets().iter().zip(&self.parents).filter(|(_, parents)| parents.is_none());
        let all = all.map(|(target, _)| DiscoveryError::NotServed(target.resource.clone()).to_string());
        let all: Vec<_> = all.collect();
        (!all.is_empty()).then(|| format!("{}; objects of the other kinds are decorated", all.join("; ")))
    }

    /// `home`: where revisions of parents without a namespace are kept.
    pub(crate) fn rolling(
        &self,
        checked: &Composite,
        parents: &Arc<Resource>,
        home: &str,
    ) -> Option<RollingConfig> {
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

/// First pause before a kind that is not served is asked for again: its definition appears before it is served.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
enum KindError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("spec.relatedDeletion[{at}]: {source}")]
    Deletion { at: usize, source: DiscoveryError },
    #[error(
        "CRD [{api_version}, Kind={kind}] does not have subresource 'Status' enabled: add `subresources: {{status: {{}}}}` to the version of its CustomResourceDefinition"
    )]
    NoStatus { api_version: String, kind: Arc<str> },
    #[error("{0} has no status, where a parent's is written: choose a kind that has one")]
    NeverStatus(Gvk),
}

impl KindError {
    /// The API server could not be asked, which says nothing about the kinds.
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Discovery(source) | Self::Deletion { source, .. } if source.is_unreachable())
    }

    /// Its Event: with Metacontroller's reason and words where Metacontroller has one.
    fn event(&self, controller: &str) -> (EventReason, String) {
        match self {
            Self::Discovery(_) | Self::Deletion { .. } | Self::NeverStatus(_) => {
                (EventReason::CreateError, format!("Cannot create new controller: {self}"))
            }
            Self::NoStatus { .. } => {
                (EventReason::NoStatus, format!("[{controller}] Sync error - ignoring, {self}"))
            }
        }
    }
}

/// State of the module of each hook that has one.
pub(crate) struct Modules {
    changes: Vec<(HookName, watch::Receiver<HookSourceState>)>,
    states: BTreeMap<HookName, HookSourceState>,
}

impl Modules {
    pub(crate) fn of(hooks: &PerHook<Hook>) -> Self {
        let changes = hooks.iter().filter_map(|(name, hook)| match hook {
            Hook::Wasm { source, .. } => Some((name, source.changes())),
            Hook::Webhook(_) => None,
        });
        Self { changes: changes.collect(), states: BTreeMap::new() }
    }

    /// The hook whose module or mounts are not what they were; the first time that is each of them. `None`: the source
    /// of the modules has ended.
    pub(crate) async fn changed(&mut self) -> Option<HookName> {
        let waits: Vec<_> = self
            .changes
            .iter_mut()
            .map(|(name, changes)| {
                async {
                    changes.changed().await.ok()?;
                    Some((*name, changes.borrow_and_update().clone()))
                }
                .boxed()
            })
            .collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        let (name, state) = futures_util::future::select_all(waits).await.0?;
        self.states.insert(name, state);
        Some(name)
    }

    /// All hooks that need one have a module that can be called, and all that it mounts.
    fn are_loaded(&self) -> bool {
        self.changes.iter().all(|(name, _)| self.states.get(name).is_some_and(|state| state.loaded.is_some()))
    }

    /// The condition of all of them; `None` as long as it is unknown.
    fn finding(&self) -> Option<Finding> {
        let findings = self.states.iter().filter_map(|(name, state)| finding(*name, state));
        findings.reduce(|first, next| if first.is_false() { first } else { next })
    }
}

impl ControllerRunner {
    /// Waits until all kinds are served; of a decorator's targets one is enough.
    pub(crate) async fn kinds(&self, checked: &CheckedSpec) -> Option<Kinds> {
        let (mut changes, mut pause, mut said) =
            (self.context.cluster.discovery.changes(), MIN_RETRY_DELAY, String::new());
        self.reporter.change(|report| report.working = false);
        loop {
            changes.mark_unchanged();
            let error = match self.resolve(checked).await {
                Ok(found) => {
                    let missing = found.missing(checked);
                    if let Some(missing) = &missing {
                        self.warn(EventReason::KindNotServed, missing);
                    }
                    self.reporter.change(|report| {
                        report.kinds = match missing {
                            None => Finding::new(ConditionReason::AllServed, ""),
                            Some(missing) => Finding::new(ConditionReason::KindNotServed, missing),
                        };
                        report.ready = Finding::Unknown;
                    });
                    return Some(found);
                }
                Err(error) => error,
            };
            if !error.is_unreachable() {
                self.stand_aside();
            }
            let message = error.to_string();
            self.reporter.change(|report| {
                report.kinds = Finding::new(ConditionReason::KindNotServed, &message);
                report.ready = Finding::new(ConditionReason::NotServed, &message);
            });
            if said != message {
                let (reason, text) = error.event(&self.object.key.name);
                self.warn(reason, &text);
                said = message;
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                _ = changes.changed() => pause = MIN_RETRY_DELAY,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(self.context.options.discovery_interval),
            }
        }
    }

    async fn resolve(&self, checked: &CheckedSpec) -> Result<Kinds, KindError> {
        let discovery = &self.context.cluster.discovery;
        let parents = self.parents(checked).await?;
        let mut rules = Vec::new();
        for child in &checked.common().children {
            let resource = discovery.resolve(&child.resource).await?;
            let lists = discovery.published.lists(&resource.gvk).await;
            let apply = self.context.options.applying.of(child.apply);
            rules.push(ChildKind { resource, method: child.method, apply, lists });
        }
        for (at, grant) in checked.common().deletions.iter().enumerate() {
            let resolved = discovery.resolve(&grant.resource).await;
            resolved.map_err(|source| KindError::Deletion { at, source })?;
        }
        let revisions = Gvr::new("metacontroller.k8s.io/v1alpha1", "controllerrevisions");
        let is_rolling = rules.iter().any(|rule| rule.method.is_rolling());
        let revisions = if is_rolling { Some(discovery.resolve(&revisions).await?) } else { None };
        Ok(Kinds { parents, rules, revisions })
    }

    async fn parents(&self, checked: &CheckedSpec) -> Result<Vec<Option<Arc<Resource>>>, KindError> {
        let mut all = Vec::new();
        let mut missing = None;
        let is_decorator = self.kind == ControllerKind::Decorator;
        for target in checked.targets() {
            match self.context.cluster.discovery.resolve(&target.resource).await {
                Err(error) if is_decorator && error.is_not_served() => {
                    missing.get_or_insert(error);
                    all.push(None);
                }
                resolved => {
                    let parents = resolved?;
                    if !is_decorator {
                        self.need_status(&parents).await?;
                    }
                    all.push(Some(parents));
                }
            }
        }
        match missing {
            Some(error) if all.iter().all(Option::is_none) => Err(error.into()),
            Some(_) | None => Ok(all),
        }
    }

    async fn need_status(&self, parent: &Resource) -> Result<(), KindError> {
        if parent.has_status {
            return Ok(());
        }
        if !self.context.cluster.discovery.is_custom(parent).await? {
            return Err(KindError::NeverStatus(parent.gvk.clone()));
        }
        let (api_version, kind) = (parent.gvk.api_version(), Arc::clone(&parent.gvk.kind));
        Err(KindError::NoStatus { api_version, kind })
    }

    /// Ends when a kind is no longer served, or served as another one.
    pub(crate) async fn kinds_change(&self, checked: &CheckedSpec, kinds: &Kinds) {
        let (mut changes, mut pause) = (self.context.cluster.discovery.changes(), MIN_RETRY_DELAY);
        let is_waiting = kinds.parents.iter().any(Option::is_none);
        loop {
            tokio::select! {
                news = changes.changed() => match news {
                    Ok(()) => pause = MIN_RETRY_DELAY,
                    Err(_gone) => return,
                },
                () = tokio::time::sleep(pause), if is_waiting => {
                    pause = (pause * 2).min(self.context.options.discovery_interval);
                }
            }
            match self.resolve(checked).await {
                Ok(now) if now == *kinds => {}
                // It could not be asked: that says nothing about the kinds.
                Err(KindError::Discovery(source) | KindError::Deletion { source, .. })
                    if source.is_unreachable() || matches!(source, DiscoveryError::Refused(_)) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Waits until there is a module that can be called for each hook that needs one.
    pub(crate) async fn loaded(&self, modules: &mut Modules) -> Option<()> {
        while !modules.are_loaded() {
            let name = tokio::select! {
                () = self.stop.cancelled() => return None,
                next = modules.changed() => next?,
            };
            self.report_module(modules, name, false);
            let mut missing = modules.states.values().filter(|state| state.loaded.is_none());
            if let Some(problem) = missing.find_map(|state| state.problem.as_ref()) {
                self.stand_aside();
                let problem = problem.to_string();
                self.reporter
                    .change(|report| report.ready = Finding::new(ConditionReason::ModuleNotLoaded, problem));
            }
        }
        self.reporter.change(|report| {
            report.ready = Finding::Unknown;
            if modules.changes.is_empty() {
                report.modules = Finding::new(ConditionReason::NoModules, "all hooks are webhooks");
            }
        });
        Some(())
    }

    /// Reports the module of a hook, and why another one is not loaded.
    pub(crate) fn report_module(&self, modules: &Modules, name: HookName, running: bool) {
        let Some(state) = modules.states.get(&name) else { return };
        if let Some(Finding::Known { reason, message }) = finding(name, state)
            && !reason.is_true()
        {
            if running {
                self.warn(EventReason::ModuleRefused, &format!("The hook is not replaced: {message}"));
            } else {
                self.warn(EventReason::CreateError, &format!("Cannot create new controller: {message}"));
            }
        }
        self.reporter.change(|report| {
            if let Some(finding) = modules.finding() {
                report.modules = finding;
            }
            if let Some(status) = status(state)
                && report.hooks.get(name.as_str()).map(|hook| &hook.digest) != Some(&status.digest)
            {
                report.hooks.insert(name.as_str().to_owned(), status);
            }
        });
    }
}

fn status(state: &HookSourceState) -> Option<HookStatus> {
    let module = &state.loaded.as_ref()?.module;
    let compiled = module.origin.compile_time();
    Some(HookStatus {
        digest: Some(module.digest.to_string()),
        size: i64::try_from(module.size).ok(),
        loaded_at: Some(timestamp()),
        compile_millis: compiled.and_then(|time| i64::try_from(time.as_millis()).ok()),
        pure: None,
        latest: None,
    })
}

fn finding(name: HookName, state: &HookSourceState) -> Option<Finding> {
    // The sync hook is the one that every controller has.
    let whose = match name {
        HookName::Sync => String::new(),
        HookName::Finalize | HookName::Customize => format!("{name} hook: "),
    };
    let module = state.loaded.as_ref().map(|loaded| &loaded.module);
    match (&state.problem, module) {
        (None, None) => None,
        (None, Some(_)) => Some(Finding::new(ConditionReason::Loaded, "")),
        (Some(problem), None) => Some(Finding::new(problem.reason(), format!("{whose}{problem}"))),
        (Some(problem), Some(module)) => {
            let refused = problem.refused().map(|digest| format!(", not sha256:{digest}"));
            let goes_on = format!("{} goes on being called{}", module.digest, refused.unwrap_or_default());
            Some(Finding::new(problem.reason(), format!("{whose}{problem}; {goes_on}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_status_is_reported_as_by_metacontroller() {
        let (reason, text) =
            KindError::NoStatus { api_version: "example.com/v1".to_owned(), kind: "Thing".into() }.event("c");
        let theirs = "[c] Sync error - ignoring, CRD [example.com/v1, Kind=Thing] does not have subresource 'Status' enabled";
        assert_eq!(reason, EventReason::NoStatus);
        assert!(text.starts_with(theirs), "{text}");
        let (reason, text) = KindError::NeverStatus(Gvk::new("v1", "Secret")).event("c");
        assert_eq!(reason, EventReason::CreateError);
        assert!(text.starts_with("Cannot create new controller: v1 Secret has no status"), "{text}");
    }
}
