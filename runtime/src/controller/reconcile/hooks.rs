//! The hooks of one controller as its passes call them, and what is told of each call.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use metahook_core::api::hook::{HookName, PerHook};
use metahook_core::api::limits::Limits;
use metahook_core::api::reason::EventReason;
use metahook_core::controller_metrics;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::plan::HookFeedback;

use crate::controller::reconcile::Reconciler;
use crate::controller::related::Customized;
use crate::hook::wasm::run::{Call, CallError, Log, Usage};
use crate::hook::wasm::source::{HookSource, LoadedHook};
use crate::hook::web::{WebError, Webhook};
use crate::sync::lock;

/// A hook that runs as long as its controller does.
pub(crate) enum Hook {
    Wasm { source: Arc<HookSource>, limits: Limits },
    Webhook(Arc<Webhook>),
}

/// The hooks of a running controller.
pub(crate) struct Hooks {
    pub(crate) all: PerHook<Hook>,
    /// As what they are called at present.
    now: Mutex<Result<Arc<Callees>, HookName>>,
}

/// All hooks as one pass calls them: it takes them once, so that it never mixes versions.
pub(crate) struct Callees {
    hooks: PerHook<Callee>,
    pub(crate) identity: Fingerprint,
}

enum Callee {
    Wasm { loaded: LoadedHook, limits: Limits },
    Webhook(Arc<Webhook>),
}

/// What a hook answered.
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    /// Whether the request alone brought it about; `None` where that is not known, as of webhooks.
    pub(crate) pure: Option<bool>,
}

/// The calls of one pass.
pub(crate) struct Calls {
    pure: Option<bool>,
    answers: Fingerprinter,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("{0} hook: no module is loaded")]
    NotLoaded(HookName),
    #[error("{0} hook")]
    Wasm(HookName, #[source] CallError),
    #[error("{0} hook")]
    Webhook(HookName, #[source] WebError),
}

impl HookError {
    /// One word, for metrics and for the controller's status.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotLoaded(_) => "ModuleNotLoaded",
            Self::Wasm(_, error) => error.category(),
            Self::Webhook(_, error) => error.category(),
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::NotLoaded(_) | Self::Wasm(..) => Retry::Loud,
            Self::Webhook(_, error) => error.busy().map_or(Retry::Loud, Retry::After),
        }
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self { pure: Some(true), answers: Fingerprinter::default() }
    }
}

impl Calls {
    pub(crate) fn add(&mut self, answer: &Answer) {
        self.answers.add(&answer.bytes);
        self.pure = self.pure.zip(answer.pure).map(|(before, now)| before && now);
    }

    /// What the customize hook said counts, whether now or before.
    pub(crate) fn customized(&mut self, asked: &Customized) {
        self.answers.add(asked.print().as_bytes());
        self.pure = self.pure.zip(asked.pure).map(|(before, now)| before && now);
    }

    /// What all answers were, and whether the requests alone brought them about; `None` where nobody knows.
    pub(crate) fn finish(self) -> (Fingerprint, Option<bool>) {
        (self.answers.finish(), self.pure)
    }
}

impl Hooks {
    pub(crate) fn new(all: PerHook<Hook>) -> Self {
        Self { now: Mutex::new(Callees::of(&all).map(Arc::new)), all }
    }

    pub(crate) fn now(&self) -> Result<Arc<Callees>, HookError> {
        self.lock().clone().map_err(HookError::NotLoaded)
    }

    /// A module or a mount may not be what it was; whether that makes any difference.
    pub(crate) fn renew(&self) -> bool {
        let now = Callees::of(&self.all).map(Arc::new);
        let identity = |callees: &Result<Arc<Callees>, HookName>| callees.as_ref().ok().map(|it| it.identity);
        let mut known = self.lock();
        let changed = identity(&known) != identity(&now);
        *known = now;
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Result<Arc<Callees>, HookName>> {
        lock(&self.now)
    }
}

impl Callees {
    /// # Errors
    /// The hook without a module: none of them is called.
    fn of(hooks: &PerHook<Hook>) -> Result<Self, HookName> {
        let hooks = hooks.try_map(|name, hook| match hook {
            Hook::Wasm { source, limits } => {
                let loaded = source.loaded().ok_or(name)?;
                Ok(Callee::Wasm { loaded, limits: *limits })
            }
            Hook::Webhook(webhook) => Ok(Callee::Webhook(Arc::clone(webhook))),
        })?;
        let mut identity = Fingerprinter::default();
        for (name, hook) in hooks.iter() {
            identity.add(name.as_str().as_bytes());
            match hook {
                Callee::Wasm { loaded, .. } => identity.add(loaded.identity.as_bytes()),
                // Where it is stands in the spec; what it is nobody knows.
                Callee::Webhook(_) => identity.add(b"webhook"),
            }
        }
        Ok(Self { identity: identity.finish(), hooks })
    }
}

impl Reconciler {
    /// Asks one hook about one parent.
    pub(crate) async fn ask(
        &self,
        callees: &Callees,
        name: HookName,
        parent: &Object,
        request: Vec<u8>,
    ) -> Result<Answer, HookError> {
        match callees.hooks.get(name).ok_or(HookError::NotLoaded(name))? {
            Callee::Wasm { loaded, limits } => {
                let call = Call {
                    controller: &self.object.key.name,
                    hook: name.as_str(),
                    request: request.into(),
                    now: SystemTime::now(),
                    limits: *limits,
                    seed: self.tools.seeds.of(&parent.uid),
                    mounts: loaded.mounts.folders(),
                };
                let start = Instant::now();
                let called = self.tools.sources.runtime().call(&loaded.module, call).await;
                let result =
                    called.answer.as_ref().map_or_else(CallError::category, |_| controller_metrics::OK);
                self.count(name, result, start.elapsed(), called.usage);
                self.log(name, &parent.key, &called.log);
                let bytes = called.answer.map_err(|error| HookError::Wasm(name, error))?;
                Ok(Answer { bytes, pure: Some(called.pure) })
            }
            Callee::Webhook(webhook) => {
                let start = Instant::now();
                let answer = webhook.call(request.into()).await;
                let result = answer.as_ref().map_or_else(WebError::category, |_| controller_metrics::OK);
                self.count(name, result, start.elapsed(), Usage::default());
                let bytes = answer.map_err(|error| HookError::Webhook(name, error))?;
                Ok(Answer { bytes, pure: None })
            }
        }
    }

    fn count(&self, hook: HookName, result: &'static str, took: Duration, usage: Usage) {
        let Usage { memory, instructions } = usage;
        self.meter.counts().called(controller_metrics::Called { hook, result, took, memory, instructions });
    }

    /// What the hook wants said about the parent, and what has to be said about the hook.
    pub(crate) fn say(&self, hook: HookName, parent: &Object, said: &HookFeedback) {
        for event in &said.events {
            self.tools.recorder.record_of_hook(parent, event);
        }
        let forgot = (said.forgot > 0).then(|| {
            format!(
                "The {hook} hook's answer has no list of {}, so all {} of them are deleted: an empty list is how to say that this is meant",
                self.terms.kind.name().children(),
                said.forgot
            )
        });
        self.warn_once(parent, EventReason::MissingChildren, forgot);
        for odd in &said.oddities {
            tracing::debug!(controller = %self.object.key, %hook, parent = %parent.key, "the hook's answer {odd}");
        }
    }

    /// Each line of a hook's stderr is a log record; a flood of them is cut.
    fn log(&self, hook: HookName, parent: &Key, log: &Log) {
        const MOST: usize = 100;
        let mut lines = log.text.lines().filter(|line| !line.trim().is_empty());
        for line in lines.by_ref().take(MOST) {
            tracing::info!(target: "hook", controller = %self.object.key, %hook, %parent, "{line}");
        }
        let more = lines.count();
        if more > 0 || log.lost > 0 {
            tracing::info!(target: "hook", controller = %self.object.key, %hook, %parent, "{more} more lines and {} bytes beyond limits.log were cut", log.lost);
        }
    }
}
