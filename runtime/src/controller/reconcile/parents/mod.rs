//! Parents of one kind: those that the controller selects, and what is remembered of each from reconcile to reconcile.

mod histories;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::reason::EventReason;
use metahook_core::cache::trigger::{self, Selected};
use metahook_core::cache::{Cache, ObjectChange};
use metahook_core::children::deletion_brake::Census;
use metahook_core::children::differing::{Differing, DifferingChildren};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Key, ObjectId, Uid};
use metahook_core::reconcile::changing_place::Unsettled;
use metahook_core::reconcile::plan::RolloutWait;
use metahook_core::rollout::waiting::WaitingRollouts;
use metahook_core::settled::first_failure::FirstFailure;
use metahook_core::settled::{CacheRevision, SettledParents};

use crate::controller::ControllerData;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::FollowedHooks;
use crate::controller::reconcile::held_back::ChangingPlaces;
use crate::sync::lock;
pub(crate) use histories::WriteHistories;
use warnings::ParentWarnings;

pub(crate) struct Parents {
    data: Arc<ControllerData>,
    hooks: Arc<FollowedHooks>,
    pub(crate) decorator: Option<Decorator>,
    /// The parents that the controller selects, where it does not select all.
    selected: Mutex<Selected>,
    outcomes: LastOutcomes,
    pub(crate) histories: WriteHistories,
    pub(super) changing: ChangingPlaces,
    warnings: ParentWarnings,
    differing: Mutex<DifferingChildren>,
    rollouts: Mutex<WaitingRollouts>,
}

/// Outcomes of the last reconcile of each parent.
struct LastOutcomes {
    settled: Mutex<SettledParents>,
    /// The failure of the first parent that fails. Its lock is taken within that of `settled`.
    first_failure: Mutex<FirstFailure>,
}

impl Parents {
    pub(crate) fn new(
        data: Arc<ControllerData>,
        hooks: Arc<FollowedHooks>,
        decorator: Option<Decorator>,
        purity_check: u64,
    ) -> Self {
        Self {
            data,
            hooks,
            decorator,
            selected: Mutex::default(),
            outcomes: LastOutcomes {
                settled: Mutex::new(SettledParents::new(purity_check)),
                first_failure: Mutex::default(),
            },
            histories: WriteHistories::default(),
            changing: ChangingPlaces::default(),
            warnings: ParentWarnings::default(),
            differing: Mutex::default(),
            rollouts: Mutex::default(),
        }
    }

    /// Observes a change of an object of the parents' kind; gives back the parent that it triggers.
    pub(crate) fn observe(&self, change: &ObjectChange) -> Option<Key> {
        if let (Some(decorator), Some(gone)) = (&self.decorator, change.gone()) {
            decorator.forget_object(&gone.uid);
        }
        trigger::on_parent(change, &self.data.config.selection, &mut lock(&self.selected))
    }

    /// Observes an object of the parents' kind that has changed in an unknown way; `now`: the object as it is.
    pub(crate) fn observe_forgotten(
        &self,
        key: &Key,
        gone: &BTreeSet<Uid>,
        now: Option<&Object>,
    ) -> Option<Key> {
        if let Some(decorator) = &self.decorator {
            for uid in gone {
                decorator.forget_object(uid);
            }
        }
        trigger::on_forgotten_parent(key, now, &self.data.config.selection, &mut lock(&self.selected))
    }

    /// Takes no walk over the parents: it is called every second.
    pub(crate) fn count(&self) -> usize {
        if self.data.config.selection.is_everything() {
            return self.data.parents.view(Cache::len);
        }
        lock(&self.selected).count()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        if self.data.config.selection.is_everything() {
            let keys = |parents: &Cache| parents.all().map(|parent| parent.key.clone()).collect();
            return self.data.parents.view(keys);
        }
        lock(&self.selected).keys().cloned().collect()
    }

    /// Parents after `last`, in order, at most `max`.
    pub(crate) fn after(&self, last: Option<&Key>, max: usize) -> Vec<Arc<Object>> {
        self.data.parents.view(|parents| {
            if self.data.config.selection.is_everything() {
                return parents.after(last).filter_map(CachedObject::whole).take(max).cloned().collect();
            }
            // The lock of the store is always taken before this one.
            let selected = lock(&self.selected);
            selected.after(last).filter_map(|key| parents.get(key)?.whole()).take(max).cloned().collect()
        })
    }

    /// The selected parents and the number of their children.
    pub(crate) fn census(&self, limits: &BrakeLimits) -> Census {
        let config = &self.data.config;
        let selects = |parent: &&Arc<Object>| config.selection.includes(parent);
        let parents: Vec<_> =
            self.data.parents.view(|parents| parents.all_whole().filter(selects).cloned().collect());
        let parents = parents.into_iter().map(|parent| (self.data.parent_id(&parent), parent));
        config.census(limits, parents, |parent, kind| self.data.candidates(parent, kind, None))
    }

    pub(crate) fn settled(&self) -> MutexGuard<'_, SettledParents> {
        lock(&self.outcomes.settled)
    }

    pub(crate) fn fail(&self, parent: &Key, failure: (&'static str, &str)) {
        let mut settled = self.settled();
        settled.fail(parent, failure.0);
        if settled.failing().first_key_value().is_some_and(|(first, _)| first == parent) {
            lock(&self.outcomes.first_failure).note(parent, failure, self.data.elapsed());
        }
    }

    /// The number of parents that fail, and how the first one does.
    pub(crate) fn failing(&self) -> (usize, Option<String>) {
        let settled = self.settled();
        let first = settled.failing().first_key_value().map(|(key, category)| {
            let first_failure = lock(&self.outcomes.first_failure);
            let why = first_failure.of(key, category).map_or_else(String::new, |why| format!(": {why}"));
            format!("{key} ({category}){why}")
        });
        (settled.failing().len(), first)
    }

    /// The parents that need a reconcile. The others settled, and no cache that they depend on changed since.
    pub(crate) fn needing_reconcile(&self, parents: &[Arc<Object>]) -> Vec<Key> {
        // Stores of related objects have no revision.
        let customizes = self.data.config.hooks.customize.is_some();
        let Some(hooks) = self.hooks.loaded().ok().filter(|_| !customizes) else {
            return parents.iter().map(|parent| parent.key.clone()).collect();
        };
        let controllers = self.data.controllers.changes();
        let revisions: Vec<_> =
            parents.iter().map(|parent| self.cache_revision(parent, hooks.identity, controllers)).collect();
        let mut settled = self.settled();
        let needs_reconcile = |(parent, revision): &(&Arc<Object>, CacheRevision)| {
            let is_settled = settled.is_settled(&parent.key, *revision);
            if is_settled {
                tracing::debug!(controller = %self.data.object.key, parent = %parent.key, "settled");
            }
            !is_settled
        };
        let found = parents.iter().zip(revisions).filter(needs_reconcile);
        let found: Vec<_> = found.map(|(parent, _)| parent.key.clone()).collect();
        drop(settled);
        let skipped = parents.len() - found.len();
        self.data.telemetry.meter.counts().skipped(u64::try_from(skipped).unwrap_or(u64::MAX));
        found
    }

    pub(crate) fn cache_revision(
        &self,
        parent: &Object,
        hooks: Fingerprint,
        controllers: [u64; 2],
    ) -> CacheRevision {
        let children =
            self.data.children.iter().flat_map(|store| store.view(|cache| cache.changes_for(&parent.uid)));
        let older_decorators = self.older_decorators(parent);
        CacheRevision::of(parent, hooks, older_decorators, children.chain(controllers))
    }

    /// The decorations of the parent that older decorators want; `None` for a CompositeController.
    pub(crate) fn older_decorators(&self, parent: &Object) -> Option<Fingerprint> {
        let decorator = self.decorator.as_ref()?;
        Some(decorator.older_decorators(&self.data.parents.resource.gvr(), parent))
    }

    /// Whether the controller reconciles this object.
    pub(crate) fn includes(&self, object: &Uid) -> bool {
        let selects = |object: &Arc<Object>| self.data.config.selection.includes(object);
        self.data
            .parents
            .view(|parents| parents.by_uid(object).and_then(CachedObject::whole).is_some_and(selects))
    }

    /// Forgets the decorations of an object that went while it was reconciled.
    pub(crate) fn forget_if_gone(&self, parent: &Uid) {
        if let Some(decorator) = &self.decorator
            && self.data.parents.view(|parents| parents.by_uid(parent).is_none())
        {
            decorator.forget_object(parent);
        }
    }

    /// Remembers which children of a parent are left although the answer has changed, and says so.
    pub(crate) fn note_differing(&self, parent: &Object, now: Option<&Differing>) {
        self.record_new(parent, EventReason::ChildrenDiffer, now.map(ToString::to_string));
        lock(&self.differing).note(&parent.key, now.cloned());
    }

    pub(crate) fn differing(&self) -> MutexGuard<'_, DifferingChildren> {
        lock(&self.differing)
    }

    /// The version of the hooks that is to be taken when a write begins: see [`Self::record_api_warnings`].
    pub(crate) fn hooks_version(&self) -> Option<Fingerprint> {
        self.hooks.identity()
    }

    /// Remembers whether the rollout of a parent waits for a child.
    pub(crate) fn note_rollout(&self, parent: &Key, wait: Option<&RolloutWait>) {
        lock(&self.rollouts).note(parent, wait.map(|wait| &wait.progress), self.data.elapsed());
    }

    /// The number of rollouts that have waited for the same child for long, and the first.
    pub(crate) fn waiting_rollouts(&self) -> (usize, Option<String>) {
        lock(&self.rollouts).long(self.data.elapsed())
    }

    /// Adds the parents that do not settle.
    pub(crate) fn add_unsettled(&self, unsettled: &mut Unsettled) {
        self.changing.add_to(unsettled);
    }

    /// The first parents that are held back, and why.
    pub(crate) fn first_throttled(&self, max: usize) -> Vec<(Key, String)> {
        self.changing.throttled(max)
    }

    /// The parents that are held back, as what is written for them triggers one reconcile after the other.
    pub(crate) fn throttled(&self) -> usize {
        self.changing.held_back()
    }

    /// To be called where the parent is gone, or no longer selected.
    pub(crate) fn forget(&self, parent: &Key) {
        self.histories.forget(parent);
        self.changing.forget(parent);
        lock(&self.differing).note(parent, None);
        self.warnings.forget(parent);
        lock(&self.rollouts).note(parent, None, Duration::ZERO);
        lock(&self.data.telemetry.causes).forget(parent);
        let id = ObjectId { resource: Arc::clone(&self.data.parents.resource), key: parent.clone() };
        self.data.brake.with(|brake, now| brake.forget(&id, now));
    }
}
