//! Line in which controllers take turns, however many of each wait.

use std::collections::BTreeMap;
use std::sync::Arc;

/// # Guarantees
/// An item that is pushed is popped or removed once. A controller that waits is passed by at most one of each other
/// controller for each of its own before it.
#[derive(Debug)]
pub struct TurnLine<T> {
    /// Items that wait, by turn, then by arrival.
    waiting: BTreeMap<TurnPosition, (Arc<str>, T)>,
    /// The last turn of each controller with something that waits, and how many of it wait.
    controllers: BTreeMap<Arc<str>, (u64, usize)>,
    arrivals: u64,
    /// The turn that is under way.
    now: u64,
}

/// A place in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnPosition {
    turn: u64,
    arrival: u64,
}

impl<T> Default for TurnLine<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), controllers: BTreeMap::new(), arrivals: 0, now: 0 }
    }
}

impl<T> TurnLine<T> {
    pub fn push(&mut self, controller: &Arc<str>, one: T) -> TurnPosition {
        let (last_turn, waiting) = self.controllers.entry(Arc::clone(controller)).or_default();
        // After its last one, and after the turn that is under way: who always has one that waits waits for others, too.
        *last_turn = (*last_turn).max(self.now) + 1;
        *waiting += 1;
        self.arrivals += 1;
        let place = TurnPosition { turn: *last_turn, arrival: self.arrivals };
        self.waiting.insert(place, (Arc::clone(controller), one));
        place
    }

    /// The one whose turn is next.
    pub fn first(&self) -> Option<(TurnPosition, &T)> {
        self.waiting.first_key_value().map(|(place, (_, one))| (*place, one))
    }

    /// Takes the one whose turn is next.
    pub fn pop(&mut self) -> Option<T> {
        let place = *self.waiting.first_key_value()?.0;
        self.now = place.turn;
        self.remove(place)
    }

    pub fn remove(&mut self, place: TurnPosition) -> Option<T> {
        let (controller, one) = self.waiting.remove(&place)?;
        if let Some((_, waiting)) = self.controllers.get_mut(&controller) {
            *waiting -= 1;
            if *waiting == 0 {
                self.controllers.remove(&controller);
            }
        }
        Some(one)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(all: &[(&str, u32)]) -> (TurnLine<u32>, Vec<TurnPosition>) {
        let mut line = TurnLine::default();
        let places = all.iter().map(|(controller, one)| line.push(&(*controller).into(), *one)).collect();
        (line, places)
    }

    #[test]
    fn controllers_take_turns_and_each_keeps_its_order() {
        let (mut line, places) = line(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
        assert_eq!(line.remove(places[5]), Some(6));
        assert_eq!(line.remove(places[5]), None);
        assert_eq!(line.first().map(|(_, one)| *one), Some(1));
        assert_eq!(std::iter::from_fn(|| line.pop()).collect::<Vec<_>>(), [1, 4, 5, 2, 3]);
        assert!(line.is_empty() && line.controllers.is_empty());
    }

    #[test]
    fn one_that_comes_again_and_again_waits_for_others() {
        let (mut line, _) = line(&[("a", 1), ("b", 2), ("b", 3)]);
        let mut order = Vec::new();
        for nth in 10..14 {
            order.extend(line.pop());
            line.push(&"a".into(), nth);
        }
        assert_eq!(order, [1, 2, 3, 10]);
    }
}
