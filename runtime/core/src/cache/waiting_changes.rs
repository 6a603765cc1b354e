//! Changes of objects that wait for a listener: as they are, as long as the versions that they hold take a bounded number of bytes,
//! and beyond it by key and uid alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;

use crate::cache::ObjectChange;
use crate::object::cached::CachedObject;
use crate::object::id::{Key, Uid};

/// Bytes that one change takes beside the versions, about.
const OVERHEAD: usize = 256;

/// Changes in the order in which they came, with the authors of the writes behind them.
///
/// # Guarantees
/// The versions that only these changes still hold take at most the bytes of the bound. Where they would take more, all changes
/// that wait become [`Forgotten`], and so do later ones until those are popped: no object, owner or object that ended is lost.
#[derive(Debug)]
pub struct WaitingChanges<W> {
    changes: VecDeque<(ObjectChange, Option<W>)>,
    bytes: usize,
    max: usize,
    /// As long as there are some, no change waits as it is.
    forgotten: BTreeMap<Key, Forgotten>,
    /// The keys of these, in the order in which they came.
    order: VecDeque<Key>,
}

#[derive(Debug, Clone)]
pub enum WaitingChange<W> {
    Of(ObjectChange, Option<W>),
    /// An object changed, maybe more than once. The cache has it as it is now.
    Forgotten(Key, Forgotten),
}

/// Remains of the changes of one object, whose versions are forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Objects of this key that are no more.
    pub gone: BTreeSet<Uid>,
    /// Controllers that the object has or had.
    pub controllers: BTreeSet<Uid>,
}

impl<W> WaitingChanges<W> {
    pub fn new(max: usize) -> Self {
        Self { changes: VecDeque::new(), bytes: 0, max, forgotten: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Bytes of the changes that wait as they are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, change: ObjectChange, by: Option<W>) {
        if !self.forgotten.is_empty() {
            return self.forget(&change);
        }
        self.bytes += bytes(&change);
        self.changes.push_back((change, by));
        if self.bytes > self.max {
            self.bytes = 0;
            for (change, _) in take(&mut self.changes) {
                self.forget(&change);
            }
        }
    }

    /// The change that waits for longest.
    pub fn pop(&mut self) -> Option<WaitingChange<W>> {
        if let Some((change, by)) = self.changes.pop_front() {
            self.bytes -= bytes(&change);
            return Some(WaitingChange::Of(change, by));
        }
        let key = self.order.pop_front()?;
        let forgotten = self.forgotten.remove(&key).unwrap_or_default();
        Some(WaitingChange::Forgotten(key, forgotten))
    }

    fn forget(&mut self, change: &ObjectChange) {
        let Some(key) = change.key() else { return };
        let forgotten = self.forgotten.entry(key.clone()).or_insert_with(|| {
            self.order.push_back(key.clone());
            Forgotten::default()
        });
        let sides = [&change.before, &change.after].into_iter().flatten();
        forgotten.controllers.extend(sides.filter_map(|object| object.controller.clone()));
        forgotten.gone.extend(change.gone().map(|gone| gone.uid.clone()));
    }
}

/// Bytes of the version before a change: the one after is in the cache, or the next change of the object has it before
/// itself.
fn bytes(change: &ObjectChange) -> usize {
    // Of one that is held by its metadata that is more than there is, and never too little.
    OVERHEAD + change.before.as_ref().map_or(0, CachedObject::bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::{Cache, CacheEvent};
    use crate::object::Object;
    use crate::object::testing::a;

    /// `text`: bytes beside the metadata.
    fn object(name: &str, uid: &str, controller: &str, (version, text): (u32, usize)) -> Arc<Object> {
        let object = a("v1", "ConfigMap", &format!("n/{name}")).uid(uid).version(&version.to_string());
        let text = serde_json::json!("x".repeat(text));
        object.controlled_by(controller).with("data.text", text).object()
    }

    fn update(name: &str, text: usize) -> ObjectChange {
        let [before, after] =
            [(1, text), (2, 0)].map(|of| Some(object(name, "u", &of.0.to_string(), of).into()));
        ObjectChange { before, after }
    }

    #[test]
    fn changes_wait_as_they_are_up_to_the_bound_and_by_their_keys_above_it() {
        let one = bytes(&update("a", 1000));
        let mut all = WaitingChanges::<u8>::new(2 * one);
        all.push(update("a", 1000), Some(1));
        all.push(update("b", 1000), None);
        assert_eq!(all.bytes, 2 * one);
        let Some(WaitingChange::Of(change, Some(1))) = all.pop() else { panic!() };
        assert_eq!(change.key().map(|key| &*key.name), Some("a"));
        all.push(update("c", 1000), None);
        assert!(all.forgotten.is_empty(), "they are at the bound");
        all.push(update("a", 0), None);
        assert_eq!((all.bytes, all.changes.len(), all.forgotten.len()), (0, 0, 3));
        all.push(update("d", 0), None);
        assert!(all.changes.is_empty(), "it must not come before those that were earlier");
        for name in ["b", "c", "a", "d"] {
            let Some(WaitingChange::Forgotten(key, what)) = all.pop() else { panic!() };
            let controllers = ["1", "2"].map(Uid::new).into();
            assert_eq!((&*key.name, what), (name, Forgotten { gone: BTreeSet::new(), controllers }));
        }
        assert!(all.pop().is_none());
        all.push(update("a", 1000), None);
        assert!(matches!(all.pop(), Some(WaitingChange::Of(..))), "there is room again");
        assert_eq!(all.bytes, 0);
    }

    #[test]
    fn a_version_that_the_cache_holds_anyway_counts_for_nothing() {
        let new = ObjectChange { before: None, after: Some(object("a", "u", "1", (1, 10_000)).into()) };
        assert_eq!(bytes(&new), OVERHEAD);
    }

    /// Key and remains of a change, once its versions are forgotten.
    fn said(change: WaitingChange<()>) -> (Key, Forgotten) {
        match change {
            WaitingChange::Forgotten(key, forgotten) => (key, forgotten),
            WaitingChange::Of(change, _) => {
                let mut one = WaitingChanges::<()>::new(0);
                one.push(change, None);
                one.pop().map(said).unwrap()
            }
        }
    }

    proptest! {
        /// Each object that changed, each of its controllers and each end of an object that goes in comes out.
        #[test]
        fn what_waits_is_bounded_and_no_key_or_uid_is_lost(
            steps in prop::collection::vec((0..6_u8, 0..3_u8, 0..3_u8, 0..4_u8), 0..100),
        ) {
            const MAX: usize = 6 * OVERHEAD;
            let (mut all, mut cache) = (WaitingChanges::<()>::new(MAX), Cache::default());
            let mut waiting = BTreeMap::<Key, Forgotten>::new();
            let out = |waiting: &mut BTreeMap<Key, Forgotten>, (key, what): (Key, Forgotten)| {
                let left = waiting.entry(key).or_default();
                left.gone.retain(|uid| !what.gone.contains(uid));
                left.controllers.retain(|uid| !what.controllers.contains(uid));
            };
            for (version, (name, uid, owner, step)) in (1..).zip(steps) {
                let object = object(&name.to_string(), &format!("{name}-{uid}"), &owner.to_string(), (version, 100));
                let object = Object::clone(&object);
                let event = if step == 0 { CacheEvent::Deleted(object) } else { CacheEvent::Applied(object) };
                for change in cache.apply(event) {
                    let (key, what) = said(WaitingChange::Of(change.clone(), None));
                    let left = waiting.entry(key).or_default();
                    left.gone.extend(what.gone);
                    left.controllers.extend(what.controllers);
                    all.push(change, None);
                }
                prop_assert!(all.bytes <= MAX);
                prop_assert_eq!(all.bytes, all.changes.iter().map(|(change, _)| bytes(change)).sum::<usize>());
                prop_assert_eq!(all.order.len(), all.forgotten.len());
                if step == 1 && let Some(change) = all.pop() {
                    out(&mut waiting, said(change));
                }
            }
            while let Some(change) = all.pop() {
                out(&mut waiting, said(change));
            }
            prop_assert!(waiting.values().all(|left| *left == Forgotten::default()), "{:?}", waiting);
        }
    }
}
