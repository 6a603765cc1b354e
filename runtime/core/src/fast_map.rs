//! Values that are looked up far more often than anything else is done with them.
#![expect(clippy::disallowed_types, reason = "the order of this map is given away to nobody")]

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// A map without an order: nothing gives one away, so that none gets into what is decided. Keys that make it slow can be
/// chosen only by who knows the seed of the process.
pub struct FastMap<K, V>(HashMap<K, V, RandomState>);

impl<K: Hash + Eq, V> FastMap<K, V> {
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub fn or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        self.0.entry(key.clone()).or_default()
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> Default for FastMap<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K, V> fmt::Debug for FastMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values by key", self.0.len())
    }
}
