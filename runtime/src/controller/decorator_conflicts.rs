//! Coordinator of the decorators of this server: their decorations of the same objects, and Events about conflicts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use metahook_core::api::reason::EventReason;
use metahook_core::api::selection::Selection;
use metahook_core::decorator::Decoration;
use metahook_core::decorator::conflicts::{Conflict, DecoratorConflicts, DecoratorId, Resolution};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Key, Uid};
use metahook_core::pacing::lanes::Cause;

use crate::cluster::events::Recorder;
use crate::queue::Queue;
use crate::store::Store;
use crate::sync::lock;

/// The conflicts between the same two controllers that get Events: a decorator whose decorations change each time would
/// fill the memory otherwise.
const MAX_RECORDED_CONFLICTS: usize = 100;

#[derive(Default)]
pub(crate) struct DecoratorCoordinator(Mutex<State>);

#[derive(Default)]
struct State {
    conflicts: DecoratorConflicts,
    running: BTreeMap<DecoratorId, Running>,
    recorded: RecordedConflicts,
}

/// The conflicts with an Event, by the older and the younger controller; as fingerprints, since conflicts may be long.
#[derive(Default)]
struct RecordedConflicts(BTreeMap<(DecoratorId, DecoratorId), BTreeSet<Fingerprint>>);

struct Running {
    controller: Arc<Object>,
    queues: Vec<(Weak<Store>, Weak<Queue<Key>>)>,
}

/// One decorator, as its reconciles use the coordinator.
#[derive(Clone)]
pub(crate) struct Decorator {
    pub(crate) id: Arc<DecoratorId>,
    pub(crate) coordinator: Arc<DecoratorCoordinator>,
}

impl DecoratorCoordinator {
    /// Announces a controller and the objects that it selects, before its first reconcile: younger decorators wait for it.
    pub(crate) fn host(&self, controller: &Arc<Object>, targets: Vec<(Gvr, Selection)>) {
        let mut state = lock(&self.0);
        let id = DecoratorId::of(controller);
        let again = state.conflicts.host(&id, targets);
        state.running.insert(id, Running { controller: Arc::clone(controller), queues: Vec::new() });
        state.add_to_queues(again);
    }

    /// The controller's objects are listed: its decorations of all other objects are forgotten.
    pub(crate) fn begin(&self, id: &DecoratorId, selects: impl Fn(&Uid) -> bool) {
        let mut state = lock(&self.0);
        let again = state.conflicts.begin(id, selects);
        state.add_to_queues(again);
    }

    /// Adds a queue of the controller's objects, for changes by other decorators.
    pub(crate) fn works(&self, id: &DecoratorId, parents: &Arc<Store>, queue: &Arc<Queue<Key>>) {
        if let Some(running) = lock(&self.0).running.get_mut(id) {
            running.queues.retain(|(_, queue)| queue.strong_count() > 0);
            running.queues.push((Arc::downgrade(parents), Arc::downgrade(queue)));
        }
    }

    /// The controller has ended, or cannot start: its decorations are forgotten.
    pub(crate) fn end(&self, controller: &Object) {
        let mut state = lock(&self.0);
        let id = DecoratorId::of(controller);
        if state.running.remove(&id).is_none() {
            return;
        }
        state.recorded.forget(&id);
        let again = state.conflicts.forget_controller(&id);
        state.add_to_queues(again);
    }
}

impl Decorator {
    /// The part of a decoration that may be written. Decorators that it concerns reconcile the object again, and new
    /// conflicts get an Event on both controllers.
    pub(crate) fn resolve(
        &self,
        target: &Gvr,
        object: &Object,
        decoration: &Decoration,
        recorder: &Recorder,
    ) -> Resolution {
        let mut state = lock(&self.coordinator.0);
        let mut resolution = state.conflicts.resolve(target, object, &self.id, decoration);
        state.add_object(&object.uid, std::mem::take(&mut resolution.again));
        for conflict in &resolution.conflicts {
            state.record_conflict(conflict, object, recorder);
        }
        resolution
    }

    /// The reconcile of the object failed before its hook answered.
    pub(crate) fn failed(&self, object: &Uid) {
        let mut state = lock(&self.coordinator.0);
        let again = state.conflicts.unanswered(object, &self.id);
        state.add_object(object, again);
    }

    /// The controller is paused: what it wrote of the object stands.
    pub(crate) fn paused(&self, object: &Uid) {
        let mut state = lock(&self.coordinator.0);
        let again = state.conflicts.paused(object, &self.id);
        state.add_object(object, again);
    }

    /// The controller does not select the object any more.
    pub(crate) fn leave(&self, object: &Uid) {
        let mut state = lock(&self.coordinator.0);
        let again = state.conflicts.leave(object, &self.id);
        state.add_object(object, again);
    }

    pub(crate) fn forget_object(&self, object: &Uid) {
        lock(&self.coordinator.0).conflicts.forget_object(object);
    }

    /// The decorations of an object that older decorators want.
    pub(crate) fn older_decorators(&self, target: &Gvr, object: &Object) -> Fingerprint {
        lock(&self.coordinator.0).conflicts.view(target, object, &self.id)
    }
}

impl State {
    fn record_conflict(&mut self, conflict: &Conflict, object: &Object, recorder: &Recorder) {
        if !self.recorded.is_new(conflict) {
            return;
        }
        let message = format!("{conflict}, of {} {} for example", object.gvk.kind, object.key);
        for side in [&conflict.has, &conflict.leaves] {
            if let Some(running) = self.running.get(side) {
                recorder.record(&running.controller, EventReason::DecoratorsConflict, &message);
            }
        }
    }

    fn add_object(&self, object: &Uid, decorators: Vec<DecoratorId>) {
        self.add_to_queues(decorators.into_iter().map(|id| (object.clone(), id)).collect());
    }

    fn add_to_queues(&self, objects: Vec<(Uid, DecoratorId)>) {
        for (object, id) in objects {
            let queues = self.running.get(&id).map(|running| running.queues.as_slice());
            for (parents, queue) in queues.unwrap_or_default() {
                let Some((parents, queue)) = parents.upgrade().zip(queue.upgrade()) else { continue };
                if let Some(key) = parents.view(|all| all.by_uid(&object).map(|parent| parent.key.clone())) {
                    queue.add(key, Cause::Related);
                }
            }
        }
    }
}

impl RecordedConflicts {
    fn is_new(&mut self, conflict: &Conflict) -> bool {
        let recorded = self.0.entry((conflict.has.clone(), conflict.leaves.clone())).or_default();
        recorded.len() < MAX_RECORDED_CONFLICTS
            && recorded.insert(Fingerprint::of(conflict.field.to_string().as_bytes()))
    }

    fn forget(&mut self, id: &DecoratorId) {
        self.0.retain(|(has, leaves), _| has != id && leaves != id);
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::decorator::conflicts::Field;

    use super::*;

    fn conflict(field: &str, leaves: &str) -> Conflict {
        let id = |name: &str| DecoratorId { created: "2026".into(), name: name.into() };
        Conflict { field: Field::Label(field.to_owned()), has: id("older"), leaves: id(leaves) }
    }

    #[test]
    fn a_conflict_gets_one_event_and_two_controllers_a_bounded_number() {
        let mut recorded = RecordedConflicts::default();
        assert!(recorded.is_new(&conflict("k", "a")) && recorded.is_new(&conflict("k", "b")));
        assert!(!recorded.is_new(&conflict("k", "a")));
        let new = (0..1_000).filter(|nth| recorded.is_new(&conflict(&nth.to_string(), "a"))).count();
        assert_eq!(new, MAX_RECORDED_CONFLICTS - 1);
        recorded.forget(&conflict("k", "a").leaves);
        assert_eq!(recorded.0.len(), 1);
        assert!(recorded.is_new(&conflict("k", "a")), "another controller by now");
    }
}
