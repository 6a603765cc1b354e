//! Hooks of a controller that is tried: modules out of files, and webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use metahook_core::api::SpecError;
use metahook_core::api::hook::{EnabledHook, HookName, HookTarget, ModuleRef, PerHook, WasmHook};
use metahook_core::api::policy::Limits;
use metahook_core::bundle::ModulePlace;
use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;

use crate::hook_modules::HookModules;
use crate::sandbox::{Input, Sandbox, simulated_time};
use metahook_server::hook::wasm::run::{Module, MountedFolder, Seed};
use metahook_server::hook::wasm::source::LoadedModule;
use metahook_server::hook::web::{Pools, RedirectPolicy, Webhook};
use metahook_server::hook::{CallResult, HookCallError, LoadedHook};
use metahook_server::telemetry::metrics::Metrics;

/// The hooks that a controller has.
pub(crate) struct HookSet {
    answers: AnswerSource,
    clock: Clock,
}

/// Where the answers of hooks come from.
enum AnswerSource {
    Calls {
        sandbox: Arc<Sandbox>,
        hooks: Box<PerHook<LoadedHook>>,
    },
    /// Each hook answers this, and none is called.
    Fixed(Vec<u8>),
}

/// The time that calls of modules begin at.
enum Clock {
    /// Time that depends on the number of calls so far alone: it is the same in each run.
    Simulated(AtomicU64),
    Real,
}

/// One call that was made.
#[derive(Debug)]
pub struct Called {
    pub hook: HookName,
    pub request: Bytes,
    pub took: Duration,
    /// Instructions of a module.
    pub instructions: Option<u64>,
    pub pure: Option<bool>,
    /// The lines that it wrote to stderr.
    pub log: String,
    pub answer: Result<Vec<u8>, HookError>,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{hook} hook")]
pub struct HookError {
    hook: HookName,
    source: HookCallError,
}

#[derive(Debug, thiserror::Error)]
pub enum HookSetError {
    #[error(
        "the {hook} hook of the controller is a module: build it (`{build}`), or name its file with --module"
    )]
    NoModule { hook: HookName, build: &'static str },
    #[error(
        "the {hook} hook of the controller is a script: put its file {key} beside the controller's, or name it with --module"
    )]
    NoScript { hook: HookName, key: String },
    #[error(
        "spec.hooks.{hook}.wasm.mounts: {path} is to be seen by the hook: name a folder with --mount {path}=FOLDER"
    )]
    NoMount { hook: HookName, path: String },
    #[error(transparent)]
    Webhook(#[from] SpecError),
}

/// The files that stand for what a controller names of the cluster.
#[derive(Clone)]
pub struct HookFiles {
    pub sandbox: Arc<Sandbox>,
    /// Modules of the sandbox.
    pub modules: HookModules<Arc<Module>>,
    pub mounts: Vec<MountedFolder>,
}

impl HookFiles {
    /// A module as a hook that sees all folders.
    pub fn hook(&self, module: &Arc<Module>, limits: Limits) -> LoadedHook {
        let loaded = LoadedModule::of_files(Arc::clone(module), self.mounts.clone());
        LoadedHook::Wasm { loaded, limits }
    }
}

impl HookSetError {
    fn no_file(hook: HookName, named: &ModuleRef, build: &'static str) -> Self {
        match named.language {
            Some(_) => Self::NoScript { hook, key: named.key.clone() },
            None => Self::NoModule { hook, build },
        }
    }
}

impl HookSet {
    pub(crate) fn new(
        controller: &str,
        hooks: &PerHook<EnabledHook>,
        files: HookFiles,
    ) -> Result<Self, HookSetError> {
        let HookFiles { sandbox, modules, mounts } = files;
        let (pools, metrics) =
            (Pools::new(DEFAULT_WEBHOOK_ANSWER, RedirectPolicy::default()), Metrics::new(|| 0));
        let hooks = hooks.try_map(|name, hook| match &hook.target {
            HookTarget::Wasm(WasmHook { module: named, mounts: wanted, limits, .. }) => {
                let mounted = wanted.iter().map(|mount| {
                    let found = mounts.iter().find(|given| given.path == mount.path).cloned();
                    found.ok_or_else(|| HookSetError::NoMount { hook: name, path: mount.path.clone() })
                });
                let mounts = mounted.collect::<Result<_, _>>()?;
                let module = modules.of_place(&ModulePlace::from(named)).cloned();
                let module = module.ok_or_else(|| HookSetError::no_file(name, named, modules.build))?;
                Ok(LoadedHook::Wasm { loaded: LoadedModule::of_files(module, mounts), limits: *limits })
            }
            HookTarget::Webhook(target) => {
                let meter = metrics.webhook("", controller, name, &target.url);
                Ok::<_, HookSetError>(LoadedHook::Webhook(Webhook::alone(target, &pools, meter)?.into()))
            }
        })?;
        let answers = AnswerSource::Calls { sandbox, hooks: Box::new(hooks) };
        Ok(Self { answers, clock: Clock::Simulated(AtomicU64::default()) })
    }

    /// Hooks that answer this, and are not called.
    pub(crate) fn answering(answer: Vec<u8>) -> Self {
        Self { answers: AnswerSource::Fixed(answer), clock: Clock::Simulated(AtomicU64::default()) }
    }

    /// The hooks, which see the time as it is.
    pub(crate) fn by_real_time(self) -> Self {
        Self { clock: Clock::Real, ..self }
    }

    pub(crate) async fn call(&self, controller: &str, hook: HookName, request: Vec<u8>) -> Called {
        let request = Bytes::from(request);
        let (sandbox, hooks) = match &self.answers {
            AnswerSource::Calls { sandbox, hooks } => (sandbox, hooks),
            AnswerSource::Fixed(answer) => return Called::without_a_call(hook, request, answer.clone()),
        };
        let called = hooks.get(hook).unwrap_or(&hooks.sync);
        let in_sandbox = called.via().runs_in_sandbox();
        let now = match &self.clock {
            Clock::Simulated(calls) => {
                simulated_time(calls.fetch_add(u64::from(in_sandbox), Ordering::Relaxed) + 1)
            }
            Clock::Real => SystemTime::now(),
        };
        let input = Input { controller, hook, request: request.clone(), now, seed: Seed::default() };
        let CallResult { answer, took, log, usage, pure, .. } = sandbox.call(called, input).await;
        Called {
            hook,
            request,
            took,
            instructions: usage.map(|usage| usage.instructions),
            pure,
            log: log.text,
            answer: answer.map_err(|source| HookError { hook, source }),
        }
    }
}

impl Called {
    fn without_a_call(hook: HookName, request: Bytes, answer: Vec<u8>) -> Self {
        Self {
            hook,
            request,
            took: Duration::ZERO,
            instructions: None,
            pure: None,
            log: String::new(),
            answer: Ok(answer),
        }
    }
}
