//! Related objects: the rules of the customize hook, the objects that they find, and the parents that their changes trigger.

mod changes;
mod record;
pub(super) mod scopes;
pub(crate) mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metahook_core::api::customize::{CustomizeBounds, RelatedKindError};
use metahook_core::api::hook::{HookName, HookTransport};
use metahook_core::hash::Fingerprint;
use metahook_core::hook::customize::{self, CustomizeError};
use metahook_core::json::size::tree_size;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Gvr, Key, ObjectId};
use metahook_core::reconcile::config::HookConfig;
use metahook_core::reconcile::input;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{Customized, FoundObjects, ParentView, PortError};
use metahook_core::related::related_index::{RelatedIndex, RuleMemoryError, StoreScopes};
use metahook_core::related::rule::RuleError;
use metahook_core::related::{
    Answer, CustomizeCache, Related, WEBHOOK_REFRESH_INTERVAL, question_to_module, question_to_webhook,
};

use crate::cluster::discovery::{Discovery, DiscoveryError};
use crate::controller::Cluster;
use crate::controller::ControllerData;
use crate::controller::heavy_work::HeavyWorkLimiter;
use crate::controller::hooks::{HookCaller, HookError, LoadedHooks};
use crate::controller::related::scopes::{Followed, filled};
use crate::controller::related::select::{Placed, Work};
use crate::memory::Reservation;
use crate::queue::Queue;
use crate::store::{Store, Stores, WriteGuard, Writer};
use crate::sync::{Tasks, lock};

/// Related objects of the parents of one kind.
pub(crate) struct RelatedObjects {
    data: Arc<ControllerData>,
    hooks: HookCaller,
    queue: Arc<Queue<Key>>,
    tasks: Arc<Tasks>,
    discovery: Arc<Discovery>,
    stores: Arc<Stores>,
    bounds: CustomizeBounds,
    heavy_work: HeavyWorkLimiter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: CustomizeCache,
    index: RelatedIndex,
    scopes: StoreScopes<Followed>,
    /// `Some`: a rule selects namespaces.
    namespaces: Option<Arc<Store>>,
    /// The parents whose rules cannot be followed yet.
    waiting: BTreeMap<Key, Wait>,
    /// The parents with an Event because requests do not show all objects that their rules find: which rules, and kinds.
    recorded: BTreeMap<Key, Fingerprint>,
    /// There is an Event because a webhook asked for Secrets.
    recorded_secrets: bool,
}

/// The event that a rule waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Served(Gvr),
    Listed(Gvr),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RelatedError {
    #[error(transparent)]
    Hook(#[from] HookError),
    #[error("customize hook")]
    Answer(#[from] CustomizeError),
    #[error("customize hook")]
    Rule(#[from] RuleError),
    #[error("customize hook")]
    NotAllowed(#[from] RelatedKindError),
    #[error("customize hook")]
    Memory(#[from] RuleMemoryError),
    #[error(
        "customize hook: the hook's answer: with relatedResources[{at}] a reconcile looks at more than {max} objects and rules to find related objects, and {max} are allowed (--customize-steps-max): ask for fewer objects, by names or labels that few have"
    )]
    Work { at: usize, max: usize },
    #[error(
        "customize hook: the hook's answer: relatedResources[{at}] needs a watch of {kind}, and the {max} watches that the related objects of a controller may have are open (--customize-watches-max): ask for fewer kinds and namespaces, or raise the flag"
    )]
    Watches { at: usize, kind: Gvk, max: usize },
    #[error("customize hook: the hook's answer: relatedResources[{at}]")]
    Kind { at: usize, source: DiscoveryError },
    #[error("customize hook: the hook's answer: relatedResources[{at}]: {trouble}")]
    NotListed { at: usize, trouble: String },
    #[error("related objects of relatedResources[{at}] are still being listed")]
    NotSynced { at: usize },
}

impl RelatedError {
    /// One word, for metrics and for the controller's status.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Hook(error) => error.category(),
            Self::Answer(_)
            | Self::Rule(_)
            | Self::NotAllowed(_)
            | Self::Memory(_)
            | Self::Work { .. }
            | Self::Watches { .. } => "HookAnswer",
            Self::Kind { .. } | Self::NotListed { .. } | Self::NotSynced { .. } => "Related",
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Hook(error) => error.retry(),
            Self::NotSynced { .. } => Retry::Silent,
            Self::Kind { source, .. } => source.retry(),
            Self::Answer(_)
            | Self::Rule(_)
            | Self::NotAllowed(_)
            | Self::Memory(_)
            | Self::Work { .. }
            | Self::Watches { .. }
            | Self::NotListed { .. } => Retry::WithEvent,
        }
    }
}

impl From<RelatedError> for PortError {
    fn from(error: RelatedError) -> Self {
        match error {
            RelatedError::Hook(error) => error.into(),
            error => Self::new(error.category(), error.retry(), error),
        }
    }
}

/// A state of a parent that the customize hook is asked about.
struct Question<'a> {
    parent: &'a Object,
    /// The parent as it is now.
    present: &'a Object,
    fingerprint: Fingerprint,
}

/// Means of a search for related objects: the call's place in its reconcile, steps and memory.
struct Means<'a> {
    /// An earlier answer of the customize hook may be used.
    cached: bool,
    work: &'a mut Work,
    memory: &'a Reservation,
}

impl RelatedObjects {
    /// `restricted`: the controller reads with the rights of a ServiceAccount, which may end at a namespace. Its stores hold
    /// no more than its rules may find.
    pub(crate) fn new(
        hooks: HookCaller,
        queue: Arc<Queue<Key>>,
        tasks: Arc<Tasks>,
        cluster: &Cluster,
        (bounds, restricted): (CustomizeBounds, bool),
    ) -> Self {
        let state = State { index: RelatedIndex::new(restricted, bounds.memory), ..State::default() };
        Self {
            data: Arc::clone(&hooks.data),
            hooks,
            queue,
            tasks,
            discovery: Arc::clone(&cluster.discovery),
            stores: Arc::clone(&cluster.stores),
            bounds,
            heavy_work: cluster.heavy_work.clone(),
            state: Mutex::new(state),
        }
    }

    /// The answer of the customize hook about a parent. The hook is called where no answer is cached.
    async fn customize(
        &self,
        hook: &HookConfig,
        hooks: &LoadedHooks,
        Question { parent, present, fingerprint }: Question<'_>,
        Means { cached, work, memory }: Means<'_>,
    ) -> Result<Customized, RelatedError> {
        let pure = match hook.via {
            HookTransport::Wasm => Some(true),
            HookTransport::Webhook => None,
        };
        let earlier = || self.lock().answers.recall(&parent.key, fingerprint, self.data.elapsed());
        if cached && let Some(answer) = earlier() {
            return Ok(Customized { answer, pure, is_earlier: true, usage: None });
        }
        let request = input::customize_request(&self.data.config, parent);
        work.end_turn();
        memory.charge(request.len()).map_err(HookError::from)?;
        let (name, asked) = (HookName::Customize, ParentView::of(parent, present));
        let answered = self.hooks.call(hooks, name, asked, request, memory).await?;
        work.read(answered.bytes.len()).await;
        memory.charge(tree_size(&answered.bytes)).map_err(HookError::from)?;
        let customize::Response { rules, warnings } =
            customize::rules(&answered.bytes, hook.via, hook.mode, &self.bounds)?;
        let ignored = hook.ignored(name, &warnings).map(Into::into);
        for odd in warnings {
            tracing::debug!("the customize hook's answer {odd}");
        }
        let answer = Answer { rules: rules.into(), ignored, print: Fingerprint::of(&answered.bytes) };
        if let Some(shadows) = &self.hooks.shadows {
            shadows.related(parent, &answer.rules);
        }
        let until = match (hook.via, answered.pure) {
            (HookTransport::Webhook, _) => Some(Some(self.data.elapsed() + WEBHOOK_REFRESH_INTERVAL)),
            (HookTransport::Wasm, Some(true)) => Some(None),
            (HookTransport::Wasm, Some(false) | None) => None,
        };
        if let Some(until) = until {
            let mut state = self.lock();
            state.answers.keep(&parent.key, fingerprint, answer.clone(), until);
            state.shrink(self.bounds.memory);
        }
        Ok(Customized { answer, pure: answered.pure, is_earlier: false, usage: answered.usage })
    }

    /// Finds the related objects of each state of a parent, the present one first. From here on their changes trigger it.
    pub(crate) async fn find(
        self: &Arc<Self>,
        hooks: &LoadedHooks,
        states: &[Arc<Object>],
        cached: bool,
        memory: &Reservation,
    ) -> Result<FoundObjects, RelatedError> {
        let Some(hook) = &self.data.config.hooks.customize else {
            let related = states.iter().map(|_| Related::default()).collect();
            return Ok(FoundObjects { related, customized: Vec::new() });
        };
        let Some(parent) = states.first() else {
            return Ok(FoundObjects { related: Vec::new(), customized: Vec::new() });
        };
        let questions: Vec<_> =
            states.iter().map(|state| (&**state, question(hook.via, hooks, state))).collect();
        let all = questions.iter().map(|(_, fingerprint)| *fingerprint).collect();
        self.lock().answers.keep_only(&parent.key, &all, self.data.elapsed());
        let mut work = Work::new(self.bounds.steps, &self.heavy_work);
        let mut customized = Vec::new();
        let mut rules = Vec::new();
        for (state, fingerprint) in questions {
            let question = Question { parent: state, present: parent, fingerprint };
            let means = Means { cached, work: &mut work, memory };
            let answer = self.customize(hook, hooks, question, means).await?;
            rules.push(self.rules(hook, state, &answer, &mut work).await?);
            customized.push(answer);
        }
        let all = || rules.iter().flatten();
        let stores = self.open_stores(all(), &mut work).await?;
        // Before any object is read: from now on changes trigger the parent.
        self.register(&parent.key, all())?;
        for (at, store) in stores.unlisted(all()) {
            self.wait(parent, Wait::Listed(store.resource.gvr()));
            work.end_turn();
            filled(at, store).await?;
        }
        self.lock().waiting.remove(&parent.key);
        let related = stores.select(states, &rules, &mut work).await?;
        Ok(FoundObjects { related, customized })
    }

    fn register<'a>(
        &self,
        parent: &Key,
        rules: impl Iterator<Item = &'a Placed>,
    ) -> Result<(), RelatedError> {
        let rules = rules.map(|(_, rule)| rule.clone()).collect();
        let mut state = self.lock();
        state.index.set(parent, rules)?;
        state.shrink(self.bounds.memory);
        Ok(())
    }

    /// Adds the parents whose rules name a kind that is served from now on to the queue.
    pub(crate) async fn watch_discovery(&self) {
        let mut changes = self.discovery.changes();
        while changes.changed().await.is_ok() {
            self.close_unserved().await;
            let waits: BTreeSet<_> = self.lock().waiting.values().cloned().collect();
            for wait in waits {
                if let Wait::Served(gvr) = &wait
                    && self.discovery.resolve(gvr).await.is_ok()
                {
                    self.end_wait(&wait);
                }
            }
        }
    }

    /// To be called where the parent is gone, or no longer selected.
    pub(crate) fn forget(&self, parent: &Key) {
        let mut state = self.lock();
        state.answers.forget(parent);
        state.index.remove(parent);
        state.waiting.remove(parent);
        state.recorded.remove(parent);
    }

    /// The error of a watch that worked before.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        let stores = state.scopes.all().map(|followed| &followed.store);
        stores.filter(|store| store.is_synced()).find_map(|store| store.trouble())
    }

    /// Why objects that rules ask for are not in memory.
    pub(crate) fn too_large(&self) -> Option<String> {
        self.lock().scopes.all().find_map(|followed| followed.store.too_large())
    }

    fn wait(&self, parent: &Object, wait: Wait) {
        self.lock().waiting.insert(parent.key.clone(), wait);
    }

    /// The parents that waited for this run now, and their failures are forgotten.
    fn end_wait(&self, wait: &Wait) {
        let ended = |(_, waits): &(&Key, &Wait)| waits == &wait;
        let keys: Vec<_> = self.lock().waiting.iter().filter(ended).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.queue.add_after(key, Duration::ZERO);
        }
    }

    /// One guard for each store that holds the object; to be called before it is written.
    pub(crate) fn write_guards(&self, id: &ObjectId, writer: &Writer) -> Vec<WriteGuard> {
        let state = self.lock();
        let stores = state.scopes.all().map(|followed| &followed.store);
        let stores = stores.filter(|store| store.resource == id.resource && store.get(&id.key).is_some());
        stores.map(|store| store.writing(&id.key, writer)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Answers that do not fit beside the rules are asked for anew.
    fn shrink(&mut self, max: usize) {
        if self.answers.memory() + self.index.memory() > max {
            self.answers = CustomizeCache::default();
        }
    }
}

/// Fingerprint of the request about a state of a parent.
fn question(via: HookTransport, hooks: &LoadedHooks, parent: &Object) -> Fingerprint {
    match via {
        HookTransport::Wasm => question_to_module(hooks.identity, parent),
        HookTransport::Webhook => question_to_webhook(parent),
    }
}
