//! Parents that have to be reconciled because an object changed.
//!
//! A resync walks the parents that a controller selects ([`Selected`]), not all objects of their kind.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde_json::value::RawValue;

use crate::api::selection::Selection;
use crate::cache::label_index::OrphanAdopters;
use crate::cache::{Cache, ObjectChange};
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::{Key, Uid};
use crate::object::selector::UID_LABEL;
use crate::pacing::lanes::Cause;

/// The parents that a controller selects where it does not select all of their kind, kept up to date by events.
#[derive(Debug, Default)]
pub struct Selected(BTreeSet<Key>);

impl Selected {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }

    /// The parents behind `last`, in order.
    pub fn after<'a>(&'a self, last: Option<&'a Key>) -> impl Iterator<Item = &'a Key> + use<'a> {
        self.0.range((last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }

    /// Remembers whether a parent is selected, and returns whether it was before.
    fn learn(&mut self, parent: &Key, is: bool) -> bool {
        if is { !self.0.insert(parent.clone()) } else { self.0.remove(parent) }
    }
}

/// A parent changed: itself, where it is or was selected. `selected` has taken in what was before.
pub fn on_parent(touched: &ObjectChange, selection: &Selection, selected: &mut Selected) -> Option<Key> {
    let key = touched.key()?;
    // One that is not whole yet comes again with the next list.
    let whole = touched.after.as_ref().and_then(CachedObject::whole);
    let judged = whole.map(|after| selection.judge(after));
    let is = judged.is_some_and(|judged| judged.included);
    let was = selection.is_everything() || selected.learn(key, is);
    if !is && !was {
        return None;
    }
    let ignores = judged.is_some_and(|judged| judged.ignores_status);
    if let (true, Some(before), Some(after)) = (ignores, &touched.before, &touched.after)
        && only_status_differs(before, after)
    {
        return None;
    }
    Some(key.clone())
}

/// The parent to reconcile where it is not known how it changed; `now`: the parent as it is.
pub fn on_forgotten_parent(
    key: &Key,
    now: Option<&Object>,
    selection: &Selection,
    selected: &mut Selected,
) -> Option<Key> {
    let is = now.is_some_and(|now| selection.judge(now).included);
    let was = selection.is_everything() || selected.learn(key, is);
    (is || was).then(|| key.clone())
}

fn only_status_differs(before: &CachedObject, after: &CachedObject) -> bool {
    let Some((before, after)) = before.whole().zip(after.whole()) else { return false };
    let same = before.uid == after.uid && before.generation == after.generation;
    if !same || after.deleting || before.labels != after.labels {
        return false;
    }
    match after.generation {
        // Kinds without a generation do not tell whether their content changed.
        0 => before.content().is_some_and(|content| Some(content) == after.content()),
        _ => before.annotations() == after.annotations(),
    }
}

/// Why a change that another client made to a parent triggers it. A user means a new spec, labels, annotations, and the
/// deletion to be seen at once; statuses and finalizers are the business of controllers.
pub fn parent_cause(change: &ObjectChange) -> Cause {
    match (&change.before, &change.after) {
        (None, Some(_)) => Cause::Created,
        (Some(before), Some(after)) if is_meant(before, after) => Cause::Changed,
        (_, None) | (Some(_), Some(_)) => Cause::Related,
    }
}

fn is_meant(before: &CachedObject, after: &CachedObject) -> bool {
    let Some((before, after)) = before.whole().zip(after.whole()) else { return true };
    before.uid != after.uid
        || before.generation != after.generation
        || before.deleting != after.deleting
        || before.labels != after.labels
        || before.annotations() != after.annotations()
        || (after.generation == 0 && fields(before) != fields(after))
}

/// The fields of an object beside its metadata and its status, as the API server wrote them.
fn fields(object: &Object) -> BTreeMap<Cow<'_, str>, &str> {
    let all: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object.json()).unwrap_or_default();
    let those = all.into_iter().filter(|(name, _)| !matches!(&**name, "metadata" | "status"));
    those.map(|(name, value)| (name, value.get())).collect()
}

/// The parents that the change of a child concerns: the parents that control it or did before. An orphan concerns those
/// that may adopt it: some of `adopters`, or without them the parent that the label of a generated selector names.
pub fn on_child(touched: &ObjectChange, parents: &Cache, adopters: Option<&OrphanAdopters>) -> BTreeSet<Key> {
    let owners =
        [&touched.before, &touched.after].into_iter().flatten().filter_map(|o| o.controller.as_ref());
    let mut keys: BTreeSet<Key> =
        owners.filter_map(|owner| parents.by_uid(owner)).map(|p| p.key.clone()).collect();
    if let Some(orphan) =
        touched.after.as_ref().filter(|object| object.controller.is_none() && !object.deleting)
    {
        if let Some(adopters) = adopters {
            keys.extend(adopters.of(orphan).cloned());
        } else {
            let uid = orphan.labels.get(UID_LABEL).map(|uid| Uid::new(uid));
            keys.extend(uid.and_then(|uid| parents.by_uid(&uid)).map(|parent| parent.key.clone()));
        }
    }
    keys
}

/// The parents with these uids.
pub fn with_uids(uids: &BTreeSet<Uid>, parents: &Cache) -> BTreeSet<Key> {
    uids.iter().filter_map(|uid| parents.by_uid(uid)).map(|parent| parent.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::selection::SelectionRule;
    use crate::cache::CacheEvent;
    use crate::object::selector::Selector;
    use crate::object::testing::{Build, a};

    fn parent(key: &str, uid: &str) -> Build {
        a("e/v1", "P", key).uid(uid).with("spec.selector", json!({"matchLabels": {"app": uid}}))
    }

    fn parents() -> Cache {
        let mut index = Cache::default();
        for object in
            [parent("n/one", "1").object(), parent("n/two", "2").object(), parent("m/three", "3").object()]
        {
            index.apply(CacheEvent::Applied((*object).clone()));
        }
        index
    }

    fn woken(before: Option<Build>, after: Option<Build>, generated: bool) -> Vec<String> {
        let touched = ObjectChange { before: before.map(Build::cached), after: after.map(Build::cached) };
        let (parents, mut adopters) = (parents(), OrphanAdopters::default());
        for parent in parents.all() {
            adopters.learn(&ObjectChange { before: None, after: Some(parent.clone()) });
        }
        let adopters = (!generated).then_some(&adopters);
        on_child(&touched, &parents, adopters).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_child_wakes_its_parent_and_the_one_it_left() {
        let child = |owner| Some(a("v1", "Pod", "n/c").controlled_by(owner));
        assert_eq!(woken(None, child("1"), true), ["n/one"]);
        assert_eq!(woken(child("1"), None, true), ["n/one"]);
        assert_eq!(woken(child("1"), child("2"), true), ["n/one", "n/two"]);
        assert!(woken(None, child("9"), true).is_empty());
    }

    #[test]
    fn an_orphan_wakes_who_might_adopt_it() {
        assert_eq!(woken(None, Some(a("v1", "Pod", "n/c").label("controller-uid", "2")), true), ["n/two"]);
        assert_eq!(woken(None, Some(a("v1", "Pod", "n/c").label("app", "2")), false), ["n/two"]);
        assert!(
            woken(None, Some(a("v1", "Pod", "n/c").label("app", "3")), false).is_empty(),
            "another namespace"
        );
        assert!(woken(None, Some(a("v1", "Pod", "n/c").label("app", "2").deleting()), false).is_empty());
    }

    fn labelled(ignore_status: bool) -> Selection {
        let rule = SelectionRule { labels: Selector::equals("x", "y"), ignore_status, ..Default::default() };
        Selection { rules: vec![rule], finalizer: "f".into(), ..Selection::default() }
    }

    fn everything(ignore_status: bool) -> Selection {
        let rule = SelectionRule { ignore_status, ..Default::default() };
        Selection { rules: vec![rule], ..Selection::default() }
    }

    /// Whether a change wakes a parent of which it is known what it was before.
    fn wakes(selection: &Selection, before: Option<Build>, after: Option<Build>) -> bool {
        let (before, after) = (before.map(Build::cached), after.map(Build::cached));
        let mut selected = Selected::default();
        on_parent(&ObjectChange { before: None, after: before.clone() }, selection, &mut selected);
        on_parent(&ObjectChange { before, after }, selection, &mut selected).is_some()
    }

    #[test]
    fn a_parent_that_stops_matching_is_reconciled_once_more() {
        let selection = labelled(false);
        let (with, without) = (|| parent("n/one", "1").label("x", "y"), || parent("n/one", "1"));
        assert!(wakes(&selection, Some(with()), Some(without())));
        assert!(wakes(&selection, Some(with()), None));
        assert!(!wakes(&selection, Some(without()), Some(without())));
        assert!(!wakes(&selection, Some(without()), None));
        assert!(wakes(&everything(false), Some(without()), None));
    }

    #[test]
    fn parents_are_known_as_they_come_match_and_go() {
        let selection = labelled(false);
        let mut selected = Selected::default();
        let mut keys = |before: Option<Build>, after: Option<Build>| {
            let touched = ObjectChange { before: before.map(Build::cached), after: after.map(Build::cached) };
            on_parent(&touched, &selection, &mut selected);
            assert_eq!(selected.count(), selected.keys().count());
            selected.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (one, two) = (|| parent("n/one", "1"), || parent("n/two", "2").label("x", "y"));
        let finalized = || one().with("metadata.finalizers", json!(["f"]));
        assert!(keys(None, Some(one())).is_empty(), "it does not match");
        assert_eq!(keys(Some(one()), Some(one().label("x", "y"))), ["n/one"]);
        assert_eq!(keys(None, Some(one().label("x", "y"))), ["n/one"], "told again");
        assert_eq!(keys(None, Some(two())), ["n/one", "n/two"]);
        assert_eq!(
            keys(Some(one().label("x", "y")), Some(finalized())),
            ["n/one", "n/two"],
            "it has our finalizer"
        );
        assert_eq!(keys(Some(finalized()), Some(one())), ["n/two"]);
        assert!(keys(Some(two()), None).is_empty());
    }

    #[test]
    fn parents_are_walked_in_order() {
        let mut selected = Selected::default();
        for (name, uid) in [("n/b", "2"), ("n/a", "1"), ("n/c", "3")] {
            let after = Some(parent(name, uid).label("x", "y").cached());
            on_parent(&ObjectChange { before: None, after }, &labelled(false), &mut selected);
        }
        let after = |last: Option<Key>| {
            selected.after(last.as_ref()).map(|key| key.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(after(None), ["a", "b", "c"]);
        assert_eq!(after(Some(Key::new("n", "a"))), ["b", "c"]);
        assert_eq!(after(Some(Key::new("n", "bb"))), ["c"], "also behind one that is gone");
    }

    #[test]
    fn a_parent_with_our_finalizer_is_reconciled_without_a_match() {
        let parent = parent("n/one", "1").with("metadata.finalizers", json!(["f"]));
        assert!(wakes(&labelled(false), None, Some(parent)));
    }

    fn woken_by(selection: &Selection, before: Build, after: Build) -> bool {
        wakes(selection, Some(before), Some(after))
    }

    #[test]
    fn a_change_of_status_alone_can_be_ignored() {
        let with = |generation: i64, version: &str| {
            parent("n/one", "1").version(version).with("metadata.generation", json!(generation))
        };
        let woken = |before, after| woken_by(&everything(true), before, after);
        let status = || json!({"a": 1});
        assert!(!woken(with(1, "1"), with(1, "2").with("status", status())));
        assert!(woken(with(1, "1"), with(2, "2")), "the spec changed");
        for generation in [0, 1] {
            let with = |version| with(generation, version);
            assert!(woken(with("1"), with("2").label("a", "b")));
            assert!(woken(with("1"), with("2").with("metadata.annotations", json!({"a": "b"}))));
            assert!(woken(with("1"), with("2").deleting()));
        }
        assert!(woken_by(&everything(false), with(1, "1"), with(1, "2").with("status", status())));
    }

    #[test]
    fn of_kinds_without_a_generation_the_content_is_compared() {
        let with = |version: &str| parent("n/one", "1").version(version);
        let woken = |before, after| woken_by(&everything(true), before, after);
        assert!(!woken(with("1"), with("2").with("status", json!({"a": 1}))));
        assert!(woken(with("1"), with("2").with("data", json!({"a": "b"}))));
        assert!(woken(with("1"), with("2").with("metadata.finalizers", json!(["f"]))));
    }

    #[test]
    fn a_user_means_spec_labels_annotations_and_deletion_and_no_status() {
        let cause = |before: Option<Build>, after: Option<Build>| {
            parent_cause(&ObjectChange { before: before.map(Build::cached), after: after.map(Build::cached) })
        };
        let with = |generation: u32| parent("n/one", "1").with("metadata.generation", json!(generation));
        assert_eq!(cause(None, Some(with(1))), Cause::Created);
        assert_eq!(cause(Some(with(1)), Some(with(2))), Cause::Changed);
        assert_eq!(cause(Some(with(0)), Some(with(0).with("data", json!({"a": "b"})))), Cause::Changed);
        assert_eq!(cause(Some(with(1)), None), Cause::Related);
        for generation in [0, 1] {
            let change = |after: Build| cause(Some(with(generation)), Some(after.version("2")));
            assert_eq!(change(with(generation).uid("2")), Cause::Changed);
            assert_eq!(change(with(generation).label("a", "b")), Cause::Changed);
            assert_eq!(change(noted(with(generation), "yes")), Cause::Changed);
            assert_eq!(change(with(generation).deleting()), Cause::Changed);
            for field in ["status.a", "metadata.finalizers"] {
                assert_eq!(change(with(generation).with(field, json!(["f"]))), Cause::Related, "{field}");
            }
            let deleting = cause(
                Some(with(generation).deleting()),
                Some(with(generation).deleting().with("status.a", json!(1))),
            );
            assert_eq!(deleting, Cause::Related);
        }
    }

    /// One rule by labels that ignores statuses, one by annotations that does not.
    fn two_rules() -> Selection {
        let annotations = Selector::equals("note", "yes");
        let by_note = SelectionRule { annotations, ..Default::default() };
        let mut selection = labelled(true);
        selection.rules.push(by_note);
        selection
    }

    fn noted(build: Build, note: &str) -> Build {
        build.with("metadata.annotations", json!({ "note": note, "more": "any text: {}\n" }))
    }

    #[test]
    fn any_rule_selects_and_both_of_its_selectors_have_to_match() {
        let one = || parent("n/one", "1");
        let selects = |selection: &Selection, build: Build| selection.selects(&build.object());
        assert!(selects(&two_rules(), one().label("x", "y")));
        assert!(selects(&two_rules(), noted(one(), "yes")));
        assert!(!selects(&two_rules(), noted(one(), "no")) && !selects(&two_rules(), one()));
        let mut both = labelled(false);
        both.rules[0].annotations = Selector::equals("note", "yes");
        assert!(selects(&both, noted(one().label("x", "y"), "yes")));
        assert!(!selects(&both, one().label("x", "y")) && !selects(&both, noted(one(), "yes")));
        assert!(!both.is_everything() && everything(false).is_everything());
        assert!(!selects(&Selection::default(), one()), "without a rule there is nothing to match");
    }

    #[test]
    fn a_status_is_ignored_where_every_rule_that_matches_ignores_it() {
        let woken = |build: &dyn Fn() -> Build| {
            woken_by(&two_rules(), build(), build().version("2").with("status", json!({"a": 1})))
        };
        let one = || parent("n/one", "1").version("1").with("metadata.generation", json!(1));
        assert!(!woken(&|| one().label("x", "y")));
        assert!(woken(&|| noted(one(), "yes")));
        assert!(woken(&|| noted(one().label("x", "y"), "yes")));
        assert!(woken(&|| one().with("metadata.finalizers", json!(["f"]))), "to be finalized");
    }
}
