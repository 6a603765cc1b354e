//! Hooks of a controller that runs: each is followed, so that calls use its last good version.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use metahook_core::api::SpecError;
use metahook_core::api::hook::{HookTarget, WasmHook};
use metahook_core::api::policy::Limits;
use metahook_core::api::reason::ConditionReason;
use metahook_core::object::ObjectMeta;
use tokio::sync::watch;

use super::call::LoadedHook;
use super::wasm::source::{HookSource, HookSourceError, HookSourceState, HookSources, LoadedModule};
use super::web::{Pools, TrustError, TrustState, Webhook};
use crate::telemetry::metrics::WebMeter;

/// A hook of any kind. What it is made of is followed as long as it is held.
pub(crate) enum Hook {
    Wasm { source: Arc<HookSource>, limits: Limits },
    Webhook(Arc<Webhook>),
}

/// State of what a hook is made of: a module with its mounts, or the certificates and credentials of a webhook.
pub(crate) struct HookState {
    pub(crate) present: PresentParts,
    /// Why the hook is not called with what is stored.
    pub(crate) problem: Option<HookProblem>,
}

/// The last good version of what a hook is made of.
pub(crate) enum PresentParts {
    /// The module that is called, once there is one.
    Wasm(Option<LoadedModule>),
    /// The certificates and credentials of a webhook.
    Trust { is_known: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HookProblem {
    #[error(transparent)]
    Wasm(#[from] HookSourceError),
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl HookProblem {
    /// The reason of the condition `ModulesLoaded`.
    pub(crate) fn reason(&self) -> ConditionReason {
        match self {
            Self::Wasm(error) => error.reason(),
            Self::Trust(error) => error.reason(),
        }
    }

    /// The reason of the condition `Ready`, as long as the hook cannot be called.
    pub(crate) fn not_ready(&self) -> ConditionReason {
        match self {
            Self::Wasm(_) => ConditionReason::ModuleNotLoaded,
            Self::Trust(_) => ConditionReason::TrustNotLoaded,
        }
    }
}

impl From<HookSourceState> for HookState {
    fn from(HookSourceState { loaded, problem }: HookSourceState) -> Self {
        Self { present: PresentParts::Wasm(loaded), problem: problem.map(HookProblem::from) }
    }
}

impl From<TrustState> for HookState {
    fn from(state: TrustState) -> Self {
        let present = PresentParts::Trust { is_known: state.is_known() };
        Self { present, problem: state.problem.map(HookProblem::from) }
    }
}

impl HookState {
    /// The hook can be called.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.present {
            PresentParts::Wasm(module) => module.is_some(),
            PresentParts::Trust { is_known } => *is_known,
        }
    }

    /// The module that is called; a webhook has none.
    pub(crate) fn module(&self) -> Option<&LoadedModule> {
        match &self.present {
            PresentParts::Wasm(module) => module.as_ref(),
            PresentParts::Trust { .. } => None,
        }
    }

    /// The hook may answer now where it failed before, though its version is the same: certificates and credentials of a webhook
    /// are no part of its version.
    pub(crate) fn may_end_failures(&self) -> bool {
        match &self.present {
            PresentParts::Wasm(_) => false,
            PresentParts::Trust { is_known } => *is_known && self.problem.is_none(),
        }
    }
}

impl Hook {
    /// Follows what the spec of a controller names. `meter`: of the webhook at a URL.
    pub(crate) fn follow(
        target: &HookTarget,
        controller: &ObjectMeta,
        sources: &HookSources,
        pools: &Arc<Pools>,
        meter: impl FnOnce(&str) -> Arc<WebMeter>,
    ) -> Result<Self, SpecError> {
        match target {
            HookTarget::Wasm(WasmHook { module, mounts, limits, .. }) => {
                Ok(Self::Wasm { source: sources.follow(module, mounts, controller), limits: *limits })
            }
            HookTarget::Webhook(target) => {
                if let Some(timeout) = &target.ignored_timeout {
                    let (field, instead) = (&target.field, target.timeout.as_secs());
                    tracing::warn!(controller = %controller.key, "{field}.timeout: {timeout} is no time: {instead}s are used");
                }
                let meter = meter(&target.url);
                Ok(Self::Webhook(Arc::new(Webhook::new(target, sources.objects(), pools, meter)?)))
            }
        }
    }

    /// The last good version; `None`: no module was loaded yet.
    pub(crate) fn loaded(&self) -> Option<LoadedHook> {
        match self {
            Self::Wasm { source, limits } => {
                source.loaded().map(|loaded| LoadedHook::Wasm { loaded, limits: *limits })
            }
            Self::Webhook(webhook) => Some(LoadedHook::Webhook(Arc::clone(webhook))),
        }
    }

    /// Why the module that is stored is not loaded.
    pub(crate) fn problem(&self) -> Option<HookProblem> {
        match self {
            Self::Wasm { source, .. } => source.changes().borrow().problem.clone().map(HookProblem::from),
            Self::Webhook(_) => None,
        }
    }

    /// The limits of a module's calls.
    pub(crate) fn limits(&self) -> Option<&Limits> {
        match self {
            Self::Wasm { limits, .. } => Some(limits),
            Self::Webhook(_) => None,
        }
    }

    /// The states of what the hook is made of, the present one first. They end with the source of modules. `None`: nothing of
    /// the hook is stored in the cluster.
    pub(crate) fn states(&self) -> Option<BoxStream<'static, HookState>> {
        match self {
            Self::Wasm { source, .. } => Some(states(source.changes()).boxed()),
            Self::Webhook(webhook) => Some(states(webhook.trust()?).chain(stream::pending()).boxed()),
        }
    }

    /// Waits until a module is loaded or refused. A webhook can be asked at once.
    pub(crate) async fn resolved(&self) {
        match self {
            Self::Wasm { source, .. } => {
                let mut changes = source.changes();
                // It has ended where the source has.
                let known = changes.wait_for(|state| state.loaded.is_some() || state.problem.is_some()).await;
                drop(known);
            }
            Self::Webhook(_) => {}
        }
    }
}

fn states<T>(changes: watch::Receiver<T>) -> impl Stream<Item = HookState> + Send + 'static
where
    T: Clone + Into<HookState> + Send + Sync + 'static,
{
    stream::unfold(changes, |mut changes| async move {
        changes.changed().await.ok()?;
        let state = changes.borrow_and_update().clone();
        Some((state.into(), changes))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn states_begin_with_the_present_one_and_end_with_their_source() {
        let (source, mut changes) = watch::channel(HookSourceState::default());
        changes.mark_changed();
        let mut all = pin!(states(changes));
        assert!(!all.next().await.unwrap().is_ready(), "no module is loaded");
        source.send_modify(|_| ());
        assert!(all.next().await.is_some());
        drop(source);
        assert!(all.next().await.is_none());
    }
}
