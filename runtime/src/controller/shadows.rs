//! Shadows of a controller's hooks: asked the same as the hooks, one after the other and after them; their answers are compared,
//! counted, and never carried out. What there is no time or memory for is dropped: no reconcile waits for a shadow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt;
use metahook_core::api::SpecError;
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::hook::{EnabledHook, HookName};
use metahook_core::children::write_history::{PastWrites, WriteHistory};
use metahook_core::hash::Fingerprint;
use metahook_core::hook::{RequestTooLarge, customize};
use metahook_core::object::id::Key;
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::config::{ControllerConfig, HookConfig};
use metahook_core::reconcile::input::{self, ReconcileInput};
use metahook_core::reconcile::memory as estimate;
use metahook_core::reconcile::plan::AnswerError;
use metahook_core::related::rule::RequestedRule;
use metahook_core::shadow::counts::ShadowCounts;
use metahook_core::shadow::{Compared, rule_places};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::controller::heavy_work::HeavyWorkLimiter;
use crate::controller::{Context, ControllerData};
use crate::hook::wasm::source::HookSources;
use crate::hook::wasm::wasi::{Seed, Seeds};
use crate::hook::{CallContext, CallPurpose, Hook, HookCallError};
use crate::memory::{MemoryBudget, MemoryShort, Reservation};
use crate::telemetry::error_chain;

/// Answers of hooks that wait for those of their shadows. More are dropped.
const MAX_WAITING: usize = 256;

/// KiB of requests and answers that wait. A larger one is never compared.
const MAX_WAITING_KIB: usize = 64 << 10;

/// The shadows of the hooks of one controller, for its parents of one kind. Their work ends with it.
pub(crate) struct Shadows {
    line: mpsc::Sender<Job>,
    hooks: Arc<BTreeMap<HookName, Hook>>,
    config: Arc<ControllerConfig>,
    data: Arc<ControllerData>,
    seeds: Arc<Seeds>,
    memory: MemoryBudget,
    room: Arc<Semaphore>,
    _worker: AbortOnDropHandle<()>,
}

/// The shadows of a controller as they are hosted, and those that are refused.
pub(crate) struct ShadowHooks {
    hooks: Arc<BTreeMap<HookName, Hook>>,
    configs: BTreeMap<HookName, HookConfig>,
    pub(crate) refused: BTreeMap<HookName, String>,
}

/// A question that a hook has answered, to be put to its shadow.
struct Job {
    parent: Key,
    seed: Seed,
    question: Question,
    /// Held until it is compared.
    memory: Reservation,
    _room: OwnedSemaphorePermit,
}

enum Question {
    /// Sync and finalize.
    Children { input: Box<ReconcileInput>, children: ChildMap, history: Arc<WriteHistory>, answer: Vec<u8> },
    /// Customize.
    Related { request: Vec<u8>, rules: Arc<[(usize, RequestedRule)]> },
}

struct Worker {
    hooks: Arc<BTreeMap<HookName, Hook>>,
    /// The controller as it would be with the shadows in place of their hooks.
    config: Arc<ControllerConfig>,
    data: Arc<ControllerData>,
    sources: Arc<HookSources>,
    bounds: CustomizeBounds,
    heavy_work: HeavyWorkLimiter,
    /// The modules that were asked last.
    modules: BTreeMap<HookName, Fingerprint>,
}

#[derive(Debug, thiserror::Error)]
enum ShadowError {
    #[error("no module is loaded: {0}")]
    NotLoaded(String),
    #[error(transparent)]
    Request(#[from] RequestTooLarge),
    #[error(transparent)]
    Call(#[from] HookCallError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Rules(#[from] customize::CustomizeError),
    #[error(transparent)]
    MemoryShort(#[from] MemoryShort),
}

impl ShadowHooks {
    /// `host` makes a hook of what is checked.
    pub(crate) fn of(
        shadows: &BTreeMap<HookName, Result<EnabledHook, SpecError>>,
        max_webhook_answer: usize,
        host: impl Fn(HookName, &EnabledHook) -> Result<Hook, SpecError>,
    ) -> Self {
        let (mut hooks, mut configs, mut refused) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (name, shadow) in shadows {
            match shadow.as_ref().map_err(Clone::clone).and_then(|shadow| Ok((shadow, host(*name, shadow)?)))
            {
                Ok((shadow, hook)) => {
                    configs.insert(*name, HookConfig::of(shadow, max_webhook_answer));
                    hooks.insert(*name, hook);
                }
                Err(error) => drop(refused.insert(*name, error.to_string())),
            }
        }
        Self { hooks: Arc::new(hooks), configs, refused }
    }

    /// Before anything is compared.
    pub(crate) fn counts(&self) -> BTreeMap<HookName, ShadowCounts> {
        let refused = self.refused.iter().map(|(name, why)| (*name, ShadowCounts::refused(why)));
        self.hooks.keys().map(|name| (*name, ShadowCounts::default())).chain(refused).collect()
    }

    /// For the parents of one kind; `None`: there is no shadow.
    pub(crate) fn start(&self, data: &Arc<ControllerData>, context: &Context) -> Option<Arc<Shadows>> {
        if self.hooks.is_empty() {
            return None;
        }
        let mut config = data.config.clone();
        for (name, shadow) in &self.configs {
            match name {
                HookName::Sync => config.hooks.sync = shadow.clone(),
                HookName::Finalize => config.hooks.finalize = Some(shadow.clone()),
                HookName::Customize => config.hooks.customize = Some(shadow.clone()),
            }
        }
        Some(Arc::new(Shadows::start(Arc::clone(&self.hooks), config, Arc::clone(data), context)))
    }
}

impl Shadows {
    /// `config`: the controller's, with the shadows in place of their hooks.
    fn start(
        hooks: Arc<BTreeMap<HookName, Hook>>,
        config: ControllerConfig,
        data: Arc<ControllerData>,
        context: &Context,
    ) -> Self {
        let (line, jobs) = mpsc::channel(MAX_WAITING);
        let config = Arc::new(config);
        let worker = Worker {
            hooks: Arc::clone(&hooks),
            config: Arc::clone(&config),
            data: Arc::clone(&data),
            sources: Arc::clone(&context.hooks.sources),
            bounds: context.options.customize,
            heavy_work: context.cluster.heavy_work.clone(),
            modules: BTreeMap::new(),
        };
        let span = tracing::error_span!(target: "hook", "shadow", controller = %data.object.key);
        let task = tokio::spawn(worker.run(jobs).instrument(span));
        Self {
            line,
            hooks,
            config,
            data,
            seeds: Arc::clone(&context.hooks.seeds),
            memory: context.memory.clone(),
            room: Arc::new(Semaphore::new(MAX_WAITING_KIB)),
            _worker: AbortOnDropHandle::new(task),
        }
    }

    /// A sync or finalize hook has answered, and its answer is carried out.
    pub(crate) fn answered(
        &self,
        input: ReconcileInput,
        children: ChildMap,
        history: Arc<WriteHistory>,
        answer: Vec<u8>,
    ) {
        let hook = input.hook;
        if !self.hooks.contains_key(&hook) {
            return;
        }
        let input = input.without_rollout();
        let request = input.sized_request(&self.config, input.state(), &children).capacity();
        let (parent, bytes) = (Arc::clone(&input.parent), request + answer.len());
        let question = Question::Children { input: Box::new(input), children, history, answer };
        self.ask(hook, &parent, question, bytes);
    }

    /// The customize hook has answered about a parent.
    pub(crate) fn related(&self, parent: &Object, rules: &Arc<[(usize, RequestedRule)]>) {
        if self.hooks.contains_key(&HookName::Customize) {
            let request = input::customize_request(&self.config, parent);
            let bytes = request.len();
            let question = Question::Related { request, rules: Arc::clone(rules) };
            self.ask(HookName::Customize, parent, question, bytes);
        }
    }

    fn ask(&self, hook: HookName, parent: &Object, question: Question, bytes: usize) {
        let offered = || {
            let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
            let room = Arc::clone(&self.room).try_acquire_many_owned(kib).ok()?;
            let memory =
                self.memory.reserve(&self.data.object.key.name, bytes as u64).now_or_never()?.ok()?;
            let (parent, seed) = (parent.key.clone(), self.seeds.of(&self.data.object, parent));
            self.line.try_send(Job { parent, seed, question, memory, _room: room }).ok()
        };
        if offered().is_none() {
            count(&self.data, hook, ShadowCounts::dropped);
        }
    }
}

fn count(data: &ControllerData, hook: HookName, change: impl FnOnce(&mut ShadowCounts)) {
    change(data.telemetry.meter.counts().shadows.entry(hook).or_default());
}

impl Question {
    fn hook(&self) -> HookName {
        match self {
            Self::Children { input, .. } => input.hook,
            Self::Related { .. } => HookName::Customize,
        }
    }
}

impl Worker {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        self.ready().await;
        while let Some(job) = jobs.recv().await {
            let (parent, hook) = (job.parent.to_string(), job.question.hook());
            self.note_module(hook);
            let compared = self.compare(job).await;
            count(&self.data, hook, |counts| match compared {
                Ok(places) => {
                    tracing::debug!(%hook, parent, ?places, "compared with its shadow");
                    counts.compared(&parent, places);
                }
                Err(ShadowError::MemoryShort(_) | ShadowError::Answer(AnswerError::NoRoom)) => {
                    counts.dropped();
                }
                Err(error) => {
                    let failure = error_chain(&error);
                    tracing::debug!(%hook, parent, failure, "the shadow failed");
                    counts.failed(&parent, &failure);
                }
            });
        }
    }

    /// Waits until each module is loaded or refused.
    async fn ready(&self) {
        for hook in self.hooks.values() {
            hook.resolved().await;
        }
    }

    /// Counts anew where a module is another one than before.
    fn note_module(&mut self, hook: HookName) {
        let loaded = self.hooks.get(&hook).and_then(Hook::loaded);
        let Some(identity) = loaded.and_then(|loaded| loaded.identity()) else { return };
        if self.modules.insert(hook, identity).is_some_and(|before| before != identity) {
            count(&self.data, hook, |counts| *counts = ShadowCounts::default());
        }
    }

    /// The places where the answers differ.
    async fn compare(&self, Job { seed, question, memory, .. }: Job) -> Result<Vec<String>, ShadowError> {
        let name = question.hook();
        match question {
            Question::Children { input, children, history, answer } => {
                let request = input.sized_request(&self.config, input.state(), &children);
                let size = request.capacity();
                memory.charge(size + answer.len())?;
                let request = input.put_together(&self.config, request)?;
                let shadow = self.call(name, seed, request, &memory).await?;
                memory.refund(size);
                let planning = 2 * estimate::of_answers([&*answer, &*shadow]);
                memory.charge(planning)?;
                let compared = Compared {
                    input: &input,
                    children: &children,
                    past: PastWrites { history: &history, now: self.data.elapsed() },
                    hook: (&self.data.config, &answer),
                    shadow: (&self.config, &shadow),
                };
                let has_room = |more: usize| memory.charge(more).is_ok();
                Ok(self.heavy_work.work(planning, || compared.places(&has_room)).await?)
            }
            Question::Related { request, rules } => {
                memory.charge(request.len())?;
                let answer = self.call(name, seed, request, &memory).await?;
                memory.charge(estimate::of_answers([&*answer]))?;
                let hook = self.config.hooks.get(name).unwrap_or(&self.config.hooks.sync);
                let answer = customize::rules(&answer, hook.via, hook.mode, &self.bounds)?;
                Ok(rule_places(&rules, &answer.rules))
            }
        }
    }

    async fn call(
        &self,
        name: HookName,
        seed: Seed,
        request: Vec<u8>,
        memory: &Reservation,
    ) -> Result<Vec<u8>, ShadowError> {
        // It is asked only where there is one.
        let hook = self.hooks.get(&name).ok_or_else(|| ShadowError::NotLoaded(String::new()))?;
        let loaded = hook.loaded().ok_or_else(|| {
            let problem = hook.problem().map(|problem| problem.to_string());
            ShadowError::NotLoaded(problem.unwrap_or_default())
        })?;
        let context = CallContext {
            runtime: self.sources.runtime(),
            controller: &self.data.object.key.name,
            hook: name,
            now: SystemTime::now(),
            seed,
            memory,
            kept: None,
            purpose: CallPurpose::Shadow,
        };
        Ok(loaded.call(request.into(), context).await.answer?)
    }
}
