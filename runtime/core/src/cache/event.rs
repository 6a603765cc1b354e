//! Events that change a cache, and the changes that they make.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Cache, Entry, Owned};
use crate::json::size::tree_size;
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::{Key, Uid};

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
        self.changes.last += 1;
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
        if before.is_none() {
            self.changes.of_names = self.changes.last;
        }
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
        self.changes.of_names = self.changes.last;
        vec![ObjectChange { before: Some(entry.object), after: None }]
    }

    /// Takes an object in where it is found by its owner, in the place of what it was before.
    fn link(&mut self, object: &CachedObject) {
        self.changes.last += 1;
        let Some(owner) = &object.controller else {
            self.changes.of_orphans = self.changes.last;
            return self.orphans.insert(object);
        };
        let Owned { children, at } = self.owned.or_default(owner);
        *at = self.changes.last;
        match children.binary_search_by(|other| other.key.cmp(&object.key)) {
            Ok(place) => children.splice(place..=place, [object.clone()]).for_each(drop),
            Err(place) => children.insert(place, object.clone()),
        }
    }

    fn disown(&mut self, owner: &Uid, child: &Key) {
        let Some(Owned { children, at }) = self.owned.get_mut(owner) else { return };
        *at = self.changes.last;
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
        self.changes.last += 1;
        if let Some(owner) = &object.controller {
            self.disown(owner, &object.key);
        } else {
            self.changes.of_orphans = self.changes.last;
            self.orphans.remove(object);
        }
        if let Some(labelled) = &mut self.labelled {
            labelled.remove(object);
        }
    }
}
