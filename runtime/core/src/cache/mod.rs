//! Cache: objects of one resource by name, owner and uid, kept up to date by watch events and by answers to own writes.
//!
//! - An older version is dropped. resourceVersions of one kind compare as integers (Kubernetes 1.35). Where they are no
//!   integers only equality counts, and answers to own writes are not taken in.
//! - The answer to a deletion only marks the uid. A watch event or a 404 removes the object.
//! - A list replaces what is cached, except objects that only an answer to an own write has shown: they stay until a watch
//!   event or a read decides.
//! - Where only children are looked for, large objects that no controller made are held by their metadata alone, until a
//!   reconcile reads them.
//! - Where the cluster was restored from a snapshot, versions begin anew at lower ones: the next list alone counts.

pub mod budget;
mod event;
pub mod label_index;
pub mod redefinitions;
#[cfg(test)]
mod tests;
pub mod trigger;
pub mod waiting_changes;
pub mod watch_breaks;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::hash::FastMap;
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::{Key, Uid};
use crate::object::selector::Selector;
pub use event::{CacheEvent, ObjectChange};
use label_index::{LabelIndex, Position};

/// # Guarantees
/// An event that is older than what is known changes nothing. The answer to one of our writes is known at once and
/// survives a list that is older than it. A deletion of an earlier object of a name leaves the later one alone.
/// See <https://github.com/metacontroller/metacontroller/issues/1072>.
#[derive(Debug, Default)]
pub struct Cache {
    objects: BTreeMap<Key, Entry>,
    owned: FastMap<Uid, Owned>,
    /// Objects without a controller.
    orphans: LabelIndex,
    changes: ChangeNumbers,
    /// All objects by label, after [`Cache::label`].
    labelled: Option<LabelIndex>,
    by_uid: FastMap<Uid, Key>,
    /// Objects of more bytes are cut, unless a controller made or read them.
    max_unseen: Option<usize>,
    /// Keys that the running list has named so far.
    listed: Option<BTreeSet<Key>>,
    /// The latest version in an event: an object that is older and not here has been deleted.
    latest: Option<u128>,
    /// Bytes that all objects take in memory, about.
    bytes: usize,
}

/// Numbers of the latest changes of a cache, by which a reader sees that nothing changed since.
#[derive(Debug, Default)]
struct ChangeNumbers {
    /// The last change.
    last: u64,
    /// The last change of an object without a controller.
    of_orphans: u64,
    /// The last change by which an object came or went.
    of_names: u64,
}

/// The children of one owner.
#[derive(Debug, Default)]
struct Owned {
    /// In the order of their keys.
    children: Vec<CachedObject>,
    /// The number of the last change among them.
    at: u64,
}

#[derive(Debug)]
struct Entry {
    object: CachedObject,
    /// A watch event has shown it, not only the answer to an own write.
    confirmed: bool,
    /// A reconcile wrote or read it: it stays whole.
    pinned: bool,
}

impl Cache {
    /// A cache in which large objects that no controller made are held by their metadata alone.
    pub fn cutting(max_unseen: usize) -> Self {
        Self { max_unseen: Some(max_unseen), ..Self::default() }
    }

    /// Whether all objects are held whole, but for those that came before [`Cache::keep_whole`].
    pub fn keeps_whole(&self) -> bool {
        self.max_unseen.is_none()
    }

    /// From now on all objects are held whole. Those that were cut become whole with the next list.
    pub fn keep_whole(&mut self) {
        self.max_unseen = None;
    }

    /// Bytes that all objects take in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A cache without objects that holds them as this one does, and that goes on counting changes.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let next = self.changes.last + 1;
        Self {
            max_unseen: self.max_unseen,
            labelled: self.labelled.as_ref().map(|_| LabelIndex::default()),
            changes: ChangeNumbers { last: next, of_orphans: next, of_names: next },
            ..Self::default()
        }
    }

    /// Objects that only answers to own writes have shown: after a complete list the store reads them.
    pub fn unconfirmed(&self) -> Vec<CachedObject> {
        self.objects.values().filter(|entry| !entry.confirmed).map(|entry| entry.object.clone()).collect()
    }

    pub fn get(&self, key: &Key) -> Option<&CachedObject> {
        self.objects.get(key).map(|entry| &entry.object)
    }

    pub fn by_uid(&self, uid: &Uid) -> Option<&CachedObject> {
        self.get(self.by_uid.get(uid)?)
    }

    pub fn all(&self) -> impl Iterator<Item = &CachedObject> {
        self.objects.values().map(|entry| &entry.object)
    }

    /// All objects that are held whole.
    pub fn all_whole(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.all().filter_map(CachedObject::whole)
    }

    /// Objects behind this key, in order.
    pub fn after(&self, key: Option<&Key>) -> impl Iterator<Item = &CachedObject> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range((from, Bound::Unbounded)).map(|(_, entry)| &entry.object)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// From now on objects are found by their labels without a walk.
    pub fn label(&mut self) {
        if self.labelled.is_none() {
            let mut labelled = LabelIndex::default();
            self.all().for_each(|object| labelled.insert(object));
            self.labelled = Some(labelled);
        }
    }

    /// The objects of a namespace (or of any) that a selector may match, each with the value of the label by which it is
    /// found, in an order that goes on behind any of them.
    pub(crate) fn near<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
        after: &'a Position,
    ) -> Box<dyn Iterator<Item = (&'a str, &'a CachedObject)> + 'a> {
        if let Some(labelled) = &self.labelled {
            let near = labelled.near(namespace, selector, after);
            return Box::new(near.filter_map(|(value, key)| Some((value, self.get(key)?))));
        }
        let begin = || Bound::Included(Key::new(namespace.unwrap_or_default(), ""));
        let from = after.key.clone().map_or_else(begin, Bound::Excluded);
        let objects = self.objects.range((from, Bound::Unbounded)).map(|(_, entry)| ("", &entry.object));
        let is_here =
            move |object: &CachedObject| namespace.is_none_or(|here| *object.key.namespace == *here);
        Box::new(objects.take_while(move |(_, object)| is_here(object)))
    }

    /// The object of this name, if there is one, of each namespace that there is.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = Option<&CachedObject>> {
        let mut next = self.objects.keys().next();
        std::iter::from_fn(move || {
            let namespace = &next?.namespace;
            // No namespace lies between one and the same with a NUL behind it.
            next = self.objects.range(Key::new(&format!("{namespace}\0"), "")..).next().map(|(key, _)| key);
            Some(self.get(&Key::new(namespace, name)))
        })
    }

    /// The objects that a parent could claim in a namespace (empty: anywhere): those that it controls, and the orphans
    /// that the selector, if there is one, matches.
    pub fn candidates(
        &self,
        parent: &Uid,
        namespace: &str,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        let here = |child: &&CachedObject| namespace.is_empty() || *child.key.namespace == *namespace;
        let owned = self.owned.get(parent).into_iter().flat_map(|owned| &owned.children);
        let mut found: Vec<_> = owned.filter(here).cloned().collect();
        if let Some(selector) = selector.filter(|_| !self.orphans.is_empty()) {
            let start = Position::default();
            let near = self.orphans.near((!namespace.is_empty()).then_some(namespace), selector, &start);
            let near = near.filter_map(|(_, key)| self.get(key));
            let matching = near.filter(|object| selector.matches(&object.labels));
            found.extend(matching.cloned());
        }
        found
    }

    /// As long as these numbers stay, a parent has the same candidates whatever its selector is.
    pub fn changes_for(&self, parent: &Uid) -> [u64; 2] {
        [self.owned.get(parent).map_or(0, |owned| owned.at), self.changes.of_orphans]
    }

    /// As long as this number stays, the same names are taken here.
    pub fn names_changed(&self) -> u64 {
        self.changes.of_names
    }
}

/// Changes the value of a key and removes it if `change` leaves it empty. Returns whether the map is empty then.
pub(crate) fn change_or_remove<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V>(
    map: &mut BTreeMap<K, V>,
    key: &Q,
    change: impl FnOnce(&mut V) -> bool,
) -> bool {
    if map.get_mut(key).is_some_and(change) {
        map.remove(key);
    }
    map.is_empty()
}

/// Removes a key from a set. Returns whether the set is empty then.
pub(crate) fn remove_from(set: &mut BTreeSet<Key>, key: &Key) -> bool {
    set.remove(key);
    set.is_empty()
}
