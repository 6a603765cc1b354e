//! The controllers that run on this server, as the inspection address shows them: see [`ControllerOverview`].

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use metahook_core::api::ControllerKind;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::overview::counts::ControllerCounts;
use metahook_core::overview::parent_list::{ParentFilter, ParentList};
use metahook_core::overview::reader::{FailingParents, MAX_NAMED, ParentReader};
use metahook_core::overview::{
    CallNumbers, ControllerOverview, MemoryNumbers, NamedParents, ParentNumbers, QueueNumbers,
    ThrottledParent,
};
use metahook_core::settled::parent_state::ParentState;
use tokio::time::Instant;

use crate::controller::Context;
use crate::controller::reconcile::Reconciler;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::memory::MemoryBudget;
use crate::queue::{Queue, QueueFigures};
use crate::store::budget::CacheBudget;
use crate::sync::lock;

/// Each page that is open asks every few seconds; parents by name are read once for all of them.
const MAX_NAMED_AGE: Duration = Duration::from_secs(2);

/// Parents whose states are read at once: no reconcile of the controller ends meanwhile.
const MAX_LOCKED: usize = 1000;

/// The controllers, as long as their owners hold them.
#[derive(Clone, Default)]
pub(crate) struct RunningControllers(Arc<Mutex<Vec<Weak<RunningParts>>>>);

/// Parts of one controller whose workers run.
pub(crate) struct RunningParts {
    kind: ControllerKind,
    name: String,
    /// One for each kind of parents.
    parts: Vec<(Arc<Reconciler>, Arc<Queue<Key>>)>,
    memory: MemoryBudget,
    caches: CacheBudget,
    /// Parents by name as they were read last.
    named: Mutex<Option<(Instant, NamedParents)>>,
}

impl RunningControllers {
    /// It is found as long as what is given back is held.
    pub(crate) fn add(
        &self,
        context: &Context,
        (kind, name): (ControllerKind, &str),
        parts: &[ParentQueue],
    ) -> Arc<RunningParts> {
        let parts = parts.iter().map(|part| (Arc::clone(&part.reconciler), Arc::clone(&part.queue)));
        let running = Arc::new(RunningParts {
            kind,
            name: name.to_owned(),
            parts: parts.collect(),
            memory: context.memory.clone(),
            caches: context.cluster.stores.budget().clone(),
            named: Mutex::default(),
        });
        let mut all = lock(&self.0);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&running));
        running
    }

    pub(crate) fn find(&self, kind: ControllerKind, name: &str) -> Option<Arc<RunningParts>> {
        let is = |one: &Arc<RunningParts>| one.kind == kind && one.name == name;
        lock(&self.0).iter().filter_map(Weak::upgrade).find(is)
    }

    /// All controllers of a kind.
    pub(crate) fn all(&self, kind: ControllerKind) -> Vec<Arc<RunningParts>> {
        let all = lock(&self.0);
        all.iter().filter_map(Weak::upgrade).filter(|one| one.kind == kind).collect()
    }
}

impl RunningParts {
    /// The kinds of its parents.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.parts.iter().map(|(reconciler, _)| &reconciler.data.parents.resource)
    }

    /// Whether the parent is there: its trace outlives it.
    fn has(&self, parent: &ObjectId) -> bool {
        let stores = self.parts.iter().map(|(reconciler, _)| &reconciler.data.parents);
        stores.filter(|store| store.resource == parent.resource).any(|store| store.get(&parent.key).is_some())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A page of the list of its parents.
    pub(crate) fn list(&self, filter: &ParentFilter) -> ParentList {
        let mut found = Vec::new();
        for (reconciler, _) in &self.parts {
            let keys = reconciler.parents.keys().into_iter();
            let named: Vec<_> = keys.filter(|key| filter.is_named(&key.namespace, &key.name)).collect();
            for (key, (state, category)) in states(reconciler, named) {
                if filter.has_state(state) {
                    let resource = Arc::clone(&reconciler.data.parents.resource);
                    found.push((ObjectId { resource, key }, state, category));
                }
            }
        }
        filter.page(found, |parent| self.parts.first()?.0.data.telemetry.traces.latest_of(parent))
    }

    /// Counts of the controller, for rates.
    pub(crate) fn counts(&self) -> ControllerCounts {
        let first = self.parts.first();
        first.map(|(first, _)| ControllerCounts::of(&first.data.telemetry.meter.counts())).unwrap_or_default()
    }

    /// Parents by name, as they were at most [`MAX_NAMED_AGE`] ago.
    fn named(&self) -> NamedParents {
        // The lock is held while they are read: requests at the same time share them.
        let mut kept = lock(&self.named);
        if let Some((_, named)) = kept.as_ref().filter(|(read, _)| read.elapsed() < MAX_NAMED_AGE) {
            return named.clone();
        }
        let (now, named) = (Instant::now(), self.read_named());
        *kept = Some((now, named.clone()));
        named
    }

    fn read_named(&self) -> NamedParents {
        let mut failing = FailingParents::new();
        for (reconciler, _) in &self.parts {
            let now = reconciler.parents.settled().failing().clone();
            let resource = &reconciler.data.parents.resource;
            let id = |key: Key| ObjectId { resource: Arc::clone(resource), key };
            failing.extend(now.into_iter().map(|(key, category)| (id(key), category)));
        }
        let mut reader = ParentReader::default();
        let traces =
            self.parts.first().map(|(first, _)| first.data.telemetry.traces.latest()).unwrap_or_default();
        for (parent, trace) in traces.read().filter(|(parent, _)| self.has(parent)) {
            reader.read(&parent, &trace, &mut failing);
        }
        NamedParents { throttled: self.throttled(), ..reader.end(&failing) }
    }

    /// The first parents that have to wait.
    fn throttled(&self) -> Vec<ThrottledParent> {
        let of_part = |(reconciler, queue): &(Arc<Reconciler>, Arc<Queue<Key>>)| {
            let resource = &reconciler.data.parents.resource;
            let throttled = reconciler.parents.first_throttled(MAX_NAMED).into_iter();
            let named = throttled.map(|(key, why)| {
                let next = queue.due_in(&key).map(|next| u64::try_from(next.as_millis()).unwrap_or(u64::MAX));
                let parent = ObjectId { resource: Arc::clone(resource), key }.to_string();
                ThrottledParent { parent, why, next_millis: next }
            });
            named.collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of_part).take(MAX_NAMED).collect()
    }

    /// `shows_names`: parents are named, with the messages of their reconciles.
    pub(crate) fn overview(&self, shows_names: bool) -> ControllerOverview {
        let Some((first, _)) = self.parts.first() else { return ControllerOverview::default() };
        let (traces, memory) = (first.data.telemetry.traces.bytes(), self.memory.figures());
        let caches = self.caches.figures();
        let (mut parents, mut queue) = (ParentNumbers::default(), QueueFigures::default());
        for (reconciler, keys) in &self.parts {
            queue.merge(&keys.figures());
            parents.all += reconciler.parents.count();
            parents.throttled += reconciler.parents.throttled();
            let settled = reconciler.parents.settled();
            parents.settled += settled.settled();
            parents.failing += settled.failing().len();
            parents.paused += settled.paused();
        }
        let metrics = first.data.telemetry.meter.counts().clone();
        ControllerOverview {
            parents,
            queue: QueueNumbers {
                waiting: queue.depth,
                running: queue.running,
                longest_seconds: queue.longest,
                later: queue.later,
            },
            calls: CallNumbers::of(&metrics.calls),
            reconciles: metrics.reconciles.iter().map(|(it, sum)| (it.as_str().to_owned(), *sum)).collect(),
            writes: metrics.writes.iter().map(|(it, sum)| ((*it).to_owned(), *sum)).collect(),
            memory: MemoryNumbers {
                reserved: memory.reserved,
                budget: memory.budget,
                waits: memory.waits,
                traces: traces.of_controller,
                all_traces: traces.all,
                max_traces: traces.max,
                caches: caches.held.values().sum(),
                max_caches: caches.budget,
            },
            named: shows_names.then(|| self.named()),
        }
    }
}

/// The states of parents with the categories of their failures.
fn states(
    reconciler: &Reconciler,
    keys: Vec<Key>,
) -> impl Iterator<Item = (Key, (ParentState, &'static str))> {
    let mut states = Vec::with_capacity(keys.len());
    for some in keys.chunks(MAX_LOCKED) {
        let settled = reconciler.parents.settled();
        states.extend(some.iter().map(|key| settled.state(key)));
    }
    keys.into_iter().zip(states)
}
