//! What the decorators of this server want of the same objects: said to each other, and who is woken by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use metahook_core::decoration::Wish;
use metahook_core::fingerprint::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, Uid};
use metahook_core::trigger::Selection;
use metahook_core::wishes::{Claimant, Conflict, Verdict, Wishes};

use super::pass::Controller;
use crate::cluster::events::{Recorder, Severity};
use crate::queue::Queue;
use crate::store::Store;

#[derive(Default)]
pub(crate) struct Wishing(Mutex<State>);

#[derive(Default)]
struct State {
    wishes: Wishes,
    running: BTreeMap<Claimant, Running>,
    /// What was told of both controllers.
    told: BTreeSet<Conflict>,
}

struct Running {
    controller: Arc<Object>,
    looks_at: Vec<(Weak<Store>, Weak<Queue<Key>>)>,
}

impl Wishing {
    /// A controller is about these objects from now on, whether it works already or not.
    pub(super) fn host(&self, controller: &Arc<Object>, targets: Vec<(Gvr, Selection)>) {
        let mut state = self.lock();
        let who = Claimant::of(controller);
        let again = state.wishes.host(who.clone(), targets);
        state.running.insert(who, Running { controller: Arc::clone(controller), looks_at: Vec::new() });
        state.wake(again);
    }

    /// The controller works: its objects are there, and so they are queued.
    pub(super) fn works(&self, who: &Claimant, parents: &Arc<Store>, queue: &Arc<Queue<Key>>) {
        if let Some(running) = self.lock().running.get_mut(who) {
            running.looks_at.retain(|(_, queue)| queue.strong_count() > 0);
            running.looks_at.push((Arc::downgrade(parents), Arc::downgrade(queue)));
        }
    }

    /// The controller has ended: what it wanted is nobody's business any more.
    pub(super) fn end(&self, controller: &Object) {
        let mut state = self.lock();
        let who = Claimant::of(controller);
        state.running.remove(&who);
        state.told.retain(|conflict| conflict.has != who && conflict.leaves != who);
        let again = state.wishes.forget_controller(&who);
        state.wake(again);
    }

    /// What of a wish may be written; whom it concerns is woken, and conflicts are told on both controllers.
    pub(super) fn say(
        &self,
        target: &Gvr,
        object: &Object,
        (who, wish): (&Claimant, &Wish),
        recorder: &Recorder,
    ) -> Wish {
        let mut state = self.lock();
        let Verdict { wish, conflicts, again } = state.wishes.say(target, object, who, wish);
        state.wake_for(&object.uid, again);
        for conflict in conflicts {
            if state.told.insert(conflict.clone()) {
                let message = format!("{conflict}, of {} {} for example", object.gvk.kind, object.key);
                for side in [&conflict.has, &conflict.leaves] {
                    if let Some(running) = state.running.get(side) {
                        recorder.record(
                            &running.controller,
                            Severity::Warning,
                            "DecoratorsConflict",
                            &message,
                        );
                    }
                }
            }
        }
        wish
    }

    /// A pass came to no answer.
    pub(super) fn passed(&self, object: &Uid, who: &Claimant) {
        let mut state = self.lock();
        let again = state.wishes.passed(object, who);
        state.wake_for(object, again);
    }

    /// The object is none of the controller's any more.
    pub(super) fn leave(&self, object: &Uid, who: &Claimant) {
        let mut state = self.lock();
        let again = state.wishes.leave(object, who);
        state.wake_for(object, again);
    }

    pub(super) fn forget_object(&self, object: &Uid) {
        self.lock().wishes.forget_object(object);
    }

    /// What a pass has to know of the other controllers.
    pub(super) fn view(&self, target: &Gvr, object: &Object, who: &Claimant) -> Fingerprint {
        self.lock().wishes.view(target, object, who)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_for(&self, object: &Uid, who: Vec<Claimant>) {
        self.wake(who.into_iter().map(|who| (object.clone(), who)).collect());
    }

    fn wake(&self, again: Vec<(Uid, Claimant)>) {
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

impl Controller {
    /// What older decorators want of the object itself; of parents of composites nobody else wants anything.
    pub(super) fn elders(&self, parent: &Object) -> Option<Fingerprint> {
        let who = self.claimant.as_ref()?;
        Some(self.tools.wishing.view(&self.parents.resource().gvr(), parent, who))
    }

    /// No pass looks at it as long as it is so.
    pub(super) fn leave(&self, parent: &Object) {
        if let Some(who) = &self.claimant {
            self.tools.wishing.leave(&parent.uid, who);
        }
    }
}
