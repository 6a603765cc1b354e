//! Kinds that a controller requires the API server to serve: waited for, followed, reported.
//!
//! When a CustomResourceDefinition changes, the kinds are resolved again; a controller whose kinds are not what they were drains
//! and starts anew. It waits for all of them. Of the kinds that a decorator decorates, those that are served are enough. A kind
//! whose aggregated API fails is waited for like one that is not served; a controller that works on it already goes on.
//! See <https://github.com/GoogleCloudPlatform/metacontroller/issues/181>.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::Finding;
use metahook_core::api::{CheckedSpec, ControllerKind};
use metahook_core::children::desired::ChildKind;
use metahook_core::object::id::{Gvr, Resource};
use metahook_core::reconcile::kinds::{DecoratedKinds, Discovered, Kinds, StatusError};

use crate::cluster::discovery::DiscoveryError;
use crate::controller::runner::ControllerRunner;

/// Result of resolving the kinds of a spec.
struct Resolved {
    kinds: Kinds,
    /// Message about targets of a decorator that are missing.
    missing: Option<String>,
}

/// Message about targets that are not served or unavailable.
fn missing(errors: &[DiscoveryError]) -> Option<String> {
    let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| format!("{}; objects of the other kinds are decorated", all.join("; ")))
}

/// First pause before a kind that is not served is asked for again: its definition appears before it is served.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
enum KindError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("spec.relatedDeletion[{at}]: {source}")]
    Deletion { at: usize, source: DiscoveryError },
    #[error(transparent)]
    Status(#[from] StatusError),
}

impl KindError {
    fn discovery(&self) -> Option<&DiscoveryError> {
        match self {
            Self::Discovery(source) | Self::Deletion { source, .. } => Some(source),
            Self::Status(_) => None,
        }
    }
}

/// One error for each kind that is missing, in the order of the spec; at least one.
#[derive(Debug, Default)]
struct KindErrors(Vec<KindError>);

impl<E: Into<KindError>> From<E> for KindErrors {
    fn from(error: E) -> Self {
        Self(vec![error.into()])
    }
}

impl fmt::Display for KindErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<String> = Vec::new();
        for error in self.0.iter().map(ToString::to_string) {
            // A kind may be that of the parents and of children.
            if !all.contains(&error) {
                all.push(error);
            }
        }
        formatter.write_str(&all.join("; "))
    }
}

impl KindErrors {
    /// Returns what a check found; on a failure keeps its errors, and returns `None`. An API server that could not be asked is an
    /// error at once: it says nothing about the other kinds either.
    fn found<T>(&mut self, result: Result<T, impl Into<Self>>) -> Result<Option<T>, Self> {
        let errors: Self = match result {
            Ok(found) => return Ok(Some(found)),
            Err(errors) => errors.into(),
        };
        if errors.is_unreachable() {
            return Err(errors);
        }
        self.0.extend(errors.0);
        Ok(None)
    }

    /// The API server could not be asked, which says nothing about the kinds.
    fn is_unreachable(&self) -> bool {
        self.0.iter().filter_map(KindError::discovery).any(DiscoveryError::is_unreachable)
    }

    /// The API server could not be asked, or gave no list of what it serves, which says nothing about the kinds.
    fn says_nothing(&self) -> bool {
        let is_silent = |error: &KindError| error.discovery().is_some_and(DiscoveryError::is_unavailable);
        self.is_unreachable() || self.0.iter().all(is_silent)
    }

    /// Event about the missing requirements: with Metacontroller's reason and words where Metacontroller has one.
    fn event(&self, controller: &str) -> (EventReason, String) {
        match self.0.as_slice() {
            [KindError::Status(StatusError::NotEnabled { .. })] => {
                (EventReason::NoStatus, format!("[{controller}] Sync error - ignoring, {self}"))
            }
            _ => (EventReason::CreateError, format!("Cannot create new controller: {self}")),
        }
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
            let error = match self.resolve(checked, &[]).await {
                Ok(Resolved { kinds, missing }) => {
                    self.report_kinds(missing);
                    self.reporter.change(|report| report.ready = Finding::Unknown);
                    return Some(kinds);
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

    /// Reports kinds that are missing while the controller works, by an Event where they are others than before.
    fn report_kinds(&self, missing: Option<String>) {
        let finding = match &missing {
            None => Finding::new(ConditionReason::AllServed, ""),
            Some(missing) => Finding::new(ConditionReason::KindNotServed, missing),
        };
        let mut is_news = false;
        self.reporter.change(|report| {
            is_news = report.kinds != finding;
            report.kinds = finding;
        });
        if let Some(missing) = missing.filter(|_| is_news) {
            self.warn(EventReason::KindNotServed, &missing);
        }
    }

    /// `running`: the kinds of parents that the controller works on already.
    async fn resolve(
        &self,
        checked: &CheckedSpec,
        running: &[Option<Arc<Resource>>],
    ) -> Result<Resolved, KindErrors> {
        let discovery = &self.context.cluster.discovery;
        let mut errors = KindErrors::default();
        let parents = errors.found(self.parents(checked, running).await)?;
        let mut rules = Vec::new();
        for child in &checked.common().children {
            let Some(resource) = errors.found(discovery.resolve(&child.resource).await)? else {
                continue;
            };
            let lists = discovery.published.lists(&resource.gvk).await;
            let apply = self.context.options.applying.of(child.apply);
            rules.push(ChildKind { resource, method: child.method, apply, lists });
        }
        for (at, grant) in checked.common().deletions.iter().enumerate() {
            let resolved = discovery.resolve(&grant.resource).await;
            errors.found(resolved.map_err(|source| KindError::Deletion { at, source }))?;
        }
        let revisions = Gvr::new("metacontroller.k8s.io/v1alpha1", "controllerrevisions");
        let is_rolling = checked.common().children.iter().any(|child| child.method.is_rolling());
        let revisions = if is_rolling { errors.found(discovery.resolve(&revisions).await)? } else { None };
        match parents {
            Some((parents, missing)) if errors.0.is_empty() => {
                Ok(Resolved { kinds: Kinds { parents, rules, revisions }, missing })
            }
            Some(_) | None => Err(errors),
        }
    }

    /// Kinds of parents, and the message about those that are missing.
    async fn parents(
        &self,
        checked: &CheckedSpec,
        running: &[Option<Arc<Resource>>],
    ) -> Result<(Vec<Option<Arc<Resource>>>, Option<String>), KindErrors> {
        let discovery = &self.context.cluster.discovery;
        let mut all = Vec::new();
        for target in checked.targets() {
            let resolved = discovery.resolve(&target.resource).await;
            all.push(match (self.kind, resolved) {
                (ControllerKind::Decorator, Err(error)) if error.is_not_served() => {
                    Discovered::NotServed(error)
                }
                (ControllerKind::Decorator, Err(error)) if error.is_unavailable() => {
                    Discovered::Unavailable(error)
                }
                (ControllerKind::Decorator, resolved) => Discovered::Served(resolved?),
                (ControllerKind::Composite, resolved) => {
                    let parents = resolved?;
                    self.need_status(&parents).await?;
                    Discovered::Served(parents)
                }
            });
        }
        let DecoratedKinds { parents, missing: errors } = DecoratedKinds::of(all, running)
            .map_err(|errors| KindErrors(errors.into_iter().map(KindError::from).collect()))?;
        Ok((parents, missing(&errors)))
    }

    async fn need_status(&self, parent: &Resource) -> Result<(), KindError> {
        if parent.has_status {
            return Ok(());
        }
        let is_custom = self.context.cluster.discovery.is_custom(parent).await?;
        Err(StatusError::of(parent, is_custom).into())
    }

    /// Ends when a kind is no longer served, or served as another one. `is_working`: its objects have been listed, so that an API
    /// that fails ends nothing.
    pub(crate) async fn kinds_change(&self, checked: &CheckedSpec, kinds: &Kinds, is_working: bool) {
        let (mut changes, mut pause) = (self.context.cluster.discovery.changes(), MIN_RETRY_DELAY);
        let running = if is_working { &*kinds.parents } else { &[] };
        let mut is_waiting = kinds.parents.iter().any(Option::is_none);
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
            match self.resolve(checked, running).await {
                Ok(Resolved { kinds: now, missing }) if now == *kinds => {
                    is_waiting = missing.is_some();
                    self.report_kinds(missing);
                }
                Err(error) if error.is_unreachable() => {}
                Err(error) if error.says_nothing() => {
                    is_waiting = true;
                    self.report_kinds(Some(error.to_string()));
                }
                Ok(_) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    #[test]
    fn a_kind_without_status_is_reported_as_by_metacontroller() {
        let (reason, text) = KindErrors::from(StatusError::NotEnabled {
            api_version: "example.com/v1".to_owned(),
            kind: "Thing".into(),
        })
        .event("c");
        let theirs = "[c] Sync error - ignoring, CRD [example.com/v1, Kind=Thing] does not have subresource 'Status' enabled";
        assert_eq!(reason, EventReason::NoStatus);
        assert!(text.starts_with(theirs), "{text}");
        let (reason, text) = KindErrors::from(StatusError::Never(Gvk::new("v1", "Secret"))).event("c");
        assert_eq!(reason, EventReason::CreateError);
        assert!(text.starts_with("Cannot create new controller: v1 Secret has no status"), "{text}");
    }

    fn not_served(plural: &str) -> DiscoveryError {
        DiscoveryError::NotServed(Gvr::new("e.com/v1", plural))
    }

    fn unavailable(plural: &str) -> DiscoveryError {
        let (kind, why) = (format!("e.com/v1 {plural}"), "no".to_owned());
        DiscoveryError::Refused { kind, why }
    }

    #[test]
    fn every_kind_that_is_missing_is_named() {
        let mut errors = KindErrors::default();
        assert_eq!(errors.found(Ok::<_, KindErrors>(1)).unwrap(), Some(1));
        for error in [not_served("parents"), unavailable("children"), not_served("parents")] {
            assert_eq!(errors.found(Err::<u8, _>(error)).unwrap(), None);
        }
        let deletion = KindError::Deletion { at: 2, source: not_served("volumes") };
        assert_eq!(errors.found(Err::<u8, _>(deletion)).unwrap(), None);
        let (reason, text) = errors.event("c");
        assert_eq!(reason, EventReason::CreateError);
        for named in ["e.com/v1 children", "spec.relatedDeletion[2]: ", "e.com/v1 volumes"] {
            assert!(text.contains(named), "{text}");
        }
        assert_eq!(text.matches("e.com/v1 parents").count(), 1, "{text}");
    }

    #[test]
    fn a_controller_goes_on_only_while_no_kind_is_known_to_be_missing() {
        let errors = |all: Vec<DiscoveryError>| KindErrors(all.into_iter().map(KindError::from).collect());
        assert!(errors(vec![unavailable("a"), unavailable("b")]).says_nothing());
        assert!(!errors(vec![unavailable("a"), not_served("b")]).says_nothing());
        assert!(!KindErrors::from(StatusError::Never(Gvk::new("v1", "Secret"))).says_nothing());
    }
}
