//! Related objects as passes see them: what the customize hook asks for, and whom its changes wake.

pub(super) mod scopes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use metahook_core::api::hook::{HookName, Via};
use metahook_core::api::reason::EventReason;
use metahook_core::hash::Fingerprint;
use metahook_core::hook::customize::{self, CustomizeError};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Gvr, Key, Resource, Uid};
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::plan::{HookConfig, ReconcileInput};
use metahook_core::related::customize_cache::{self, Answer, CustomizeCache};
use metahook_core::related::related_index::RelatedIndex;
use metahook_core::related::rule::{self, Asker, RelatedRule, RuleError};
use metahook_core::related::scopes::StoreScopes;
use metahook_core::related::selection::Related;
use metahook_core::settled::Purity;

use crate::cluster::discovery::DiscoveryError;
use crate::controller::Context;
use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::hooks::{Callees, HookError};
use crate::controller::related::scopes::{Followed, filled};
use crate::controller::runner::triggers;
use crate::queue::Queue;
use crate::store::{Change, Store, Stores};
use crate::sync::lock;

/// What one controller knows of related objects.
pub(crate) struct RelatedObjects {
    controller: Uid,
    parents: Arc<Resource>,
    queue: Arc<Queue<Key>>,
    pub(crate) stores: Arc<Stores>,
    /// Times are counted from here.
    pub(crate) start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    remembered: CustomizeCache,
    pub(crate) interests: RelatedIndex,
    pub(crate) places: StoreScopes<Followed>,
    /// Only where a rule selects namespaces.
    pub(crate) namespaces: Option<Arc<Store>>,
    /// Parents whose rules cannot be followed yet, and why.
    waiting: BTreeMap<Key, Wait>,
    /// Of which rules it was said last that requests do not show all that they find.
    told: BTreeMap<Key, Vec<(usize, Gvk)>>,
}

/// What a kind that a rule names has to become.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Served(Gvr),
    Listed(Gvr),
}

/// What the customize hook said about one parent, now or before.
pub(crate) struct Customized {
    answer: Answer,
    /// Whether the request alone brought it about; `None` where that is not known.
    pub(crate) pure: Option<bool>,
}

/// Whether an answer that is remembered will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    OnlyWhatIsNew,
    Anew,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RelatedError {
    #[error(transparent)]
    Hook(#[from] HookError),
    #[error("customize hook")]
    Answer(#[from] CustomizeError),
    #[error("customize hook")]
    Rule(#[from] RuleError),
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
            Self::Answer(_) | Self::Rule(_) => "HookAnswer",
            Self::Kind { .. } | Self::NotListed { .. } | Self::NotSynced { .. } => "Related",
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Hook(error) => error.retry(),
            Self::NotSynced { .. } => Retry::Quiet,
            Self::Kind { source, .. } => source.retry(),
            Self::Answer(_) | Self::Rule(_) | Self::NotListed { .. } => Retry::Loud,
        }
    }
}

impl Customized {
    /// What the hook answered.
    pub(crate) fn print(&self) -> Fingerprint {
        self.answer.print
    }
}

impl Reconciler {
    /// What the customize hook asks for about a parent. It is asked where its answer is not known already.
    async fn customize(
        &self,
        hook: &HookConfig,
        callees: &Callees,
        (parent, question): (&Object, Fingerprint),
        asking: Asking,
    ) -> Result<Customized, RelatedError> {
        let relations = &self.relations;
        let pure = match hook.via {
            Via::Wasm => Some(true),
            Via::Webhook => None,
        };
        let anew = asking == Asking::Anew
            || (hook.via == Via::Wasm
                && self.standings().purity_of(callees.identity) == Some(Purity::Differs));
        let recall = || relations.lock().remembered.recall(&parent.key, question, relations.start.elapsed());
        if !anew && let Some(answer) = recall() {
            return Ok(Customized { answer, pure });
        }
        let request = self.terms.customize_request(parent);
        let answered = self.ask(callees, HookName::Customize, parent, request).await?;
        let customize::Response { rules, warnings } = customize::rules(&answered.bytes, hook.via, hook.mode)?;
        for odd in warnings {
            tracing::debug!(controller = %self.object.key, parent = %parent.key, "the customize hook's answer {odd}");
        }
        let answer = Answer { rules: rules.into(), print: Fingerprint::of(&answered.bytes) };
        let until = match (hook.via, answered.pure) {
            (Via::Webhook, _) => Some(Some(relations.start.elapsed() + customize_cache::WEBHOOK)),
            (Via::Wasm, Some(true)) => Some(None),
            (Via::Wasm, Some(false) | None) => None,
        };
        if let Some(until) = until {
            relations.lock().remembered.keep(&parent.key, question, answer.clone(), until);
        }
        Ok(Customized { answer, pure: answered.pure })
    }

    /// The objects that the rules of a parent find, and of the older states of it that its children are at. From here on
    /// their changes wake it.
    pub(crate) async fn related(
        &self,
        callees: &Callees,
        states: &[Arc<Object>],
        asking: Asking,
    ) -> Result<(Vec<Related>, Vec<Customized>), RelatedError> {
        let Some(hook) = &self.terms.hooks.customize else {
            return Ok((states.iter().map(|_| Related::default()).collect(), Vec::new()));
        };
        let questions: Vec<_> = states.iter().map(|state| question(hook.via, callees, state)).collect();
        if let Some(parent) = states.first() {
            let (all, now) = (questions.iter().copied().collect(), self.relations.start.elapsed());
            self.relations.lock().remembered.keep_only(&parent.key, &all, now);
        }
        let (mut asked, mut rules) = (Vec::new(), Vec::new());
        for (state, question) in states.iter().zip(questions) {
            let customized = self.customize(hook, callees, (state, question), asking).await?;
            rules.push(self.rules(hook, state, &customized).await?);
            asked.push(customized);
        }
        let all = || rules.iter().flat_map(|rules| rules.iter().enumerate());
        let namespaces = match all().find(|(_, rule)| rule.namespace_selector().is_some()) {
            Some((at, _)) => Some((at, self.namespaces(at).await?)),
            None => None,
        };
        let stores: Vec<_> = all().map(|(at, rule)| (at, self.store(rule))).collect();
        // Before anything is looked at: whatever changes from now on is told.
        if let Some(parent) = states.first() {
            self.relations.lock().interests.set(&parent.key, rules.concat());
            for (at, store) in stores.iter().chain(&namespaces).filter(|(_, store)| !store.is_synced()) {
                self.relations.wait(parent, Wait::Listed(store.resource().gvr()));
                filled(*at, store).await?;
            }
            self.relations.lock().waiting.remove(&parent.key);
        }
        let namespaces = namespaces.map(|(_, store)| store);
        let select = |rule: &RelatedRule| {
            let within = rule.namespace_selector().zip(namespaces.as_ref());
            let within = within.map(|(selector, store)| store.view(|all| rule::namespaces(selector, all)));
            self.store(rule).view(|all| rule.select(all, &within.unwrap_or_default()))
        };
        let related = states.iter().zip(&rules).map(|(state, rules)| Related::find(state, rules, select));
        Ok((related.collect(), asked))
    }

    async fn rules(
        &self,
        hook: &HookConfig,
        parent: &Object,
        customized: &Customized,
    ) -> Result<Vec<RelatedRule>, RelatedError> {
        let asker = Asker { version: hook.version, parent_namespace: &parent.key.namespace };
        let mut rules = Vec::with_capacity(customized.answer.rules.len());
        for (at, asked) in customized.answer.rules.iter().enumerate() {
            let resource = self.tools.discovery.resolve(&asked.gvr).await;
            let resource = resource.map_err(|source| {
                self.relations.wait(parent, Wait::Served(asked.gvr.clone()));
                RelatedError::Kind { at, source }
            })?;
            rules.push(asked.rule(at, &resource, asker)?);
        }
        Ok(rules)
    }

    /// Wakes whose rules name a kind that is served from now on.
    pub(crate) async fn wake_where_kinds_appear(&self) {
        let mut changes = self.tools.discovery.changes();
        while changes.changed().await.is_ok() {
            let waits: BTreeSet<_> = self.relations.lock().waiting.values().cloned().collect();
            for wait in waits {
                if let Wait::Served(gvr) = &wait
                    && self.tools.discovery.resolve(gvr).await.is_ok()
                {
                    self.relations.over(&wait);
                }
            }
        }
    }

    /// Says, once until the rules are others, what the hook is not shown because its version has no names for it.
    pub(crate) fn tell_hidden(&self, seen: &ReconcileInput) {
        let Some(hook) = self.terms.hooks.get(seen.ask) else { return };
        let (parent, hidden) = (&seen.parent, seen.related.hidden(hook.version.naming()));
        let which: Vec<_> = hidden.iter().map(|rule| (rule.at, rule.gvk.clone())).collect();
        let before = {
            let told = &mut self.relations.lock().told;
            if which.is_empty() {
                told.remove(&parent.key)
            } else {
                told.insert(parent.key.clone(), which.clone())
            }
        };
        if which.is_empty() || before == Some(which) {
            return;
        }
        let rules: Vec<_> = hidden.iter().map(ToString::to_string).collect();
        let message = format!(
            "The {} hook is not shown what the customize hook asked for outside of namespace {}: {}. Declare version v2 for it and for customize",
            seen.ask,
            parent.key.namespace,
            rules.join(", ")
        );
        self.tools.recorder.record(parent, EventReason::RelatedHidden, &message);
    }
}

impl RelatedObjects {
    /// What all controllers read is shared; one that has an `account` reads with the rights of that, out of stores of its own.
    pub(crate) fn new(
        (controller, parents): (Uid, Arc<Resource>),
        queue: Arc<Queue<Key>>,
        tools: &Context,
        account: bool,
    ) -> Self {
        let stores = Arc::clone(&tools.stores);
        // The rights to read may end at a namespace: no more is read than a rule may find.
        let state = State { interests: RelatedIndex::new(account), ..State::default() };
        Self { controller, parents, queue, stores, start: Instant::now(), state: Mutex::new(state) }
    }

    /// The parent is gone, or no longer this controller's.
    pub(crate) fn forget(&self, parent: &Key) {
        let mut state = self.lock();
        state.remembered.forget(parent);
        state.interests.remove(parent);
        state.waiting.remove(parent);
        state.told.remove(parent);
    }

    /// Why what was listed cannot be watched any more.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        state
            .places
            .all()
            .map(Followed::store)
            .filter(|store| store.is_synced())
            .find_map(|store| store.trouble())
    }

    fn wait(&self, parent: &Object, wait: Wait) {
        self.lock().waiting.insert(parent.key.clone(), wait);
    }

    /// What parents waited for has come: their failures lie in the past.
    pub(crate) fn over(&self, wait: &Wait) {
        let over = |(_, waits): &(&Key, &Wait)| waits == &wait;
        let keys: Vec<_> = self.lock().waiting.iter().filter(over).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.queue.add_fresh(key, Duration::ZERO);
        }
    }

    pub(crate) fn wake(&self, resource: &Arc<Resource>, change: &Change) {
        let touched = &change.touched;
        let keys = {
            let state = self.lock();
            let namespace = |name: &str| state.namespaces.as_ref()?.get(&Key::new("", name));
            let mut keys = state.interests.on_object(resource, touched, namespace);
            if state.namespaces.as_ref().is_some_and(|store| store.resource() == resource) {
                keys.append(&mut state.interests.on_namespace(touched));
            }
            keys
        };
        triggers::wake(&self.queue, keys, change, (&self.controller, &self.parents));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// What a hook is asked about a state of a parent.
fn question(via: Via, callees: &Callees, parent: &Object) -> Fingerprint {
    match via {
        Via::Wasm => customize_cache::to_module(callees.identity, parent),
        Via::Webhook => customize_cache::to_webhook(parent),
    }
}
