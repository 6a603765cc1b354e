//! Needs of a controller's hooks before they can be called: modules with their mounts, certificates and credentials of
//! webhooks; waited for, followed, reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use metahook_core::api::SpecError;
use metahook_core::api::common::CheckedCommon;
use metahook_core::api::hook::{EnabledHook, HookName, PerHook};
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{Finding, HookStatus, ModuleChange};
use metahook_core::object::ObjectMeta;
use metahook_core::refused_versions::VersionProblem;

use crate::controller::HookRuntime;
use crate::controller::observer::Observed;
use crate::controller::runner::ControllerRunner;
use crate::controller::shadows::ShadowHooks;
use crate::hook::wasm::run::Module;
use crate::hook::wasm::source::{HookSourceError, LoadedModule};
use crate::hook::{Hook, HookProblem, HookState};
use crate::telemetry::metrics::WebMeter;
use crate::telemetry::timestamp;

const NOT_KEPT: &str = ", which is not kept and is lost when the server restarts,";

/// State of what each hook needs.
pub(crate) struct Modules {
    changes: Vec<(HookName, BoxStream<'static, HookState>)>,
    states: BTreeMap<HookName, HookState>,
}

impl Modules {
    pub(crate) fn of(hooks: &PerHook<Hook>) -> Self {
        let changes = hooks.iter().filter_map(|(name, hook)| Some((name, hook.states()?)));
        Self { changes: changes.collect(), states: BTreeMap::new() }
    }

    /// The hook that needs something that is not what it was; the first time that is each of them. `None`: the source of
    /// the modules has ended.
    pub(crate) async fn changed(&mut self) -> Option<HookName> {
        let waits: Vec<_> =
            self.changes.iter_mut().map(|(name, states)| states.next().map(|state| (*name, state))).collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        let ((name, state), ..) = futures_util::future::select_all(waits).await;
        self.states.insert(name, state?);
        Some(name)
    }

    /// The hook may answer now where it failed before, though its version is the same.
    pub(crate) fn may_end_failures(&self, name: HookName) -> bool {
        self.states.get(&name).is_some_and(HookState::may_end_failures)
    }

    /// All hooks can be called.
    fn are_loaded(&self) -> bool {
        self.changes.iter().all(|(name, _)| self.states.get(name).is_some_and(HookState::is_ready))
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
            let (object, metrics) = (&self.object, &self.context.telemetry.metrics);
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
        self.context.telemetry.observer.note(|| Observed::Module {
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
        Hook::follow(&hook.target, &self.object, sources, pools, meter)
    }

    /// Waits until each hook can be called.
    pub(crate) async fn loaded(&self, modules: &mut Modules) -> Option<()> {
        while !modules.are_loaded() {
            let name = tokio::select! {
                () = self.stop.cancelled() => return None,
                next = modules.changed() => next?,
            };
            self.report_module(modules, name, false);
            let mut missing = modules.states.values().filter(|state| !state.is_ready());
            if let Some(problem) = missing.find_map(|state| state.problem.as_ref()) {
                self.stand_aside();
                let ready = Finding::new(problem.not_ready(), problem.to_string());
                self.reporter.change(|report| report.ready = ready);
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
        self.reporter
            .note_version(name, state.problem.as_ref().map(|problem| version_problem(problem, state)));
        if let Some(problem) = &state.problem
            && let Some(Finding::Known { reason, message }) = finding(name, state)
        {
            match problem {
                // That is nobody's fault, and ends by itself.
                _ if reason == ConditionReason::RunnerNotReady => {}
                // A kept version may be called in place of what is refused.
                _ if !running && !state.is_ready() => {
                    self.warn(EventReason::CreateError, &format!("Cannot create new controller: {message}"));
                }
                HookProblem::Wasm(_) => {
                    self.warn(EventReason::ModuleRefused, &format!("The hook is not replaced: {message}"));
                }
                HookProblem::Trust(_) => self.warn(EventReason::TrustRefused, &message),
            }
        }
        self.reporter.change(|report| {
            if let Some(finding) = modules.finding() {
                report.modules = finding;
            }
        });
        if let Some(LoadedModule { module, .. }) = state.module() {
            match self.reporter.load(name, status(module)) {
                ModuleChange::None => return,
                ModuleChange::Loaded => {}
                ModuleChange::Replaced { before } => {
                    let now = module.digest;
                    let message = format!("The {name} hook has another module: {before} -> {now}");
                    tracing::info!(controller = %self.object.key, "{message}");
                    self.context.cluster.recorder.record(&self.object, EventReason::ModuleReplaced, &message);
                }
            }
            self.observe_module(name, module);
        }
    }
}

fn status(module: &Module) -> HookStatus {
    let compiled = module.origin.compile_time();
    HookStatus {
        short_digest: Some(module.digest.short()),
        digest: Some(module.digest.to_string()),
        size: i64::try_from(module.size).ok(),
        runner: module.runner.as_ref().map(|runner| runner.digest.to_string()),
        loaded_at: Some(timestamp()),
        compile_millis: compiled.and_then(|time| i64::try_from(time.as_millis()).ok()),
        pure: None,
        latest: None,
        instructions_p50: None,
        earlier: Vec::new(),
    }
}

fn version_problem(problem: &HookProblem, state: &HookState) -> VersionProblem {
    let digest = if let HookProblem::Wasm(error) = problem { error.refused() } else { None };
    VersionProblem {
        reason: problem.reason(),
        version: digest.map_or_else(|| problem.to_string(), str::to_owned),
        has_last_good: state.is_ready(),
    }
}

fn finding(name: HookName, state: &HookState) -> Option<Finding> {
    let Some(problem) = &state.problem else {
        return state.is_ready().then(|| Finding::new(ConditionReason::Loaded, ""));
    };
    // The sync hook is the one that every controller has; the field of a webhook names its hook.
    let whose = match (name, problem) {
        (HookName::Sync, _) | (_, HookProblem::Trust(_)) => String::new(),
        (HookName::Finalize | HookName::Customize, HookProblem::Wasm(_)) => format!("{name} hook: "),
    };
    let goes_on = match problem {
        HookProblem::Wasm(problem) => {
            let Some(LoadedModule { module, kept_since, ends_with_server, .. }) = state.module() else {
                return Some(Finding::new(problem.reason(), format!("{whose}{problem}{}", refused(problem))));
            };
            let since = origin(kept_since.as_deref(), *ends_with_server);
            let for_now = if problem.may_heal() { " for now" } else { "" };
            let refused = problem.refused().map(|digest| format!(", not sha256:{digest}{for_now}"));
            Some(format!("; {}{since} goes on being called{}", module.digest, refused.unwrap_or_default()))
        }
        HookProblem::Trust(_) => state.is_ready().then(|| "; the last good ones stay in use".to_owned()),
    };
    Some(Finding::new(problem.reason(), format!("{whose}{problem}{}", goes_on.unwrap_or_default())))
}

/// Part of a message about the version that runs in place of a refused one.
fn origin(kept_since: Option<&str>, ends_with_server: bool) -> String {
    match kept_since {
        Some(since) => format!(", which was accepted at {since} and kept,"),
        None if ends_with_server => NOT_KEPT.to_owned(),
        None => String::new(),
    }
}

/// The end of a message about a version that no other attempt will load; `metahook apply` reads it.
fn refused(problem: &HookSourceError) -> String {
    let digest = problem.refused().filter(|_| !problem.may_heal());
    digest.map_or_else(String::new, |digest| format!("; refused: sha256:{digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_kept_is_said_to_be_lost_by_a_restart() {
        assert_eq!(origin(None, false), "");
        assert!(origin(None, true).contains("not kept and is lost when the server restarts"));
        assert_eq!(origin(Some("2026"), true), ", which was accepted at 2026 and kept,");
    }
}
