//! Lanes of a queue: waiting keys in the order of their turns, by cause and, within a cause, by namespace.
//!
//! Lanes share the turns by weight, so that none starves. Within a lane namespaces take turns, however many keys each has.
//! See <https://github.com/metacontroller/metacontroller/issues/78>.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hash::FastMap;

/// Why a key is to run, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Another client created the parent.
    Created,
    /// Another client changed more of the parent than its status.
    Changed,
    /// A child, a related object or the parent's status changed, or a reconcile of this server wrote something.
    Related,
    /// Time passed, the controller started, or its module changed.
    Periodic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Of(Cause),
    /// Parents that their own writes trigger again and again.
    Throttled,
}

/// How many keys of a lane run while each lane has some.
const WEIGHTS: [(Lane, u32); 5] = [
    (Lane::Of(Cause::Created), 8),
    (Lane::Of(Cause::Changed), 8),
    (Lane::Of(Cause::Related), 4),
    (Lane::Of(Cause::Periodic), 1),
    (Lane::Throttled, 1),
];

/// The namespace that a key takes turns for.
pub type NamespaceOf<K> = fn(&K) -> &Arc<str>;

/// Where a key waits. Its owner keeps it, so that each key waits once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LanePosition {
    pub lane: Lane,
    turn: Turn,
}

/// The turn of a namespace in its lane, then the order of arrival.
type Turn = (u64, u64);

/// # Guarantees
/// Each key that is pushed is popped or removed once. A waiting key is passed by a bounded number of other lanes' keys, and
/// within its lane by at most one key of each other namespace for each of its own namespace's keys before it.
#[derive(Debug)]
pub struct Lanes<K> {
    waiting: [LaneQueue<K>; WEIGHTS.len()],
    arrivals: u64,
    namespace_of: NamespaceOf<K>,
}

#[derive(Debug)]
struct LaneQueue<K> {
    lane: Lane,
    weight: u32,
    /// Rest of its weight, until all lanes get theirs again.
    credit: u32,
    keys: BTreeMap<Turn, K>,
    /// Namespaces with a key that waits.
    namespaces: FastMap<Arc<str>, Namespace>,
    /// The turn of the last key that was popped.
    now: u64,
}

#[derive(Debug, Default)]
struct Namespace {
    waiting: usize,
    last_turn: u64,
}

impl<K> Lanes<K> {
    pub fn new(namespace_of: NamespaceOf<K>) -> Self {
        let waiting = WEIGHTS.map(|(lane, weight)| LaneQueue {
            lane,
            weight,
            credit: weight,
            keys: BTreeMap::new(),
            namespaces: FastMap::default(),
            now: 0,
        });
        Self { waiting, arrivals: 0, namespace_of }
    }

    pub fn push(&mut self, lane: Lane, key: K) -> LanePosition {
        self.arrivals = self.arrivals.wrapping_add(1);
        let (arrival, namespace_of) = (self.arrivals, self.namespace_of);
        let turn = self.lane(lane).map_or(0, |waiting| waiting.push(arrival, key, namespace_of));
        LanePosition { lane, turn: (turn, arrival) }
    }

    pub fn remove(&mut self, place: LanePosition) -> Option<K> {
        let namespace_of = self.namespace_of;
        self.lane(place.lane)?.remove(place.turn, namespace_of)
    }

    /// The next key. `throttled`: throttled keys may run now.
    pub fn pop(&mut self, throttled: bool) -> Option<(Lane, K)> {
        let ready = |one: &LaneQueue<K>| !one.keys.is_empty() && (throttled || one.lane != Lane::Throttled);
        if !self.waiting.iter().any(|one| ready(one) && one.credit > 0) {
            self.waiting.iter_mut().for_each(|one| one.credit = one.weight);
        }
        let next = self.waiting.iter_mut().find(|one| ready(one) && one.credit > 0)?;
        next.credit -= 1;
        let turn = next.keys.first_key_value().map(|(turn, _)| *turn)?;
        next.now = turn.0;
        next.remove(turn, self.namespace_of).map(|key| (next.lane, key))
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(|one| one.keys.is_empty())
    }

    pub fn has_throttled(&self) -> bool {
        self.waiting.iter().any(|one| one.lane == Lane::Throttled && !one.keys.is_empty())
    }

    fn lane(&mut self, lane: Lane) -> Option<&mut LaneQueue<K>> {
        self.waiting.iter_mut().find(|one| one.lane == lane)
    }
}

impl<K> LaneQueue<K> {
    fn push(&mut self, arrival: u64, key: K, namespace_of: NamespaceOf<K>) -> u64 {
        let namespace = self.namespaces.or_default(namespace_of(&key));
        namespace.waiting += 1;
        // After its last key, and after the turn that is under way: a namespace that always has one key waits, too.
        namespace.last_turn = namespace.last_turn.max(self.now) + 1;
        self.keys.insert((namespace.last_turn, arrival), key);
        namespace.last_turn
    }

    fn remove(&mut self, turn: Turn, namespace_of: NamespaceOf<K>) -> Option<K> {
        let key = self.keys.remove(&turn)?;
        if let Some(namespace) = self.namespaces.get_mut(namespace_of(&key)) {
            namespace.waiting -= 1;
            if namespace.waiting == 0 {
                self.namespaces.remove(namespace_of(&key));
            }
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::object::id::Key;

    fn lanes() -> Lanes<Key> {
        Lanes::new(|key| &key.namespace)
    }

    const ALL: [Lane; 5] = [
        Lane::Of(Cause::Created),
        Lane::Of(Cause::Changed),
        Lane::Of(Cause::Related),
        Lane::Of(Cause::Periodic),
        Lane::Throttled,
    ];

    fn popped(lanes: &mut Lanes<Key>, count: usize) -> Vec<String> {
        std::iter::from_fn(|| lanes.pop(true)).take(count).map(|(_, key)| key.to_string()).collect()
    }

    #[test]
    fn a_change_by_a_user_passes_a_storm() {
        let mut lanes = lanes();
        for nth in 0..1_000 {
            lanes.push(Lane::Of(Cause::Related), Key::new("n", &nth.to_string()));
            lanes.push(Lane::Of(Cause::Periodic), Key::new("n", &nth.to_string()));
        }
        lanes.push(Lane::Of(Cause::Changed), Key::new("n", "changed"));
        lanes.push(Lane::Of(Cause::Created), Key::new("n", "created"));
        assert_eq!(popped(&mut lanes, 3), ["n/created", "n/changed", "n/0"]);
    }

    #[test]
    fn lanes_share_turns_by_their_weights() {
        let mut lanes = lanes();
        for lane in ALL {
            for nth in 0..100 {
                lanes.push(lane, Key::new("n", &nth.to_string()));
            }
        }
        let mut counts = BTreeMap::new();
        for _ in 0..44 {
            *counts.entry(lanes.pop(true).unwrap().0).or_insert(0) += 1;
        }
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [16, 16, 8, 2, 2]);
    }

    #[test]
    fn namespaces_take_turns() {
        let mut lanes = lanes();
        let related = Lane::Of(Cause::Related);
        for nth in 0..10_000 {
            lanes.push(related, Key::new("a", &nth.to_string()));
        }
        popped(&mut lanes, 5_000);
        for nth in 0..2 {
            lanes.push(related, Key::new("b", &nth.to_string()));
        }
        assert_eq!(popped(&mut lanes, 5), ["a/5000", "b/0", "a/5001", "b/1", "a/5002"]);
        // One that comes again at once is no faster.
        lanes.push(related, Key::new("c", "0"));
        let mut order = Vec::new();
        for _ in 0..6 {
            let (_, key) = lanes.pop(true).unwrap();
            order.push(key.namespace.to_string());
            if &*key.namespace == "c" {
                lanes.push(related, key);
            }
        }
        assert_eq!(order.iter().filter(|one| *one == "c").count(), 3, "{order:?}");
    }

    #[test]
    fn throttled_keys_wait_until_they_may() {
        let mut lanes = lanes();
        let place = lanes.push(Lane::Throttled, Key::new("n", "a"));
        assert!(!lanes.is_empty() && lanes.has_throttled());
        assert_eq!(lanes.pop(false), None);
        assert_eq!(lanes.remove(place), Some(Key::new("n", "a")));
        assert_eq!((lanes.remove(place), lanes.pop(true), lanes.is_empty()), (None, None, true));
    }

    #[derive(Debug, Clone)]
    enum Deed {
        Push(usize, u8, u8),
        Remove(u8, u8),
        Pop(bool),
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            3 => (0..ALL.len(), 0..4_u8, 0..20_u8).prop_map(|(lane, space, name)| Deed::Push(lane, space, name)),
            1 => (0..4_u8, 0..20_u8).prop_map(|(space, name)| Deed::Remove(space, name)),
            2 => any::<bool>().prop_map(Deed::Pop),
        ]
    }

    fn key(space: u8, name: u8) -> Key {
        Key::new(&space.to_string(), &name.to_string())
    }

    proptest! {
        #[test]
        fn no_key_is_lost_or_doubled_or_starves(deeds in prop::collection::vec(deed(), 0..300)) {
            let mut lanes = lanes();
            let mut waiting: BTreeMap<Key, LanePosition> = BTreeMap::new();
            for deed in deeds {
                match deed {
                    Deed::Push(lane, space, name) => {
                        // As a queue does: a stronger cause moves a key.
                        let key = key(space, name);
                        let before = waiting.get(&key).copied();
                        if before.is_none_or(|place| ALL[lane] < place.lane) {
                            let removed = before.and_then(|place| lanes.remove(place));
                            prop_assert_eq!(removed.is_some(), before.is_some());
                            waiting.insert(key.clone(), lanes.push(ALL[lane], key));
                        }
                    }
                    Deed::Remove(space, name) => {
                        let key = key(space, name);
                        let place = waiting.remove(&key);
                        prop_assert_eq!(place.and_then(|place| lanes.remove(place)), place.map(|_| key));
                    }
                    Deed::Pop(throttled) => {
                        let found = lanes.pop(throttled);
                        let may = |place: &LanePosition| throttled || place.lane != Lane::Throttled;
                        prop_assert_eq!(found.is_some(), waiting.values().any(may));
                        if let Some((lane, key)) = found {
                            let place = waiting.remove(&key).unwrap();
                            prop_assert!(place.lane == lane && may(&place));
                        }
                    }
                }
            }
            let round: usize = WEIGHTS.iter().map(|(_, weight)| *weight as usize).sum();
            let (mut since, mut left) = (BTreeMap::new(), waiting);
            while let Some((lane, key)) = lanes.pop(true) {
                prop_assert_eq!(left.remove(&key).map(|place| place.lane), Some(lane));
                prop_assert!(since.remove(&lane).unwrap_or(0) < 2 * round, "{lane:?} starves");
                let waiting: BTreeSet<Lane> = left.values().map(|place| place.lane).collect();
                for lane in waiting {
                    *since.entry(lane).or_insert(0) += 1;
                }
            }
            prop_assert!(left.is_empty(), "lost: {left:?}");
        }

        #[test]
        fn a_namespace_is_passed_by_others_once_in_each_turn(sizes in prop::collection::vec(1..40_usize, 2..6)) {
            let mut lanes = lanes();
            for (space, size) in sizes.iter().enumerate() {
                for nth in 0..*size {
                    lanes.push(Lane::Of(Cause::Related), Key::new(&space.to_string(), &nth.to_string()));
                }
            }
            let mut taken: BTreeMap<String, usize> = BTreeMap::new();
            while let Some((_, key)) = lanes.pop(true) {
                *taken.entry(key.namespace.to_string()).or_default() += 1;
                for (space, size) in sizes.iter().enumerate() {
                    let own = taken.get(&space.to_string()).copied().unwrap_or(0);
                    let most = taken.values().max().copied().unwrap_or(0);
                    prop_assert!(own == *size || most - own <= 1, "{taken:?} of {sizes:?}");
                }
            }
        }
    }
}
