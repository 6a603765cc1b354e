//! What a controller's own writes have taught about each parent's children.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metahook_core::object::id::{Key, ObjectId};
use metahook_core::plan::ledger::Ledger;

/// Parents about whose children nothing is known have no entry.
#[derive(Default)]
pub(super) struct Ledgers(Mutex<BTreeMap<Key, Arc<Ledger>>>);

impl Ledgers {
    pub(super) fn of(&self, parent: &Key) -> Arc<Ledger> {
        self.lock().get(parent).cloned().unwrap_or_default()
    }

    pub(super) fn change(&self, parent: &Key, change: impl FnOnce(&mut Ledger)) {
        let mut all = self.lock();
        let mut ledger = all.remove(parent).unwrap_or_default();
        change(Arc::make_mut(&mut ledger));
        if !ledger.is_empty() {
            all.insert(parent.clone(), ledger);
        }
    }

    pub(super) fn forget(&self, parent: &Key) {
        self.lock().remove(parent);
    }

    /// How many children have values that keep flipping, and the first of them with its places.
    pub(super) fn flips(&self) -> (usize, Option<(ObjectId, Vec<String>)>) {
        let all = self.lock();
        let mut flips = all.values().flat_map(|ledger| ledger.flips());
        let first =
            flips.next().map(|(id, paths)| (id.clone(), paths.into_iter().map(str::to_owned).collect()));
        (usize::from(first.is_some()) + flips.count(), first)
    }

    /// A pass that panicked leaves what it knew.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Ledger>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
