//! Own writes: those under way, and deletions whose end has not been seen yet.
//!
//! A watch event may come before the answer to the write that caused it. So an event of an object that is being written waits for
//! that answer, which says whose change it is. The end of an object that a reconcile deleted counts as that reconcile's change.

use std::collections::BTreeMap;

use metahook_core::cache::{CacheEvent, ObjectChange};
use metahook_core::object::id::{Key, Uid};

use crate::store::{Change, Writer};

/// Deletions that are remembered; the end of one that is forgotten counts as another client's.
const MAX_DELETIONS: usize = 4096;

/// The writes under way and the changes that wait for their answers, and the deletions whose end has not been seen.
#[derive(Default)]
pub(super) struct OwnWrites {
    under_way: BTreeMap<Key, UnderWay>,
    deleted: BTreeMap<Uid, Writer>,
}

#[derive(Default)]
struct UnderWay {
    writes: usize,
    waiting: Vec<Change>,
}

impl OwnWrites {
    pub(super) fn begin(&mut self, key: &Key) {
        self.under_way.entry(key.clone()).or_default().writes += 1;
    }

    /// A change from the watch: the change, with its writer where that is known, unless it has to wait.
    pub(super) fn sort(&mut self, object: ObjectChange) -> Option<Change> {
        let by = gone(&object).and_then(|uid| self.deleted.remove(uid));
        let change = Change { object, by };
        let under_way = change.key().and_then(|key| self.under_way.get_mut(key));
        match under_way {
            Some(under_way) if change.by.is_none() => {
                under_way.waiting.push(change);
                None
            }
            _ => Some(change),
        }
    }

    /// Marks the changes that waited for this answer.
    pub(super) fn learn(&mut self, key: &Key, answer: &CacheEvent, by: &Writer) {
        let mut waiting = self.under_way.get_mut(key).into_iter().flat_map(|one| &mut one.waiting);
        match answer {
            CacheEvent::Wrote(object) => {
                let same = |change: &&mut Change| {
                    let after = change.object.after.as_ref();
                    after.is_some_and(|seen| seen.uid == object.uid && seen.version == object.version)
                };
                waiting.filter(same).for_each(|change| change.by = Some(by.clone()));
            }
            CacheEvent::Deleting(_, uid) => match waiting.find(|change| gone(&change.object) == Some(uid)) {
                Some(change) => change.by = Some(by.clone()),
                None => self.remember(uid, by),
            },
            CacheEvent::ListBegins
            | CacheEvent::Listed(_)
            | CacheEvent::ListEnds
            | CacheEvent::Applied(_)
            | CacheEvent::Deleted(_)
            | CacheEvent::Missing(..) => {}
        }
    }

    /// A write has ended, with or without success. The last one releases the changes that waited.
    pub(super) fn end(&mut self, key: &Key) -> Vec<Change> {
        let Some(under_way) = self.under_way.get_mut(key) else { return Vec::new() };
        under_way.writes = under_way.writes.saturating_sub(1);
        if under_way.writes > 0 {
            return Vec::new();
        }
        self.under_way.remove(key).map(|ended| ended.waiting).unwrap_or_default()
    }

    fn remember(&mut self, uid: &Uid, by: &Writer) {
        if self.deleted.len() >= MAX_DELETIONS {
            self.deleted.pop_first();
        }
        self.deleted.insert(uid.clone(), by.clone());
    }
}

/// Which object is no longer there.
fn gone(change: &ObjectChange) -> Option<&Uid> {
    change.before.as_ref().filter(|_| change.after.is_none()).map(|before| &before.uid)
}
