//! A list of byte strings as 128 bits that no two lists share.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Takes values and makes 64 bits of them that hardly any others share by chance, fast. Others in each process: they are
/// for its memory alone, and nobody can look for values that share them beforehand.
pub fn brief() -> impl Hasher {
    SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher()
}

/// The same of a value, with the kinds of its numbers: their own hash takes -1 and the largest of all for one.
pub fn brief_of(value: &Value) -> u64 {
    let mut all = brief();
    feed(value, &mut all);
    all.finish()
}

fn feed(value: &Value, all: &mut impl Hasher) {
    match value {
        Value::Null => all.write_u8(0),
        Value::Bool(value) => all.write_u8(1 + u8::from(*value)),
        Value::Number(number) => {
            all.write_u8(if number.is_u64() {
                3
            } else if number.is_i64() {
                4
            } else {
                5
            });
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
                feed(item, all);
            }
        }
        Value::Object(members) => {
            all.write_u8(8);
            all.write_usize(members.len());
            for (name, member) in members {
                name.hash(all);
                feed(member, all);
            }
        }
    }
}

/// Half of a SHA-256: nobody can make two lists that have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// Takes a list, string by string.
#[derive(Default)]
pub struct Fingerprinter(Sha256);

impl Fingerprinter {
    /// With its length first, so that no other list runs together to the same bytes.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::any_json;

    #[test]
    fn numbers_of_the_same_bits_differ() {
        for (one, other) in [
            (json!(-1), json!(u64::MAX)),
            (json!(i64::MIN), json!(1_u64 << 63)),
            (json!(1.5), json!(1.5_f64.to_bits())),
        ] {
            assert_ne!(brief_of(&one), brief_of(&other), "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn what_differs_differs_in_brief(one in any_json(), other in any_json()) {
            prop_assert_eq!(brief_of(&one) == brief_of(&other), one == other);
        }
    }

    fn of(list: &[&str]) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for one in list {
            all.add(one.as_bytes());
        }
        all.finish()
    }

    #[test]
    fn lists_that_run_together_to_the_same_text_differ() {
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        for other in [&["a", "bc"][..], &["abc"], &["ab", "c", ""], &["c", "ab"]] {
            assert_ne!(of(&["ab", "c"]), of(other), "{other:?}");
        }
    }
}
