//! What a controller's own writes have taught about each parent's children.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use metahook_core::children::write_history::WriteHistory;
use metahook_core::hash::FastMap;
use metahook_core::object::id::{Key, ObjectId};

use crate::sync::lock;

#[derive(Default)]
pub(crate) struct WriteHistories(Mutex<State>);

#[derive(Default)]
struct State {
    /// Parents about whose children nothing is known have no entry.
    ledgers: FastMap<Key, Arc<WriteHistory>>,
    /// Those of them that have children with values that keep flipping: passes wait while they are counted.
    flipping: BTreeSet<Key>,
}

impl WriteHistories {
    pub(crate) fn of(&self, parent: &Key) -> Arc<WriteHistory> {
        self.lock().ledgers.get(parent).cloned().unwrap_or_default()
    }

    pub(crate) fn change(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory)) {
        let mut state = self.lock();
        let ledger = Arc::make_mut(state.ledgers.or_default(parent));
        change(ledger);
        let (flips, empty) = (ledger.is_flipping(), ledger.is_empty());
        if flips {
            state.flipping.insert(parent.clone());
        } else {
            state.flipping.remove(parent);
        }
        if empty {
            state.ledgers.remove(parent);
        }
    }

    pub(crate) fn forget(&self, parent: &Key) {
        let mut state = self.lock();
        state.ledgers.remove(parent);
        state.flipping.remove(parent);
    }

    /// How many children have values that keep flipping, and the first of them with its places.
    pub(crate) fn flips(&self) -> (usize, Option<(ObjectId, Vec<String>)>) {
        let state = self.lock();
        let ledgers = state.flipping.iter().filter_map(|parent| state.ledgers.get(parent));
        let mut flips = ledgers.flat_map(|ledger| ledger.flips());
        let first =
            flips.next().map(|(id, paths)| (id.clone(), paths.into_iter().map(str::to_owned).collect()));
        (usize::from(first.is_some()) + flips.count(), first)
    }

    /// A pass that panicked leaves what it knew.
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metahook_core::children::write_history::Drift;
    use metahook_core::json::difference::Difference;
    use metahook_core::object::id::{Gvk, Resource, Uid};
    use serde_json::json;

    use super::*;

    fn drift(name: &str) -> Drift {
        let resource = Resource {
            gvk: Gvk::new("v1", "Pod"),
            plural: "pods".into(),
            namespaced: true,
            has_status: true,
        };
        Drift {
            id: ObjectId { resource: Arc::new(resource), key: Key::new("n", name) },
            uid: Uid::new(name),
            values: vec![Difference { path: "spec.x".to_owned(), wanted: json!(1), found: json!(2) }],
        }
    }

    #[test]
    fn flips_are_counted_without_a_look_at_every_parent() {
        let ledgers = WriteHistories::default();
        let put_right = |parent: &Key, second| {
            let now = Duration::from_secs(second);
            ledgers.change(parent, |ledger| ledger.put_right(&drift(&parent.name), now));
        };
        let parents = 20_000;
        (0..parents).for_each(|number| put_right(&Key::new("n", &number.to_string()), 0));
        // Looking at each of them each time would take 400 million steps, and minutes.
        (0..parents).for_each(|_| assert_eq!(ledgers.flips(), (0, None)));
        let (one, two) = (Key::new("n", "1"), Key::new("n", "2"));
        (1..9).for_each(|second| [&one, &two].into_iter().for_each(|parent| put_right(parent, second)));
        let flips = |count, name| (count, Some((drift(name).id, vec!["spec.x".to_owned()])));
        assert_eq!(ledgers.flips(), flips(2, "1"));
        ledgers.forget(&one);
        assert_eq!(ledgers.flips(), flips(1, "2"));
        ledgers.forget(&two);
        assert_eq!(ledgers.flips(), (0, None));
    }
}
