//! Write histories of all parents of a controller: how the API server changes the values that are written.

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
    /// Parents with an empty history have no entry.
    histories: FastMap<Key, Arc<WriteHistory>>,
    /// The parents that have children with flapping values, so that counting them takes no walk over all.
    flapping: BTreeSet<Key>,
}

impl WriteHistories {
    pub(crate) fn of(&self, parent: &Key) -> Arc<WriteHistory> {
        self.lock().histories.get(parent).cloned().unwrap_or_default()
    }

    pub(crate) fn change(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory)) {
        let mut state = self.lock();
        let history = Arc::make_mut(state.histories.or_default(parent));
        change(history);
        let is_empty = history.is_empty();
        if history.is_flapping() {
            state.flapping.insert(parent.clone());
        } else {
            state.flapping.remove(parent);
        }
        if is_empty {
            state.histories.remove(parent);
        }
    }

    pub(crate) fn forget(&self, parent: &Key) {
        let mut state = self.lock();
        state.histories.remove(parent);
        state.flapping.remove(parent);
    }

    /// The number of children with flapping values, and the first of them with its paths.
    pub(crate) fn flapping(&self) -> (usize, Option<(ObjectId, Vec<String>)>) {
        let state = self.lock();
        let histories = state.flapping.iter().filter_map(|parent| state.histories.get(parent));
        let mut all = histories.flat_map(|history| history.flapping());
        let first =
            all.next().map(|(id, paths)| (id.clone(), paths.into_iter().map(str::to_owned).collect()));
        (usize::from(first.is_some()) + all.count(), first)
    }

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
    fn flapping_children_are_counted_without_a_walk() {
        let histories = WriteHistories::default();
        let correct = |parent: &Key, second| {
            let now = Duration::from_secs(second);
            histories.change(parent, |history| history.drift_corrected(&drift(&parent.name), now));
        };
        let parents = 20_000;
        (0..parents).for_each(|number| correct(&Key::new("n", &number.to_string()), 0));
        // A walk over all of them each time would take 400 million steps, and minutes.
        (0..parents).for_each(|_| assert_eq!(histories.flapping(), (0, None)));
        let (one, two) = (Key::new("n", "1"), Key::new("n", "2"));
        (1..9).for_each(|second| [&one, &two].into_iter().for_each(|parent| correct(parent, second)));
        let flapping = |count, name| (count, Some((drift(name).id, vec!["spec.x".to_owned()])));
        assert_eq!(histories.flapping(), flapping(2, "1"));
        histories.forget(&one);
        assert_eq!(histories.flapping(), flapping(1, "2"));
        histories.forget(&two);
        assert_eq!(histories.flapping(), (0, None));
    }
}
