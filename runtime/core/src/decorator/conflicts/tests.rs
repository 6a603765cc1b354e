//! Tests of conflicts between decorators, case by case.

use serde_json::json;

use super::*;
use crate::api::selection::SelectionRule;
use crate::object::selector::Selector;
use crate::object::testing::{Build, a};

/// Its name says how old it is.
fn controller(name: &str) -> DecoratorId {
    DecoratorId { created: format!("2026-01-01T00:00:0{name}Z").into(), name: name.into() }
}

fn passed(wishes: &mut DecoratorConflicts, who: &str) -> Vec<DecoratorId> {
    wishes.passed(&Uid::new("x"), &Arc::new(controller(who)))
}

fn things() -> Gvr {
    Gvr::new("e.com/v1", "things")
}

fn thing() -> Build {
    a("e.com/v1", "Thing", "n/x").uid("x")
}

fn labels(labels: Value) -> Decoration {
    Decoration { labels: serde_json::from_value(labels).unwrap(), ..Decoration::default() }
}

fn selecting(labels: Selector) -> Vec<(Gvr, Selection)> {
    let rule = SelectionRule { labels, ..SelectionRule::default() };
    vec![(Gvr::new("e.com/v2", "things"), Selection { rules: vec![rule], ..Selection::default() })]
}

/// These controllers are about all things.
fn hosting(names: &[&str]) -> DecoratorConflicts {
    let mut wishes = DecoratorConflicts::default();
    for name in names {
        assert_eq!(wishes.host(controller(name), selecting(Selector::default())), []);
    }
    wishes
}

fn say(wishes: &mut DecoratorConflicts, who: &str, found: Build, wish: &Decoration) -> Resolution {
    wishes.say(&things(), &found.object(), &Arc::new(controller(who)), wish)
}

fn named(conflicts: &[Conflict]) -> Vec<String> {
    conflicts.iter().map(|one| format!("{}: {} not {}", one.field, one.has.name, one.leaves.name)).collect()
}

#[test]
fn the_older_controller_is_the_one_that_was_created_earlier_and_else_the_first_by_name() {
    let of = |name: &str, created: &str| {
        let object = a("e/v1", "D", name).with("metadata.creationTimestamp", json!(created));
        DecoratorId::of(&object.object())
    };
    let early = of("z", "2026-01-01T09:59:59Z");
    assert!(early < of("a", "2026-01-01T10:00:00Z"));
    assert!(of("a", "2026-01-01T10:00:00Z") < of("b", "2026-01-01T10:00:00Z"));
    assert_eq!(&*early.name, "z");
}

#[test]
fn the_older_one_has_the_label_and_both_hear_of_it() {
    let mut wishes = hosting(&["1", "2"]);
    let first = say(&mut wishes, "1", thing(), &labels(json!({"k": "a", "mine": "1"})));
    assert_eq!((first.wish.labels.len(), named(&first.conflicts)), (2, vec![]));
    let found = || thing().label("k", "a");
    let second = say(&mut wishes, "2", found(), &labels(json!({"k": "b", "other": "2"})));
    assert_eq!(second.wish, labels(json!({"other": "2"})));
    assert_eq!(named(&second.conflicts), ["the label k: 1 not 2"]);
    let again = say(&mut wishes, "1", found(), &labels(json!({"k": "a", "mine": "1"})));
    assert_eq!(named(&again.conflicts), ["the label k: 1 not 2"]);
    assert_eq!(again.again, [], "nothing changed");
    let says = second.conflicts[0].to_string();
    assert!(says.ends_with("1, the older one, has it, and 2 leaves it alone"), "{says}");
}

#[test]
fn what_both_want_alike_is_no_conflict_and_a_null_is_a_wish() {
    let mut wishes = hosting(&["1", "2"]);
    say(&mut wishes, "1", thing(), &labels(json!({"same": "a", "gone": null})));
    let second = say(&mut wishes, "2", thing(), &labels(json!({"same": "a", "gone": "b"})));
    assert_eq!(second.wish, labels(json!({"same": "a"})));
    assert_eq!(named(&second.conflicts), ["the label gone: 1 not 2"]);
}

#[test]
fn annotations_and_statuses_are_had_in_the_same_way() {
    let wish = |text: &str| Decoration {
        annotations: [("k".to_owned(), Some(text.to_owned()))].into(),
        status: json!({ "is": text }).as_object().cloned(),
        ..labels(json!({"k": "same"}))
    };
    let mut wishes = hosting(&["1", "2"]);
    say(&mut wishes, "1", thing(), &wish("a"));
    let second = say(&mut wishes, "2", thing(), &wish("b"));
    assert_eq!(second.wish, labels(json!({"k": "same"})));
    assert_eq!(named(&second.conflicts), ["the annotation k: 1 not 2", "the status: 1 not 2"]);
}

#[test]
fn nothing_changes_until_all_older_ones_have_looked() {
    let mut wishes = hosting(&["1", "2", "3"]);
    let found = || {
        let found = thing().label("k", "a").annotation("k", "a");
        found.with("status", json!({"is": "a"}))
    };
    let wish = Decoration {
        annotations: [("k".to_owned(), None), ("new".to_owned(), Some("b".to_owned()))].into(),
        status: json!({"is": "b"}).as_object().cloned(),
        ..labels(json!({"k": "b", "new": "b"}))
    };
    let verdict = say(&mut wishes, "3", found(), &wish);
    assert_eq!((verdict.wish, verdict.conflicts, verdict.waits), (Decoration::default(), vec![], true));
    let alike = say(&mut wishes, "3", found(), &labels(json!({"k": "a", "gone": null})));
    assert!(!alike.waits, "it is so already");
    say(&mut wishes, "3", found(), &wish);
    assert_eq!(passed(&mut wishes, "2"), [controller("3")], "it failed");
    assert!(say(&mut wishes, "3", found(), &wish).waits);
    let first = say(&mut wishes, "1", found(), &labels(json!({})));
    assert_eq!(first.again, [controller("3")], "it waited");
    let heard = say(&mut wishes, "3", found(), &wish);
    assert_eq!((heard.wish, heard.waits), (wish.clone(), false));
    let bare = || thing().with("status", json!({}));
    let mut fresh = hosting(&["1", "2"]);
    let verdict = say(&mut fresh, "2", bare(), &labels(json!({"k": "b"})));
    assert_eq!((verdict.wish, verdict.waits), (Decoration::default(), true), "also what is missing");
}

#[test]
fn a_cleanup_of_what_an_older_one_has_does_not_wait() {
    let mut wishes = hosting(&["1", "2"]);
    let cleanup = labels(json!({"k": null}));
    let found = || thing().label("k", "a");
    let waits = say(&mut wishes, "2", found(), &cleanup);
    assert!(!waits.lets_go(&found().object()), "it would be lost");
    assert!(waits.lets_go(&found().deleting().object()), "it goes with the object");
    say(&mut wishes, "1", thing().label("k", "a"), &labels(json!({"k": "a"})));
    let verdict = say(&mut wishes, "2", thing().label("k", "a"), &cleanup);
    assert!(verdict.lets_go(&found().object()));
    assert_eq!(verdict.wish, Decoration::default());
}

#[test]
fn nobody_waits_for_one_that_cannot_start() {
    let mut wishes = hosting(&["1", "2"]);
    let wish = labels(json!({"k": "b"}));
    assert!(say(&mut wishes, "2", thing(), &wish).waits);
    assert_eq!(wishes.forget_controller(&controller("1")), [(Uid::new("x"), controller("2"))]);
    assert_eq!(say(&mut wishes, "2", thing(), &wish).wish, wish);
    wishes.host(controller("1"), selecting(Selector::default()));
    assert!(say(&mut wishes, "2", thing(), &wish).waits, "it is about to work");
}

#[test]
fn what_was_said_with_another_spec_stands_until_something_else_is_said() {
    let mut wishes = hosting(&["1", "2"]);
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    let wish = labels(json!({"k": "b"}));
    say(&mut wishes, "2", thing().label("k", "a"), &wish);
    assert_eq!(wishes.host(controller("1"), selecting(Selector::equals("on", "1"))), []);
    assert_eq!(say(&mut wishes, "2", thing().label("k", "a"), &wish).wish, Decoration::default());
    assert_eq!(wishes.begin(&controller("1"), |uid| uid.as_str() == "x"), []);
    assert_eq!(say(&mut wishes, "2", thing().label("k", "a"), &wish).wish, Decoration::default());
    let again = wishes.begin(&controller("1"), |uid| uid.as_str() == "y");
    assert_eq!(again, [(Uid::new("x"), controller("2"))], "it is no longer about that one");
    assert_eq!(say(&mut wishes, "2", thing().label("k", "a"), &wish).wish, wish);
}

#[test]
fn who_waits_looks_again_when_the_older_one_is_about_other_objects() {
    let mut wishes = hosting(&["1", "2"]);
    let wish = labels(json!({"k": "b"}));
    assert!(say(&mut wishes, "2", thing(), &wish).waits);
    assert_eq!(wishes.host(controller("1"), selecting(Selector::default())), [], "the same");
    let others = selecting(Selector::equals("on", "1"));
    assert_eq!(wishes.host(controller("1"), others), [(Uid::new("x"), controller("2"))]);
    assert_eq!(say(&mut wishes, "2", thing(), &wish).wish, wish);
}

#[test]
fn nobody_waits_for_controllers_that_do_not_select_the_object() {
    let mut wishes = hosting(&["2"]);
    wishes.host(controller("1"), selecting(Selector::equals("a", "b")));
    let wish = labels(json!({"k": "x"}));
    assert_eq!(say(&mut wishes, "2", thing().label("k", "y"), &wish).wish, wish);
    assert_ne!(say(&mut wishes, "2", thing().label("k", "y").label("a", "b"), &wish).wish, wish);
    let others = Gvr::new("v1", "pods");
    assert_eq!(
        wishes
            .say(
                &others,
                &thing().label("k", "y").label("a", "b").object(),
                &Arc::new(controller("2")),
                &wish
            )
            .wish,
        wish
    );
}

#[test]
fn a_younger_one_is_told_when_the_older_one_changes_its_mind_leaves_or_ends() {
    let mut wishes = hosting(&["1", "2", "3"]);
    let x = Uid::new("x");
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    say(&mut wishes, "2", thing(), &labels(json!({"k": "b"})));
    say(&mut wishes, "3", thing(), &labels(json!({"other": "c"})));
    let again =
        |verdict: Resolution| verdict.again.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    assert_eq!(again(say(&mut wishes, "1", thing(), &labels(json!({})))), ["2"]);
    assert_eq!(again(say(&mut wishes, "1", thing(), &labels(json!({"k": "x"})))), ["2"]);
    assert_eq!(wishes.leave(&x, &controller("1")), [controller("2")]);
    wishes.host(controller("1"), selecting(Selector::equals("on", "1")));
    let second = say(&mut wishes, "2", thing(), &labels(json!({"k": "b"})));
    assert_eq!((second.wish, second.conflicts), (labels(json!({"k": "b"})), vec![]));
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    assert_eq!(wishes.forget_controller(&controller("1")), [(x.clone(), controller("2"))]);
    assert_eq!(wishes.forget_controller(&controller("3")), []);
}

#[test]
fn a_view_changes_exactly_with_what_older_ones_said() {
    let mut wishes = hosting(&["1", "2", "3"]);
    let view = |wishes: &DecoratorConflicts| wishes.view(&things(), &thing().object(), &controller("2"));
    let unheard = view(&wishes);
    say(&mut wishes, "3", thing(), &labels(json!({"k": "c"})));
    assert_eq!(view(&wishes), unheard, "it is younger");
    passed(&mut wishes, "1");
    let heard = view(&wishes);
    assert_ne!(heard, unheard);
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    let wants = view(&wishes);
    assert_ne!(wants, heard);
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    assert_eq!(view(&wishes), wants);
    say(&mut wishes, "1", thing(), &labels(json!({"k": null})));
    assert_ne!(view(&wishes), wants);
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut wishes = hosting(&["1", "2"]);
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    wishes.forget_object(&Uid::new("x"));
    assert!(wishes.objects.is_empty());
    say(&mut wishes, "1", thing(), &labels(json!({"k": "a"})));
    assert_eq!(wishes.leave(&Uid::new("x"), &controller("1")), []);
    assert!(wishes.objects.is_empty());
    say(&mut wishes, "2", thing(), &labels(json!({"k": "a"})));
    wishes.forget_controller(&controller("1"));
    wishes.forget_controller(&controller("2"));
    assert!(wishes.objects.is_empty() && wishes.hosted.is_empty());
}
