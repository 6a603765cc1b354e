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

use crate::hash::FastMap;
use crate::object::id::{Key, Resource};
use crate::reconcile::trigger::ReconcileCause;
use crate::trace::repeated::{Repeated, timeless_hash};
use crate::trace::settled::SettledCount;
use crate::trace::{ReconcileTrace, TracedObject};

/// Traces of one parent of a controller.
pub const MAX_PER_PARENT: usize = 20;

/// Bytes that a trace takes beside its JSON: its entries in the maps, and the count of triggers after it.
const TRACE_OVERHEAD: usize = 384;

/// Bytes of the text that the JSON of a trace gets at first: most traces need no more.
const JSON_CAPACITY: usize = 2048;

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
    parents: FastMap<ParentId, OfParent>,
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
pub type ParentId = (Key, Arc<Resource>);

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
            parent: (key.clone(), Arc::clone(resource)),
            json: print(&trace),
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
        let of_parent = of_controller.parents.or_default(&trace.parent);
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
        let id = (key.clone(), Arc::clone(resource));
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
        let latest = of_controller.parents.sorted().into_iter().filter_map(|(parent, of_parent)| {
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

/// The JSON of a trace.
fn print(trace: &ReconcileTrace) -> Arc<str> {
    let mut json = Vec::with_capacity(JSON_CAPACITY);
    let printed = serde_json::to_writer(&mut json, trace).ok().and_then(|()| str::from_utf8(&json).ok());
    printed.unwrap_or_default().into()
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
mod tests;
