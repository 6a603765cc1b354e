//! Kinds that a controller requires the API server to serve: waited for, followed, reported.
//!
//! When a CustomResourceDefinition changes, the kinds are resolved again; a controller whose kinds are not what they were drains
//! and starts anew. It waits for all of them. Of the kinds that a decorator decorates, those that are served are enough.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::Finding;
use metahook_core::api::{CheckedSpec, ControllerKind};
use metahook_core::children::desired::ChildKind;
use metahook_core::object::id::{Gvr, Resource};
use metahook_core::reconcile::kinds::{Kinds, StatusError};

use crate::cluster::discovery::DiscoveryError;
use crate::controller::runner::ControllerRunner;

/// Message about targets that are not served.
fn missing(kinds: &Kinds, checked: &CheckedSpec) -> Option<String> {
    let all = checked.targets().iter().zip(&kinds.parents).filter(|(_, parents)| parents.is_none());
    let all = all.map(|(target, _)| DiscoveryError::NotServed(target.resource.clone()).to_string());
    let all: Vec<_> = all.collect();
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
    /// The API server could not be asked, which says nothing about the kinds.
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Discovery(source) | Self::Deletion { source, .. } if source.is_unreachable())
    }

    /// Its Event: with Metacontroller's reason and words where Metacontroller has one.
    fn event(&self, controller: &str) -> (EventReason, String) {
        match self {
            Self::Discovery(_) | Self::Deletion { .. } | Self::Status(StatusError::Never(_)) => {
                (EventReason::CreateError, format!("Cannot create new controller: {self}"))
            }
            Self::Status(StatusError::NotEnabled { .. }) => {
                (EventReason::NoStatus, format!("[{controller}] Sync error - ignoring, {self}"))
            }
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
            let error = match self.resolve(checked).await {
                Ok(found) => {
                    let missing = missing(&found, checked);
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
        let is_custom = self.context.cluster.discovery.is_custom(parent).await?;
        Err(StatusError::of(parent, is_custom).into())
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
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    #[test]
    fn a_kind_without_status_is_reported_as_by_metacontroller() {
        let (reason, text) = KindError::from(StatusError::NotEnabled {
            api_version: "example.com/v1".to_owned(),
            kind: "Thing".into(),
        })
        .event("c");
        let theirs = "[c] Sync error - ignoring, CRD [example.com/v1, Kind=Thing] does not have subresource 'Status' enabled";
        assert_eq!(reason, EventReason::NoStatus);
        assert!(text.starts_with(theirs), "{text}");
        let (reason, text) = KindError::from(StatusError::Never(Gvk::new("v1", "Secret"))).event("c");
        assert_eq!(reason, EventReason::CreateError);
        assert!(text.starts_with("Cannot create new controller: v1 Secret has no status"), "{text}");
    }
}
