//! Reconciles by the core's sequence: events of watches queue parents, which are worked off one after the other.

use std::sync::Arc;

use metahook_core::api::PAUSED;
use metahook_core::cache::trigger::{self, Selected};
use metahook_core::cache::{CacheEvent, ObjectChange};
use metahook_core::children::Op;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::reconcile::outcome::Changed;
use metahook_core::reconcile::sequence::{Start, reconcile};
use metahook_core::reconcile::steps::Step;
use metahook_core::reconcile::watched::Watched;

use crate::deed::WatchOf;
use crate::model::Conflict;
use crate::server::{Saving, Server};
use crate::world::{ModelWorld, at_once};

/// No case takes more reconciles to settle.
const MAX_RECONCILES: usize = 500;
const MAX_FAILURES: usize = 20;

impl Server {
    /// Resumes all, works everything off, and looks at every parent once more.
    pub(crate) fn settle_all(&mut self) {
        (0..3).for_each(|parent| self.pause(parent, false));
        self.work();
        self.resync();
        self.work();
    }

    pub(crate) fn resync(&mut self) {
        self.queue.extend(self.parents.all().map(|parent| parent.key.clone()));
    }

    pub(crate) fn work(&mut self) {
        let mut failures = 0;
        for _ in 0..MAX_RECONCILES {
            let all = [WatchOf::Parents, WatchOf::Children, WatchOf::Settings, WatchOf::Revisions];
            while all.into_iter().any(|of| self.deliver(of)) {}
            let Some(key) = self.queue.pop_first() else { return };
            self.reconcile_parent(&key);
            // Where a stranger holds the name of a child, trying again does not help.
            if self.settled.failing().contains_key(&key) {
                failures += 1;
                if failures > MAX_FAILURES {
                    self.queue.remove(&key);
                }
            }
        }
        unreachable!("it does not settle");
    }

    /// One event of a watch; false where there is none.
    pub(crate) fn deliver(&mut self, of: WatchOf) -> bool {
        let (kind, index) = match of {
            WatchOf::Parents => (&self.parent_kind, &mut self.parents),
            WatchOf::Children => (&self.child_kind, &mut self.children),
            WatchOf::Settings => (&self.setting_kind, &mut self.settings),
            WatchOf::Revisions => (&self.revision_kind, &mut self.revisions),
        };
        let Some(event) = self.cluster.next_event(kind) else { return false };
        let touched = index.apply(event);
        self.trigger(&touched, of, None);
        true
    }

    pub(crate) fn trigger(&mut self, touched: &[ObjectChange], of: WatchOf, but: Option<&Key>) {
        for touched in touched {
            let keys = match of {
                WatchOf::Parents => {
                    let selected = &mut Selected::default();
                    trigger::on_parent(touched, &self.config.selection, selected).into_iter().collect()
                }
                WatchOf::Children | WatchOf::Revisions => {
                    trigger::on_child(touched, &self.parents, None).into_iter().collect()
                }
                WatchOf::Settings => self.related_index.on_object(&self.setting_kind, touched, |_| None),
            };
            self.queue.extend(keys.into_iter().filter(|key| Some(key) != but));
        }
    }

    /// A reconcile of one parent, with the model in the place of the API server.
    pub(crate) fn reconcile_parent(&mut self, key: &Key) {
        let Some(parent) = self.parents.get(key).and_then(CachedObject::whole).cloned() else {
            self.related_index.remove(key);
            return self.settled.forget(key);
        };
        if self.saving == Saving::Nothing {
            self.settled.unsettle(key);
        }
        let is_paused = parent.annotations().get(PAUSED).is_some_and(|value| value == "true");
        let world = ModelWorld::new(self);
        let watched = Watched::new(&world);
        let report = at_once(reconcile(&watched, parent, Start::default()));
        let steps = watched.steps();
        check_order(&steps, &self.revision_kind);
        assert!(!is_paused || steps.is_empty(), "paused: {steps:?}");
        self.steps = steps;
        match report.result {
            Ok(Changed::Nothing) => {}
            Ok(_) => drop(self.queue.insert(key.clone())),
            Err(_) => {
                self.settled.fail(key, "Conflict");
                self.queue.insert(key.clone());
            }
        }
    }

    /// Carries out an operation for a parent; gives back the object.
    pub(crate) fn write(&mut self, op: &Op, parent: &Key) -> Result<Option<Arc<Object>>, Conflict> {
        let resource = &op.id().resource;
        let of = match () {
            () if *resource == self.parent_kind => WatchOf::Parents,
            () if *resource == self.revision_kind => WatchOf::Revisions,
            () => WatchOf::Children,
        };
        let mut answer = None;
        for event in self.cluster.carry_out(op)? {
            if let CacheEvent::Wrote(object) = &event {
                answer = Some(Arc::clone(object));
            }
            let touched = match of {
                WatchOf::Parents => self.parents.apply(event),
                WatchOf::Revisions => self.revisions.apply(event),
                WatchOf::Children | WatchOf::Settings => self.children.apply(event),
            };
            self.trigger(&touched, of, Some(parent));
        }
        Ok(answer)
    }

    /// Reads a child that the cache holds by its metadata alone. What is gone is left to its event.
    pub(crate) fn read(&mut self, id: &ObjectId, parent: &Key) {
        self.reads += 1;
        let event = match self.cluster.get(id) {
            Some(now) => CacheEvent::Read(Arc::new(now)),
            None => CacheEvent::Missing(id.key.clone(), self.children.get(&id.key).unwrap().uid.clone()),
        };
        let touched = self.children.apply(event);
        self.trigger(&touched, WatchOf::Children, Some(parent));
    }
}

/// The order in which a crash at any point harms nothing: claims before the hook is asked, the hook before the plan, the plan
/// before what it writes; and of that, revisions first, then deletions of children, then their other writes, then the status.
fn check_order(steps: &[Step], revisions: &Resource) {
    let rank = |step: &Step| match step {
        Step::Finalizers => 0,
        Step::Related(_) | Step::Read(_) => 1,
        Step::Claimed(..) => 2,
        Step::Asked { is_older: false, .. } => 3,
        Step::Asked { is_older: true, .. } => 4,
        Step::RecordedDeletions => 5,
        Step::Planned { .. } => 6,
        Step::Wrote { id, .. } if *id.resource == *revisions => 7,
        Step::Wrote { verb: "delete", .. } => 8,
        Step::Wrote { verb: "status", .. } | Step::StatusLeft(_) | Step::LeftFields(_) => 10,
        Step::Tried(_) | Step::Wrote { .. } => 9,
        Step::DeletedRelated(..) => 11,
        // Nothing of a plan that is held is written.
        Step::Held(_) => 12,
    };
    let ranks: Vec<_> = steps.iter().map(rank).collect();
    assert!(ranks.is_sorted(), "out of order: {steps:?}");
}
