//! Tests of write histories.

use serde_json::json;

use super::*;
use crate::json::difference::Change;
use crate::object::id::Key;
use crate::object::testing::{a, resource};

fn child() -> ObjectId {
    ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", "x") }
}

fn difference() -> Difference {
    Difference { path: "spec.image".to_owned(), wanted: json!(1), found: json!(2), change: Change::Value }
}

fn drift(uid: &str) -> Drift {
    Drift { id: child(), uid: Uid::new(uid), values: vec![difference()] }
}

fn unknown(history: &WriteHistory, object: &Object) -> Vec<Difference> {
    history.unexplained_drift(&child(), object, vec![difference()], |_| panic!("there is nothing to be read"))
}

fn learn(history: &mut WriteHistory, uid: &str, server_defaults: &[Difference]) {
    let answer = a("v1", "Pod", "n/x").uid(uid).object();
    history.record_response(&child(), &answer, None, server_defaults, None);
}

#[test]
fn a_child_is_settled_until_it_or_the_answer_changes() {
    let pod = |uid, version| a("v1", "Pod", "n/x").uid(uid).version(version).object();
    let (mut history, answer) = (WriteHistory::default(), pod("1", "5"));
    history.record_response(&child(), &answer, None, &[], Some(1));
    let is_settled = |object: &Object, wanted| history.is_settled(&child(), object, || wanted);
    assert!(is_settled(&answer, 1));
    assert!(!is_settled(&answer, 2) && !is_settled(&pod("1", "6"), 1) && !is_settled(&pod("2", "5"), 1));
}

#[test]
fn what_flips_is_remembered_though_each_time_another_object_is_made() {
    let mut history = WriteHistory::default();
    for round in 0..6_u8 {
        // In the order of a reconcile: the answer is the new object, the drift was the old one's.
        learn(&mut history, &(round + 1).to_string(), &[]);
        history.drift_corrected(&drift(&round.to_string()), Duration::from_secs(round.into()));
    }
    let past = PastWrites { history: &history, now: Duration::from_secs(6) };
    assert!(past.wait(&child(), &[difference()]).is_some());
    assert_eq!(history.flapping(Duration::from_secs(6)).count(), 1);
    assert!(history.mark_reported(&drift("6")) && !history.mark_reported(&drift("6")), "told once");
}

#[test]
fn putting_right_forgets_nothing_of_the_new_object() {
    let (mut history, new) = (WriteHistory::default(), a("v1", "Pod", "n/x").uid("2").object());
    let applied = Fingerprint::of(b"body");
    history.record_response(&child(), &new, Some(applied), &[difference()], None);
    history.drift_corrected(&drift("1"), Duration::ZERO);
    assert!(history.has_applied(&child(), &new, applied));
    assert_eq!(unknown(&history, &new), []);
}

#[test]
fn what_was_learned_of_another_object_says_nothing() {
    let (mut history, new) = (WriteHistory::default(), a("v1", "Pod", "n/x").uid("2").object());
    learn(&mut history, "1", &[difference()]);
    assert_eq!(unknown(&history, &new), [difference()]);
    learn(&mut history, "2", &[]);
    assert!(history.is_empty(), "nothing known takes no place");
}

fn drift_at(paths: &[&str]) -> Vec<Difference> {
    let difference = |path: &&str| Difference {
        path: (*path).to_owned(),
        wanted: json!(1),
        found: json!(2),
        change: Change::Value,
    };
    paths.iter().map(difference).collect()
}

fn after(times: u32, every: Duration) -> (Flapping, Duration) {
    let mut flapping = Flapping::default();
    for time in 0..times {
        flapping.drift_corrected(&drift_at(&["a"]), every * time);
    }
    (flapping, every * (times - 1))
}

#[test]
fn a_value_is_put_right_at_once_a_few_times_and_then_less_and_less_often() {
    let second = Duration::from_secs(1);
    let (flapping, now) = after(MAX_UNDELAYED - 1, second);
    assert_eq!((flapping.wait(&drift_at(&["a"]), now), flapping.noticed(now)), (None, BTreeSet::new()));
    let (flapping, now) = after(MAX_UNDELAYED, second);
    assert_eq!(flapping.wait(&drift_at(&["a"]), now), Some(MIN_DELAY));
    assert_eq!(flapping.noticed(now), BTreeSet::from(["a"]));
    assert_eq!(flapping.wait(&drift_at(&["a"]), now + MIN_DELAY), None);
    let (flapping, now) = after(MAX_UNDELAYED + 1, second);
    assert_eq!(flapping.wait(&drift_at(&["a"]), now), Some(2 * MIN_DELAY));
    let (flapping, now) = after(1000, second);
    assert_eq!(flapping.wait(&drift_at(&["a"]), now), Some(MAX_DELAY));
}

#[test]
fn another_value_does_not_wait() {
    let (flapping, now) = after(MAX_UNDELAYED, Duration::from_secs(1));
    assert_eq!(flapping.wait(&drift_at(&["a", "c"]), now), None);
}

#[test]
fn values_that_change_in_turns_flip_both() {
    let mut flapping = Flapping::default();
    for time in 0..MAX_UNDELAYED {
        flapping.drift_corrected(&drift_at(&["a"]), Duration::from_secs((2 * time).into()));
        flapping.drift_corrected(&drift_at(&["b"]), Duration::from_secs((2 * time + 1).into()));
    }
    let now = Duration::from_secs((2 * MAX_UNDELAYED).into());
    assert_eq!(flapping.noticed(now), BTreeSet::from(["a", "b"]));
    assert_eq!(flapping.wait(&drift_at(&["a", "b"]), now), Some(Duration::from_secs(3)));
}

#[test]
fn a_value_that_stays_is_stable_a_minute_after_its_next_correction_was_due() {
    for (times, delay) in [(MAX_UNDELAYED, MIN_DELAY), (1000, MAX_DELAY)] {
        let (mut flapping, now) = after(times, Duration::from_secs(1));
        // A client that goes on is corrected as soon as that is due, and noticed all the time until then.
        assert_eq!(flapping.noticed(now + delay), BTreeSet::from(["a"]));
        let stable = now + delay + QUIET_TIME;
        assert_eq!(flapping.noticed(stable.saturating_sub(Duration::from_nanos(1))), BTreeSet::from(["a"]));
        assert_eq!(flapping.noticed(stable), BTreeSet::new());
        flapping.drift_corrected(&drift_at(&["a"]), stable);
        assert_eq!(flapping.noticed(stable), BTreeSet::from(["a"]), "it goes on after all");
    }
}

#[test]
fn what_comes_back_rarely_is_no_flip() {
    let (flapping, now) = after(100, RESET_INTERVAL);
    assert_eq!((flapping.wait(&drift_at(&["a"]), now), flapping.noticed(now)), (None, BTreeSet::new()));
}

/// A client makes up other items of a list each time.
#[test]
fn new_places_are_delayed_as_one_once_there_are_many() {
    let mut flapping = Flapping::default();
    let second = Duration::from_secs(1);
    let names = |round: usize| (0..50).map(|nth| format!("l[name={round}-{nth}]")).collect::<Vec<_>>();
    let drift = |round: usize| drift_at(&names(round).iter().map(String::as_str).collect::<Vec<_>>());
    let mut now = Duration::ZERO;
    for round in 0..20 {
        now += second;
        flapping.drift_corrected(&drift(round), now);
    }
    assert!(flapping.places.len() <= MAX_PLACES + 1);
    assert!(flapping.wait(&drift(20), now).is_some(), "none of them was corrected before");
    assert_eq!(flapping.noticed(now), BTreeSet::from([FURTHER_PLACES]));
}
