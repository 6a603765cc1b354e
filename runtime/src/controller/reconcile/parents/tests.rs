//! Tests of the parents of one kind.

use metahook_core::children::write_history::Drift;
use metahook_core::json::difference::{Change, Difference};
use metahook_core::object::id::{Gvk, Resource};
use serde_json::json;

use super::histories::FlappingChild;
use super::*;

fn drift(name: &str) -> Drift {
    let resource =
        Resource { gvk: Gvk::new("v1", "Pod"), plural: "pods".into(), namespaced: true, has_status: true };
    Drift {
        id: ObjectId { resource: Arc::new(resource), key: Key::new("n", name) },
        uid: Uid::new(name),
        values: vec![Difference {
            path: "spec.x".to_owned(),
            wanted: json!(1),
            found: json!(2),
            change: Change::Value,
        }],
    }
}

#[test]
fn flapping_children_are_counted_without_a_walk() {
    let histories = WriteHistories::default();
    let correct = |parent: &Key, second| {
        let now = Duration::from_secs(second);
        histories.drift_corrected(parent, &drift(&parent.name), now);
    };
    let parents = 20_000;
    (0..parents).for_each(|number| correct(&Key::new("n", &number.to_string()), 0));
    // A walk over all of them each time would take 400 million steps, and minutes.
    (0..parents).for_each(|_| assert_eq!(histories.flapping(Duration::ZERO), (0, None)));
    let (one, two) = (Key::new("n", "1"), Key::new("n", "2"));
    (1..9).for_each(|second| [&one, &two].into_iter().for_each(|parent| correct(parent, second)));
    let flapping = |count, name| {
        let (id, paths, by) = (drift(name).id, vec!["spec.x".to_owned()], "kubectl".to_owned());
        (count, Some(FlappingChild { id, paths, by }))
    };
    for parent in [&one, &two] {
        histories.note_managers(parent, "kubectl".to_owned());
    }
    let now = Duration::from_secs(8);
    assert_eq!(histories.flapping(now), flapping(2, "1"));
    histories.forget(&one);
    assert_eq!(histories.flapping(now), flapping(1, "2"));
    histories.forget(&two);
    assert_eq!(histories.flapping(now), (0, None));
}

#[test]
fn children_that_stay_as_they_are_stop_flapping_without_a_reconcile() {
    let (histories, parent) = (WriteHistories::default(), Key::new("n", "p"));
    (0..9).for_each(|second| {
        histories.drift_corrected(&parent, &drift("p"), Duration::from_secs(second));
    });
    let at = |minutes: u64| histories.flapping(Duration::from_mins(minutes)).0;
    assert_eq!([at(1), at(7), at(30)], [1, 0, 0]);
    histories.drift_corrected(&parent, &drift("p"), Duration::from_mins(8));
    assert_eq!(histories.flapping(Duration::from_mins(8)).0, 1, "it goes on");
}

#[test]
fn a_warning_is_recorded_once_and_again_when_it_comes_back() {
    let mut all = BTreeMap::new();
    let mut new = |messages: &[&str]| {
        let warnings = messages.iter().map(|&message| message.to_owned()).collect();
        let before = replace(&mut all, &Key::new("n", "p"), EventReason::MissingChildren, &warnings);
        warnings.difference(&before).cloned().collect::<Vec<_>>()
    };
    assert_eq!(new(&["a"]), ["a"]);
    assert_eq!(new(&["a", "b"]), ["b"]);
    assert!(new(&["a", "b"]).is_empty());
    assert!(new(&[]).is_empty());
    assert_eq!(new(&["a"]), ["a"]);
    new(&[]);
    assert!(all.is_empty(), "a parent without warnings costs nothing");
}
