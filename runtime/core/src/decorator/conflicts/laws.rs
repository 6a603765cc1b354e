//! Laws of conflicts: reconciles of several controllers over one object, in random order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::selection::{Selection, SelectionRule};
use crate::children::Op;
use crate::decorator::conflicts::{DecoratorConflicts, DecoratorId};
use crate::decorator::{self, Changes, Decoration};
use crate::hash::Fingerprint;
use crate::object::Object;
use crate::object::id::{Gvr, Key, ObjectId, Uid};
use crate::object::testing::{a, resource};

const CONTROLLERS: usize = 4;

/// Event that happens to one of the controllers.
#[derive(Debug, Clone)]
enum Step {
    Passes,
    Fails,
    Wants(Changes),
    /// The controller is started anew, as with another spec.
    Restarts,
    /// The controller is about to start, which it may never be able to.
    IsExpected,
    /// The controller has ended, and starts some time after that.
    Ends,
}

/// Controllers over one object; the first is the oldest.
struct World {
    conflicts: DecoratorConflicts,
    wants: Vec<Changes>,
    running: BTreeSet<usize>,
    /// Controllers that do not work yet.
    expected: BTreeSet<usize>,
    object: Value,
    /// Controllers that have to reconcile the object.
    queue: BTreeSet<usize>,
    /// Object and print that each controller saw when it had nothing to write: one that sees the same again does
    /// nothing.
    settled: BTreeMap<usize, (Value, Fingerprint)>,
    /// Writes since the last step, by controller and label.
    writes: BTreeMap<(usize, String), usize>,
}

fn decorator_id(nth: usize) -> Arc<DecoratorId> {
    Arc::new(DecoratorId { created: "2026".into(), name: nth.to_string().into() })
}

fn id() -> ObjectId {
    ObjectId { resource: resource("e.com/v1", "Thing"), key: Key::new("n", "x") }
}

fn everything() -> Vec<(Gvr, Selection)> {
    let selection = Selection { rules: vec![SelectionRule::default()], ..Selection::default() };
    vec![(id().resource.gvr(), selection)]
}

impl World {
    fn new(labels: &BTreeMap<String, String>, wants: Vec<Changes>) -> Self {
        let object = a("e.com/v1", "Thing", "n/x").uid("x").with("metadata.labels", json!(labels)).object();
        let mut world = Self {
            conflicts: DecoratorConflicts::default(),
            wants,
            running: BTreeSet::new(),
            expected: BTreeSet::new(),
            object: object.value().unwrap(),
            queue: BTreeSet::new(),
            settled: BTreeMap::new(),
            writes: BTreeMap::new(),
        };
        (0..CONTROLLERS).for_each(|nth| world.expect(nth));
        (0..CONTROLLERS).for_each(|nth| world.start(nth));
        world
    }

    fn object(&self) -> Arc<Object> {
        Arc::new(Object::parse(&self.object.to_string(), None).unwrap())
    }

    fn expect(&mut self, nth: usize) {
        self.running.remove(&nth);
        self.queue.remove(&nth);
        let again = self.conflicts.host(&decorator_id(nth), everything());
        self.wake(again.into_iter().map(|(_, other)| other));
        self.expected.insert(nth);
    }

    fn start(&mut self, nth: usize) {
        self.expect(nth);
        let again = self.conflicts.begin(&decorator_id(nth), |_| true);
        self.wake(again.into_iter().map(|(_, other)| other));
        self.expected.remove(&nth);
        self.running.insert(nth);
        self.settled.remove(&nth);
        self.queue.insert(nth);
    }

    /// Ends a controller, also one that never could start.
    fn end(&mut self, nth: usize) {
        let again = self.conflicts.forget_controller(&decorator_id(nth));
        self.wake(again.into_iter().map(|(_, other)| other));
        self.expected.remove(&nth);
        self.running.remove(&nth);
        self.queue.remove(&nth);
    }

    fn wake(&mut self, other: impl Iterator<Item = DecoratorId>) {
        let other = other.map(|other| other.name.parse::<usize>().unwrap());
        self.queue.extend(other.filter(|nth| self.running.contains(nth)));
    }

    fn pass(&mut self, nth: usize) {
        self.queue.remove(&nth);
        let view = self.conflicts.view(&id().resource.gvr(), &self.object(), &decorator_id(nth));
        let seen = (self.object.clone(), view);
        if self.settled.get(&nth) == Some(&seen) {
            return;
        }
        let decoration = Decoration { labels: self.wants[nth].clone(), ..Decoration::default() };
        let resolution =
            self.conflicts.resolve(&id().resource.gvr(), &self.object(), &decorator_id(nth), &decoration);
        self.wake(resolution.again.into_iter());
        let Some(Op::Replace { body, .. }) =
            decorator::object_write(&id(), &self.object(), &resolution.decoration, None)
        else {
            self.settled.insert(nth, seen);
            return;
        };
        for key in resolution.decoration.labels.into_keys() {
            if body["metadata"]["labels"].get(&key) != self.object["metadata"]["labels"].get(&key) {
                *self.writes.entry((nth, key)).or_default() += 1;
            }
        }
        self.object = body;
        // All others see the change.
        self.queue.extend(self.running.iter().filter(|other| **other != nth));
    }

    fn take(&mut self, nth: usize, step: Step) {
        match step {
            Step::Restarts => self.start(nth),
            Step::Ends => self.end(nth),
            Step::IsExpected => self.expect(nth),
            _ if !self.running.contains(&nth) => self.start(nth),
            Step::Passes => self.pass(nth),
            Step::Fails => {
                let again = self.conflicts.unanswered(&Uid::new("x"), &decorator_id(nth));
                self.wake(again.into_iter());
            }
            Step::Wants(wants) => {
                self.wants[nth] = wants;
                self.settled.remove(&nth);
                self.queue.insert(nth);
            }
        }
    }

    /// Reconciles until no controller has to; `order` says which one is next.
    fn comes_to_rest(&mut self, order: &[usize]) {
        let mut order = order.iter().cycle();
        for _ in 0..100 {
            let Some(next) = order.next() else { return };
            let Some(nth) = self.queue.iter().nth(next % self.queue.len().max(1)).copied() else { return };
            self.pass(nth);
        }
        panic!("they never come to rest: {}", self.object);
    }

    /// Finds that the controllers that are still expected cannot start.
    fn none_is_awaited(&mut self) {
        for nth in self.expected.clone() {
            self.end(nth);
        }
    }

    /// For each wanted label the value that the oldest controller wants.
    fn due(&self) -> Changes {
        let wants = self.running.iter().rev().map(|nth| self.wants[*nth].clone());
        wants.flatten().collect()
    }

    fn is_as_due(&self) -> bool {
        self.due().iter().all(|(key, text)| {
            let found = self.object["metadata"]["labels"].get(key).and_then(Value::as_str);
            found == text.as_deref()
        })
    }

    fn writes_of(&self, label: &str) -> usize {
        self.writes.iter().filter(|((_, key), _)| key == label).map(|(_, times)| times).sum()
    }
}

const LABELS: [&str; 3] = ["a", "b", "c"];

fn label() -> impl Strategy<Value = String> {
    prop::sample::select(LABELS.to_vec()).prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["1", "2", "3"]).prop_map(str::to_owned)
}

fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::btree_map(label(), prop::option::of(text()), 0..3)
}

fn world() -> impl Strategy<Value = (BTreeMap<String, String>, Vec<Changes>)> {
    (prop::collection::btree_map(label(), text(), 0..3), prop::collection::vec(changes(), CONTROLLERS))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Passes),
        1 => Just(Step::Fails),
        2 => changes().prop_map(Step::Wants),
        1 => Just(Step::Restarts),
        1 => Just(Step::IsExpected),
        1 => Just(Step::Ends),
    ]
}

fn order() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..CONTROLLERS, 1..20)
}

proptest! {
    /// In the end the values of the oldest controller stand, and on the way no controller writes a label twice.
    #[test]
    fn the_oldest_ones_values_stand_in_the_end_and_none_flaps(
        (labels, wants) in world(),
        steps in prop::collection::vec((0..CONTROLLERS, step()), 0..20),
        order in order(),
    ) {
        let mut world = World::new(&labels, wants);
        for (nth, step) in steps {
            world.take(nth, step);
        }
        world.none_is_awaited();
        world.writes.clear();
        world.comes_to_rest(&order);
        prop_assert!(world.is_as_due(), "{} is due in {}", json!(world.due()), world.object);
        prop_assert!(world.writes.values().all(|times| *times == 1), "{:?}", world.writes);
    }

    /// After a start of the server a label is written once at most, and not at all where the oldest one that can start
    /// wants what is there, however long it takes to find that others cannot.
    #[test]
    fn a_start_changes_nothing_back_and_forth(
        (labels, wants) in world(),
        cannot in prop::collection::btree_set(0..CONTROLLERS, 0..3),
        first in prop::collection::vec(0..CONTROLLERS, 0..10),
        order in order(),
    ) {
        let mut world = World::new(&labels, wants);
        for nth in &cannot {
            world.expect(*nth);
        }
        for nth in first.iter().filter(|nth| !cannot.contains(nth)) {
            world.pass(*nth);
        }
        world.none_is_awaited();
        world.comes_to_rest(&order);
        prop_assert!(world.is_as_due());
        for label in LABELS {
            let due = world.due().get(label).cloned();
            let most = usize::from(due.is_some_and(|due| due.as_ref() != labels.get(label)));
            prop_assert!(world.writes_of(label) <= most, "{label}: {:?}", world.writes);
        }
    }

    /// Once all have reconciled, one change of what is wanted is one write of each label that it concerns.
    #[test]
    fn a_label_is_written_once_for_each_change_of_wishes(
        (labels, wants) in world(),
        changed in prop::collection::vec((0..CONTROLLERS, changes(), order()), 1..6),
        order in order(),
    ) {
        let mut world = World::new(&labels, wants);
        world.comes_to_rest(&order);
        for (nth, wants, order) in changed {
            world.writes.clear();
            let before = world.due();
            world.take(nth, Step::Wants(wants));
            world.comes_to_rest(&order);
            prop_assert!(world.is_as_due());
            for label in LABELS {
                let changed = world.due().get(label) != before.get(label);
                prop_assert!(world.writes_of(label) <= usize::from(changed), "{label}: {:?}", world.writes);
            }
        }
    }
}
