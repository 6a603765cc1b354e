//! Line of Events that wait: bounded, and fair to the objects that they are about.

use std::collections::{BTreeMap, VecDeque};

/// Far more than one reconcile records. When the API server is slow, further Events about an object are dropped, never work.
const MAX_OF_OBJECT: usize = 32;
/// With so many waiting, an object has at most one. With twice as many, all further ones are dropped.
const MAX_WAITING: usize = 4096;

/// Things by the object that they are about. The objects take turns.
pub(super) struct FairLine<T> {
    waiting: BTreeMap<String, VecDeque<T>>,
    turns: VecDeque<String>,
    count: usize,
}

impl<T> Default for FairLine<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), turns: VecDeque::new(), count: 0 }
    }
}

impl<T> FairLine<T> {
    /// # Errors
    /// There are too many; it is given back.
    pub(super) fn add(&mut self, about: String, one: T) -> Result<(), T> {
        let most = if self.count < MAX_WAITING { MAX_OF_OBJECT } else { 1 };
        let its = self.waiting.get(&about).map_or(0, VecDeque::len);
        if self.count >= 2 * MAX_WAITING || its >= most {
            return Err(one);
        }
        if its == 0 {
            self.turns.push_back(about.clone());
        }
        self.waiting.entry(about).or_default().push_back(one);
        self.count += 1;
        Ok(())
    }

    pub(super) fn next(&mut self) -> Option<T> {
        let about = self.turns.pop_front()?;
        let its = self.waiting.get_mut(&about)?;
        let next = its.pop_front();
        if its.is_empty() {
            self.waiting.remove(&about);
        } else {
            self.turns.push_back(about);
        }
        self.count -= 1;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_take_turns() {
        let mut line = FairLine::default();
        for one in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("b", 2)] {
            line.add(one.0.to_owned(), one).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(order, [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("a", 3)]);
        assert!(line.waiting.is_empty() && line.turns.is_empty() && line.count == 0);
    }

    #[test]
    fn a_full_line_has_room_for_each_object() {
        let mut line = FairLine::default();
        let mut add = |about: usize| line.add(about.to_string(), ()).is_ok();
        let of_one = (0..100).filter(|_| add(0)).count();
        assert_eq!(of_one, MAX_OF_OBJECT);
        let of_many = (1..1001).map(|about| (0..10).filter(|_| add(about)).count());
        let of_many: Vec<_> = of_many.collect();
        assert!(of_many.iter().all(|its| (1..=10).contains(its)), "{of_many:?}");
        let of_all = (0..3 * MAX_WAITING).filter(|about| add(*about)).count();
        assert_eq!(MAX_OF_OBJECT + of_many.iter().sum::<usize>() + of_all, 2 * MAX_WAITING);
    }
}
