//! The traces of the latest reconciles of all controllers, within a bound of bytes; and how many triggers changed nothing since
//! the latest one of a parent.
//!
//! # Guarantees
//! - All traces together never take more bytes than the bound.
//! - A controller loses its oldest trace only while no other one has more bytes: one that is busy does not drive out the others.
//! - A controller has at most [`MAX_PER_PARENT`] of one parent: one that never settles leaves room for the others of its controller.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::object::id::{Key, Resource};
use crate::reconcile::trigger::ReconcileCause;
use crate::trace::repeated::{Repeated, timeless_hash};
use crate::trace::settled::SettledCount;
use crate::trace::{ReconcileTrace, TracedObject};

/// Traces of one parent of a controller.
pub const MAX_PER_PARENT: usize = 20;

/// What a trace takes beside its JSON: its entries in the maps, and the count of triggers after it.
const TRACE_OVERHEAD: usize = 384;

/// Traces by controller.
#[derive(Debug)]
pub struct RecentTraces {
    /// Bytes.
    max: usize,
    bytes: usize,
    controllers: BTreeMap<String, OfController>,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug, Default)]
struct OfController {
    bytes: usize,
    /// By number: the oldest first.
    traces: BTreeMap<u64, PrintedTrace>,
    parents: BTreeMap<ParentId, OfParent>,
}

/// Traces of one parent.
#[derive(Debug, Default)]
struct OfParent {
    /// Numbers of its traces: the oldest first.
    numbers: VecDeque<u64>,
    /// Triggers since its latest trace that changed nothing.
    settled: SettledCount,
}

/// A trace with what is counted after it.
#[derive(Debug)]
pub struct FoundTrace {
    json: Arc<str>,
    settled: Option<SettledCount>,
    repeated: Option<Repeated>,
}

/// A parent, whose kind may be one of several of a DecoratorController.
pub type ParentId = (Arc<Resource>, Key);

/// A trace as it is kept.
#[derive(Debug)]
pub struct PrintedTrace {
    controller: String,
    parent: ParentId,
    json: Arc<str>,
    /// Hash of all that it says beside its times: one like it says as much.
    says: u64,
    /// It, and the equal ones before it whose place it took.
    times: u64,
    /// When the first of them began.
    since: String,
}

impl PrintedTrace {
    pub fn new((resource, key): (&Arc<Resource>, &Key), trace: ReconcileTrace) -> Self {
        Self {
            parent: (Arc::clone(resource), key.clone()),
            json: serde_json::to_string(&trace).unwrap_or_default().into(),
            says: timeless_hash(&trace),
            times: 1,
            controller: trace.controller,
            since: trace.began,
        }
    }

    pub fn json(&self) -> &str {
        &self.json
    }

    fn bytes(&self) -> usize {
        self.json.len() + TRACE_OVERHEAD
    }

    fn repeated(&self) -> Option<Repeated> {
        (self.times > 1).then(|| Repeated { times: self.times, since: self.since.clone() })
    }
}

impl RecentTraces {
    /// `max`: bytes of all traces.
    pub fn new(max: usize) -> Self {
        Self { max, bytes: 0, controllers: BTreeMap::new(), next: 0 }
    }

    /// Adds the trace of a reconcile. One that is larger than the bound is not kept. One takes the place of the one before it
    /// that says the same, and they are counted.
    pub fn add(&mut self, mut trace: PrintedTrace) {
        if trace.bytes() > self.max {
            return;
        }
        let number = self.next;
        self.next += 1;
        let of_controller = self.controllers.entry(trace.controller.clone()).or_default();
        let of_parent = of_controller.parents.get(&trace.parent);
        let last = of_parent.and_then(|it| it.numbers.back().copied());
        let same = last.filter(|last| of_controller.traces.get(last).is_some_and(|it| it.says == trace.says));
        if let Some(same) = same.and_then(|same| of_controller.traces.get(&same)) {
            (trace.times, trace.since) = (same.times.saturating_add(1), same.since.clone());
        }
        let oldest = of_parent.filter(|it| it.numbers.len() >= MAX_PER_PARENT);
        let oldest = oldest.and_then(|it| it.numbers.front().copied());
        if let Some(replaced) = same.or(oldest) {
            self.bytes -= of_controller.remove(replaced);
        }
        let of_parent = of_controller.parents.entry(trace.parent.clone()).or_default();
        of_parent.numbers.push_back(number);
        let settled = std::mem::take(&mut of_parent.settled).bytes();
        of_controller.bytes = of_controller.bytes + trace.bytes() - settled;
        self.bytes = self.bytes + trace.bytes() - settled;
        of_controller.traces.insert(number, trace);
        self.make_room();
    }

    /// Counts a trigger of a parent that changed nothing. Where no trace of the parent is kept, neither is this.
    pub fn count_settled(
        &mut self,
        controller: &str,
        (resource, key): (&Arc<Resource>, &Key),
        cause: ReconcileCause,
        now: Duration,
    ) {
        let Some(of_controller) = self.controllers.get_mut(controller) else { return };
        let id = (Arc::clone(resource), key.clone());
        let Some(OfParent { settled, .. }) = of_controller.parents.get_mut(&id) else { return };
        let before = settled.bytes();
        settled.count(cause, now);
        of_controller.bytes = of_controller.bytes + settled.bytes() - before;
        self.bytes = self.bytes + settled.bytes() - before;
        self.make_room();
    }

    /// All traces by their number. To find those about an object takes longer than others may wait for.
    pub fn all(&self) -> BTreeMap<u64, FoundTrace> {
        let found = |of_controller: &OfController, number: u64, trace: &PrintedTrace| {
            let settled = of_controller.settled_after(number, trace).cloned();
            let repeated = trace.repeated();
            (number, FoundTrace { json: Arc::clone(&trace.json), settled, repeated })
        };
        let mut all = BTreeMap::new();
        for of_controller in self.controllers.values() {
            all.extend(
                of_controller.traces.iter().map(|(number, trace)| found(of_controller, *number, trace)),
            );
        }
        all
    }

    /// The latest trace of each parent of a controller.
    pub fn latest(&self, controller: &str) -> Vec<(ParentId, Arc<str>)> {
        let Some(of_controller) = self.controllers.get(controller) else { return Vec::new() };
        let latest = of_controller.parents.iter().filter_map(|(parent, of_parent)| {
            let trace = of_controller.traces.get(of_parent.numbers.back()?)?;
            Some((parent.clone(), Arc::clone(&trace.json)))
        });
        latest.collect()
    }

    /// The latest trace of one parent of a controller.
    pub fn latest_of(&self, controller: &str, parent: &ParentId) -> Option<Arc<str>> {
        let of_controller = self.controllers.get(controller)?;
        let number = of_controller.parents.get(parent)?.numbers.back()?;
        Some(Arc::clone(&of_controller.traces.get(number)?.json))
    }

    /// Bytes of all traces of a controller.
    pub fn bytes_of(&self, controller: &str) -> usize {
        self.controllers.get(controller).map_or(0, |of_controller| of_controller.bytes)
    }

    /// Bytes of all traces, and their bound.
    pub fn bytes(&self) -> (usize, usize) {
        (self.bytes, self.max)
    }

    fn make_room(&mut self) {
        while self.bytes > self.max {
            let Some(largest) = self.controllers.values_mut().max_by_key(|it| it.bytes) else { return };
            let Some(oldest) = largest.traces.first_key_value().map(|(oldest, _)| *oldest) else { return };
            self.bytes -= largest.remove(oldest);
            if largest.traces.is_empty() {
                self.controllers.retain(|_, of_controller| !of_controller.traces.is_empty());
            }
        }
    }
}

impl OfController {
    /// Removes a trace; gives back its bytes.
    fn remove(&mut self, number: u64) -> usize {
        let Some(trace) = self.traces.remove(&number) else { return 0 };
        let mut bytes = trace.bytes();
        if let Some(of_parent) = self.parents.get_mut(&trace.parent) {
            of_parent.numbers.retain(|it| *it != number);
            if of_parent.numbers.is_empty() {
                bytes += of_parent.settled.bytes();
                self.parents.remove(&trace.parent);
            }
        }
        self.bytes -= bytes;
        bytes
    }

    /// Triggers after a trace that changed nothing: they are counted after the latest one of a parent.
    fn settled_after(&self, number: u64, trace: &PrintedTrace) -> Option<&SettledCount> {
        let of_parent = self.parents.get(&trace.parent)?;
        of_parent.settled.some().filter(|_| of_parent.numbers.back() == Some(&number))
    }
}

/// Those traces that are about the object; the latest first. `print_time`: of a time since 1970.
pub fn read(
    found: BTreeMap<u64, FoundTrace>,
    object: &TracedObject,
    print_time: fn(Duration) -> String,
) -> Vec<ReconcileTrace> {
    // Reading all of many traces takes long: the JSON has the name of each object that it is about.
    let printed_name = Value::from(&*object.name).to_string();
    let named = found.into_values().rev().filter(|found| found.json.contains(&printed_name));
    let traces = named.filter_map(|FoundTrace { json, settled, repeated }| {
        let trace: ReconcileTrace = serde_json::from_str(&json).ok()?;
        Some(ReconcileTrace { settled: settled.map(|it| it.print(print_time)), repeated, ..trace })
    });
    traces.filter(|trace| trace.is_about(object)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::id::{Gvk, ObjectId};
    use crate::trace::settled::SettledTriggers;
    use crate::trace::{TraceEnd, TracedStep};

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
            changed_fields: Vec::new(),
            related_cause: None,
            related_failure: Vec::new(),
            steps: Vec::new(),
            left_out: 0,
            end: TraceEnd::Unchanged,
            next_us: None,
            next_resync_us: None,
            settled: None,
            repeated: None,
            throttled: None,
        }
    }

    fn add(traces: &mut RecentTraces, controller: &str, parent: &str, cause: &str) {
        let parent = Key::new("n", parent);
        let resource = resource();
        let mut trace = trace(controller, &parent, cause);
        if cause != "paused" {
            trace.steps.push(TracedStep::Finalizers);
        }
        traces.add(PrintedTrace::new((&resource, &parent), trace));
    }

    /// A trigger of a parent of the controller `c` that changes nothing.
    fn count(traces: &mut RecentTraces, parent: &str, cause: ReconcileCause, second: u64) {
        let now = Duration::from_secs(second);
        traces.count_settled("c", (&resource(), &Key::new("n", parent)), cause, now);
    }

    fn read_all(traces: &RecentTraces, parent: &str) -> Vec<ReconcileTrace> {
        let object = TracedObject::new(&resource(), &Key::new("n", parent));
        read(traces.all(), &object, |time| time.as_secs().to_string())
    }

    fn causes(traces: &RecentTraces, parent: &str) -> Vec<String> {
        read_all(traces, parent).into_iter().map(|trace| trace.cause).collect()
    }

    #[test]
    fn the_latest_traces_of_a_parent_are_kept() {
        let mut traces = RecentTraces::new(1 << 20);
        for number in 0..=MAX_PER_PARENT {
            add(&mut traces, "c", "a", &number.to_string());
        }
        add(&mut traces, "c", "ab", "of another");
        let kept = causes(&traces, "a");
        assert_eq!((kept.len(), &*kept[MAX_PER_PARENT - 1]), (MAX_PER_PARENT, "1"), "{kept:?}");
        for _ in 0..MAX_PER_PARENT {
            add(&mut traces, "c", "a", "paused");
        }
        assert_eq!(causes(&traces, "a")[..2], ["paused", "20"], "one without steps says as much as many");
        let latest = read_all(&traces, "a").remove(0);
        let repeated = Repeated { times: MAX_PER_PARENT as u64, since: String::new() };
        assert_eq!(latest.repeated, Some(repeated));
        add(&mut traces, "c", "with \"quotes\"", "odd");
        assert_eq!(causes(&traces, "with \"quotes\""), ["odd"]);
    }

    #[test]
    fn the_latest_trace_of_each_parent_is_found() {
        let mut traces = RecentTraces::new(1 << 20);
        for (controller, parent, cause) in
            [("c", "a", "one"), ("c", "a", "two"), ("c", "b", "three"), ("d", "a", "four")]
        {
            add(&mut traces, controller, parent, cause);
        }
        let (latest, bytes) = (traces.latest("c"), traces.bytes_of("c"));
        let cause = |json: &str| serde_json::from_str::<ReconcileTrace>(json).unwrap().cause;
        let found: Vec<_> =
            latest.iter().map(|((_, key), json)| (key.name.to_string(), cause(json))).collect();
        let expected =
            [("a", "two"), ("b", "three")].map(|(name, cause)| (name.to_owned(), cause.to_owned()));
        assert_eq!(found, expected);
        assert!(bytes > 0 && bytes < traces.bytes().0);
        let of = |controller, name| traces.latest_of(controller, &(resource(), Key::new("n", name)));
        assert_eq!(of("c", "a").as_deref().map(cause), Some("two".to_owned()));
        assert_eq!((of("c", "z"), of("e", "a")), (None, None));
        assert_eq!((traces.latest("e"), traces.bytes_of("e")), (Vec::new(), 0));
    }

    #[test]
    fn a_busy_controller_does_not_drive_out_another_one() {
        let mut traces = RecentTraces::new(20_000);
        add(&mut traces, "calm", "a", "once");
        for number in 0..1000 {
            add(&mut traces, "busy", &format!("p-{number}"), "again");
        }
        assert_eq!(causes(&traces, "a"), ["once"]);
        assert!(traces.bytes > 15_000, "{}", traces.bytes);
    }

    #[test]
    fn triggers_that_change_nothing_are_counted_after_the_latest_trace() {
        let mut traces = RecentTraces::new(1 << 20);
        count(&mut traces, "a", "no trace is kept".into(), 1);
        add(&mut traces, "c", "a", "first");
        add(&mut traces, "c", "a", "second");
        add(&mut traces, "c", "ab", "of another");
        assert!(read_all(&traces, "a").iter().all(|trace| trace.settled.is_none()));
        for (second, cause) in ["Pod n/x changed", "resync", "Pod n/y changed"].into_iter().enumerate() {
            count(&mut traces, "a", cause.into(), 10 + second as u64);
        }
        let [latest, before] = &read_all(&traces, "a")[..] else { panic!("two") };
        let counted = SettledTriggers {
            triggers: 3,
            first: "10".to_owned(),
            last: "12".to_owned(),
            last_cause: "Pod n/y changed".to_owned(),
            related_cause: None,
        };
        assert_eq!((&latest.settled, &before.settled), (&Some(counted), &None));
        assert_eq!(read_all(&traces, "ab")[0].settled, None);
        add(&mut traces, "c", "a", "third");
        assert!(read_all(&traces, "a").iter().all(|trace| trace.settled.is_none()), "they begin anew");
    }

    #[test]
    fn a_long_cause_is_cut() {
        let mut traces = RecentTraces::new(1 << 20);
        add(&mut traces, "c", "a", "first");
        count(&mut traces, "a", "x".repeat(100_000).into(), 1);
        let settled = read_all(&traces, "a").remove(0).settled.unwrap();
        assert!(settled.last_cause.len() < 2000 && traces.bytes < 4000, "{}", traces.bytes);
    }

    #[test]
    fn the_names_of_a_related_cause_are_counted() {
        let bytes = |name: &str| {
            let mut traces = RecentTraces::new(1 << 20);
            add(&mut traces, "c", "a", "first");
            let object = ObjectId { resource: resource(), key: Key::new("n", name) };
            let cause = ReconcileCause { related: Some(Arc::new(object)), .."Pod changed".into() };
            count(&mut traces, "a", cause, 1);
            traces.bytes
        };
        assert_eq!(bytes(&"x".repeat(253)) - bytes("x"), 252);
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
        fn bytes_are_counted_and_bounded(
            adds in prop::collection::vec((0_u8..3, 0_u8..2, prop::option::of(0_usize..300)), 0..200),
            max in 0_usize..64_000,
        ) {
            let mut traces = RecentTraces::new(max);
            for (controller, parent, length) in adds {
                let cause = length.map_or_else(|| "paused".to_owned(), |length| "x".repeat(length));
                match controller {
                    0 => add(&mut traces, "c", &format!("p{parent}"), &cause),
                    1 => add(&mut traces, "another", &format!("p{parent}"), &cause),
                    _ => count(&mut traces, &format!("p{parent}"), cause.into(), 1),
                }
                prop_assert!(traces.bytes <= max);
                let all: usize = traces.controllers.values().map(|it| it.bytes).sum();
                prop_assert_eq!(all, traces.bytes);
                for of_controller in traces.controllers.values() {
                    let kept: usize = of_controller.traces.values().map(PrintedTrace::bytes).sum();
                    let settled: usize = of_controller.parents.values().map(|it| it.settled.bytes()).sum();
                    let listed: usize = of_controller.parents.values().map(|it| it.numbers.len()).sum();
                    let expected = (of_controller.bytes, of_controller.traces.len());
                    prop_assert_eq!((kept + settled, listed), expected);
                }
            }
        }
    }
}
