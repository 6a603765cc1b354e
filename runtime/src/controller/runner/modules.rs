//! What the hooks of a controller need before they can be called: modules with their mounts, certificates and credentials of
//! webhooks; waited for, followed, reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use metahook_core::api::SpecError;
use metahook_core::api::common::CheckedCommon;
use metahook_core::api::hook::{Call, EnabledHook, HookName, PerHook, WasmHook};
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{Finding, HookStatus, ModuleChange};
use metahook_core::object::ObjectMeta;
use tokio::sync::watch;

use crate::controller::HookRuntime;
use crate::controller::hook::Hook;
use crate::controller::observer::Observed;
use crate::controller::runner::ControllerRunner;
use crate::controller::shadows::ShadowHooks;
use crate::hook::wasm::run::Module;
use crate::hook::wasm::source::HookSourceState;
use crate::hook::web::{TrustState, Webhook};
use crate::telemetry::metrics::WebMeter;
use crate::telemetry::timestamp;

/// State of what each hook needs.
pub(crate) struct Modules {
    changes: Vec<(HookName, Changes)>,
    states: BTreeMap<HookName, NeedState>,
}

enum Changes {
    Module(watch::Receiver<HookSourceState>),
    Trust(watch::Receiver<TrustState>),
}

/// A module with its mounts, or the certificates and credentials of a webhook.
enum NeedState {
    Module(HookSourceState),
    Trust(TrustState),
}

impl Changes {
    fn next(&mut self) -> BoxFuture<'_, Option<NeedState>> {
        async {
            Some(match self {
                Self::Module(changes) => {
                    changes.changed().await.ok()?;
                    NeedState::Module(changes.borrow_and_update().clone())
                }
                Self::Trust(changes) => {
                    if changes.changed().await.is_err() {
                        // Nothing that it needs is stored, so nothing of it changes.
                        return std::future::pending().await;
                    }
                    NeedState::Trust(changes.borrow_and_update().clone())
                }
            })
        }
        .boxed()
    }
}

impl NeedState {
    /// The hook can be called.
    fn is_met(&self) -> bool {
        match self {
            Self::Module(state) => state.loaded.is_some(),
            Self::Trust(state) => state.is_known(),
        }
    }

    /// The reason of the condition `ModulesLoaded`, and the message.
    fn problem(&self) -> Option<(ConditionReason, String)> {
        match self {
            Self::Module(state) => state.problem.as_ref().map(|it| (it.reason(), it.to_string())),
            Self::Trust(state) => state.problem.as_ref().map(|it| (it.reason(), it.to_string())),
        }
    }

    fn not_ready(&self) -> ConditionReason {
        match self {
            Self::Module(_) => ConditionReason::ModuleNotLoaded,
            Self::Trust(_) => ConditionReason::TrustNotLoaded,
        }
    }
}

impl Modules {
    pub(crate) fn of(hooks: &PerHook<Hook>) -> Self {
        let changes = hooks.iter().filter_map(|(name, hook)| match hook {
            Hook::Wasm { source, .. } => Some((name, Changes::Module(source.changes()))),
            Hook::Webhook(webhook) => Some((name, Changes::Trust(webhook.trust()?))),
        });
        Self { changes: changes.collect(), states: BTreeMap::new() }
    }

    /// The hook that needs something that is not what it was; the first time that is each of them. `None`: the source of
    /// the modules has ended.
    pub(crate) async fn changed(&mut self) -> Option<HookName> {
        let waits: Vec<_> = self
            .changes
            .iter_mut()
            .map(|(name, changes)| changes.next().map(|state| (*name, state)).boxed())
            .collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        let ((name, state), ..) = futures_util::future::select_all(waits).await;
        self.states.insert(name, state?);
        Some(name)
    }

    /// The hook is a webhook whose certificates or credentials changed, and nothing is wrong with them.
    pub(crate) fn has_new_trust(&self, name: HookName) -> bool {
        matches!(self.states.get(&name), Some(NeedState::Trust(state)) if state.problem.is_none())
    }

    /// All hooks can be called.
    fn are_loaded(&self) -> bool {
        self.changes.iter().all(|(name, _)| self.states.get(name).is_some_and(NeedState::is_met))
    }

    /// The condition of all of them; `None` as long as it is unknown.
    fn finding(&self) -> Option<Finding> {
        let findings = self.states.iter().filter_map(|(name, state)| finding(*name, state));
        findings.reduce(|first, next| if first.is_false() { first } else { next })
    }
}

impl ControllerRunner {
    pub(crate) fn hook(&self, name: HookName, hook: &EnabledHook) -> Result<Hook, SpecError> {
        self.hosted(hook, |url| {
            let (object, metrics) = (&self.object, &self.context.metrics);
            metrics.webhook(&object.gvk.kind, &object.key.name, name, url)
        })
    }

    /// One that is refused is told of, and stops nothing.
    pub(crate) fn shadows(&self, common: &CheckedCommon) -> ShadowHooks {
        let host = |name, hook: &EnabledHook| self.shadow(name, hook);
        let shadows = ShadowHooks::of(&common.shadows, self.context.options.max_webhook_answer, host);
        for why in shadows.refused.values() {
            self.warn(EventReason::ShadowRefused, &format!("The controller runs without a shadow: {why}"));
        }
        shadows
    }

    /// A hook of which the metrics of webhooks do not tell.
    fn shadow(&self, name: HookName, hook: &EnabledHook) -> Result<Hook, SpecError> {
        let ObjectMeta { gvk, key, .. } = &**self.object;
        self.hosted(hook, |url| Arc::new(WebMeter::new(&gvk.kind, &key.name, name, url)))
    }

    fn observe_module(&self, hook: HookName, module: &Module) {
        self.context.observer.note(|| Observed::Module {
            hook,
            digest: module.digest.to_string(),
            compiled: module.origin.compile_time(),
        });
    }

    fn hosted(
        &self,
        hook: &EnabledHook,
        meter: impl FnOnce(&str) -> Arc<WebMeter>,
    ) -> Result<Hook, SpecError> {
        let HookRuntime { sources, pools, .. } = &self.context.hooks;
        match &hook.call {
            Call::Wasm(WasmHook { module, mounts, limits, .. }) => Ok(Hook::Wasm {
                source: sources.follow(module, mounts, &self.object.key.name),
                limits: *limits,
            }),
            Call::Webhook(target) => {
                if let Some(timeout) = &target.ignored_timeout {
                    let (field, instead) = (&target.field, target.timeout.as_secs());
                    tracing::warn!(controller = %self.object.key, "{field}.timeout: {timeout} is no time: {instead}s are used");
                }
                let meter = meter(&target.url);
                Ok(Hook::Webhook(Arc::new(Webhook::new(target, sources.objects(), pools, meter)?)))
            }
        }
    }

    /// Waits until each hook can be called.
    pub(crate) async fn loaded(&self, modules: &mut Modules) -> Option<()> {
        while !modules.are_loaded() {
            let name = tokio::select! {
                () = self.stop.cancelled() => return None,
                next = modules.changed() => next?,
            };
            self.report_module(modules, name, false);
            let mut missing = modules.states.values().filter(|state| !state.is_met());
            if let Some((reason, (_, problem))) =
                missing.find_map(|state| Some((state.not_ready(), state.problem()?)))
            {
                self.stand_aside();
                self.reporter.change(|report| report.ready = Finding::new(reason, problem));
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

    /// Reports what a hook needs, and why another module or credential is not used.
    pub(crate) fn report_module(&self, modules: &Modules, name: HookName, running: bool) {
        let Some(state) = modules.states.get(&name) else { return };
        if let Some(Finding::Known { reason, message }) = finding(name, state)
            && !reason.is_true()
        {
            match state {
                // That is nobody's fault, and ends by itself.
                _ if reason == ConditionReason::RunnerNotReady => {}
                _ if !running => {
                    self.warn(EventReason::CreateError, &format!("Cannot create new controller: {message}"));
                }
                NeedState::Module(_) => {
                    self.warn(EventReason::ModuleRefused, &format!("The hook is not replaced: {message}"));
                }
                NeedState::Trust(_) => self.warn(EventReason::TrustRefused, &message),
            }
        }
        self.reporter.change(|report| {
            if let Some(finding) = modules.finding() {
                report.modules = finding;
            }
        });
        if let NeedState::Module(state) = state
            && let (Some(loaded), Some(status)) = (&state.loaded, status(state))
        {
            match self.reporter.load(name, status) {
                ModuleChange::None => return,
                ModuleChange::Loaded => {}
                ModuleChange::Replaced { before } => {
                    let now = loaded.module.digest;
                    let message = format!("The {name} hook has another module: {before} -> {now}");
                    tracing::info!(controller = %self.object.key, "{message}");
                    self.context.cluster.recorder.record(&self.object, EventReason::ModuleReplaced, &message);
                }
            }
            self.observe_module(name, &loaded.module);
        }
    }
}

fn status(state: &HookSourceState) -> Option<HookStatus> {
    let module = &state.loaded.as_ref()?.module;
    let compiled = module.origin.compile_time();
    Some(HookStatus {
        short_digest: Some(module.digest.short()),
        digest: Some(module.digest.to_string()),
        size: i64::try_from(module.size).ok(),
        runner: module.runner.as_ref().map(|runner| runner.digest.to_string()),
        loaded_at: Some(timestamp()),
        compile_millis: compiled.and_then(|time| i64::try_from(time.as_millis()).ok()),
        pure: None,
        latest: None,
    })
}

fn finding(name: HookName, state: &NeedState) -> Option<Finding> {
    let Some((reason, problem)) = state.problem() else {
        return state.is_met().then(|| Finding::new(ConditionReason::Loaded, ""));
    };
    // The sync hook is the one that every controller has; the field of a webhook names its hook.
    let whose = match (name, state) {
        (HookName::Sync, _) | (_, NeedState::Trust(_)) => String::new(),
        (HookName::Finalize | HookName::Customize, NeedState::Module(_)) => format!("{name} hook: "),
    };
    let goes_on = match state {
        NeedState::Module(state) => state.loaded.as_ref().map(|loaded| {
            let refused = state.problem.as_ref().and_then(|problem| problem.refused());
            let refused = refused.map(|digest| format!(", not sha256:{digest}")).unwrap_or_default();
            format!("; {} goes on being called{refused}", loaded.module.digest)
        }),
        NeedState::Trust(state) => state.is_known().then(|| "; the last good ones stay in use".to_owned()),
    };
    Some(Finding::new(reason, format!("{whose}{problem}{}", goes_on.unwrap_or_default())))
}
