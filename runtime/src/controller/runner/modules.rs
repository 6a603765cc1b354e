//! Modules of a controller's hooks: waited for, followed, reported.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use metahook_core::api::hook::{HookName, PerHook};
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{Finding, HookStatus};
use tokio::sync::watch;

use crate::controller::hooks::Hook;
use crate::controller::runner::ControllerRunner;
use crate::hook::wasm::source::HookSourceState;
use crate::telemetry::timestamp;

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
        let mut good = None;
        for one in findings {
            if one.is_false() {
                return Some(one);
            }
            good = Some(one);
        }
        good
    }
}

impl ControllerRunner {
    /// Waits until there is a module that can be called for each hook that needs one.
    pub(crate) async fn loaded(&self, modules: &mut Modules) -> Option<()> {
        while !modules.are_loaded() {
            let name = tokio::select! {
                () = self.stop.cancelled() => return None,
                next = modules.changed() => next?,
            };
            self.report_module(modules, name, false);
            if let Some(problem) = modules.states.values().find_map(|state| match state {
                HookSourceState { loaded: None, problem: Some(problem) } => Some(problem.to_string()),
                HookSourceState { .. } => None,
            }) {
                self.stand_aside();
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
