//! Definitions of kinds that change: when the objects of such a kind are to be listed anew.
//!
//! For a moment after a CustomResourceDefinition changed, the API server goes on sending what it reads by the old schema: the
//! watch shows an object without the field that is new, with the version that the whole object has. Nothing says so later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The API server has gone over to the new schema by then, as a rule.
const SOON: Duration = Duration::from_secs(2);

/// By then each server of a busy or a large API has.
const LATE: Duration = Duration::from_secs(15);

/// The definitions of a cluster by their names.
#[derive(Debug, Default)]
pub struct Redefinitions {
    generations: BTreeMap<String, i64>,
    due: BTreeSet<(Duration, Slot, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Soon,
    Late,
}

impl Redefinitions {
    /// A definition was seen. One that changes again and again is due all the same: what comes soon is not put off.
    pub fn observe(&mut self, name: &str, generation: i64, now: Duration) {
        let before = self.generations.insert(name.to_owned(), generation);
        if before.is_none_or(|before| before == generation) {
            return;
        }
        let has_soon = self.due.iter().any(|(_, slot, other)| *slot == Slot::Soon && other == name);
        self.due.retain(|(_, slot, other)| *slot == Slot::Soon || other != name);
        if !has_soon {
            self.due.insert((now + SOON, Slot::Soon, name.to_owned()));
        }
        self.due.insert((now + LATE, Slot::Late, name.to_owned()));
    }

    pub fn forget(&mut self, name: &str) {
        self.generations.remove(name);
        self.due.retain(|(_, _, other)| other != name);
    }

    /// When a kind is due next.
    pub fn next(&self) -> Option<Duration> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Takes the name of a definition whose objects are to be listed now.
    pub fn take_due(&mut self, now: Duration) -> Option<String> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop_first().map(|(_, _, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(all: &mut Redefinitions, at: u64) -> Vec<String> {
        std::iter::from_fn(|| all.take_due(Duration::from_secs(at))).collect()
    }

    fn observe(all: &mut Redefinitions, name: &str, generation: i64, at: u64) {
        all.observe(name, generation, Duration::from_secs(at));
    }

    #[test]
    fn a_changed_definition_is_due_soon_and_once_more() {
        let mut all = Redefinitions::default();
        observe(&mut all, "a", 1, 0);
        observe(&mut all, "b", 4, 0);
        // Its status changed.
        observe(&mut all, "a", 1, 1);
        assert_eq!((all.next(), due(&mut all, 100)), (None, vec![]));
        observe(&mut all, "a", 2, 100);
        assert_eq!(all.next(), Some(Duration::from_secs(102)));
        assert_eq!((due(&mut all, 101), due(&mut all, 102)), (vec![], vec!["a".to_owned()]));
        assert_eq!((due(&mut all, 114), due(&mut all, 115)), (vec![], vec!["a".to_owned()]));
        assert_eq!(all.next(), None);
    }

    #[test]
    fn one_that_changes_all_the_time_is_due_all_the_same_and_one_that_is_gone_is_not() {
        let mut all = Redefinitions::default();
        observe(&mut all, "a", 1, 0);
        let listed: usize = (1..=100)
            .map(|at| {
                observe(&mut all, "a", 1 + i64::try_from(at).unwrap(), at);
                due(&mut all, at).len()
            })
            .sum();
        assert!((30..=50).contains(&listed), "{listed}");
        all.forget("a");
        assert_eq!((all.next(), due(&mut all, 1000)), (None, vec![]));
        observe(&mut all, "a", 1, 1000);
        assert_eq!(all.next(), None, "it is another one of its name");
    }
}
