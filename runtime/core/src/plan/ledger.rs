//! What the server's own writes have taught about the children of one parent.
//!
//! Lost with a restart: then a child costs at most one write that changes nothing, or one dry run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::desired::Desired;
use super::flip::Flip;
use crate::fingerprint::Fingerprint;
use crate::json::difference::Difference;
use crate::object::Object;
use crate::object::id::{ObjectId, Uid};
use crate::object::map::ChildMap;

/// What a plan is made from besides what is observed and wanted.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    pub ledger: &'a Ledger,
    /// Since the server's start.
    pub now: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    children: BTreeMap<ObjectId, Known>,
    /// Those of them that have a value which keeps coming back: it is asked for them much more often than they change.
    flipping: BTreeSet<ObjectId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    uid: Uid,
    /// What server-side apply sent last, and the API server took.
    applied: Option<Fingerprint>,
    /// What the API server makes of what is wanted: differences that its answer to our write had already, so that
    /// writing again would not end them.
    quirks: BTreeSet<Fingerprint>,
    flip: Option<Flip>,
}

impl Past<'_> {
    /// How long drift is left alone; `None` where it is put right at once.
    pub(super) fn wait(&self, id: &ObjectId, object: &Object, drift: &[Difference]) -> Option<Duration> {
        self.ledger.of(id, object)?.flip.as_ref()?.wait(drift, self.now)
    }
}

/// What a child's drift was when it was put right.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    pub id: ObjectId,
    pub uid: Uid,
    /// Never empty.
    pub values: Vec<Difference>,
}

impl Ledger {
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// What a write, or a dry run of one, showed: `quirks` stayed.
    pub(super) fn learn(
        &mut self,
        id: &ObjectId,
        uid: &Uid,
        applied: Option<Fingerprint>,
        quirks: &[Difference],
    ) {
        let known = self.known(id, uid);
        known.applied = applied;
        known.quirks = quirks.iter().map(Difference::fingerprint).collect();
        self.tidy(id);
    }

    /// Drift was put right at `now`.
    pub fn put_right(&mut self, drift: &Drift, now: Duration) {
        let known = self.known(&drift.id, &drift.uid);
        let flip = Flip::put_right(known.flip.as_ref(), &drift.values, now);
        let noticed = flip.noticed().is_some();
        known.flip = Some(flip);
        if noticed {
            self.flipping.insert(drift.id.clone());
        } else {
            self.flipping.remove(&drift.id);
        }
    }

    /// Whether a flip is news: it is told once each time it was put right.
    pub fn tell(&mut self, flip: &Drift) -> bool {
        self.children.get_mut(&flip.id).and_then(|known| known.flip.as_mut()).is_some_and(Flip::tell)
    }

    /// Forgets children that are neither there nor wanted.
    pub fn keep(&mut self, observed: &ChildMap, desired: &Desired) {
        self.children.retain(|id, _| {
            observed.get(&id.resource, &id.key).is_some()
                || desired.get(&id.resource).is_some_and(|group| group.contains_key(&id.key))
        });
        self.flipping.retain(|id| self.children.contains_key(id));
    }

    /// Values that keep coming back, each with its child.
    pub fn flips(&self) -> impl Iterator<Item = (&ObjectId, &BTreeSet<String>)> {
        self.flipping.iter().filter_map(|id| Some((id, self.children.get(id)?.flip.as_ref()?.noticed()?)))
    }

    /// Whether there are such.
    pub fn is_flipping(&self) -> bool {
        !self.flipping.is_empty()
    }

    pub(super) fn has_applied(&self, id: &ObjectId, object: &Object, what: Fingerprint) -> bool {
        self.of(id, object).is_some_and(|known| known.applied == Some(what))
    }

    /// Differences that a write would end.
    pub(super) fn unknown(
        &self,
        id: &ObjectId,
        object: &Object,
        mut all: Vec<Difference>,
    ) -> Vec<Difference> {
        if let Some(known) = self.of(id, object).filter(|known| !known.quirks.is_empty()) {
            all.retain(|difference| !known.quirks.contains(&difference.fingerprint()));
        }
        all
    }

    fn of(&self, id: &ObjectId, object: &Object) -> Option<&Known> {
        self.children.get(id).filter(|known| known.uid == object.uid)
    }

    /// A child that is made anew keeps what flips in it: making it anew is one way to put it right.
    fn known(&mut self, id: &ObjectId, uid: &Uid) -> &mut Known {
        let known = self.children.entry(id.clone()).or_insert_with(|| Known {
            uid: uid.clone(),
            applied: None,
            quirks: BTreeSet::new(),
            flip: None,
        });
        if known.uid != *uid {
            *known =
                Known { uid: uid.clone(), applied: None, quirks: BTreeSet::new(), flip: known.flip.take() };
        }
        known
    }

    /// Nothing known of a child takes no place.
    fn tidy(&mut self, id: &ObjectId) {
        let nothing =
            |known: &Known| known.applied.is_none() && known.quirks.is_empty() && known.flip.is_none();
        if self.children.get(id).is_some_and(nothing) {
            self.children.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::object::id::Key;
    use crate::object::testing::resource;

    #[test]
    fn flips_are_those_of_children_that_are_there_and_whose_values_keep_coming_back() {
        let pods = resource("v1", "Pod");
        let drift = |name: &str, path: &str| Drift {
            id: ObjectId { resource: Arc::clone(&pods), key: Key::new("n", name) },
            uid: Uid::new(name),
            values: vec![Difference { path: path.to_owned(), wanted: json!(1), found: json!(2) }],
        };
        let mut ledger = Ledger::default();
        let told = |ledger: &Ledger| -> Vec<String> {
            assert_eq!(ledger.is_flipping(), ledger.flips().count() > 0);
            ledger.flips().map(|(id, _)| id.key.name.to_string()).collect()
        };
        for second in 0..9 {
            let now = Duration::from_secs(second);
            ledger.put_right(&drift("a", "spec.x"), now);
            ledger.put_right(&drift("b", "spec.x"), now);
            ledger.put_right(&drift("c", &format!("spec.x{second}")), now);
        }
        assert_eq!(told(&ledger), ["a", "b"]);
        ledger.put_right(&drift("b", "spec.y"), Duration::from_secs(10));
        assert_eq!(told(&ledger), ["a"]);
        ledger.keep(&ChildMap::default(), &Desired::default());
        assert!(told(&ledger).is_empty());
        assert_eq!(ledger, Ledger::default());
    }
}
