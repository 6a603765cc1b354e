//! Cached objects of one resource by name, owner and uid, kept up to date by watch events and by answers to own writes.
//!
//! - An older version is dropped. resourceVersions of one kind compare as integers (Kubernetes 1.35). Where they are no
//!   integers only equality counts, and answers to own writes are not taken in.
//! - The answer to a deletion only marks the uid. A watch event or a 404 removes the object.
//! - A list replaces what is cached, except objects that only an answer to an own write has shown: they stay until a watch
//!   event or a read decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::cache::label_index::LabelIndex;
use crate::fast_map::FastMap;
use crate::object::Object;
use crate::object::id::{Key, Uid};
use crate::object::selector::Selector;

/// # Guarantees
/// An event that is older than what is known changes nothing. The answer to one of our writes is known at once and
/// survives a list that is older than it. A deletion of an earlier object of a name leaves the later one alone.
#[derive(Debug, Default)]
pub struct Cache {
    objects: BTreeMap<Key, Entry>,
    owned: FastMap<Uid, Owned>,
    /// What nobody controls.
    orphans: LabelIndex,
    /// Changes are numbered: the last one, and the last one of what nobody controls.
    changes: u64,
    orphans_at: u64,
    /// All, where somebody asks for them by their labels.
    labelled: Option<LabelIndex>,
    by_uid: FastMap<Uid, Key>,
    /// What a list that is under way has named so far.
    listed: Option<BTreeSet<Key>>,
    /// The latest version an event told of: what is older and not here is gone.
    latest: Option<u128>,
}

/// The children of one owner.
#[derive(Debug, Default)]
struct Owned {
    /// In the order of their keys.
    children: Vec<Arc<Object>>,
    /// The number of the last change among them.
    at: u64,
}

#[derive(Debug)]
struct Entry {
    object: Arc<Object>,
    /// A watch told it, not only the answer to our own write.
    confirmed: bool,
}

/// What an [`Cache`] learns from.
#[derive(Debug)]
pub enum CacheEvent {
    /// A list begins: it will name everything there is.
    ListBegins,
    Listed(Object),
    /// The list is complete.
    ListEnds,
    Applied(Object),
    Deleted(Object),
    /// The API server's answer to our own create or update.
    Wrote(Arc<Object>),
    /// The API server accepted our deletion; an event will say when the object is gone.
    Deleting(Key, Uid),
    /// A read found that there is no such object, or another one of that name.
    Missing(Key, Uid),
}

/// One object that is not as it was.
#[derive(Debug, Clone)]
pub struct ObjectChange {
    pub before: Option<Arc<Object>>,
    pub after: Option<Arc<Object>>,
}

impl ObjectChange {
    /// The object that is no more.
    pub fn gone(&self) -> Option<&Arc<Object>> {
        let is_other =
            |before: &&Arc<Object>| self.after.as_ref().is_none_or(|after| after.uid != before.uid);
        self.before.as_ref().filter(is_other)
    }
}

impl Cache {
    /// Takes one event in and returns what it changed.
    pub fn apply(&mut self, event: CacheEvent) -> Vec<ObjectChange> {
        match event {
            CacheEvent::ListBegins => {
                self.listed = Some(BTreeSet::new());
                self.latest = None;
                Vec::new()
            }
            CacheEvent::Listed(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(object.key.clone());
                }
                self.learn(object, true)
            }
            CacheEvent::ListEnds => self.sweep(),
            CacheEvent::Applied(object) => {
                self.latest = self.latest.max(object.version.number());
                self.learn(object, false)
            }
            CacheEvent::Deleted(object) => self.end(&object),
            CacheEvent::Wrote(object) => self.absorb(object),
            CacheEvent::Deleting(key, uid) => self.mark_deleting(&key, &uid),
            CacheEvent::Missing(key, uid) => match self.objects.get(&key) {
                Some(known) if known.object.uid == uid => self.remove(&key),
                _ => Vec::new(),
            },
        }
    }

    /// Objects that only our own writes told us of and that a complete list did not name: somebody has to read them.
    pub fn doubtful(&self) -> Vec<Arc<Object>> {
        self.objects
            .values()
            .filter(|entry| !entry.confirmed)
            .map(|entry| Arc::clone(&entry.object))
            .collect()
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key).map(|entry| &entry.object)
    }

    pub fn by_uid(&self, uid: &Uid) -> Option<&Arc<Object>> {
        self.get(self.by_uid.get(uid)?)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values().map(|entry| &entry.object)
    }

    /// Those behind this key, in order.
    pub fn after(&self, key: Option<&Key>) -> impl Iterator<Item = &Arc<Object>> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range((from, Bound::Unbounded)).map(|(_, entry)| &entry.object)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// All objects of one namespace.
    fn within(&self, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let here = self.objects.range(Key::new(namespace, "")..);
        here.take_while(move |(key, _)| *key.namespace == *namespace).map(|(_, entry)| &entry.object)
    }

    /// From now on [`Cache::matching`] takes no walk.
    pub fn label(&mut self) {
        if self.labelled.is_none() {
            let mut labelled = LabelIndex::default();
            self.all().for_each(|object| labelled.insert(object));
            self.labelled = Some(labelled);
        }
    }

    /// The objects of a namespace (or of any) that a selector matches.
    pub fn matching<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let near: Box<dyn Iterator<Item = _>> = match (&self.labelled, namespace) {
            (Some(labelled), _) => {
                Box::new(labelled.near(namespace, selector).filter_map(|key| self.get(key)))
            }
            (None, None) => Box::new(self.all()),
            (None, Some(namespace)) => Box::new(self.within(namespace)),
        };
        near.filter(|object| selector.matches(&object.labels))
    }

    /// The objects of this name in whichever namespace: a step per namespace, not one per object.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Arc<Object>> {
        let mut next = self.objects.keys().next();
        std::iter::from_fn(move || {
            let namespace = &next?.namespace;
            // No namespace lies between one and the same with a NUL behind it.
            next = self.objects.range(Key::new(&format!("{namespace}\0"), "")..).next().map(|(key, _)| key);
            Some(self.get(&Key::new(namespace, name)))
        })
        .flatten()
    }

    /// What a parent could claim in a namespace (empty: anywhere): what it controls, and what nobody controls and the
    /// selector, if there is one, matches.
    pub fn candidates(&self, parent: &Uid, namespace: &str, selector: Option<&Selector>) -> Vec<Arc<Object>> {
        let here = |child: &&Arc<Object>| namespace.is_empty() || *child.key.namespace == *namespace;
        let owned = self.owned.get(parent).into_iter().flat_map(|owned| &owned.children);
        let mut found: Vec<_> = owned.filter(here).cloned().collect();
        if let Some(selector) = selector.filter(|_| !self.orphans.is_empty()) {
            let near = self.orphans.near((!namespace.is_empty()).then_some(namespace), selector);
            let matching =
                near.filter_map(|key| self.get(key)).filter(|object| selector.matches(&object.labels));
            found.extend(matching.map(Arc::clone));
        }
        found
    }

    /// As long as these numbers stay, a parent has the same candidates whatever its selector is.
    pub fn stamp(&self, parent: &Uid) -> [u64; 2] {
        [self.owned.get(parent).map_or(0, |owned| owned.at), self.orphans_at]
    }

    /// As long as this number stays, nothing here changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn learn(&mut self, object: Object, from_list: bool) -> Vec<ObjectChange> {
        if let Some(known) = self.objects.get_mut(&object.key) {
            let same = known.object.uid == object.uid && known.object.version == object.version;
            if same {
                known.confirmed = true;
                return Vec::new();
            }
            // A list may be served from a cache that is behind, or after the cluster was restored from a backup: what
            // it says goes, except where we know better from an answer that no event has repeated yet.
            let older = object.version.is_older_than(&known.object.version);
            if older && (!from_list || !known.confirmed) {
                return Vec::new();
            }
        }
        self.put(Arc::new(object), true)
    }

    fn end(&mut self, object: &Object) -> Vec<ObjectChange> {
        self.latest = self.latest.max(object.version.number());
        match self.objects.get(&object.key) {
            Some(known)
                if known.object.uid == object.uid || known.object.version.is_older_than(&object.version) =>
            {
                self.remove(&object.key)
            }
            _ => Vec::new(),
        }
    }

    fn absorb(&mut self, object: Arc<Object>) -> Vec<ObjectChange> {
        let Some(version) = object.version.number() else {
            return Vec::new();
        };
        match self.objects.get(&object.key) {
            Some(known) if !known.object.version.is_older_than(&object.version) => Vec::new(),
            // Events have passed it by: it has been deleted since.
            None if self.latest.is_some_and(|latest| version < latest) => Vec::new(),
            Some(_) | None => self.put(object, false),
        }
    }

    fn mark_deleting(&mut self, key: &Key, uid: &Uid) -> Vec<ObjectChange> {
        let Some(known) = self.objects.get_mut(key) else {
            return Vec::new();
        };
        if known.object.uid != *uid || known.object.deleting {
            return Vec::new();
        }
        let before = Arc::clone(&known.object);
        let mut marked = (*before).clone();
        marked.deleting = true;
        known.object = Arc::new(marked);
        let now = Arc::clone(&known.object);
        self.link(&now);
        vec![ObjectChange { after: Some(now), before: Some(before) }]
    }

    fn sweep(&mut self) -> Vec<ObjectChange> {
        let Some(listed) = self.listed.take() else {
            return Vec::new();
        };
        let gone = self.objects.iter().filter(|(key, entry)| entry.confirmed && !listed.contains(*key));
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        gone.iter().flat_map(|key| self.remove(key)).collect()
    }

    fn put(&mut self, object: Arc<Object>, confirmed: bool) -> Vec<ObjectChange> {
        let before = self.objects.remove(&object.key).map(|entry| entry.object);
        if let Some(before) = &before {
            self.unlink(before);
        }
        let key = &object.key;
        self.by_uid.insert(object.uid.clone(), key.clone());
        self.link(&object);
        if let Some(labelled) = &mut self.labelled {
            labelled.insert(&object);
        }
        self.objects.insert(key.clone(), Entry { object: Arc::clone(&object), confirmed });
        vec![ObjectChange { before, after: Some(object) }]
    }

    fn remove(&mut self, key: &Key) -> Vec<ObjectChange> {
        let Some(entry) = self.objects.remove(key) else {
            return Vec::new();
        };
        self.unlink(&entry.object);
        vec![ObjectChange { before: Some(entry.object), after: None }]
    }

    /// Takes an object in where it is found by its owner, in the place of what it was before.
    fn link(&mut self, object: &Arc<Object>) {
        self.changes += 1;
        let Some(owner) = &object.controller else {
            self.orphans_at = self.changes;
            return self.orphans.insert(object);
        };
        let Owned { children, at } = self.owned.or_default(owner);
        *at = self.changes;
        match children.binary_search_by(|other| other.key.cmp(&object.key)) {
            Ok(place) => children.splice(place..=place, [Arc::clone(object)]).for_each(drop),
            Err(place) => children.insert(place, Arc::clone(object)),
        }
    }

    fn disown(&mut self, owner: &Uid, child: &Key) {
        let Some(Owned { children, at }) = self.owned.get_mut(owner) else { return };
        *at = self.changes;
        if let Ok(place) = children.binary_search_by(|other| other.key.cmp(child)) {
            children.remove(place);
        }
        if children.is_empty() {
            self.owned.remove(owner);
        }
    }

    fn unlink(&mut self, object: &Object) {
        self.by_uid.remove(&object.uid);
        self.changes += 1;
        if let Some(owner) = &object.controller {
            self.disown(owner, &object.key);
        } else {
            self.orphans_at = self.changes;
            self.orphans.remove(object);
        }
        if let Some(labelled) = &mut self.labelled {
            labelled.remove(object);
        }
    }
}

pub(crate) fn take_out<K: Ord + Clone>(sets: &mut BTreeMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(key);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::testing::a;

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
    fn the_end_of_an_earlier_object_of_that_name_is_not_the_end_of_this_one() {
        let mut index = Cache::default();
        index.apply(CacheEvent::Wrote(pod("a", "2", 9).into()));
        assert!(index.apply(CacheEvent::Applied(pod("a", "1", 7))).is_empty());
        assert!(index.apply(CacheEvent::Deleted(pod("a", "1", 8))).is_empty());
        assert_eq!(known(&index, "a"), Some(("2".to_owned(), 9)));
        assert_eq!(index.apply(CacheEvent::Deleted(pod("a", "2", 10))).len(), 1);
        assert_eq!(known(&index, "a"), None);
    }

    #[test]
    fn an_answer_survives_a_list_that_is_older_until_somebody_has_looked() {
        let mut index = Cache::default();
        index.apply(CacheEvent::Applied(pod("old", "1", 1)));
        index.apply(CacheEvent::Wrote(pod("new", "2", 9).into()));
        index.apply(CacheEvent::ListBegins);
        index.apply(CacheEvent::Listed(pod("other", "3", 3)));
        assert_eq!(index.apply(CacheEvent::ListEnds).len(), 1, "what the list does not name is gone");
        assert_eq!((known(&index, "old"), known(&index, "new")), (None, Some(("2".to_owned(), 9))));
        assert_eq!(index.doubtful().len(), 1);
        index.apply(CacheEvent::Missing(Key::new("n", "new"), Uid::new("2")));
        assert_eq!(known(&index, "new"), None);
    }

    #[test]
    fn an_answer_that_comes_after_the_end_of_its_object_brings_nothing_back() {
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
    fn versions_that_are_no_numbers_are_never_absorbed() {
        let mut index = Cache::default();
        let object = a("v1", "Pod", "n/a").version("abc").object();
        assert!(index.apply(CacheEvent::Wrote(object)).is_empty());
    }

    #[test]
    fn our_deletion_marks_the_object_until_an_event_removes_it() {
        let mut index = Cache::default();
        index.apply(CacheEvent::Applied(pod("a", "1", 1)));
        assert!(
            index.apply(CacheEvent::Deleting(Key::new("n", "a"), Uid::new("2"))).is_empty(),
            "another uid"
        );
        index.apply(CacheEvent::Deleting(Key::new("n", "a"), Uid::new("1")));
        assert!(index.get(&Key::new("n", "a")).unwrap().deleting);
    }

    #[test]
    fn candidates_are_what_the_parent_controls_and_what_nobody_does_and_matches() {
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
        assert_eq!(keys(index.within("n")), ["n/a", "n/b"]);
        assert_eq!(keys(index.within("")), ["a", "b"]);
        assert!(keys(index.within("o")).is_empty());
        assert_eq!(keys(index.named("a")), ["a", "m/a", "n/a", "n-1/a"]);
        assert_eq!(keys(index.named("c")), ["z/c"]);
        assert!(keys(index.named("d")).is_empty());
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
            let claimable = |object: &&Arc<Object>| match &object.controller {
                Some(owner) => *owner == parent,
                None => selector.matches(&object.labels),
            };
            let here = |object: &&Arc<Object>| namespace.is_empty() || *object.key.namespace == *namespace;
            let names = |those: &mut dyn Iterator<Item = &Arc<Object>>| -> BTreeSet<Key> {
                those.map(|object| object.key.clone()).collect()
            };
            let found = index.candidates(&parent, namespace, Some(&selector));
            let walked = names(&mut index.all().filter(here).filter(claimable));
            prop_assert_eq!(names(&mut found.iter()), walked);
            prop_assert_eq!(names(&mut found.iter()).len(), found.len(), "none twice");
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
                let owned = index.owned.get("p").map_or(0, |owned| owned.children.len());
                let orphans = index.orphans.len();
                prop_assert_eq!(owned + orphans, index.objects.len());
                let even = Selector::equals("even", "true");
                let found = |index: &Cache| keys(index.matching(Some("n"), &even));
                prop_assert_eq!(found(&labelled), found(&index));
                prop_assert_eq!(index.by_uid.len(), index.objects.len());
                for object in index.all() {
                    prop_assert_eq!(index.by_uid.get(&object.uid), Some(&object.key));
                }
                let known = |child: &Arc<Object>| index.get(&child.key).is_some_and(|it| Arc::ptr_eq(it, child));
                prop_assert!(index.owned.get("p").into_iter().flat_map(|owned| &owned.children).all(known));
                let (stamp, found) = (index.stamp(&Uid::new("p")), seen(&index));
                if let Some((before, then)) = &last {
                    prop_assert!(stamp != *before || found == *then, "a change without a number");
                }
                last = Some((stamp, found));
            }
        }
    }
}
