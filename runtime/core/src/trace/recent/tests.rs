//! Tests of the latest traces.

use proptest::prelude::*;

use super::*;
use crate::object::id::{Gvk, ObjectId};
use crate::trace::TracedStep;
use crate::trace::settled::SettledTriggers;

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
        cause: cause.to_owned(),
        ..ReconcileTrace::default()
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
    let found: Vec<_> = latest.iter().map(|((key, _), json)| (key.name.to_string(), cause(json))).collect();
    let expected = [("a", "two"), ("b", "three")].map(|(name, cause)| (name.to_owned(), cause.to_owned()));
    assert_eq!(found, expected);
    assert!(bytes > 0 && bytes < traces.bytes().0);
    let of = |controller, name| traces.latest_of(controller, &(Key::new("n", name), resource()));
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
                let parents = of_controller.parents.sorted();
                let settled: usize = parents.iter().map(|(_, it)| it.settled.bytes()).sum();
                let listed: usize = parents.iter().map(|(_, it)| it.numbers.len()).sum();
                let expected = (of_controller.bytes, of_controller.traces.len());
                prop_assert_eq!((kept + settled, listed), expected);
            }
        }
    }
}
