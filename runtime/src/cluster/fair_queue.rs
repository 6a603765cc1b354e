//! Queue of Events that wait: bounded, and fair to namespaces and to the objects that the Events are about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Far more than one reconcile records. When the API server is slow, further Events about an object are dropped, never work.
const MAX_OF_OBJECT: usize = 32;
/// With so many waiting, a further one takes the place of one of the namespace and the object that have most.
const MAX_WAITING: usize = 8192;

/// Things by the namespace and the object that they are about. The namespaces take turns, and so do the objects of each.
pub(super) struct FairQueue<T>(RoundRobin<RoundRobin<VecDeque<T>>>);

/// Keys for which something waits, in their turns.
struct RoundRobin<V> {
    waiting: BTreeMap<Arc<str>, V>,
    order: VecDeque<Arc<str>>,
    sizes: BTreeSet<(usize, Arc<str>)>,
    count: usize,
}

trait Count: Default {
    fn count(&self) -> usize;
}

impl<T> Count for VecDeque<T> {
    fn count(&self) -> usize {
        self.len()
    }
}

impl<V> Count for RoundRobin<V> {
    fn count(&self) -> usize {
        self.count
    }
}

impl<V> Default for RoundRobin<V> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), order: VecDeque::new(), sizes: BTreeSet::new(), count: 0 }
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self(RoundRobin::default())
    }
}

impl<V: Count> RoundRobin<V> {
    fn count_of(&self, whose: &str) -> usize {
        self.waiting.get(whose).map_or(0, V::count)
    }

    /// Changes what waits for one of them, who keeps the turn, or gets the last one.
    fn change<R>(&mut self, whose: &Arc<str>, change: impl FnOnce(&mut V) -> R) -> R {
        let waiting = self.waiting.entry(Arc::clone(whose)).or_default();
        let before = waiting.count();
        let result = change(waiting);
        let after = waiting.count();
        self.sizes.remove(&(before, Arc::clone(whose)));
        if after > 0 {
            self.sizes.insert((after, Arc::clone(whose)));
        } else {
            self.waiting.remove(whose);
        }
        if before == 0 && after > 0 {
            self.order.push_back(Arc::clone(whose));
        }
        self.count = self.count - before + after;
        result
    }

    fn next<R>(&mut self, take: impl FnOnce(&mut V) -> R) -> Option<R> {
        let whose = self.order.pop_front()?;
        let taken = self.change(&whose, take);
        if self.waiting.contains_key(&whose) {
            self.order.push_back(whose);
        }
        Some(taken)
    }

    /// The one with most, and how many; where all have one, the last in turn.
    fn largest(&self) -> Option<(usize, Arc<str>)> {
        let (most, whose) = self.sizes.last()?;
        let whose = if *most == 1 { self.order.back()? } else { whose };
        Some((*most, Arc::clone(whose)))
    }

    /// Drops one thing of the largest.
    fn shrink<R>(&mut self, whose: &Arc<str>, drop: impl FnOnce(&mut V) -> R) -> R {
        let dropped = self.change(whose, drop);
        if !self.waiting.contains_key(whose) {
            // It had one, as all others, and the last turn.
            self.order.pop_back();
        }
        dropped
    }
}

impl<T> FairQueue<T> {
    /// Gives back what is dropped: another thing, or this one.
    pub(super) fn add(&mut self, (namespace, about): (&str, &str), one: T) -> Option<T> {
        let line = &mut self.0;
        let objects = line.waiting.get(namespace);
        let its = objects.map_or(0, |objects| objects.count_of(about));
        if its >= MAX_OF_OBJECT {
            return Some(one);
        }
        let mut dropped = None;
        if line.count >= MAX_WAITING {
            let most_of_object = objects.and_then(RoundRobin::largest).map_or(0, |(most, _)| most);
            let (most, mut largest) = line.largest()?;
            if most == line.count_of(namespace) {
                if most_of_object <= its.max(1) {
                    return Some(one);
                }
                largest = namespace.into();
            }
            dropped = line.shrink(&largest, |objects| {
                let (_, largest) = objects.largest()?;
                objects.shrink(&largest, VecDeque::pop_back)
            });
        }
        line.change(&namespace.into(), |objects| objects.change(&about.into(), |its| its.push_back(one)));
        dropped
    }

    pub(super) fn next(&mut self) -> Option<T> {
        self.0.next(|objects| objects.next(VecDeque::pop_front))??
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Adds the numbers from 0 of an object; gives back how many were dropped, of whichever object.
    fn add(line: &mut FairQueue<(String, usize)>, namespace: &str, about: &str, count: usize) -> usize {
        (0..count).filter_map(|number| line.add((namespace, about), (about.to_owned(), number))).count()
    }

    fn taken(line: &mut FairQueue<(String, usize)>) -> Vec<String> {
        std::iter::from_fn(|| line.next()).map(|(about, number)| format!("{about}{number}")).collect()
    }

    #[test]
    fn namespaces_take_turns_and_their_objects_too() {
        let mut line = FairQueue::default();
        for (namespace, about, count) in [("n", "a", 3), ("n", "b", 1), ("m", "c", 2)] {
            assert_eq!(add(&mut line, namespace, about, count), 0);
        }
        assert_eq!(taken(&mut line), ["a0", "c0", "b0", "c1", "a1", "a2"]);
        assert!(line.0.waiting.is_empty() && line.0.order.is_empty() && line.0.sizes.is_empty());
    }

    #[test]
    fn a_full_line_takes_a_newcomer_in_place_of_one_of_the_largest() {
        let mut line = FairQueue::default();
        assert_eq!(add(&mut line, "n", "one", 100), 100 - MAX_OF_OBJECT);
        for about in MAX_OF_OBJECT..MAX_WAITING {
            assert_eq!(add(&mut line, "n", &format!("p{about}-"), 1), 0);
        }
        assert_eq!(line.0.count, MAX_WAITING);
        assert_eq!(add(&mut line, "n", "late", 1), 1, "of the object that has more");
        assert_eq!(add(&mut line, "m", "later", 40), 40, "of the namespace that has more, up to the bound");
        assert_eq!(line.0.count, MAX_WAITING);
        let first: Vec<_> = taken(&mut line).into_iter().take(2).collect();
        assert_eq!(first, ["one0", "later0"]);
    }

    #[test]
    fn where_all_have_one_those_of_the_own_namespace_stay() {
        let mut line = FairQueue::default();
        for about in 0..MAX_WAITING {
            assert_eq!(add(&mut line, "n", &format!("p{about}-"), 1), 0);
        }
        let back = line.add(("n", "late"), ("late".to_owned(), 0));
        assert_eq!(back, Some(("late".to_owned(), 0)));
        let back = line.add(("m", "late"), ("late".to_owned(), 0));
        assert_eq!(back, Some((format!("p{}-", MAX_WAITING - 1), 0)), "the last in turn goes");
        assert_eq!(line.0.count, MAX_WAITING);
    }

    proptest! {
        #[test]
        fn what_is_counted_is_what_is_there(deeds in prop::collection::vec((0..3_usize, 0..4_usize, 0..4_u8), 0..60)) {
            let mut line = FairQueue::default();
            let mut count = 0;
            for (namespace, about, deed) in deeds {
                let (namespace, about) = (namespace.to_string(), format!("{namespace}-{about}"));
                if deed == 0 {
                    count -= usize::from(line.next().is_some());
                } else {
                    count += 1 - usize::from(line.add((&namespace, &about), ()).is_some());
                }
                prop_assert_eq!(line.0.count, count);
                prop_assert_eq!(line.0.order.len(), line.0.waiting.len());
                prop_assert_eq!(line.0.sizes.iter().map(|(size, _)| size).sum::<usize>(), count);
            }
            prop_assert_eq!(std::iter::from_fn(|| line.next()).count(), count);
        }
    }
}
