//! Knows whether a `ConfigMap` holds the same as before, by a digest of its data.

use metahook_sdk::{Map, Str};
use sha2::{Digest, Sha256};

/// A `ConfigMap`'s `data` and `binaryData`, in hexadecimal. Labels and annotations have no part in it.
pub(crate) fn digest(data: &Map<'_, Str<'_>>, binary_data: &Map<'_, Str<'_>>) -> String {
    let mut digest = Sha256::new();
    for map in [data, binary_data] {
        digest.update((map.len() as u64).to_be_bytes()); // usize is not as long everywhere
        for (key, value) in map.iter() {
            for text in [key, value] {
                // With its length, so that what ends one text never begins the next.
                digest.update((text.len() as u64).to_be_bytes());
                digest.update(text);
            }
        }
    }
    format!("{:x}", digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn of(data: &[(&'static str, &'static str)], binary: &[(&'static str, &'static str)]) -> String {
        let map = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|&(key, value)| (key, Str::from(value))).collect::<Map<'_, _>>()
        };
        digest(&map(data), &map(binary))
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        assert_eq!(of(&[("a", "1"), ("b", "2")], &[]), of(&[("b", "2"), ("a", "1")], &[]));
    }

    #[test]
    fn whatever_differs_gives_another_digest() {
        let all = [
            of(&[], &[]),
            of(&[("a", "")], &[]),
            of(&[], &[("a", "")]),
            of(&[("a", "b")], &[]),
            of(&[("ab", "")], &[]),
            of(&[("", "ab")], &[]),
            of(&[("a", ""), ("b", "")], &[]),
            of(&[("a", "")], &[("b", "")]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn the_digest_is_the_same_on_every_machine() {
        assert_eq!(of(&[], &[]), "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb");
    }
}
