use std::time::Duration;

use serde_json::json;

use super::*;
use crate::children::Plan;
use crate::object::id::Uid;
use crate::object::testing::{a, resource};

const HELD: RetryState = RetryState {
    next: Pace::At(Duration::from_secs(10)),
    ..RetryState {
        failures: 0,
        self_triggered: true,
        in_a_row: 300,
        others_changed: false,
        next: Pace::AtOnce,
        wait: Duration::ZERO,
    }
};

fn nth(in_a_row: u32) -> RetryState {
    RetryState { in_a_row, self_triggered: true, ..RetryState::default() }
}

/// The place that a plan with these operations changes while its parent is watched; the child's data is `{"a": "1"}`.
fn place_of(ops: &[Op], decoration: Decoration, others_changed: bool) -> Option<String> {
    let parent = a("example.com/v1", "Greeting", "n/p")
        .with("status", json!({ "ready": 1, "observedGeneration": 0 }))
        .object();
    let child = a("v1", "ConfigMap", "n/x").with("data", json!({ "a": "1" })).object();
    let children = Plan { ops: ops.to_vec(), ..Plan::default() };
    let plan = ReconcilePlan { children, decoration, ..ReconcilePlan::default() };
    changed_place(&parent, &plan, RetryState { others_changed, ..nth(9) }, |_| child.value().ok())
}

fn id(name: &str) -> ObjectId {
    ObjectId { resource: resource("v1", "ConfigMap"), key: Key::new("n", name) }
}

#[test]
fn a_place_is_a_field_of_a_child_or_of_the_parent() {
    let uid = || Uid::new("u");
    let body = json!({ "data": { "a": "2" } });
    let recreate = Op::Recreate { id: id("x"), uid: uid(), body: body.clone(), manager: None };
    let replace = Op::Replace { id: id("x"), body };
    let dry_run = Op::DryRun { write: Box::new(replace.clone()), otherwise: Box::new(recreate.clone()) };
    for op in [replace, recreate, dry_run] {
        let place = place_of(&[op], Decoration::default(), true);
        assert_eq!(place.as_deref(), Some("ConfigMap n/x: data.a"));
    }
    let time = || Changes::from([("time".to_owned(), Some("2".to_owned()))]);
    let labels = Decoration { labels: time(), ..Decoration::default() };
    assert_eq!(place_of(&[], labels, true).as_deref(), Some("metadata.labels.time"));
    let annotations = Decoration { annotations: time(), ..Decoration::default() };
    assert_eq!(place_of(&[], annotations, true).as_deref(), Some("metadata.annotations.time"));
}

#[test]
fn a_status_and_names_count_where_nothing_else_changed() {
    let status = json!({ "ready": 2 }).as_object().cloned();
    let status = Decoration { status, ..Decoration::default() };
    assert_eq!(place_of(&[], status.clone(), true), None, "it may follow its children");
    assert_eq!(place_of(&[], status, false).as_deref(), Some("status.ready"));
    let names = [Op::Create { id: id("y"), body: json!({}) }, Op::Delete { id: id("x"), uid: Uid::new("u") }];
    assert_eq!(place_of(&names, Decoration::default(), true), None, "one of its Pods may have ended");
    assert_eq!(place_of(&names, Decoration::default(), false).as_deref(), Some("ConfigMap: metadata.name"));
}

fn held(place: &mut ChangingPlace, changed: &str) -> Option<String> {
    let changed = (!changed.is_empty()).then(|| changed.to_owned());
    let shown = place.wrote(changed, HELD, false).throttled.unwrap();
    shown.split_once(" each time is ").map(|(_, place)| place.to_owned())
}

#[test]
fn a_place_is_named_once_two_reconciles_in_a_row_change_it_and_stays_named() {
    let mut place = ChangingPlace::default();
    assert_eq!(["a", "b", "a", ""].map(|at| held(&mut place, at)), [const { None }; 4], "they take turns");
    assert_eq!(["b", "b"].map(|at| held(&mut place, at)), [None, Some("b".to_owned())]);
    assert!(place.is_held_back());
    assert_eq!(["a", "a", "b", ""].map(|at| held(&mut place, at)), ["b"; 4].map(|at| Some(at.to_owned())));
}

#[test]
fn the_tenth_reconcile_in_a_row_names_what_the_last_five_changed() {
    let mut place = ChangingPlace::default();
    let first = (0..30).find(|number| {
        let state = nth(*number);
        let warnings = is_watched(state).then(|| place.wrote(Some("status.time".to_owned()), state, false));
        warnings.is_some_and(|warnings| warnings.unsettled.is_some())
    });
    assert_eq!(first, Some(9), "the first has the number 0");
    let text = place.wrote(Some("status.time".to_owned()), nth(10), false).unsettled.unwrap();
    assert!(text.contains("each of the last 5 changed status.time"), "{text}");
    let again = place.wrote(Some("status.time".to_owned()), nth(200), false).unsettled;
    assert_eq!(again, Some(text), "one Event, however often it is so");
    assert!(!place.is_held_back());
}

#[test]
fn places_that_take_turns_or_are_not_known_are_not_named_before_the_parent_is_held_back() {
    let mut place = ChangingPlace::default();
    for number in 5..300 {
        let changed = match number % 5 {
            0 => None,
            1 => Some("b".to_owned()),
            _ => Some("a".to_owned()),
        };
        assert_eq!(place.wrote(changed, nth(number), false), Warnings::default());
    }
}

#[test]
fn parents_that_settle_leave_the_condition() {
    let place = |count: u32, retry_state: fn(u32) -> RetryState, reads_clock| {
        let mut place = ChangingPlace::default();
        for number in 5..count {
            place.wrote(Some("status.time".to_owned()), retry_state(number), reads_clock);
        }
        place
    };
    let finding = |places: &[ChangingPlace]| {
        let mut all = Unsettled::default();
        for (nth, place) in places.iter().enumerate() {
            all.add(&Key::new("n", &nth.to_string()), place);
        }
        all.finding()
    };
    let young = || place(9, nth, false);
    assert_eq!(finding(&[]), None);
    assert_eq!(finding(&[young()]), None, "it may well settle");
    let changes = "1 parent does not settle: n/1: each reconcile changes status.time; see its Events";
    let found = finding(&[young(), place(10, nth, false)]);
    assert_eq!(found, Some(Finding::new(ConditionReason::AnswersChange, changes)));
    let held = || place(10, |_| HELD, true);
    let throttled = "2 parents are throttled; the first is n/1: its hook reads the clock, and each reconcile changes status.time; see its Events";
    let found = finding(&[place(10, nth, false), held(), held()]);
    assert_eq!(found, Some(Finding::new(ConditionReason::AnswersThrottled, throttled)));
}

#[test]
fn parents_that_are_not_shown_are_counted_alone() {
    let (mut all, unread) = (Unsettled::default(), || -> String { panic!("it is put into words") });
    all.count(false, || "n/a: it changes".to_owned());
    all.count(false, unread);
    all.count(true, || "n/b: it changes".to_owned());
    all.count(true, unread);
    all.count(false, unread);
    let shown = "2 parents are throttled; the first is n/b: it changes; see its Events";
    assert_eq!(all.finding(), Some(Finding::new(ConditionReason::AnswersThrottled, shown)));
}

#[test]
fn a_hook_that_reads_the_clock_is_told_so() {
    let mut place = ChangingPlace::default();
    for number in 5..10 {
        assert_eq!(place.wrote(Some("a".to_owned()), nth(number), true).throttled, None);
    }
    let state = RetryState { in_a_row: 10, ..HELD };
    let throttled = place.wrote(Some("a".to_owned()), state, true).throttled.unwrap();
    assert!(throttled.starts_with("The hook reads the clock") && throttled.ends_with("is a"), "{throttled}");
}

#[test]
fn why_the_next_reconcile_waits_is_said() {
    let none = Warnings::default();
    assert_eq!(why_the_next_waits(&none, nth(3)), None);
    let shares = RetryState { next: Pace::Throttled, ..nth(12) };
    assert_eq!(why_the_next_waits(&none, shares).as_deref(), Some(SHARED));
    let unsettled = Warnings { unsettled: Some("It never settles".to_owned()), throttled: None };
    assert_eq!(why_the_next_waits(&unsettled, shares).unwrap(), format!("{SHARED}. It never settles"));
    let held = Warnings { throttled: Some("held back".to_owned()), ..unsettled };
    assert_eq!(why_the_next_waits(&held, HELD).as_deref(), Some("held back"));
}
