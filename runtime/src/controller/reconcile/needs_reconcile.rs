//! The parents of one kind that a controller looks at: how many, in which order, and which of them need a pass.

use std::sync::{Arc, MutexGuard};

use metahook_core::cache::trigger::{self, Selected};
use metahook_core::cache::{Cache, ObjectChange};
use metahook_core::object::Object;
use metahook_core::object::id::Key;
use metahook_core::settled::CacheRevision;

use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::hooks::Callees;
use crate::sync::lock;

impl Reconciler {
    /// Takes in that an object of the parents' kind changed; gives back which parent has to be looked at for that.
    pub(crate) fn learn_parent(&self, touched: &ObjectChange) -> Option<Key> {
        if let (true, Some(gone)) = (self.claimant.is_some(), touched.gone()) {
            self.tools.wishing.forget_object(&gone.uid);
        }
        trigger::on_parent(touched, &self.terms.selection, &mut self.selected())
    }

    /// Without a walk over them: it is asked every second.
    pub(crate) fn count_parents(&self) -> usize {
        if self.terms.selection.is_everything() {
            return self.parents.view(Cache::len);
        }
        self.selected().count()
    }

    pub(crate) fn parent_keys(&self) -> Vec<Key> {
        if self.terms.selection.is_everything() {
            return self.parents.view(|parents| parents.all().map(|parent| parent.key.clone()).collect());
        }
        self.selected().keys().cloned().collect()
    }

    /// At most so many behind this one, in order.
    pub(crate) fn parents_after(&self, last: Option<&Key>, most: usize) -> Vec<Arc<Object>> {
        self.parents.view(|parents| {
            if self.terms.selection.is_everything() {
                return parents.after(last).take(most).cloned().collect();
            }
            let selected = self.selected();
            selected.after(last).filter_map(|key| parents.get(key)).take(most).cloned().collect()
        })
    }

    /// Where the store's lock is held as well, that one comes first.
    fn selected(&self) -> MutexGuard<'_, Selected> {
        lock(&self.selected)
    }

    /// Of these parents, those that need a pass: about the others nothing changed since they came to rest, as far as that
    /// is known without looking at anything.
    pub(crate) fn restless(&self, parents: &[Arc<Object>]) -> Vec<Key> {
        // What is related has no number.
        let Some(callees) = self.hooks.now().ok().filter(|_| self.terms.hooks.customize.is_none()) else {
            return parents.iter().map(|parent| parent.key.clone()).collect();
        };
        let controllers = self.tools.controllers.changes();
        let stamp = |parent: &Arc<Object>| self.stamp(parent, &callees, controllers);
        let stamps: Vec<_> = parents.iter().map(stamp).collect();
        let mut standings = self.standings();
        let is_restless = |(parent, stamp): &(&Arc<Object>, CacheRevision)| {
            let rests = standings.rests(&parent.key, *stamp);
            if rests {
                tracing::debug!(controller = %self.object.key, parent = %parent.key, "at rest");
            }
            !rests
        };
        let restless: Vec<_> =
            parents.iter().zip(stamps).filter(is_restless).map(|(parent, _)| parent.key.clone()).collect();
        drop(standings);
        let resting = parents.len() - restless.len();
        self.meter.counts().skipped(u64::try_from(resting).unwrap_or(u64::MAX));
        restless
    }

    pub(crate) fn stamp(&self, parent: &Object, callees: &Callees, controllers: [u64; 2]) -> CacheRevision {
        let children = self.children.iter().flat_map(|store| store.view(|index| index.stamp(&parent.uid)));
        CacheRevision::of(parent, callees.identity, self.elders(parent), children.chain(controllers))
    }
}
