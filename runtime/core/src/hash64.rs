//! Values as 64 bits that hardly any others share by chance, made fast, for the memory of one process.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use serde_json::Value;

/// Takes values and makes the 64 bits of them. They are others in each process, so that nobody can look beforehand for
/// values that share them.
pub(crate) fn hash64() -> impl Hasher {
    SeedableRandomState::with_seed(0, SharedSeed::global_random()).build_hasher()
}

/// The same of a value, with the kinds of its numbers: their own hash takes -1 and the largest of all for one.
pub(crate) fn brief_of(value: &Value) -> u64 {
    let mut all = hash64();
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
}
