//! Changes of related objects that wait to be matched with rules: those of one object are one, and all of them take a bounded
//! number of bytes.

use std::collections::{BTreeMap, VecDeque};

use crate::cache::ObjectChange;
use crate::object::cached::CachedObject;
use crate::object::id::Key;

/// Bytes that one change takes beside its labels, about.
const OVERHEAD: usize = 512;

/// Bytes that a label takes beside its text, about.
const LABEL_OVERHEAD: usize = 64;

/// Labels of an object; `None` where there is none.
pub type Labels = Option<BTreeMap<String, String>>;

/// Changes of one object, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingChange<W> {
    pub key: Key,
    /// The labels that the object had and has, each once.
    pub sides: Vec<Labels>,
    /// The object is or was gone.
    pub ended: bool,
    /// Whose write it was; `None` where another client changed the object, too.
    pub by: Option<W>,
}

/// The next of the changes that wait.
#[derive(Debug, PartialEq, Eq)]
pub enum NextChange<W> {
    Of(PendingChange<W>),
    /// There were too many to remember them: every parent with a rule may be concerned.
    OfAnything,
}

/// # Guarantees
/// Remembered changes take at most the bytes of the bound and one change. No label set between a `push` and the `pop`
/// that follows is lost, but for [`NextChange::OfAnything`].
#[derive(Debug)]
pub struct PendingChanges<W> {
    order: VecDeque<Key>,
    changes: BTreeMap<Key, PendingChange<W>>,
    bytes: usize,
    max: usize,
    overflown: bool,
}

impl<W: Clone + PartialEq> PendingChange<W> {
    /// `None`: nothing changed.
    pub fn of(change: &ObjectChange, by: Option<&W>) -> Option<Self> {
        let ObjectChange { before, after } = change;
        let key = after.as_ref().or(before.as_ref())?.key.clone();
        let labels = |side: &Option<_>| side.as_ref().map(|object: &CachedObject| object.labels.clone());
        let mut sides = vec![labels(after)];
        let before = labels(before);
        if !sides.contains(&before) {
            sides.push(before);
        }
        Some(Self { key, sides, ended: after.is_none(), by: by.cloned() })
    }

    /// The labels that there were.
    pub fn labels(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        self.sides.iter().flatten()
    }

    fn bytes(&self) -> usize {
        let text = |(key, value): (&String, &String)| LABEL_OVERHEAD + key.len() + value.len();
        OVERHEAD + 2 * self.key.len() + self.labels().flatten().map(text).sum::<usize>()
    }

    fn merge(&mut self, later: Self) {
        for side in later.sides {
            if !self.sides.contains(&side) {
                self.sides.push(side);
            }
        }
        self.ended |= later.ended;
        if self.by != later.by {
            self.by = None;
        }
    }
}

impl<W: Clone + PartialEq> PendingChanges<W> {
    pub fn new(max: usize) -> Self {
        Self { order: VecDeque::new(), changes: BTreeMap::new(), bytes: 0, max, overflown: false }
    }

    pub fn push(&mut self, change: PendingChange<W>) {
        if self.overflown {
            return;
        }
        if let Some(known) = self.changes.get_mut(&change.key) {
            self.bytes -= known.bytes();
            known.merge(change);
            self.bytes += known.bytes();
        } else {
            self.bytes += change.bytes();
            self.order.push_back(change.key.clone());
            self.changes.insert(change.key.clone(), change);
        }
        if self.bytes > self.max {
            *self = Self { overflown: true, ..Self::new(self.max) };
        }
    }

    /// The change that waits for longest.
    pub fn pop(&mut self) -> Option<NextChange<W>> {
        if std::mem::take(&mut self.overflown) {
            return Some(NextChange::OfAnything);
        }
        let change = self.changes.remove(&self.order.pop_front()?)?;
        self.bytes -= change.bytes();
        Some(NextChange::Of(change))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::testing::a;

    fn object(name: &str, label: &str) -> CachedObject {
        a("v1", "Pod", &format!("n/{name}")).label("a", label).cached()
    }

    fn change(name: &str, before: Option<&str>, after: Option<&str>, by: Option<u8>) -> PendingChange<u8> {
        let side = |label: Option<&str>| label.map(|label| object(name, label));
        PendingChange::of(&ObjectChange { before: side(before), after: side(after) }, by.as_ref()).unwrap()
    }

    #[test]
    fn changes_of_one_object_are_one_with_all_of_its_labels() {
        let mut all = PendingChanges::new(1 << 20);
        all.push(change("x", None, Some("1"), Some(1)));
        all.push(change("y", Some("1"), Some("1"), Some(1)));
        all.push(change("x", Some("1"), Some("2"), Some(1)));
        all.push(change("x", Some("2"), None, None));
        let Some(NextChange::Of(first)) = all.pop() else { panic!() };
        let labels: Vec<_> = first.labels().map(|labels| labels["a"].as_str()).collect();
        assert_eq!((&*first.key.name, labels, first.ended, first.by), ("x", vec!["1", "2"], true, None));
        assert!(first.sides.contains(&None));
        assert_eq!(all.pop(), Some(NextChange::Of(change("y", Some("1"), Some("1"), Some(1)))));
        assert_eq!((all.pop(), all.bytes), (None, 0));
    }

    #[test]
    fn an_update_that_leaves_the_labels_has_one_side() {
        assert_eq!(change("x", Some("1"), Some("1"), None).sides.len(), 1);
        assert_eq!(change("x", None, Some("1"), None).sides.len(), 2);
    }

    proptest! {
        #[test]
        fn what_waits_is_bounded_and_nothing_is_lost(
            steps in prop::collection::vec((0..20_u8, 0..5_u8, any::<bool>()), 0..200),
        ) {
            const MAX: usize = 8 * OVERHEAD;
            let (mut all, mut lost) = (PendingChanges::new(MAX), std::collections::BTreeSet::new());
            for (name, label, pops) in steps {
                let (name, label) = (name.to_string(), label.to_string());
                all.push(change(&name, None, Some(&label), Some(0)));
                lost.insert((name, label));
                prop_assert!(all.bytes <= MAX);
                prop_assert_eq!(all.bytes, all.changes.values().map(PendingChange::bytes).sum::<usize>());
                match if pops { all.pop() } else { None } {
                    Some(NextChange::OfAnything) => lost.clear(),
                    Some(NextChange::Of(change)) => for labels in change.labels() {
                        lost.remove(&(change.key.name.to_string(), labels["a"].clone()));
                    },
                    None => {}
                }
            }
            while let Some(next) = all.pop() {
                match next {
                    NextChange::OfAnything => lost.clear(),
                    NextChange::Of(change) => for labels in change.labels() {
                        lost.remove(&(change.key.name.to_string(), labels["a"].clone()));
                    },
                }
            }
            prop_assert!(lost.is_empty(), "{lost:?}");
        }
    }
}
