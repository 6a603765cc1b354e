//! The states of a parent that its children are at, as the server in small finds them and asks about them.

use std::collections::BTreeSet;
use std::sync::Arc;

use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use metahook_core::object::map::ChildMap;
use metahook_core::reconcile::plan::ReconcileInput;
use metahook_core::related::selection::Related;
use metahook_core::rollout::pass::RolloutState;

use crate::server::Server;

impl Server {
    /// The states of a parent, and what is related to each.
    pub(crate) fn relate(&mut self, parent: &Arc<Object>) -> (Related, Option<RolloutState>) {
        let candidates = |_: &_, selector: Option<&_>| self.revisions.candidates(&parent.uid, "n", selector);
        let mut rolled = self.terms.roll(parent, candidates);
        let mut all = Vec::new();
        let mut relate = |state: &Object| {
            let rules = self.asks_for(state);
            let found = Related::find(state, &rules, |rule| rule.select(&self.settings, &BTreeSet::new()));
            all.extend(rules);
            found
        };
        let related = relate(parent);
        let history = self.terms.history(parent, rolled.as_ref()).unwrap();
        let older = history.map(|history| history.older.iter().map(|older| relate(&older.parent)).collect());
        if let (Some(rolled), Some(older)) = (&mut rolled, older) {
            rolled.related = older;
        }
        self.interests.set(&parent.key, all);
        (related, rolled)
    }

    pub(crate) fn call_about_older(&mut self, seen: &ReconcileInput, children: &ChildMap) -> Vec<Vec<u8>> {
        let Some(rolled) = &seen.rolled else { return Vec::new() };
        let Some(history) = self.terms.history(&seen.parent, Some(rolled)).unwrap() else {
            return Vec::new();
        };
        let states = history.older.iter().zip(&rolled.related);
        let requests: Vec<_> = states
            .map(|(older, related)| self.terms.request(seen, (&older.parent, related), children))
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
