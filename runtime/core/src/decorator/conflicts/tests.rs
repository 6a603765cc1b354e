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

fn unanswered(conflicts: &mut DecoratorConflicts, name: &str) -> Vec<DecoratorId> {
    conflicts.unanswered(&Uid::new("x"), &Arc::new(controller(name)))
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
    let mut conflicts = DecoratorConflicts::default();
    for name in names {
        assert_eq!(conflicts.host(&controller(name), selecting(Selector::default())), []);
    }
    conflicts
}

fn resolve(
    conflicts: &mut DecoratorConflicts,
    name: &str,
    found: Build,
    decoration: &Decoration,
) -> Resolution {
    conflicts.resolve(&things(), &found.object(), &Arc::new(controller(name)), decoration)
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
    let mut conflicts = hosting(&["1", "2"]);
    let first = resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a", "mine": "1"})));
    assert_eq!((first.decoration.labels.len(), named(&first.conflicts)), (2, vec![]));
    let found = || thing().label("k", "a");
    let second = resolve(&mut conflicts, "2", found(), &labels(json!({"k": "b", "other": "2"})));
    assert_eq!(second.decoration, labels(json!({"other": "2"})));
    assert_eq!(named(&second.conflicts), ["the label k: 1 not 2"]);
    let again = resolve(&mut conflicts, "1", found(), &labels(json!({"k": "a", "mine": "1"})));
    assert_eq!(named(&again.conflicts), ["the label k: 1 not 2"]);
    assert_eq!(again.again, [], "nothing changed");
    let says = second.conflicts[0].to_string();
    assert!(says.ends_with("1, the older one, has it, and 2 leaves it alone"), "{says}");
}

#[test]
fn what_both_want_alike_is_no_conflict_and_a_null_is_a_wish() {
    let mut conflicts = hosting(&["1", "2"]);
    resolve(&mut conflicts, "1", thing(), &labels(json!({"same": "a", "gone": null})));
    let second = resolve(&mut conflicts, "2", thing(), &labels(json!({"same": "a", "gone": "b"})));
    assert_eq!(second.decoration, labels(json!({"same": "a"})));
    assert_eq!(named(&second.conflicts), ["the label gone: 1 not 2"]);
}

#[test]
fn annotations_and_statuses_are_had_in_the_same_way() {
    let decoration = |text: &str| Decoration {
        annotations: [("k".to_owned(), Some(text.to_owned()))].into(),
        status: json!({ "is": text }).as_object().cloned(),
        ..labels(json!({"k": "same"}))
    };
    let mut conflicts = hosting(&["1", "2"]);
    resolve(&mut conflicts, "1", thing(), &decoration("a"));
    let second = resolve(&mut conflicts, "2", thing(), &decoration("b"));
    assert_eq!(second.decoration, labels(json!({"k": "same"})));
    assert_eq!(named(&second.conflicts), ["the annotation k: 1 not 2", "the status: 1 not 2"]);
}

#[test]
fn nothing_changes_until_all_older_ones_have_looked() {
    let mut conflicts = hosting(&["1", "2", "3"]);
    let found = || {
        let found = thing().label("k", "a").annotation("k", "a");
        found.with("status", json!({"is": "a"}))
    };
    let decoration = Decoration {
        annotations: [("k".to_owned(), None), ("new".to_owned(), Some("b".to_owned()))].into(),
        status: json!({"is": "b"}).as_object().cloned(),
        ..labels(json!({"k": "b", "new": "b"}))
    };
    let resolution = resolve(&mut conflicts, "3", found(), &decoration);
    assert_eq!(
        (resolution.decoration, resolution.conflicts, resolution.waits),
        (Decoration::default(), vec![], true)
    );
    let alike = resolve(&mut conflicts, "3", found(), &labels(json!({"k": "a", "gone": null})));
    assert!(!alike.waits, "it is so already");
    resolve(&mut conflicts, "3", found(), &decoration);
    assert_eq!(unanswered(&mut conflicts, "2"), [controller("3")], "it failed");
    assert!(resolve(&mut conflicts, "3", found(), &decoration).waits);
    let first = resolve(&mut conflicts, "1", found(), &labels(json!({})));
    assert_eq!(first.again, [controller("3")], "it waited");
    let heard = resolve(&mut conflicts, "3", found(), &decoration);
    assert_eq!((heard.decoration, heard.waits), (decoration.clone(), false));
    let bare = || thing().with("status", json!({}));
    let mut fresh = hosting(&["1", "2"]);
    let resolution = resolve(&mut fresh, "2", bare(), &labels(json!({"k": "b"})));
    assert_eq!(
        (resolution.decoration, resolution.waits),
        (Decoration::default(), true),
        "also what is missing"
    );
}

#[test]
fn a_field_that_may_be_a_paused_decorators_is_left_alone_after_a_start() {
    let mut conflicts = hosting(&["1", "2"]);
    let paused =
        |conflicts: &mut DecoratorConflicts| conflicts.paused(&Uid::new("x"), &Arc::new(controller("1")));
    let found = || thing().label("k", "a").label("mine", "1");
    let wants = |mine: &str| labels(json!({"k": "b", "new": "b", "mine": mine}));
    assert!(resolve(&mut conflicts, "2", found(), &wants("1")).waits, "it is about to reconcile");
    let before = conflicts.view(&things(), &found().object(), &controller("2"));
    assert_eq!((paused(&mut conflicts), paused(&mut conflicts)), (vec![controller("2")], vec![]));
    let view = conflicts.view(&things(), &found().object(), &controller("2"));
    assert_ne!(view, before);
    let second = resolve(&mut conflicts, "2", found(), &wants("1"));
    assert_eq!((second.decoration, second.waits), (labels(json!({"new": "b", "mine": "1"})), true));
    let second = resolve(&mut conflicts, "2", found().label("new", "b"), &wants("2"));
    assert_eq!(second.decoration, labels(json!({"new": "b", "mine": "2"})), "it set both itself");
    let first = resolve(&mut conflicts, "1", found(), &labels(json!({"k": "a"})));
    assert_eq!(
        (first.again, named(&first.conflicts)),
        (vec![controller("2")], vec!["the label k: 1 not 2".to_owned()])
    );
    assert_ne!(conflicts.view(&things(), &found().object(), &controller("2")), view);
    assert_eq!(paused(&mut conflicts), [], "its decoration is known");
    let second = resolve(&mut conflicts, "2", found(), &wants("2"));
    assert_eq!((named(&second.conflicts), second.waits), (vec!["the label k: 1 not 2".to_owned()], false));
}

#[test]
fn a_field_of_a_paused_decorator_waits_no_longer_once_its_hook_fails_or_it_is_gone() {
    for ends in [
        |conflicts: &mut DecoratorConflicts| unanswered(conflicts, "1"),
        |conflicts: &mut DecoratorConflicts| conflicts.leave(&Uid::new("x"), &controller("1")),
    ] {
        let mut conflicts = hosting(&["1", "2"]);
        conflicts.paused(&Uid::new("x"), &Arc::new(controller("1")));
        let wants = labels(json!({"k": "b"}));
        assert!(resolve(&mut conflicts, "2", thing().label("k", "a"), &wants).waits);
        assert_eq!(ends(&mut conflicts), [controller("2")]);
        conflicts.host(&controller("1"), selecting(Selector::equals("on", "1")));
        assert_eq!(resolve(&mut conflicts, "2", thing().label("k", "a"), &wants).decoration, wants);
    }
}

#[test]
fn annotations_and_a_status_may_be_a_paused_decorators_too() {
    let mut conflicts = hosting(&["1", "2"]);
    conflicts.paused(&Uid::new("x"), &Arc::new(controller("1")));
    let decoration = Decoration {
        annotations: [("k".to_owned(), Some("b".to_owned()))].into(),
        status: json!({ "is": "b" }).as_object().cloned(),
        ..Decoration::default()
    };
    let found = thing().annotation("k", "a").with("status", json!({"is": "a"}));
    assert_eq!(resolve(&mut conflicts, "2", found, &decoration).decoration, Decoration::default());
    assert_eq!(resolve(&mut conflicts, "2", thing(), &decoration).decoration, decoration);
}

#[test]
fn a_cleanup_of_what_an_older_one_has_does_not_wait() {
    let mut conflicts = hosting(&["1", "2"]);
    let cleanup = labels(json!({"k": null}));
    let found = || thing().label("k", "a");
    let waits = resolve(&mut conflicts, "2", found(), &cleanup);
    assert!(!waits.lets_go(&found().object()), "it would be lost");
    assert!(waits.lets_go(&found().deleting().object()), "it goes with the object");
    resolve(&mut conflicts, "1", thing().label("k", "a"), &labels(json!({"k": "a"})));
    let resolution = resolve(&mut conflicts, "2", thing().label("k", "a"), &cleanup);
    assert!(resolution.lets_go(&found().object()));
    assert_eq!(resolution.decoration, Decoration::default());
}

#[test]
fn no_decorator_waits_for_one_that_cannot_start() {
    let mut conflicts = hosting(&["1", "2"]);
    let decoration = labels(json!({"k": "b"}));
    assert!(resolve(&mut conflicts, "2", thing(), &decoration).waits);
    assert_eq!(conflicts.forget_controller(&controller("1")), [(Uid::new("x"), controller("2"))]);
    assert_eq!(resolve(&mut conflicts, "2", thing(), &decoration).decoration, decoration);
    conflicts.host(&controller("1"), selecting(Selector::default()));
    assert!(resolve(&mut conflicts, "2", thing(), &decoration).waits, "it is about to work");
}

#[test]
fn a_decoration_of_an_earlier_spec_stands_until_the_next_one() {
    let mut conflicts = hosting(&["1", "2"]);
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    let decoration = labels(json!({"k": "b"}));
    resolve(&mut conflicts, "2", thing().label("k", "a"), &decoration);
    assert_eq!(conflicts.host(&controller("1"), selecting(Selector::equals("on", "1"))), []);
    assert_eq!(
        resolve(&mut conflicts, "2", thing().label("k", "a"), &decoration).decoration,
        Decoration::default()
    );
    assert_eq!(conflicts.begin(&controller("1"), |uid| uid.as_str() == "x"), []);
    assert_eq!(
        resolve(&mut conflicts, "2", thing().label("k", "a"), &decoration).decoration,
        Decoration::default()
    );
    let again = conflicts.begin(&controller("1"), |uid| uid.as_str() == "y");
    assert_eq!(again, [(Uid::new("x"), controller("2"))], "it is no longer about that one");
    assert_eq!(resolve(&mut conflicts, "2", thing().label("k", "a"), &decoration).decoration, decoration);
}

#[test]
fn who_waits_looks_again_when_the_older_one_is_about_other_objects() {
    let mut conflicts = hosting(&["1", "2"]);
    let decoration = labels(json!({"k": "b"}));
    assert!(resolve(&mut conflicts, "2", thing(), &decoration).waits);
    assert_eq!(conflicts.host(&controller("1"), selecting(Selector::default())), [], "the same");
    let others = selecting(Selector::equals("on", "1"));
    assert_eq!(conflicts.host(&controller("1"), others), [(Uid::new("x"), controller("2"))]);
    assert_eq!(resolve(&mut conflicts, "2", thing(), &decoration).decoration, decoration);
}

#[test]
fn no_decorator_waits_for_controllers_that_do_not_select_the_object() {
    let mut conflicts = hosting(&["2"]);
    conflicts.host(&controller("1"), selecting(Selector::equals("a", "b")));
    let decoration = labels(json!({"k": "x"}));
    assert_eq!(resolve(&mut conflicts, "2", thing().label("k", "y"), &decoration).decoration, decoration);
    assert_ne!(
        resolve(&mut conflicts, "2", thing().label("k", "y").label("a", "b"), &decoration).decoration,
        decoration
    );
    let others = Gvr::new("v1", "pods");
    assert_eq!(
        conflicts
            .resolve(
                &others,
                &thing().label("k", "y").label("a", "b").object(),
                &Arc::new(controller("2")),
                &decoration
            )
            .decoration,
        decoration
    );
}

#[test]
fn a_younger_decorator_is_queued_when_the_older_one_changes_or_ends() {
    let mut conflicts = hosting(&["1", "2", "3"]);
    let x = Uid::new("x");
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    resolve(&mut conflicts, "2", thing(), &labels(json!({"k": "b"})));
    resolve(&mut conflicts, "3", thing(), &labels(json!({"other": "c"})));
    let again =
        |resolution: Resolution| resolution.again.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    assert_eq!(again(resolve(&mut conflicts, "1", thing(), &labels(json!({})))), ["2"]);
    assert_eq!(again(resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "x"})))), ["2"]);
    assert_eq!(conflicts.leave(&x, &controller("1")), [controller("2")]);
    conflicts.host(&controller("1"), selecting(Selector::equals("on", "1")));
    let second = resolve(&mut conflicts, "2", thing(), &labels(json!({"k": "b"})));
    assert_eq!((second.decoration, second.conflicts), (labels(json!({"k": "b"})), vec![]));
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    assert_eq!(conflicts.forget_controller(&controller("1")), [(x.clone(), controller("2"))]);
    assert_eq!(conflicts.forget_controller(&controller("3")), []);
}

#[test]
fn a_view_changes_exactly_with_what_older_ones_said() {
    let mut conflicts = hosting(&["1", "2", "3"]);
    let view =
        |conflicts: &DecoratorConflicts| conflicts.view(&things(), &thing().object(), &controller("2"));
    let pending = view(&conflicts);
    resolve(&mut conflicts, "3", thing(), &labels(json!({"k": "c"})));
    assert_eq!(view(&conflicts), pending, "it is younger");
    unanswered(&mut conflicts, "1");
    let heard = view(&conflicts);
    assert_ne!(heard, pending);
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    let wants = view(&conflicts);
    assert_ne!(wants, heard);
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    assert_eq!(view(&conflicts), wants);
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": null})));
    assert_ne!(view(&conflicts), wants);
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut conflicts = hosting(&["1", "2"]);
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    conflicts.forget_object(&Uid::new("x"));
    assert!(conflicts.objects.is_empty());
    resolve(&mut conflicts, "1", thing(), &labels(json!({"k": "a"})));
    assert_eq!(conflicts.leave(&Uid::new("x"), &controller("1")), []);
    assert!(conflicts.objects.is_empty());
    resolve(&mut conflicts, "2", thing(), &labels(json!({"k": "a"})));
    conflicts.forget_controller(&controller("1"));
    conflicts.forget_controller(&controller("2"));
    assert!(conflicts.objects.is_empty() && conflicts.hosted.is_empty());
}
