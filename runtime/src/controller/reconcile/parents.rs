//! Parents of one kind: those that the controller selects, in order, and those that need a reconcile.

use std::sync::{Arc, Mutex, MutexGuard};

use metahook_core::cache::trigger::{self, Selected};
use metahook_core::cache::{Cache, ObjectChange};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Key, Uid};
use metahook_core::settled::{CacheRevision, SettledParents};

use crate::controller::data::ControllerData;
use crate::controller::decorator_conflicts::Decorator;
use crate::controller::hooks::{Hooks, LoadedHooks};
use crate::sync::lock;

pub(crate) struct Parents {
    data: Arc<ControllerData>,
    hooks: Arc<Hooks>,
    decorator: Option<Decorator>,
    /// The parents that the controller selects, where it does not select all.
    selected: Mutex<Selected>,
    settled: Mutex<SettledParents>,
}

impl Parents {
    pub(crate) fn new(
        data: Arc<ControllerData>,
        hooks: Arc<Hooks>,
        decorator: Option<Decorator>,
        purity_check: u64,
    ) -> Self {
        let settled = Mutex::new(SettledParents::new(purity_check));
        Self { data, hooks, decorator, selected: Mutex::default(), settled }
    }

    /// Observes a change of an object of the parents' kind; gives back the parent that it triggers.
    pub(crate) fn observe(&self, change: &ObjectChange) -> Option<Key> {
        if let (Some(decorator), Some(gone)) = (&self.decorator, change.gone()) {
            decorator.forget_object(&gone.uid);
        }
        trigger::on_parent(change, &self.data.config.selection, &mut lock(&self.selected))
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

    /// At most so many parents after this one, in order.
    pub(crate) fn after(&self, last: Option<&Key>, max: usize) -> Vec<Arc<Object>> {
        self.data.parents.view(|parents| {
            if self.data.config.selection.is_everything() {
                return parents.after(last).take(max).cloned().collect();
            }
            // The lock of the store is always taken before this one.
            let selected = lock(&self.selected);
            selected.after(last).filter_map(|key| parents.get(key)).take(max).cloned().collect()
        })
    }

    pub(crate) fn settled(&self) -> MutexGuard<'_, SettledParents> {
        lock(&self.settled)
    }

    /// The parents that need a reconcile. The others settled, and no cache that they depend on changed since.
    pub(crate) fn needing_reconcile(&self, parents: &[Arc<Object>]) -> Vec<Key> {
        // Stores of related objects have no revision.
        let customizes = self.data.config.hooks.customize.is_some();
        let Some(hooks) = self.hooks.now().ok().filter(|_| !customizes) else {
            return parents.iter().map(|parent| parent.key.clone()).collect();
        };
        let controllers = self.data.controllers.changes();
        let revisions: Vec<_> =
            parents.iter().map(|parent| self.cache_revision(parent, &hooks, controllers)).collect();
        let mut settled = self.settled();
        let needs_reconcile = |(parent, revision): &(&Arc<Object>, CacheRevision)| {
            let is_settled = settled.is_settled(&parent.key, *revision);
            if is_settled {
                tracing::debug!(controller = %self.data.object.key, parent = %parent.key, "at rest");
            }
            !is_settled
        };
        let found = parents.iter().zip(revisions).filter(needs_reconcile);
        let found: Vec<_> = found.map(|(parent, _)| parent.key.clone()).collect();
        drop(settled);
        let skipped = parents.len() - found.len();
        self.data.meter.counts().skipped(u64::try_from(skipped).unwrap_or(u64::MAX));
        found
    }

    pub(crate) fn cache_revision(
        &self,
        parent: &Object,
        hooks: &LoadedHooks,
        controllers: [u64; 2],
    ) -> CacheRevision {
        let children =
            self.data.children.iter().flat_map(|store| store.view(|cache| cache.changes_for(&parent.uid)));
        let older_decorators = self.older_decorators(parent);
        CacheRevision::of(parent, hooks.identity, older_decorators, children.chain(controllers))
    }

    /// The decorations of the parent that older decorators want; `None` for a CompositeController.
    pub(crate) fn older_decorators(&self, parent: &Object) -> Option<Fingerprint> {
        let decorator = self.decorator.as_ref()?;
        Some(decorator.older_decorators(&self.data.parents.resource.gvr(), parent))
    }

    /// Whether the controller reconciles this object.
    pub(crate) fn includes(&self, object: &Uid) -> bool {
        let selects = |object: &Arc<Object>| self.data.config.selection.includes(object);
        self.data.parents.view(|parents| parents.by_uid(object).is_some_and(selects))
    }

    /// Forgets the decorations of an object that went while it was reconciled.
    pub(crate) fn forget_if_gone(&self, parent: &Uid) {
        if let Some(decorator) = &self.decorator
            && self.data.parents.view(|parents| parents.by_uid(parent).is_none())
        {
            decorator.forget_object(parent);
        }
    }
}
