//! Write histories of the parents of one kind, and the children that other clients keep changing back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::children::write_history::{Drift, WriteHistory};
use metahook_core::hash::FastMap;
use metahook_core::object::id::{Key, ObjectId};

use crate::sync::lock;

/// A child whose values another client keeps changing back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlappingChild {
    pub(crate) id: ObjectId,
    pub(crate) paths: Vec<String>,
    /// The names of these clients; empty: they are not known.
    pub(crate) by: String,
}

impl fmt::Display for FlappingChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, paths, by } = self;
        write!(f, "{id} ({})", paths.join(", "))?;
        if by.is_empty() { Ok(()) } else { write!(f, " by {by}") }
    }
}

/// Write histories of all parents: how the API server changes the values that are written.
#[derive(Default)]
pub(crate) struct WriteHistories(Mutex<Histories>);

#[derive(Default)]
struct Histories {
    /// Parents with an empty history have no entry.
    histories: FastMap<Key, Arc<WriteHistory>>,
    /// The parents that have or had children with flapping values, so that counting them takes no walk over all; with the clients
    /// that change the values back, where they are known.
    flapping: BTreeMap<Key, String>,
}

impl WriteHistories {
    pub(crate) fn of(&self, parent: &Key) -> Arc<WriteHistory> {
        lock(&self.0).histories.get(parent).cloned().unwrap_or_default()
    }

    pub(crate) fn change<T>(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T {
        let mut state = lock(&self.0);
        let history = Arc::make_mut(state.histories.or_default(parent));
        let changed = change(history);
        if history.is_empty() {
            state.histories.remove(parent);
            state.flapping.remove(parent);
        }
        changed
    }

    /// Drift of a child was corrected at `now`.
    pub(crate) fn drift_corrected(&self, parent: &Key, drift: &Drift, now: Duration) {
        let mut state = lock(&self.0);
        let history = Arc::make_mut(state.histories.or_default(parent));
        history.drift_corrected(drift, now);
        if history.is_flapping(now) {
            state.flapping.entry(parent.clone()).or_default();
        }
    }

    pub(crate) fn forget(&self, parent: &Key) {
        let mut state = lock(&self.0);
        state.histories.remove(parent);
        state.flapping.remove(parent);
    }

    /// Notes the clients that change values of a parent's children back.
    pub(crate) fn note_managers(&self, parent: &Key, managers: String) {
        if let Some(known) = lock(&self.0).flapping.get_mut(parent) {
            *known = managers;
        }
    }

    /// The number of children with flapping values at `now`, and the first of them. Time alone ends flapping: a
    /// parent whose children stay as they are is settled, and no reconcile of it says so.
    pub(crate) fn flapping(&self, now: Duration) -> (usize, Option<FlappingChild>) {
        let mut state = lock(&self.0);
        let Histories { histories, flapping } = &mut *state;
        flapping.retain(|parent, _| histories.get(parent).is_some_and(|history| history.is_flapping(now)));
        let histories = flapping.iter().filter_map(|(parent, by)| Some((histories.get(parent)?, by)));
        let mut all = histories.flat_map(|(history, by)| history.flapping(now).map(move |child| (child, by)));
        let first = all.next().map(|((id, paths), by)| FlappingChild {
            id: id.clone(),
            paths: paths.into_iter().map(str::to_owned).collect(),
            by: by.clone(),
        });
        (usize::from(first.is_some()) + all.count(), first)
    }
}
