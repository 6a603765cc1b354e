//! Tests of the cache: single events, then laws over random ones.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::children::claims::{ATTACHED_BY, MADE_BY};
use crate::children::last_applied::LAST_APPLIED;
use crate::object::cached::MAX_UNSEEN_BYTES;
use crate::object::testing::{Build, a};
use crate::related::rule::{Finds, RuleScope};
use crate::related::selection::select;

fn keys<'a>(found: impl Iterator<Item = &'a Arc<Object>>) -> Vec<String> {
    found.map(|object| object.key.to_string()).collect()
}

fn pod(name: &str, uid: &str, version: u64) -> Object {
    (*a("v1", "Pod", &format!("n/{name}")).uid(uid).version(&version.to_string()).object()).clone()
}

fn known(index: &Cache, name: &str) -> Option<(String, u64)> {
    index.get(&Key::new("n", name)).map(|o| (o.uid.to_string(), o.version.as_str().parse().unwrap()))
}

#[test]
fn an_older_event_is_dropped() {
    let mut index = Cache::default();
    assert_eq!(index.apply(CacheEvent::Applied(pod("a", "1", 5))).len(), 1);
    assert!(index.apply(CacheEvent::Applied(pod("a", "1", 4))).is_empty());
    assert!(
        index.apply(CacheEvent::Applied(pod("a", "1", 5))).is_empty(),
        "the same event twice is one event"
    );
    assert_eq!(known(&index, "a"), Some(("1".to_owned(), 5)));
}

#[test]
fn deletion_of_an_earlier_object_keeps_the_later_one() {
    let mut index = Cache::default();
    index.apply(CacheEvent::Wrote(pod("a", "2", 9).into()));
    assert!(index.apply(CacheEvent::Applied(pod("a", "1", 7))).is_empty());
    assert!(index.apply(CacheEvent::Deleted(pod("a", "1", 8))).is_empty());
    assert_eq!(known(&index, "a"), Some(("2".to_owned(), 9)));
    assert_eq!(index.apply(CacheEvent::Deleted(pod("a", "2", 10))).len(), 1);
    assert_eq!(known(&index, "a"), None);
}

#[test]
fn an_answer_survives_an_older_list_until_a_read_decides() {
    let mut index = Cache::default();
    index.apply(CacheEvent::Applied(pod("old", "1", 1)));
    index.apply(CacheEvent::Wrote(pod("new", "2", 9).into()));
    index.apply(CacheEvent::ListBegins);
    index.apply(CacheEvent::Listed(pod("other", "3", 3)));
    assert_eq!(index.apply(CacheEvent::ListEnds).len(), 1, "what the list does not name is gone");
    assert_eq!((known(&index, "old"), known(&index, "new")), (None, Some(("2".to_owned(), 9))));
    assert_eq!(index.unconfirmed().len(), 1);
    index.apply(CacheEvent::Missing(Key::new("n", "new"), Uid::new("2")));
    assert_eq!(known(&index, "new"), None);
}

#[test]
fn an_answer_after_the_deletion_event_brings_nothing_back() {
    let mut index = Cache::default();
    index.apply(CacheEvent::Applied(pod("a", "1", 9)));
    index.apply(CacheEvent::Deleted(pod("a", "1", 11)));
    assert!(index.apply(CacheEvent::Wrote(pod("a", "1", 10).into())).is_empty());
    assert_eq!(known(&index, "a"), None);
    assert_eq!(index.apply(CacheEvent::Wrote(pod("a", "2", 12).into())).len(), 1);
}

#[test]
fn a_list_may_go_back_in_time() {
    let mut index = Cache::default();
    index.apply(CacheEvent::Applied(pod("a", "1", 900)));
    index.apply(CacheEvent::ListBegins);
    index.apply(CacheEvent::Listed(pod("a", "1", 5)));
    index.apply(CacheEvent::ListEnds);
    assert_eq!(known(&index, "a"), Some(("1".to_owned(), 5)));
}

#[test]
fn answers_without_a_numeric_version_are_not_taken_in() {
    let mut index = Cache::default();
    let object = a("v1", "Pod", "n/a").version("abc").object();
    assert!(index.apply(CacheEvent::Wrote(object)).is_empty());
}

#[test]
fn our_deletion_marks_the_object_until_an_event_removes_it() {
    let mut index = Cache::default();
    index.apply(CacheEvent::Applied(pod("a", "1", 1)));
    assert!(index.apply(CacheEvent::Deleting(Key::new("n", "a"), Uid::new("2"))).is_empty(), "another uid");
    index.apply(CacheEvent::Deleting(Key::new("n", "a"), Uid::new("1")));
    assert!(index.get(&Key::new("n", "a")).unwrap().deleting);
}

#[test]
fn candidates_are_own_children_and_matching_orphans() {
    let mut index = Cache::default();
    for object in [
        a("v1", "Pod", "n/mine").controlled_by("p").object(),
        a("v1", "Pod", "n/theirs").controlled_by("q").object(),
        a("v1", "Pod", "n/orphan").label("app", "x").object(),
        a("v1", "Pod", "n/another").label("app", "y").object(),
        a("v1", "Pod", "m/mine-elsewhere").controlled_by("p").object(),
    ] {
        index.apply(CacheEvent::Applied((*object).clone()));
    }
    let selector = Selector::equals("app", "x");
    let names = |namespace: &str, selector| -> Vec<String> {
        let those = index.candidates(&Uid::new("p"), namespace, selector);
        those.iter().map(|o| o.key.to_string()).collect()
    };
    assert_eq!(names("n", Some(&selector)), ["n/mine", "n/orphan"]);
    assert_eq!(names("", Some(&selector)), ["m/mine-elsewhere", "n/mine", "n/orphan"]);
    assert_eq!(names("n", None), ["n/mine"], "without a selector nothing is adopted");
}

#[test]
fn objects_are_found_by_namespace_and_by_name() {
    let mut index = Cache::default();
    for key in ["a", "b", "m/a", "n/a", "n/b", "n-1/a", "z/c"] {
        index.apply(CacheEvent::Applied((*a("v1", "Pod", key).uid(key).object()).clone()));
    }
    let within = |namespace: &str| {
        let place = RuleScope::Namespace(namespace.into());
        keys(select(&Finds::Labels { place, labels: Selector::default() }, &index, &[]).iter())
    };
    assert_eq!(within("n"), ["n/a", "n/b"]);
    assert_eq!(within(""), ["a", "b"]);
    assert!(within("o").is_empty());
    assert_eq!(
        keys(index.named("a").flatten().filter_map(CachedObject::whole)),
        ["a", "m/a", "n/a", "n-1/a"]
    );
    assert_eq!(keys(index.named("c").flatten().filter_map(CachedObject::whole)), ["z/c"]);
    assert!(keys(index.named("d").flatten().filter_map(CachedObject::whole)).is_empty());
}

fn map(text: &str, version: u64) -> Build {
    a("v1", "ConfigMap", "n/x").uid("u").version(&version.to_string()).with("data.k", json!(text))
}

/// Whether the object is held whole.
fn is_whole(index: &Cache) -> Option<bool> {
    index.get(&Key::new("n", "x")).map(|object| object.whole().is_some())
}

#[test]
fn objects_above_the_bound_are_held_by_their_metadata_where_only_children_are_looked_for() {
    let empty = map("", 1).label("a", "b").object().json().len();
    let fits = MAX_UNSEEN_BYTES - empty;
    let (at, above) = ("x".repeat(fits), "x".repeat(fits + 1));
    for (text, cutting, whole) in [(&at, true, true), (&above, true, false), (&above, false, true)] {
        for listed in [false, true] {
            let mut index = if cutting { Cache::cutting(MAX_UNSEEN_BYTES) } else { Cache::default() };
            let object = (*map(text, 1).label("a", "b").object()).clone();
            let event = if listed { CacheEvent::Listed(object) } else { CacheEvent::Applied(object) };
            assert_eq!(index.apply(event).len(), 1);
            assert_eq!(is_whole(&index), Some(whole));
            let held = index.get(&Key::new("n", "x")).unwrap();
            assert_eq!(held.labels.len(), 1);
            assert_eq!(held.bytes(), text.len() + empty);
        }
    }
}

#[test]
fn what_a_controller_wrote_or_read_stays_whole_until_it_goes() {
    let applied = |version| CacheEvent::Applied((*map("", version).object()).clone());
    let gone = |version| CacheEvent::Deleted((*map("", version).object()).clone());
    for annotation in [MADE_BY, ATTACHED_BY, LAST_APPLIED] {
        let mut index = Cache::cutting(0);
        index.apply(CacheEvent::Applied((*map("", 1).annotation(annotation, "{}").object()).clone()));
        assert_eq!(is_whole(&index), Some(true), "{annotation}");
        index.apply(applied(2));
        assert_eq!(is_whole(&index), Some(false), "it is nobody's any more");
    }
    for own in [CacheEvent::Wrote as fn(Arc<Object>) -> CacheEvent, CacheEvent::Read] {
        // Behind the watch, beside it, ahead of it.
        for version in [1, 2, 3] {
            let mut index = Cache::cutting(0);
            index.apply(applied(2));
            index.apply(own(map("", version).object()));
            assert_eq!(is_whole(&index), Some(version > 1));
            index.apply(applied(4));
            assert_eq!(is_whole(&index), Some(true));
            index.apply(gone(5));
            index.apply(CacheEvent::Applied((*map("", 6).uid("v").object()).clone()));
            assert_eq!(is_whole(&index), Some(false), "another object of that name");
        }
    }
    let mut index = Cache::cutting(0);
    index.apply(CacheEvent::Read(map("", 3).object()));
    assert_eq!(is_whole(&index), None, "the watch has shown that it went, or not yet that it came");
    index.apply(applied(4));
    index.apply(CacheEvent::Read(map("", 6).uid("v").object()));
    assert_eq!((is_whole(&index), index.unconfirmed().len()), (Some(true), 1), "another one in its place");
}

#[test]
fn the_bytes_of_objects_are_counted_as_long_as_they_are_held() {
    let text = "x".repeat(10_000);
    let object = |text: &str, version| (*map(text, version).object()).clone();
    let mut index = Cache::cutting(5_000);
    let counted = |index: &Cache| index.all().map(CachedObject::held).sum::<usize>();
    index.apply(CacheEvent::Applied(object(&text, 1)));
    assert!(index.bytes() < 2_000, "it is held by its metadata: {}", index.bytes());
    index.apply(CacheEvent::Read(map(&text, 1).object()));
    assert!(index.bytes() > 11_000 && index.bytes() == counted(&index), "it is whole");
    index.apply(CacheEvent::Deleting(Key::new("n", "x"), Uid::new("u")));
    index.apply(CacheEvent::Applied(object("", 2)));
    assert_eq!(index.bytes(), counted(&index));
    assert!(index.bytes() < 2_000, "a smaller version took its place");
    index.apply(CacheEvent::Deleted(object("", 3)));
    assert_eq!(index.bytes(), 0);
    index.apply(CacheEvent::ListBegins);
    index.apply(CacheEvent::Listed(object(&text, 4)));
    index.apply(CacheEvent::ListEnds);
    assert_eq!((index.bytes(), index.len()), (counted(&index), 1));
    let emptied = index.emptied();
    assert_eq!((emptied.bytes(), emptied.len(), emptied.keeps_whole()), (0, 0, false));
    assert!(emptied.names_changed() > index.names_changed());
    index.apply(CacheEvent::ListBegins);
    index.apply(CacheEvent::ListEnds);
    assert_eq!(index.bytes(), 0, "the list does not name it");
}

#[test]
fn a_read_of_the_same_version_is_no_change_and_a_deletion_that_was_asked_for_stays() {
    let mut index = Cache::cutting(0);
    let object = || map("", 1).controlled_by("p");
    index.apply(CacheEvent::Applied((*object().object()).clone()));
    index.apply(CacheEvent::Deleting(Key::new("n", "x"), Uid::new("u")));
    let before = index.changes_for(&Uid::new("p"));
    assert!(index.apply(CacheEvent::Read(object().object())).is_empty());
    assert_eq!(index.changes_for(&Uid::new("p")), before);
    let children = index.candidates(&Uid::new("p"), "n", None);
    assert!(children.iter().all(|child| child.whole().is_some() && child.deleting) && children.len() == 1);
}

#[test]
fn a_cache_that_holds_all_whole_from_now_on_has_them_after_the_next_list() {
    let mut index = Cache::cutting(0);
    let object = || (*map("", 1).object()).clone();
    index.apply(CacheEvent::Applied(object()));
    index.keep_whole();
    assert_eq!(is_whole(&index), Some(false));
    index.apply(CacheEvent::ListBegins);
    let changes = index.apply(CacheEvent::Listed(object()));
    assert!(changes.len() == 1 && changes[0].gone().is_none(), "who needs whole objects has not seen it");
    assert!(index.apply(CacheEvent::ListEnds).is_empty());
    assert_eq!(is_whole(&index), Some(true));
}

#[test]
fn a_version_that_is_given_a_second_time_counts_though_only_metadata_is_held() {
    let mut index = Cache::cutting(0);
    index.apply(CacheEvent::Applied((*map("a", 1).object()).clone()));
    index.apply(CacheEvent::Restored);
    index.apply(CacheEvent::ListBegins);
    assert!(index.apply(CacheEvent::Listed((*map("a", 1).object()).clone())).is_empty());
    assert_eq!(index.apply(CacheEvent::Listed((*map("b", 1).object()).clone())).len(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Event(u8, u64, bool),
    Write(u8, u64),
}

fn selectors() -> impl Strategy<Value = Selector> {
    let label = prop::sample::select(vec!["a", "b"]);
    let value = prop::sample::select(vec!["1", "2"]);
    let one = (label, value, 0..4_u8).prop_map(|(label, value, kind)| match kind {
        0 => format!("{label}={value}"),
        1 => format!("{label}!={value}"),
        2 => label.to_owned(),
        _ => format!("!{label}"),
    });
    prop::collection::vec(one, 1..3).prop_map(|all| Selector::parse(&all.join(",")).unwrap())
}

/// A Pod whose name, namespace, labels and owner say what a number says.
fn labelled(number: u8, version: u64) -> Object {
    let namespace = if number.is_multiple_of(2) { "n" } else { "m" };
    let mut built = a("v1", "Pod", &format!("{namespace}/{number}"));
    built = built.uid(&number.to_string()).version(&version.to_string());
    for (bit, label) in [(1, "a"), (2, "b")] {
        if version & bit != 0 {
            built = built.label(label, if version & 4 != 0 { "1" } else { "2" });
        }
    }
    let built = if version.is_multiple_of(5) { built.controlled_by("p") } else { built };
    (*built.object()).clone()
}

proptest! {
    /// The indexes name what a walk over everything names.
    #[test]
    fn candidates_are_those_that_a_walk_finds(
        steps in prop::collection::vec((0..6_u8, 1..40_u64, 0..4_u8), 0..60),
        selector in selectors(),
        namespace in prop::sample::select(vec!["", "n", "m"]),
    ) {
        let mut index = Cache::default();
        for (number, version, kind) in steps {
            let object = labelled(number, version);
            index.apply(if kind == 0 { CacheEvent::Deleted(object) } else { CacheEvent::Applied(object) });
        }
        let parent = Uid::new("p");
        let claimable = |object: &&CachedObject| match &object.controller {
            Some(owner) => *owner == parent,
            None => selector.matches(&object.labels),
        };
        let here = |object: &&CachedObject| namespace.is_empty() || *object.key.namespace == *namespace;
        let names = |those: &mut dyn Iterator<Item = &CachedObject>| -> BTreeSet<Key> {
            those.map(|object| object.key.clone()).collect()
        };
        let found = index.candidates(&parent, namespace, Some(&selector));
        let walked = names(&mut index.all().filter(here).filter(claimable));
        prop_assert_eq!(names(&mut found.iter()), walked);
        prop_assert_eq!(names(&mut found.iter()).len(), found.len(), "none twice");
    }

    /// The metadata of a cache that cuts objects is that of a cache that does not.
    #[test]
    fn a_cut_cache_shows_what_a_whole_one_shows(
        steps in prop::collection::vec((0..4_u8, 1..30_u64, 0..7_u8), 0..60),
    ) {
        let (mut cut, mut whole) = (Cache::cutting(0), Cache::default());
        let parent = Uid::new("p");
        for (number, version, kind) in steps {
            let object = labelled(number, version);
            let key = object.key.clone();
            let event = || match kind {
                0 => CacheEvent::Deleted(object.clone()),
                1 => CacheEvent::Wrote(object.clone().into()),
                2 => CacheEvent::ListBegins,
                3 => CacheEvent::Listed(object.clone()),
                4 => CacheEvent::ListEnds,
                5 => CacheEvent::Deleting(key.clone(), object.uid.clone()),
                _ => CacheEvent::Applied(object.clone()),
            };
            let shown = |changes: Vec<ObjectChange>| -> Vec<_> {
                let side = |side: Option<CachedObject>| side.map(|one| (one.key.clone(), one.version.clone(), one.deleting));
                changes.into_iter().map(|change| (side(change.before), side(change.after))).collect()
            };
            prop_assert_eq!(shown(cut.apply(event())), shown(whole.apply(event())));
            if number == 0 && let Some(now) = whole.get(&key).and_then(CachedObject::whole).cloned() {
                prop_assert!(cut.apply(CacheEvent::Read(Arc::clone(&now))).is_empty());
                prop_assert_eq!(cut.get(&key).and_then(CachedObject::whole).map(|held| held.json()), Some(now.json()));
            }
            let seen = |index: &Cache| -> Vec<_> {
                let found = index.candidates(&parent, "", Some(&Selector::default()));
                found.iter().map(|one| (one.key.clone(), one.version.clone(), one.deleting, one.bytes())).collect()
            };
            prop_assert_eq!(seen(&cut), seen(&whole));
            prop_assert_eq!(cut.changes_for(&parent), whole.changes_for(&parent));
            prop_assert_eq!(cut.unconfirmed().len(), whole.unconfirmed().len());
        }
    }

    /// Whatever arrives in whatever order, the secondary indexes say what the objects say.
    #[test]
    fn all_indexes_agree(steps in prop::collection::vec(
        prop_oneof![
            (0..3_u8, 1..9_u64, any::<bool>()).prop_map(|(n, v, d)| Step::Event(n, v, d)),
            (0..3_u8, 1..9_u64).prop_map(|(n, v)| Step::Write(n, v)),
        ], 0..40)
    ) {
        let (mut index, mut labelled) = (Cache::default(), Cache::default());
        labelled.label();
        let mut last = None;
        let seen = |index: &Cache| -> Vec<_> {
            let found = index.candidates(&Uid::new("p"), "n", Some(&Selector::default()));
            found.iter().map(|one| (one.uid.clone(), one.version.clone(), one.deleting)).collect()
        };
        for step in steps {
            let object = |n: u8, v: u64| {
                let built = a("v1", "Pod", &format!("n/{n}")).uid(&format!("{n}-{}", v / 4)).version(&v.to_string());
                let built = if v.is_multiple_of(2) { built.controlled_by("p").label("even", "true") } else { built };
                (*built.object()).clone()
            };
            for index in [&mut index, &mut labelled] {
                index.apply(match step {
                    Step::Event(n, v, true) => CacheEvent::Deleted(object(n, v)),
                    Step::Event(n, v, false) => CacheEvent::Applied(object(n, v)),
                    Step::Write(n, v) => CacheEvent::Wrote(object(n, v).into()),
                });
            }
            let owned = index.owned.get(&Uid::new("p")).map_or(0, |owned| owned.children.len());
            let orphans = index.orphans.len();
            prop_assert_eq!(owned + orphans, index.objects.len());
            let even = Selector::equals("even", "true");
            let within = Finds::Labels { place: RuleScope::Namespace("n".into()), labels: even };
            let found = |index: &Cache| keys(select(&within, index, &[]).iter());
            prop_assert_eq!(found(&labelled), found(&index));
            prop_assert_eq!(index.by_uid.len(), index.objects.len());
            for object in index.all() {
                prop_assert_eq!(index.by_uid.get(&object.uid), Some(&object.key));
            }
            let known = |child: &CachedObject| {
                let held = index.get(&child.key).and_then(CachedObject::whole);
                held.zip(child.whole()).is_some_and(|(held, child)| Arc::ptr_eq(held, child))
            };
            prop_assert!(index.owned.get(&Uid::new("p")).into_iter().flat_map(|owned| &owned.children).all(known));
            let (revision, found) = (index.changes_for(&Uid::new("p")), seen(&index));
            if let Some((before, then)) = &last {
                prop_assert!(revision != *before || found == *then, "a change without a number");
            }
            last = Some((revision, found));
        }
    }
}

#[test]
fn names_change_where_an_object_comes_or_goes_and_not_with_its_versions() {
    let mut cache = Cache::default();
    let object = |name: &str, version: &str| a("v1", "ConfigMap", name).version(version).object();
    let mut after = |event: CacheEvent| {
        let before = cache.names_changed();
        cache.apply(event);
        cache.names_changed() != before
    };
    assert!(after(CacheEvent::Applied(Object::clone(&object("n/a", "1")))));
    assert!(!after(CacheEvent::Applied(Object::clone(&object("n/a", "2")))));
    assert!(!after(CacheEvent::Wrote(object("n/a", "3"))));
    assert!(after(CacheEvent::Applied(Object::clone(&object("n/b", "4")))));
    assert!(after(CacheEvent::Deleted(Object::clone(&object("n/b", "5")))));
}
