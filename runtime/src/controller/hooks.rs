//! Caller of the hooks of one controller, with metrics and log lines of each call.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use metahook_core::api::hook::{HookName, PerHook};
use metahook_core::api::policy::Limits;
use metahook_core::controller_metrics;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::hook::etag::{AnswerCache, AnswerKey, KeptAnswer};
use metahook_core::hook::log_line::{Level, LogLine};
use metahook_core::object::id::Key;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{Asked, HookAnswer, PortError};
use tracing::Instrument;

use crate::controller::ControllerData;
use crate::controller::hook::Hook;
use crate::controller::observer::{Observed, ObservedCall};
use crate::controller::shadows::Shadows;
use crate::controller::troubleshooting::{log_answer, log_request};
use crate::hook::wasm::run::{Call, CallError, Log, Usage};
use crate::hook::wasm::source::{HookSources, LoadedHook};
use crate::hook::wasm::wasi::Seeds;
use crate::hook::web::{WebAnswer, WebError, Webhook};
use crate::memory::{MemoryShort, Reservation};
use crate::sync::lock;

/// The lines of one call's stderr that are logged; the others are counted.
const MAX_LOG_LINES: usize = 100;

/// The hooks of a running controller.
pub(crate) struct Hooks {
    pub(crate) all: PerHook<Hook>,
    /// Digest of the controller's spec.
    spec: Fingerprint,
    /// Their present versions.
    now: Mutex<Result<Arc<LoadedHooks>, HookName>>,
    /// Answers of webhooks that gave them a tag.
    answers: Mutex<AnswerCache>,
}

/// All hooks in their present versions. A reconcile takes them once, so that it never mixes versions.
pub(crate) struct LoadedHooks {
    hooks: PerHook<CallableHook>,
    /// Of the modules, of what they may read, and of the controller's spec.
    pub(crate) identity: Fingerprint,
}

enum CallableHook {
    Wasm { loaded: LoadedHook, limits: Limits },
    Webhook(Arc<Webhook>),
}

/// Calls of the hooks of one controller.
#[derive(Clone)]
pub(crate) struct HookCaller {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) sources: Arc<HookSources>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) shadows: Option<Arc<Shadows>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("{0} hook: no module is loaded")]
    NotLoaded(HookName),
    #[error("{0} hook")]
    Wasm(HookName, #[source] CallError),
    #[error("{0} hook")]
    Webhook(HookName, #[source] WebError),
    #[error(transparent)]
    MemoryShort(#[from] MemoryShort),
}

impl HookError {
    /// One word, for metrics and for the controller's status.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotLoaded(_) => "ModuleNotLoaded",
            Self::Wasm(_, error) => error.category(),
            Self::Webhook(_, error) => error.category(),
            Self::MemoryShort(_) => "MemoryShort",
        }
    }

    /// The server no longer waited for the hook.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Wasm(_, CallError::Stopping))
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::NotLoaded(_) | Self::Wasm(..) => Retry::Loud,
            Self::MemoryShort(_) => Retry::Quiet,
            Self::Webhook(_, error) => error.busy().map_or(Retry::Loud, Retry::After),
        }
    }
}

impl From<HookError> for PortError {
    fn from(error: HookError) -> Self {
        Self { is_stopping: error.is_stopping(), ..Self::new(error.category(), error.retry(), error) }
    }
}

impl Hooks {
    pub(crate) fn new(all: PerHook<Hook>, spec: Fingerprint) -> Self {
        let now = Mutex::new(LoadedHooks::of(&all, spec).map(Arc::new));
        Self { now, all, spec, answers: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Result<Arc<LoadedHooks>, HookError> {
        lock(&self.now).clone().map_err(HookError::NotLoaded)
    }

    /// Takes the present modules and mounts; `true`: a version changed. `before` is called with a new one before any reconcile
    /// takes it.
    pub(crate) fn renew(&self, before: impl FnOnce(Fingerprint)) -> bool {
        let now = LoadedHooks::of(&self.all, self.spec).map(Arc::new);
        let identity = |hooks: &Result<Arc<LoadedHooks>, HookName>| hooks.as_ref().ok().map(|it| it.identity);
        let is_changed = identity(&lock(&self.now)) != identity(&now);
        if let Some(version) = identity(&now).filter(|_| is_changed) {
            before(version);
        }
        *lock(&self.now) = now;
        is_changed
    }
}

impl LoadedHooks {
    /// # Errors
    /// The hook without a module: none of them is called.
    fn of(hooks: &PerHook<Hook>, spec: Fingerprint) -> Result<Self, HookName> {
        let hooks = hooks.try_map(|name, hook| match hook {
            Hook::Wasm { source, limits } => {
                let loaded = source.loaded().ok_or(name)?;
                Ok(CallableHook::Wasm { loaded, limits: *limits })
            }
            Hook::Webhook(webhook) => Ok(CallableHook::Webhook(Arc::clone(webhook))),
        })?;
        let mut identity = Fingerprinter::default();
        identity.add(spec.as_bytes());
        for (name, hook) in hooks.iter() {
            identity.add(name.as_str().as_bytes());
            match hook {
                CallableHook::Wasm { loaded, .. } => identity.add(loaded.identity.as_bytes()),
                // The spec has its URL, and it has no version.
                CallableHook::Webhook(_) => identity.add(b"webhook"),
            }
        }
        Ok(Self { identity: identity.finish(), hooks })
    }
}

impl HookCaller {
    /// Calls one hook about one parent. The request is charged to the memory already.
    pub(crate) async fn call(
        &self,
        hooks: &LoadedHooks,
        name: HookName,
        asked: Asked<'_>,
        request: Vec<u8>,
        memory: &Reservation,
    ) -> Result<HookAnswer, HookError> {
        let span = tracing::error_span!(target: "hook", "hook", hook = %name);
        log_request(name, &request);
        match hooks.hooks.get(name).ok_or(HookError::NotLoaded(name))? {
            CallableHook::Wasm { loaded, limits } => {
                let call = Call {
                    controller: &self.data.object.key.name,
                    hook: name.as_str(),
                    request: request.into(),
                    now: SystemTime::now(),
                    limits: *limits,
                    seed: self.seeds.of(&self.data.object, asked.parent()),
                    mounts: &loaded.mounts.folders,
                    memory: memory.clone(),
                };
                let start = Instant::now();
                let called = self.sources.runtime().call_until_stop(&loaded.module, call);
                let called = called.instrument(span.clone()).await;
                if let Err(error @ CallError::Stopping) = called.answer {
                    return Err(HookError::Wasm(name, error));
                }
                let result =
                    called.answer.as_ref().map_or_else(CallError::category, |_| controller_metrics::OK);
                let took = start.elapsed();
                self.count(name, result, took, called.usage);
                self.observe(name, asked, Some((called.usage.instructions, &called.log)));
                span.in_scope(|| log_stderr(&called.log));
                let bytes = called.answer.map_err(|error| HookError::Wasm(name, error))?;
                log_answer(name, &bytes);
                Ok(HookAnswer { bytes, pure: Some(called.pure) })
            }
            CallableHook::Webhook(webhook) => {
                let start = Instant::now();
                let answer = self.ask(webhook, name, asked, request, memory).instrument(span).await;
                let result = answer.as_ref().map_or_else(WebError::category, |_| controller_metrics::OK);
                let took = start.elapsed();
                self.count(name, result, took, Usage::default());
                self.observe(name, asked, None);
                let bytes = answer.map_err(|error| HookError::Webhook(name, error))?;
                log_answer(name, &bytes);
                Ok(HookAnswer { bytes, pure: None })
            }
        }
    }

    /// Calls a webhook with the tag of its last answer, where it has given one.
    async fn ask(
        &self,
        webhook: &Webhook,
        name: HookName,
        asked: Asked<'_>,
        request: Vec<u8>,
        memory: &Reservation,
    ) -> Result<Vec<u8>, WebError> {
        let (Asked::Present(parent), Some(policy)) = (asked, webhook.etag()) else {
            return webhook.call(request.into(), None, memory).await.map(|answer| answer.bytes);
        };
        let key = AnswerKey::new(&self.data.parents.resource, &parent.key, name);
        let kept = lock(&self.hooks.answers).find(&key, &parent.uid, self.data.elapsed());
        let WebAnswer { bytes, tag } = webhook.call(request.into(), kept, memory).await?;
        if let Some(tag) = tag {
            let answer = KeptAnswer { tag, body: bytes.as_slice().into() };
            let now = self.data.elapsed();
            lock(&self.hooks.answers).keep(key, parent.uid.clone(), answer, policy, now);
        }
        Ok(bytes)
    }

    /// To be called where the parent is gone, or no longer selected.
    pub(crate) fn forget(&self, parent: &Key) {
        lock(&self.hooks.answers).forget(&self.data.parents.resource, parent);
    }

    /// `used`: the instructions of a module, and what it wrote to stderr.
    fn observe(&self, hook: HookName, asked: Asked<'_>, used: Option<(u64, &Log)>) {
        self.data.observer.note(|| {
            let (instructions, log) = used.unzip();
            let log = log.map(|log| Log { text: log.text.clone(), lost: log.lost }).unwrap_or_default();
            let parent = self.data.parent_id(asked.parent());
            Observed::Called { parent, call: ObservedCall { hook, instructions, log } }
        });
    }

    fn count(&self, hook: HookName, result: &'static str, took: Duration, usage: Usage) {
        let Usage { memory, instructions } = usage;
        let called = controller_metrics::Called { hook, result, took, memory, instructions };
        self.data.meter.counts().called(called);
    }
}

/// Logs each line of a hook's stderr, up to a limit.
fn log_stderr(log: &Log) {
    let mut lines = log.text.lines().filter(|line| !line.trim().is_empty());
    for line in lines.by_ref().take(MAX_LOG_LINES) {
        let LogLine { level, message } = LogLine::of(line);
        match level {
            Level::Error => tracing::error!(target: "hook", "{message}"),
            Level::Warn => tracing::warn!(target: "hook", "{message}"),
            Level::Info => tracing::info!(target: "hook", "{message}"),
            Level::Debug => tracing::debug!(target: "hook", "{message}"),
            Level::Trace => tracing::trace!(target: "hook", "{message}"),
        }
    }
    let more = lines.count();
    if more > 0 || log.lost > 0 {
        tracing::info!(target: "hook", "{more} more lines and {} bytes beyond limits.log were cut", log.lost);
    }
}
