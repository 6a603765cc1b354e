//! What the decorators of this server want of the same objects: said to each other, and who is woken by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use metahook_core::api::reason::EventReason;
use metahook_core::api::selection::Selection;
use metahook_core::decorator::Decoration;
use metahook_core::decorator::conflicts::{Conflict, DecoratorConflicts, DecoratorId, Resolution};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, Uid};

use crate::cluster::events::Recorder;
use crate::controller::reconcile::Reconciler;
use crate::queue::Queue;
use crate::store::Store;
use crate::sync::lock;

#[derive(Default)]
pub(crate) struct DecoratorCoordinator(Mutex<State>);

#[derive(Default)]
struct State {
    wishes: DecoratorConflicts,
    running: BTreeMap<DecoratorId, Running>,
    told: Told,
}

/// The conflicts that were told of both controllers, by the older and the younger, as prints: who has many has long ones.
#[derive(Default)]
struct Told(BTreeMap<(DecoratorId, DecoratorId), BTreeSet<Fingerprint>>);

struct Running {
    controller: Arc<Object>,
    looks_at: Vec<(Weak<Store>, Weak<Queue<Key>>)>,
}

/// So many are told of the same two controllers: whoever wants something else each time would fill the memory.
const MOST_TOLD: usize = 100;

impl DecoratorCoordinator {
    /// A controller is about these objects from now on, whether it works already or is about to: younger ones wait for it.
    pub(crate) fn host(&self, controller: &Arc<Object>, targets: Vec<(Gvr, Selection)>) {
        let mut state = self.lock();
        let who = DecoratorId::of(controller);
        let again = state.wishes.host(who.clone(), targets);
        state.running.insert(who, Running { controller: Arc::clone(controller), looks_at: Vec::new() });
        state.wake(again);
    }

    /// The controller works, and its objects are known: what it said of others is forgotten.
    pub(crate) fn begin(&self, who: &DecoratorId, is_its: impl Fn(&Uid) -> bool) {
        let mut state = self.lock();
        let again = state.wishes.begin(who, is_its);
        state.wake(again);
    }

    /// The controller works: its objects are there, and so they are queued.
    pub(crate) fn works(&self, who: &DecoratorId, parents: &Arc<Store>, queue: &Arc<Queue<Key>>) {
        if let Some(running) = self.lock().running.get_mut(who) {
            running.looks_at.retain(|(_, queue)| queue.strong_count() > 0);
            running.looks_at.push((Arc::downgrade(parents), Arc::downgrade(queue)));
        }
    }

    /// The controller has ended, or cannot start: what it wanted is nobody's business any more.
    pub(crate) fn end(&self, controller: &Object) {
        let mut state = self.lock();
        let who = DecoratorId::of(controller);
        if state.running.remove(&who).is_none() {
            return;
        }
        state.told.forget(&who);
        let again = state.wishes.forget_controller(&who);
        state.wake(again);
    }

    /// What of a wish may be written; whom it concerns is woken, and conflicts are told on both controllers.
    pub(crate) fn say(
        &self,
        target: &Gvr,
        object: &Object,
        (who, wish): (&Arc<DecoratorId>, &Decoration),
        recorder: &Recorder,
    ) -> Resolution {
        let mut state = self.lock();
        let mut verdict = state.wishes.say(target, object, who, wish);
        state.wake_for(&object.uid, std::mem::take(&mut verdict.again));
        for conflict in &verdict.conflicts {
            if state.told.is_news(conflict) {
                let message = format!("{conflict}, of {} {} for example", object.gvk.kind, object.key);
                for side in [&conflict.has, &conflict.leaves] {
                    if let Some(running) = state.running.get(side) {
                        recorder.record(&running.controller, EventReason::DecoratorsConflict, &message);
                    }
                }
            }
        }
        verdict
    }

    /// A pass came to no answer.
    pub(crate) fn passed(&self, object: &Uid, who: &Arc<DecoratorId>) {
        let mut state = self.lock();
        let again = state.wishes.passed(object, who);
        state.wake_for(object, again);
    }

    /// The object is none of the controller's any more.
    pub(crate) fn leave(&self, object: &Uid, who: &DecoratorId) {
        let mut state = self.lock();
        let again = state.wishes.leave(object, who);
        state.wake_for(object, again);
    }

    pub(crate) fn forget_object(&self, object: &Uid) {
        self.lock().wishes.forget_object(object);
    }

    /// What a pass has to know of the other controllers.
    pub(crate) fn view(&self, target: &Gvr, object: &Object, who: &DecoratorId) -> Fingerprint {
        self.lock().wishes.view(target, object, who)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    fn wake_for(&self, object: &Uid, who: Vec<DecoratorId>) {
        self.wake(who.into_iter().map(|who| (object.clone(), who)).collect());
    }

    fn wake(&self, again: Vec<(Uid, DecoratorId)>) {
        for (object, who) in again {
            let looks_at = self.running.get(&who).map(|running| running.looks_at.as_slice());
            for (parents, queue) in looks_at.unwrap_or_default() {
                let Some((parents, queue)) = parents.upgrade().zip(queue.upgrade()) else { continue };
                if let Some(key) = parents.view(|all| all.by_uid(&object).map(|parent| parent.key.clone())) {
                    queue.add(key);
                }
            }
        }
    }
}

impl Told {
    fn is_news(&mut self, conflict: &Conflict) -> bool {
        let told = self.0.entry((conflict.has.clone(), conflict.leaves.clone())).or_default();
        told.len() < MOST_TOLD && told.insert(Fingerprint::of(conflict.field.to_string().as_bytes()))
    }

    fn forget(&mut self, who: &DecoratorId) {
        self.0.retain(|(has, leaves), _| has != who && leaves != who);
    }
}

impl Reconciler {
    /// What older decorators want of the object itself; of parents of composites nobody else wants anything.
    pub(crate) fn elders(&self, parent: &Object) -> Option<Fingerprint> {
        let who = self.claimant.as_ref()?;
        Some(self.tools.wishing.view(&self.parents.resource().gvr(), parent, who))
    }

    /// Whether passes look at this object.
    pub(crate) fn is_about(&self, object: &Uid) -> bool {
        let selects = |object: &Arc<Object>| self.terms.selection.includes(object);
        self.parents.view(|parents| parents.by_uid(object).is_some_and(selects))
    }

    /// A pass may have begun before its object went and ended after that was learned: nobody else would forget it then.
    pub(crate) fn forget_gone(&self, parent: &Uid) {
        if self.claimant.is_some() && self.parents.view(|parents| parents.by_uid(parent).is_none()) {
            self.tools.wishing.forget_object(parent);
        }
    }

    /// No pass looks at it as long as it is so.
    pub(crate) fn leave(&self, parent: &Object) {
        if let Some(who) = &self.claimant {
            self.tools.wishing.leave(&parent.uid, who);
        }
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::decorator::conflicts::Field;

    use super::*;

    fn conflict(field: &str, leaves: &str) -> Conflict {
        let claimant = |name: &str| DecoratorId { created: "2026".into(), name: name.into() };
        Conflict { field: Field::Label(field.to_owned()), has: claimant("older"), leaves: claimant(leaves) }
    }

    #[test]
    fn a_conflict_is_told_once_and_so_many_of_the_same_two() {
        let mut told = Told::default();
        assert!(told.is_news(&conflict("k", "a")) && told.is_news(&conflict("k", "b")));
        assert!(!told.is_news(&conflict("k", "a")));
        let news = (0..1_000).filter(|nth| told.is_news(&conflict(&nth.to_string(), "a"))).count();
        assert_eq!(news, MOST_TOLD - 1);
        told.forget(&conflict("k", "a").leaves);
        assert_eq!(told.0.len(), 1);
        assert!(told.is_news(&conflict("k", "a")), "it is another one by now");
    }
}
