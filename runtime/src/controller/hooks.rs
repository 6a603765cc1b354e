//! Caller of the hooks of one controller, with metrics and log lines of each call.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use metahook_core::api::hook::{HookName, PerHook};
use metahook_core::api::policy::Limits;
use metahook_core::controller_metrics;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::hook::Usage;
use metahook_core::hook::etag::{AnswerCache, AnswerKey, KeptAnswer};
use metahook_core::hook::log_line::{Level, LogLine};
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{HookAnswer, ParentView, PortError};
use tracing::Instrument;

use crate::controller::ControllerData;
use crate::controller::observer::{Observed, ObservedCall};
use crate::controller::recordings::CallToRecord;
use crate::controller::shadows::Shadows;
use crate::controller::troubleshooting::{log_answer, log_request};
use crate::hook::wasm::run::Log;
use crate::hook::wasm::source::HookSources;
use crate::hook::wasm::wasi::Seeds;
use crate::hook::{CallContext, CallPurpose, CallResult, Hook, HookCallError, LoadedHook};
use crate::memory::{MemoryShort, Reservation};
use crate::sync::lock;

/// The lines of one call's stderr that are logged; the others are counted.
const MAX_LOG_LINES: usize = 100;

/// The hooks of a running controller, each followed.
pub(crate) struct FollowedHooks {
    all: PerHook<Hook>,
    /// Digest of the controller's spec.
    spec: Fingerprint,
    /// Present versions of the hooks.
    loaded: Mutex<Result<Arc<LoadedHooks>, HookName>>,
    /// Answers of webhooks that gave them a tag.
    answers: Mutex<AnswerCache>,
}

/// All hooks in their present versions. A reconcile takes them once, so that it never mixes versions.
pub(crate) struct LoadedHooks {
    by_name: PerHook<LoadedHook>,
    /// Fingerprint of the modules, of what they may read, and of the controller's spec.
    pub(crate) identity: Fingerprint,
}

/// Calls of the hooks of one controller.
#[derive(Clone)]
pub(crate) struct HookCaller {
    pub(crate) data: Arc<ControllerData>,
    pub(crate) followed: Arc<FollowedHooks>,
    pub(crate) sources: Arc<HookSources>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) shadows: Option<Arc<Shadows>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("{0} hook: no module is loaded")]
    NotLoaded(HookName),
    #[error("{0} hook")]
    Call(HookName, #[source] HookCallError),
    #[error(transparent)]
    MemoryShort(#[from] MemoryShort),
}

impl HookError {
    /// One word, for metrics and for the controller's status.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotLoaded(_) => "ModuleNotLoaded",
            Self::Call(_, error) => error.category(),
            Self::MemoryShort(_) => "MemoryShort",
        }
    }

    /// The server no longer waited for the hook.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Call(_, error) if error.is_stopping())
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::NotLoaded(_) => Retry::WithEvent,
            Self::MemoryShort(_) => Retry::Silent,
            Self::Call(_, error) => error.retry(),
        }
    }
}

impl From<HookError> for PortError {
    fn from(error: HookError) -> Self {
        Self { is_stopping: error.is_stopping(), ..Self::new(error.category(), error.retry(), error) }
    }
}

impl FollowedHooks {
    pub(crate) fn new(all: PerHook<Hook>, spec: Fingerprint) -> Self {
        let loaded = Mutex::new(LoadedHooks::of(&all, spec).map(Arc::new));
        Self { loaded, all, spec, answers: Mutex::default() }
    }

    /// The versions that were taken last.
    ///
    /// # Errors
    /// A hook has no module.
    pub(crate) fn loaded(&self) -> Result<Arc<LoadedHooks>, HookError> {
        lock(&self.loaded).clone().map_err(HookError::NotLoaded)
    }

    /// The identity of the versions; `None`: a hook has no module.
    pub(crate) fn identity(&self) -> Option<Fingerprint> {
        lock(&self.loaded).as_ref().ok().map(|hooks| hooks.identity)
    }

    /// Takes the present modules and mounts; `true`: a version changed. `before` is called with a new one before any reconcile
    /// takes it.
    pub(crate) fn renew(&self, before: impl FnOnce(Fingerprint)) -> bool {
        let now = LoadedHooks::of(&self.all, self.spec).map(Arc::new);
        let identity = |hooks: &Result<Arc<LoadedHooks>, HookName>| hooks.as_ref().ok().map(|it| it.identity);
        let is_changed = identity(&lock(&self.loaded)) != identity(&now);
        if let Some(version) = identity(&now).filter(|_| is_changed) {
            before(version);
        }
        *lock(&self.loaded) = now;
        is_changed
    }

    /// Takes the versions of other hooks.
    #[cfg(test)]
    pub(crate) fn take(&self, others: &Self) {
        let now = lock(&others.loaded).clone();
        *lock(&self.loaded) = now;
    }
}

impl LoadedHooks {
    /// # Errors
    /// The hook without a module: none of them is called.
    fn of(hooks: &PerHook<Hook>, spec: Fingerprint) -> Result<Self, HookName> {
        let by_name = hooks.try_map(|name, hook| hook.loaded().ok_or(name))?;
        let mut identity = Fingerprinter::default();
        identity.add(spec.as_bytes());
        for (name, hook) in by_name.iter() {
            identity.add(name.as_str().as_bytes());
            hook.add_to(&mut identity);
        }
        Ok(Self { identity: identity.finish(), by_name })
    }
}

impl HookCaller {
    /// The versions for a reconcile.
    ///
    /// # Errors
    /// A hook has no module.
    pub(crate) fn loaded(&self) -> Result<Arc<LoadedHooks>, HookError> {
        self.followed.loaded()
    }

    /// The identity of the versions; `None`: a hook has no module.
    pub(crate) fn identity(&self) -> Option<Fingerprint> {
        self.followed.identity()
    }

    /// The median of the instructions of each module's latest calls, with the digest of the module.
    pub(crate) fn medians(&self) -> Vec<(HookName, String, i64)> {
        let Ok(hooks) = self.loaded() else { return Vec::new() };
        let counts = self.data.telemetry.meter.counts();
        let median = |(name, hook): (HookName, &LoadedHook)| {
            let LoadedHook::Wasm { loaded, .. } = hook else { return None };
            let median = counts.calls.instructions_p50(name, loaded.identity)?;
            Some((name, loaded.module.digest.to_string(), median))
        };
        hooks.by_name.iter().filter_map(median).collect()
    }

    /// The limits of the modules among the hooks.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (HookName, &Limits)> {
        self.followed.all.iter().filter_map(|(name, hook)| Some((name, hook.limits()?)))
    }

    /// Calls one hook about one parent. The request is charged to the memory already.
    pub(crate) async fn call(
        &self,
        hooks: &LoadedHooks,
        name: HookName,
        asked: ParentView<'_>,
        request: Vec<u8>,
        memory: &Reservation,
    ) -> Result<HookAnswer, HookError> {
        let span = tracing::error_span!(target: "hook", "hook", hook = %name);
        log_request(name, &request);
        let hook = hooks.by_name.get(name).ok_or(HookError::NotLoaded(name))?;
        let context = CallContext {
            runtime: self.sources.runtime(),
            controller: &self.data.object.key.name,
            hook: name,
            now: SystemTime::now(),
            seed: self.seeds.of(&self.data.object, asked.parent()),
            memory,
            kept: self.kept_answer(hook, name, asked),
            purpose: CallPurpose::Reconcile,
        };
        let request = Bytes::from(request);
        let recorded = self.recorded(hook, asked, &context, &request);
        let called = hook.call(request, context).instrument(span.clone()).await;
        if !called.answer.as_ref().is_err_and(HookCallError::is_stopping) {
            self.record((name, hook), asked, &called);
            if let (Some(recordings), Some(call)) = (self.data.telemetry.traces.recordings(), recorded) {
                recordings.end_call(self.data.telemetry.traces.controller(), call, &called);
            }
            span.in_scope(|| log_stderr(&called.log));
        }
        let bytes = called.answer.map_err(|error| HookError::Call(name, error))?;
        if let (Some(tag), ParentView::Present(parent)) = (called.tag, asked) {
            self.keep_answer(hook, name, parent, KeptAnswer { tag, body: bytes.as_slice().into() });
        }
        log_answer(name, &bytes);
        Ok(HookAnswer { bytes, pure: called.pure, usage: called.usage })
    }

    /// The call, where it is recorded.
    fn recorded(
        &self,
        hook: &LoadedHook,
        asked: ParentView<'_>,
        context: &CallContext<'_>,
        request: &Bytes,
    ) -> Option<CallToRecord> {
        let recordings = self.data.telemetry.traces.recordings()?;
        let parent = (&*self.data.parents.resource, &asked.parent().key);
        recordings.begin(self.data.telemetry.traces.controller(), parent, hook, context, request)
    }

    fn answer_key(&self, hook: HookName, parent: &Object) -> AnswerKey {
        AnswerKey::new(&self.data.parents.resource, &parent.key, hook)
    }

    /// The last answer about the parent, of a webhook that gave it a tag.
    fn kept_answer(
        &self,
        hook: &LoadedHook,
        name: HookName,
        asked: ParentView<'_>,
    ) -> Option<Arc<KeptAnswer>> {
        let (ParentView::Present(parent), Some(_)) = (asked, hook.etag()) else { return None };
        let key = self.answer_key(name, parent);
        lock(&self.followed.answers).find(&key, &parent.uid, self.data.elapsed())
    }

    fn keep_answer(&self, hook: &LoadedHook, name: HookName, parent: &Object, answer: KeptAnswer) {
        let Some(policy) = hook.etag() else { return };
        let (key, now) = (self.answer_key(name, parent), self.data.elapsed());
        lock(&self.followed.answers).keep(key, parent.uid.clone(), answer, policy, now);
    }

    /// To be called where the parent is gone, or no longer selected.
    pub(crate) fn forget(&self, parent: &Key) {
        lock(&self.followed.answers).forget(&self.data.parents.resource, parent);
    }

    /// Counts a call, and shows it to the observer.
    fn record(&self, (hook, loaded): (HookName, &LoadedHook), asked: ParentView<'_>, called: &CallResult) {
        let CallResult { answer, took, log, usage, .. } = called;
        let result = answer.as_ref().map_or_else(HookCallError::category, |_| controller_metrics::OK);
        let Usage { memory, instructions } = usage.unwrap_or_default();
        let (version, took) = (loaded.identity(), *took);
        let counted = controller_metrics::Called { hook, version, result, took, memory, instructions };
        self.data.telemetry.meter.counts().called(counted);
        self.data.telemetry.observer.note(|| {
            let instructions = usage.map(|usage| usage.instructions);
            let log = log.clone();
            let parent = self.data.parent_id(asked.parent());
            Observed::Called { parent, call: ObservedCall { hook, instructions, log } }
        });
    }
}

/// Logs each line of a hook's stderr, up to a limit.
fn log_stderr(log: &Log) {
    let mut lines = log.lines();
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
    let more = lines.count() + log.lost_lines;
    if more > 0 || log.lost > 0 {
        tracing::info!(target: "hook", "{more} more lines and {} bytes beyond limits.log were cut", log.lost);
    }
}
