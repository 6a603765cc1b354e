//! The traces of the latest reconciles of all controllers, within a bound of bytes.
//!
//! # Guarantees
//! - All traces together never take more bytes than the bound.
//! - A controller loses its oldest trace only while no other one has more bytes: one that is busy does not drive out the others.
//! - Of one parent there are at most [`MAX_OF_PARENT`]: one that never settles leaves room for the others of its controller.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::object::id::{Key, Resource};
use crate::trace::{ReconcileTrace, TracedObject};

/// Traces of one parent.
pub const MAX_OF_PARENT: usize = 20;

/// What a trace takes beside its JSON: its entries in the maps.
const OVERHEAD: usize = 256;

/// Traces by controller.
#[derive(Debug)]
pub struct RecentTraces {
    /// Bytes.
    max: usize,
    controllers: BTreeMap<String, OfController>,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug, Default)]
struct OfController {
    bytes: usize,
    /// By number: the oldest first.
    traces: BTreeMap<u64, Kept>,
    parents: BTreeMap<ParentId, VecDeque<u64>>,
}

/// A parent, whose kind may be one of several of a DecoratorController.
type ParentId = (Arc<Resource>, Key);

#[derive(Debug)]
struct Kept {
    parent: ParentId,
    json: Box<str>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.json.len() + OVERHEAD
    }
}

impl RecentTraces {
    /// `max`: bytes of all traces.
    pub fn new(max: usize) -> Self {
        Self { max, controllers: BTreeMap::new(), next: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.controllers.values().map(|it| it.bytes).sum()
    }

    /// Adds the trace of a reconcile. One that is larger than the bound is not kept.
    pub fn add(&mut self, parent: (&Arc<Resource>, &Key), trace: &ReconcileTrace) {
        let Ok(json) = serde_json::to_string(trace) else { return };
        let parent = (Arc::clone(parent.0), parent.1.clone());
        let kept = Kept { parent: parent.clone(), json: json.into() };
        if kept.bytes() > self.max {
            return;
        }
        let number = self.next;
        self.next += 1;
        let of_controller = self.controllers.entry(trace.controller.clone()).or_default();
        of_controller.bytes += kept.bytes();
        of_controller.traces.insert(number, kept);
        let of_parent = of_controller.parents.entry(parent).or_default();
        of_parent.push_back(number);
        if of_parent.len() > MAX_OF_PARENT
            && let Some(oldest) = of_parent.front().copied()
        {
            of_controller.remove(oldest);
        }
        self.make_room();
    }

    /// The traces of the object's own reconciles, and of those that wrote it or decided about it; the oldest first.
    pub fn about(&self, object: &TracedObject) -> Vec<ReconcileTrace> {
        let of_controllers = self.controllers.values().flat_map(|it| &it.traces);
        let mut found: BTreeMap<u64, ReconcileTrace> = BTreeMap::new();
        for (number, kept) in of_controllers.filter(|(_, kept)| kept.may_be_about(object)) {
            if let Ok(trace) = serde_json::from_str::<ReconcileTrace>(&kept.json)
                && trace.is_about(object)
            {
                found.insert(*number, trace);
            }
        }
        found.into_values().collect()
    }

    fn make_room(&mut self) {
        while self.bytes() > self.max {
            let Some(largest) = self.controllers.values_mut().max_by_key(|it| it.bytes) else { return };
            let Some((oldest, _)) = largest.traces.first_key_value() else { return };
            let oldest = *oldest;
            largest.remove(oldest);
        }
        self.controllers.retain(|_, of_controller| !of_controller.traces.is_empty());
    }
}

impl Kept {
    /// Reading all of many traces takes long: the name stands in the JSON as it is, as names have no character that JSON
    /// writes another way.
    fn may_be_about(&self, object: &TracedObject) -> bool {
        *self.parent.1.name == *object.name || self.json.contains(&format!("\"{}\"", object.name))
    }
}

impl OfController {
    fn remove(&mut self, number: u64) {
        let Some(kept) = self.traces.remove(&number) else { return };
        self.bytes -= kept.bytes();
        if let Some(of_parent) = self.parents.get_mut(&kept.parent) {
            of_parent.retain(|it| *it != number);
            if of_parent.is_empty() {
                self.parents.remove(&kept.parent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::id::Gvk;
    use crate::trace::TraceEnd;

    fn resource() -> Arc<Resource> {
        let gvk = Gvk::new("example.com/v1", "Greeting");
        Arc::new(Resource { gvk, plural: "greetings".into(), namespaced: true, has_status: true })
    }

    fn trace(controller: &str, parent: &Key, cause: &str) -> ReconcileTrace {
        ReconcileTrace {
            controller: controller.to_owned(),
            parent: TracedObject::new(&resource(), parent),
            generation: 1,
            resource_version: "1".to_owned(),
            began: String::new(),
            took_us: 0,
            cause: cause.to_owned(),
            steps: Vec::new(),
            left_out: 0,
            end: TraceEnd::Unchanged,
            next_us: None,
        }
    }

    fn add(traces: &mut RecentTraces, controller: &str, parent: &str, cause: &str) {
        let parent = Key::new("n", parent);
        let resource = resource();
        traces.add((&resource, &parent), &trace(controller, &parent, cause));
    }

    fn causes(traces: &RecentTraces, parent: &str) -> Vec<String> {
        let object = TracedObject::new(&resource(), &Key::new("n", parent));
        traces.about(&object).into_iter().map(|trace| trace.cause).collect()
    }

    #[test]
    fn the_latest_traces_of_a_parent_are_kept() {
        let mut traces = RecentTraces::new(1 << 20);
        for number in 0..=MAX_OF_PARENT {
            add(&mut traces, "c", "a", &number.to_string());
        }
        add(&mut traces, "c", "ab", "of another");
        let kept = causes(&traces, "a");
        assert_eq!((kept.len(), &*kept[0]), (MAX_OF_PARENT, "1"), "{kept:?}");
    }

    #[test]
    fn a_busy_controller_does_not_drive_out_another_one() {
        let mut traces = RecentTraces::new(20_000);
        add(&mut traces, "calm", "a", "once");
        for number in 0..1000 {
            add(&mut traces, "busy", &format!("p-{number}"), "again");
        }
        assert_eq!(causes(&traces, "a"), ["once"]);
        assert!(traces.bytes() > 15_000, "{}", traces.bytes());
    }

    #[test]
    fn a_trace_that_is_larger_than_the_bound_is_not_kept() {
        let mut traces = RecentTraces::new(1000);
        add(&mut traces, "c", "a", "short");
        add(&mut traces, "c", "a", &"x".repeat(1000));
        assert_eq!(causes(&traces, "a"), ["short"]);
    }

    proptest! {
        #[test]
        fn bytes_are_counted_and_bounded(adds in prop::collection::vec((0_u8..3, 0_u8..5, 0_usize..300), 0..200), max in 0_usize..8000) {
            let mut traces = RecentTraces::new(max);
            for (controller, parent, length) in adds {
                add(&mut traces, &format!("c{controller}"), &format!("p{parent}"), &"x".repeat(length));
                prop_assert!(traces.bytes() <= max);
                for of_controller in traces.controllers.values() {
                    let kept: usize = of_controller.traces.values().map(Kept::bytes).sum();
                    let listed: usize = of_controller.parents.values().map(VecDeque::len).sum();
                    prop_assert_eq!((kept, listed), (of_controller.bytes, of_controller.traces.len()));
                }
            }
        }
    }
}
