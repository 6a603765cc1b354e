//! The states of a parent that its children are at, as the server in small finds them and asks about them.

use std::sync::Arc;

use metahook_core::object::id::ObjectId;
use metahook_core::object::{ChildMap, Object};
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::reconcile::rollout::RolloutState;
use metahook_core::related::Related;
use metahook_core::related::selection::Selection;

use crate::server::Server;

impl Server {
    /// The states of a parent, and what is related to each.
    pub(crate) fn relate(&mut self, parent: &Arc<Object>) -> (Related, Option<RolloutState>) {
        let candidates = |_: &_, selector: Option<&_>| self.revisions.candidates(&parent.uid, "n", selector);
        let mut rollout = RolloutState::of(&self.config, parent, candidates);
        let mut all = Vec::new();
        let mut relate = |state: &Object| {
            let rules = self.asks_for(state);
            let mut found = Related::default();
            for (at, rule) in rules.iter().enumerate() {
                let mut selection = Selection::new(&rule.finds, &[]);
                selection.step(&self.settings, usize::MAX);
                found.add(&state.key.namespace, at, rule, selection.found);
            }
            all.extend(rules);
            found
        };
        let related = relate(parent);
        if let Some(rollout) = &mut rollout {
            let older = rollout.history().unwrap().older.iter();
            rollout.related = older.map(|older| relate(&older.parent)).collect();
        }
        self.interests.set(&parent.key, all).unwrap();
        (related, rollout)
    }

    pub(crate) fn call_about_older(&mut self, input: &ReconcileInput, children: &ChildMap) -> Vec<Vec<u8>> {
        let Some(rollout) = &input.rollout else { return Vec::new() };
        let states = rollout.older_states().unwrap();
        let requests: Vec<_> = states
            .into_iter()
            .map(|(_, state)| input.request(&self.config, state, children).unwrap())
            .collect();
        requests.iter().map(|request| self.call(request)).collect()
    }

    pub(crate) fn forget_revisions(&mut self, parent: u8) {
        let Some(parent) = self.cluster.get(&self.parent(parent)) else { return };
        let kept = self.revisions.candidates(&parent.uid, "n", None);
        for revision in kept {
            let id = ObjectId { resource: Arc::clone(&self.revision_kind), key: revision.key.clone() };
            drop(self.cluster.delete(&id, None));
        }
    }
}
