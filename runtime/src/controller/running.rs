//! The controllers that run on this server, as the inspection address shows them: see [`ControllerOverview`].

use std::sync::{Arc, Mutex, Weak};

use metahook_core::api::ControllerKind;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::overview::parent_list::{ParentFilter, ParentList};
use metahook_core::overview::reader::{FailingParents, MAX_NAMED, ParentReader};
use metahook_core::overview::{
    CallNumbers, ControllerOverview, MemoryNumbers, NamedParents, ParentNumbers, QueueNumbers,
    ThrottledParent,
};

use crate::controller::Context;
use crate::controller::reconcile::Reconciler;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::memory::MemoryBudget;
use crate::queue::{Queue, QueueFigures};
use crate::sync::lock;

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
        let (parts, memory) = (parts.collect(), context.memory.clone());
        let running = Arc::new(RunningParts { kind, name: name.to_owned(), parts, memory });
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
            let keys = reconciler.parents.keys();
            let settled = reconciler.parents.settled();
            for key in keys {
                let (state, category) = settled.state(&key);
                if filter.includes(&key.namespace, &key.name, state) {
                    let resource = Arc::clone(&reconciler.data.parents.resource);
                    found.push((ObjectId { resource, key }, state, category));
                }
            }
        }
        let traces = self.parts.first().map(|(first, _)| first.data.traces.latest()).unwrap_or_default();
        filter.page(found, |parent| traces.of(parent))
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
        let (traces, memory) = (first.data.traces.bytes(), self.memory.figures());
        let mut failing = FailingParents::new();
        let (mut parents, mut queue) = (ParentNumbers::default(), QueueFigures::default());
        for (reconciler, keys) in &self.parts {
            queue.merge(&keys.figures());
            parents.all += reconciler.parents.count();
            parents.throttled += reconciler.parents.throttled();
            let settled = reconciler.parents.settled();
            parents.settled += settled.settled();
            parents.failing += settled.failing().len();
            parents.paused += settled.paused();
            if shows_names {
                let resource = &reconciler.data.parents.resource;
                let id = |key: &Key| ObjectId { resource: Arc::clone(resource), key: key.clone() };
                failing.extend(settled.failing().iter().map(|(key, category)| (id(key), *category)));
            }
        }
        let metrics = first.data.meter.counts().clone();
        let named = shows_names.then(|| {
            let mut reader = ParentReader::default();
            let traces = first.data.traces.latest();
            for (parent, trace) in traces.read().filter(|(parent, _)| self.has(parent)) {
                reader.read(&parent, &trace, &mut failing);
            }
            NamedParents { throttled: self.throttled(), ..reader.end(&failing) }
        });
        ControllerOverview {
            parents,
            queue: QueueNumbers {
                waiting: queue.depth,
                running: queue.running,
                longest_seconds: queue.longest,
                later: queue.later,
            },
            calls: CallNumbers::of(&metrics),
            reconciles: metrics.reconciles.iter().map(|(it, sum)| (it.as_str().to_owned(), *sum)).collect(),
            writes: metrics.writes.iter().map(|(it, sum)| ((*it).to_owned(), *sum)).collect(),
            memory: MemoryNumbers {
                reserved: memory.reserved,
                budget: memory.budget,
                waits: memory.waits,
                traces: traces.of_controller,
                all_traces: traces.all,
                max_traces: traces.max,
            },
            named,
        }
    }
}
