//! Hashes of values: a fingerprint that outlives the process, a fast hash and a fast map within it.

#[expect(clippy::disallowed_types, reason = "the map that wraps it never shows its order")]
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::RandomState;
use foldhash::quality::SeedableRandomState;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Half of the SHA-256 of a list of byte strings: no two lists with the same fingerprint can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    pub fn of(bytes: &[u8]) -> Self {
        let mut one = Fingerprinter::default();
        one.add(bytes);
        one.finish()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    /// Half of it, which is enough to tell versions apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A fingerprint in the making: the list is added string by string.
#[derive(Default)]
pub struct Fingerprinter(Sha256);

impl Fingerprinter {
    /// The length goes first, so that lists which concatenate to the same bytes differ.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes.len().to_le_bytes());
        self.0.update(bytes);
    }

    pub fn finish(self) -> Fingerprint {
        let all: [u8; 32] = self.0.finalize().into();
        let mut half = [0; 16];
        half.copy_from_slice(all.split_at(16).0);
        Fingerprint(half)
    }
}

/// Hasher with a seed of this process, so that colliding values cannot be prepared.
pub fn hash64() -> impl Hasher {
    SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher()
}

/// Hash of JSON with the kinds of its numbers: `Number` hashes -1 and `u64::MAX` alike.
pub(crate) fn hash_json(value: &Value) -> u64 {
    let mut all = hash64();
    add_json(value, &mut all);
    all.finish()
}

fn add_json(value: &Value, all: &mut impl Hasher) {
    match value {
        Value::Null => all.write_u8(0),
        Value::Bool(value) => all.write_u8(1 + u8::from(*value)),
        Value::Number(number) => {
            all.write_u8(3 + u8::from(number.is_f64()) + 2 * u8::from(number.is_u64()));
            number.hash(all);
        }
        Value::String(text) => {
            all.write_u8(6);
            text.hash(all);
        }
        Value::Array(items) => {
            all.write_u8(7);
            all.write_usize(items.len());
            for item in items {
                add_json(item, all);
            }
        }
        Value::Object(members) => {
            all.write_u8(8);
            all.write_usize(members.len());
            for (name, member) in members {
                name.hash(all);
                add_json(member, all);
            }
        }
    }
}

/// Values of a [`FastMap`] that it keeps room for, however few there are.
const MIN_SHRINKING: usize = 16;

/// Map that never shows its order, so that its random order cannot reach a decision. Its seed is random, so that colliding keys
/// cannot be prepared.
#[expect(clippy::disallowed_types, reason = "no method shows the map's order")]
pub struct FastMap<K, V>(HashMap<K, V, RandomState>);

impl<K: Hash + Eq, V> FastMap<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// All entries, in the order of their keys.
    pub fn sorted(&self) -> Vec<(&K, &V)>
    where
        K: Ord,
    {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
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
        let removed = self.0.remove(key)?;
        self.shrink();
        Some(removed)
    }

    /// Keeps the values that it says to keep, whatever their order.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|_, value| keep(value));
        self.shrink();
    }

    /// Gives back what values took that are gone, where these were most of them.
    fn shrink(&mut self) {
        if self.0.capacity() / 8 > self.0.len().max(MIN_SHRINKING) {
            self.0.shrink_to(2 * self.0.len());
        }
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

#[expect(clippy::disallowed_types, reason = "no method shows the map's order")]
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::any_json;

    fn fingerprint(list: &[&str]) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for one in list {
            all.add(one.as_bytes());
        }
        all.finish()
    }

    #[test]
    fn lists_that_concatenate_to_the_same_text_differ() {
        assert_eq!(fingerprint(&["ab", "c"]), fingerprint(&["ab", "c"]));
        for other in [&["a", "bc"][..], &["abc"], &["ab", "c", ""], &["c", "ab"]] {
            assert_ne!(fingerprint(&["ab", "c"]), fingerprint(other), "{other:?}");
        }
    }

    #[test]
    fn numbers_of_the_same_bits_differ() {
        for (one, other) in [
            (json!(-1), json!(u64::MAX)),
            (json!(i64::MIN), json!(1_u64 << 63)),
            (json!(1.5), json!(1.5_f64.to_bits())),
        ] {
            assert_ne!(hash_json(&one), hash_json(&other), "{one} {other}");
        }
    }

    #[test]
    fn a_map_gives_back_what_values_took_that_are_gone() {
        let mut map = FastMap::default();
        (0..10_000).for_each(|number| assert_eq!(map.insert(number, number), None));
        (0..9_990).for_each(|number| assert_eq!(map.remove(&number), Some(number)));
        assert!(map.0.capacity() < 500, "{}", map.0.capacity());
        let left: Vec<_> = map.sorted().into_iter().map(|(number, _)| *number).collect();
        assert_eq!(left, (9_990..10_000).collect::<Vec<_>>());
        assert_eq!((map.remove(&0), map.len()), (None, 10));
    }

    proptest! {
        #[test]
        fn values_that_differ_have_different_hashes(one in any_json(), other in any_json()) {
            prop_assert_eq!(hash_json(&one) == hash_json(&other), one == other);
        }
    }
}
