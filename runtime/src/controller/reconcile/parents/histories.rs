//! Write histories of the parents of one kind, and the children that other clients keep changing back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metahook_core::children::write_history::{Drift, WriteHistory};
use metahook_core::hash::FastMap;
use metahook_core::object::id::{Key, ObjectId};

use crate::sync::lock;

/// Children of one parent whose clients are remembered. A condition names one child, so that no more are of use; 120 bytes each.
pub(super) const MAX_NAMED: usize = 32;

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
    /// The parents that have or had children with flapping values, so that counting them takes no walk over all.
    flapping: BTreeMap<Key, Clients>,
}

/// The clients that change values of a parent's children back, by child, where they are known.
#[derive(Default)]
struct Clients(BTreeMap<ObjectId, String>);

impl Clients {
    /// Beyond the bound the first children keep theirs: the first one is shown.
    fn note(&mut self, child: &ObjectId, names: String) {
        // Once the server has corrected a value, the API server names no other client for it.
        if names.is_empty() {
            return;
        }
        self.0.insert(child.clone(), names);
        if self.0.len() > MAX_NAMED {
            self.0.pop_last();
        }
    }
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

    /// Notes the clients that change values of a child back; empty: they are not known.
    pub(crate) fn note_managers(&self, parent: &Key, child: &ObjectId, managers: String) {
        if let Some(clients) = lock(&self.0).flapping.get_mut(parent) {
            clients.note(child, managers);
        }
    }

    /// The number of children with flapping values at `now`, and the first of them. Time alone ends flapping: a
    /// parent whose children stay as they are is settled, and no reconcile of it says so.
    pub(crate) fn flapping(&self, now: Duration) -> (usize, Option<FlappingChild>) {
        let mut state = lock(&self.0);
        let Histories { histories, flapping } = &mut *state;
        let (mut count, mut first) = (0, None);
        flapping.retain(|parent, clients| {
            let Some(history) = histories.get(parent) else { return false };
            let children: BTreeMap<_, _> = history.flapping(now).collect();
            clients.0.retain(|child, _| children.contains_key(child));
            count += children.len();
            let is_flapping = !children.is_empty();
            if first.is_none() {
                first = children.into_iter().next().map(|(id, paths)| FlappingChild {
                    id: id.clone(),
                    paths: paths.into_iter().map(str::to_owned).collect(),
                    by: clients.0.get(id).cloned().unwrap_or_default(),
                });
            }
            is_flapping
        });
        (count, first)
    }
}
