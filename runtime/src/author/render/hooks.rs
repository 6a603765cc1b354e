//! Hooks of a controller that is tried: modules out of files, and webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metahook_core::api::SpecError;
use metahook_core::api::hook::{Call, EnabledHook, HookName, PerHook, WasmHook};
use metahook_core::api::policy::Limits;
use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;

use crate::author::sandbox::{Input, Sandbox, simulated_time};
use crate::hook::wasm::run::{CallError, Module, MountedFolder};
use crate::hook::web::{Pools, RedirectPolicy, WebError, Webhook};
use crate::memory::Reservation;
use crate::telemetry::error_chain;
use crate::telemetry::metrics::Metrics;

/// The hooks that a controller has.
pub(crate) struct HookSet {
    sandbox: Arc<Sandbox>,
    hooks: PerHook<CallableHook>,
    /// Of modules.
    calls: AtomicU64,
}

enum CallableHook {
    Wasm { module: Arc<Module>, limits: Limits, mounts: Vec<MountedFolder> },
    Webhook(Box<Webhook>),
}

/// One call that was made.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) hook: HookName,
    pub(crate) request: Bytes,
    pub(crate) took: Duration,
    /// Of a module.
    pub(crate) instructions: Option<u64>,
    pub(crate) pure: Option<bool>,
    /// The lines that it wrote to stderr.
    pub(crate) log: String,
    pub(crate) answer: Result<Vec<u8>, HookError>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum HookError {
    #[error("{0} hook")]
    Wasm(HookName, #[source] CallError),
    #[error("{0} hook: {1}")]
    Webhook(HookName, String),
}

#[derive(Debug, thiserror::Error)]
pub enum HookSetError {
    #[error("the {0} hook of the controller is a module: name its file with --module")]
    NoModule(HookName),
    #[error(
        "spec.hooks.{hook}.wasm.mounts: {path} is to be seen by the hook: name a folder with --mount {path}=FOLDER"
    )]
    NoMount { hook: HookName, path: String },
    #[error(transparent)]
    Webhook(#[from] SpecError),
}

/// The files that stand for what a controller names of the cluster.
#[derive(Clone)]
pub(crate) struct HookFiles {
    pub(crate) sandbox: Arc<Sandbox>,
    /// Of the sandbox.
    pub(crate) module: Option<Arc<Module>>,
    pub(crate) mounts: Vec<MountedFolder>,
}

impl HookSet {
    pub(crate) fn new(
        controller: &str,
        hooks: &PerHook<EnabledHook>,
        files: HookFiles,
    ) -> Result<Self, HookSetError> {
        let HookFiles { sandbox, module, mounts } = files;
        let (pools, metrics) =
            (Pools::new(DEFAULT_WEBHOOK_ANSWER, RedirectPolicy::default()), Metrics::new(|| 0));
        let hooks = hooks.try_map(|name, hook| match &hook.call {
            Call::Wasm(WasmHook { mounts: wanted, limits, .. }) => {
                let mounted = wanted.iter().map(|mount| {
                    let found = mounts.iter().find(|given| given.path == mount.path).cloned();
                    found.ok_or_else(|| HookSetError::NoMount { hook: name, path: mount.path.clone() })
                });
                let mounts = mounted.collect::<Result<_, _>>()?;
                let module = module.clone().ok_or(HookSetError::NoModule(name))?;
                Ok(CallableHook::Wasm { module, limits: *limits, mounts })
            }
            Call::Webhook(target) => {
                let meter = metrics.webhook("", controller, name, &target.url);
                Ok::<_, HookSetError>(CallableHook::Webhook(Webhook::alone(target, &pools, meter)?.into()))
            }
        })?;
        Ok(Self { sandbox, hooks, calls: AtomicU64::default() })
    }

    pub(crate) async fn call(&self, controller: &str, hook: HookName, request: Vec<u8>) -> Called {
        let request = Bytes::from(request);
        match self.hooks.get(hook).unwrap_or(&self.hooks.sync) {
            CallableHook::Wasm { module, limits, mounts } => {
                let now = simulated_time(self.calls.fetch_add(1, Ordering::Relaxed) + 1);
                let input =
                    Input { controller, hook, request: request.clone(), limits: *limits, mounts, now };
                let timed = self.sandbox.call(module, input).await;
                Called {
                    hook,
                    request,
                    took: timed.took,
                    instructions: Some(timed.called.usage.instructions),
                    pure: Some(timed.called.pure),
                    log: timed.called.log.text,
                    answer: timed.called.answer.map_err(|error| HookError::Wasm(hook, error)),
                }
            }
            CallableHook::Webhook(webhook) => {
                let start = Instant::now();
                let answer = webhook.call(request.clone(), None, &Reservation::default()).await;
                let failed = |error: WebError| HookError::Webhook(hook, error_chain(&error));
                Called {
                    hook,
                    request,
                    took: start.elapsed(),
                    instructions: None,
                    pure: None,
                    log: String::new(),
                    answer: answer.map(|answer| answer.bytes).map_err(failed),
                }
            }
        }
    }
}
