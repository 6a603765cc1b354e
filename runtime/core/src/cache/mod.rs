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
pub mod label_index;
#[cfg(test)]
mod tests;
pub mod trigger;
pub mod waiting_changes;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::hash::FastMap;
use crate::json::size::tree_size;
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::{Key, Uid};
use crate::object::selector::Selector;
use label_index::{LabelIndex, Position};

/// # Guarantees
/// An event that is older than what is known changes nothing. The answer to one of our writes is known at once and
/// survives a list that is older than it. A deletion of an earlier object of a name leaves the later one alone.
#[derive(Debug, Default)]
pub struct Cache {
    objects: BTreeMap<Key, Entry>,
    owned: FastMap<Uid, Owned>,
    /// Objects without a controller.
    orphans: LabelIndex,
    /// Number of the last change, and of the last change of an orphan.
    changes: u64,
    orphans_at: u64,
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

/// An observation that changes a [`Cache`].
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
    /// A reconcile that needs the whole object read it.
    Read(Arc<Object>),
    /// The API server accepted our deletion; an event follows when the object is gone.
    Deleting(Key, Uid),
    /// A read found that there is no such object, or another one of that name.
    Missing(Key, Uid),
    /// Versions went backwards: what is known counts no more than a list that is older.
    Restored,
}

impl CacheEvent {
    /// The object that it is about.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::ListBegins | Self::ListEnds | Self::Restored => None,
            Self::Listed(object) | Self::Applied(object) | Self::Deleted(object) => Some(&object.key),
            Self::Wrote(object) | Self::Read(object) => Some(&object.key),
            Self::Deleting(key, _) | Self::Missing(key, _) => Some(key),
        }
    }
}

/// One object that is not as it was.
#[derive(Debug, Clone)]
pub struct ObjectChange {
    pub before: Option<CachedObject>,
    pub after: Option<CachedObject>,
}

impl ObjectChange {
    pub fn key(&self) -> Option<&Key> {
        self.after.as_ref().or(self.before.as_ref()).map(|object| &object.key)
    }

    /// The object that is no more.
    pub fn gone(&self) -> Option<&CachedObject> {
        let is_other =
            |before: &&CachedObject| self.after.as_ref().is_none_or(|after| after.uid != before.uid);
        self.before.as_ref().filter(is_other)
    }
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
        Self {
            max_unseen: self.max_unseen,
            labelled: self.labelled.as_ref().map(|_| LabelIndex::default()),
            changes: self.changes + 1,
            orphans_at: self.changes + 1,
            ..Self::default()
        }
    }

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
            CacheEvent::ListEnds => self.end_list(),
            CacheEvent::Applied(object) => {
                self.latest = self.latest.max(object.version.number());
                self.learn(object, false)
            }
            CacheEvent::Deleted(object) => self.end(&object),
            CacheEvent::Wrote(object) => self.observe_write(object),
            CacheEvent::Read(object) => self.observe_read(object),
            CacheEvent::Deleting(key, uid) => self.mark_deleting(&key, &uid),
            CacheEvent::Restored => {
                self.objects.values_mut().for_each(|entry| entry.confirmed = true);
                (self.listed, self.latest) = (None, None);
                Vec::new()
            }
            CacheEvent::Missing(key, uid) => match self.objects.get(&key) {
                Some(known) if known.object.uid == uid => self.remove(&key),
                _ => Vec::new(),
            },
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
        [self.owned.get(parent).map_or(0, |owned| owned.at), self.orphans_at]
    }

    /// As long as this number stays, nothing here changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn learn(&mut self, object: Object, from_list: bool) -> Vec<ObjectChange> {
        let known = self.objects.get(&object.key);
        let pinned = known.is_some_and(|known| known.pinned && known.object.uid == object.uid);
        let object = self.arrived(object, pinned);
        if let Some(known) = self.objects.get_mut(&object.key) {
            let same = known.object.uid == object.uid && known.object.version == object.version;
            // After a restore a version may be given a second time.
            if same && (!from_list || known.object.has_same_json(&object)) {
                known.confirmed = true;
                return self.complete(object);
            }
            // A list may be served from a cache that is behind, or after the cluster was restored from a backup: it
            // counts, except where an answer to an own write is newer and no event has repeated it yet.
            let older = object.version.is_older_than(&known.object.version);
            if older && (!from_list || !known.confirmed) {
                return Vec::new();
            }
        }
        self.put(object, true, pinned)
    }

    /// The object as it is held.
    fn arrived(&self, object: Object, pinned: bool) -> CachedObject {
        let is_large = self.max_unseen.is_some_and(|max| object.json().len() > max);
        if !is_large || pinned || object.is_written() {
            return object.into();
        }
        CachedObject::cut(&object, tree_size(object.json().as_bytes()))
    }

    /// Takes the whole object in the place of the same one that was cut. Where only children are looked for, this is no
    /// change: it is what reconciles read it for.
    fn complete(&mut self, object: CachedObject) -> Vec<ObjectChange> {
        let Some(known) = self.objects.get_mut(&object.key) else { return Vec::new() };
        if known.object.whole().is_some() || object.whole().is_none() {
            return Vec::new();
        }
        let object = if known.object.deleting && !object.deleting { object.deleting() } else { object };
        let before = std::mem::replace(&mut known.object, object.clone());
        self.bytes = (self.bytes + object.held()).saturating_sub(before.held());
        if let Some(Owned { children, .. }) = object.controller.as_ref().and_then(|o| self.owned.get_mut(o))
            && let Ok(place) = children.binary_search_by(|other| other.key.cmp(&object.key))
        {
            children.splice(place..=place, [object.clone()]).for_each(drop);
        }
        if self.max_unseen.is_some() {
            return Vec::new();
        }
        self.changes += 1;
        vec![ObjectChange { before: Some(before), after: Some(object) }]
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

    fn observe_write(&mut self, object: Arc<Object>) -> Vec<ObjectChange> {
        let Some(version) = object.version.number() else {
            return Vec::new();
        };
        match self.objects.get_mut(&object.key) {
            Some(known) if !known.object.version.is_older_than(&object.version) => {
                // An event was faster. It was cut, unless the write made it one of ours.
                let is_same = known.object.uid == object.uid && known.object.version == object.version;
                known.pinned |= known.object.uid == object.uid;
                if is_same { self.complete(object.into()) } else { Vec::new() }
            }
            // Events have passed it by: it has been deleted since.
            None if self.latest.is_some_and(|latest| version < latest) => Vec::new(),
            Some(_) | None => self.put(object.into(), false, true),
        }
    }

    /// Events may be ahead of the answer to a read, or behind it: what they have not shown yet, or no longer show, is left
    /// to them.
    fn observe_read(&mut self, object: Arc<Object>) -> Vec<ObjectChange> {
        let Some(known) = self.objects.get_mut(&object.key) else { return Vec::new() };
        if known.object.uid == object.uid {
            known.pinned = true;
            if known.object.version == object.version {
                return self.complete(object.into());
            }
        }
        if known.object.version.is_older_than(&object.version) {
            return self.put(object.into(), false, true);
        }
        Vec::new()
    }

    fn mark_deleting(&mut self, key: &Key, uid: &Uid) -> Vec<ObjectChange> {
        let Some(known) = self.objects.get_mut(key) else {
            return Vec::new();
        };
        if known.object.uid != *uid || known.object.deleting {
            return Vec::new();
        }
        let now = known.object.deleting();
        let before = std::mem::replace(&mut known.object, now.clone());
        self.link(&now);
        vec![ObjectChange { after: Some(now), before: Some(before) }]
    }

    fn end_list(&mut self) -> Vec<ObjectChange> {
        let Some(listed) = self.listed.take() else {
            return Vec::new();
        };
        let gone = self.objects.iter().filter(|(key, entry)| entry.confirmed && !listed.contains(*key));
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        gone.iter().flat_map(|key| self.remove(key)).collect()
    }

    fn put(&mut self, object: CachedObject, confirmed: bool, pinned: bool) -> Vec<ObjectChange> {
        let before = self.objects.remove(&object.key).map(|entry| entry.object);
        if let Some(before) = &before {
            self.unlink(before);
        }
        self.bytes += object.held();
        let key = &object.key;
        self.by_uid.insert(object.uid.clone(), key.clone());
        self.link(&object);
        if let Some(labelled) = &mut self.labelled {
            labelled.insert(&object);
        }
        self.objects.insert(key.clone(), Entry { object: object.clone(), confirmed, pinned });
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
    fn link(&mut self, object: &CachedObject) {
        self.changes += 1;
        let Some(owner) = &object.controller else {
            self.orphans_at = self.changes;
            return self.orphans.insert(object);
        };
        let Owned { children, at } = self.owned.or_default(owner);
        *at = self.changes;
        match children.binary_search_by(|other| other.key.cmp(&object.key)) {
            Ok(place) => children.splice(place..=place, [object.clone()]).for_each(drop),
            Err(place) => children.insert(place, object.clone()),
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

    fn unlink(&mut self, object: &CachedObject) {
        self.bytes = self.bytes.saturating_sub(object.held());
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
