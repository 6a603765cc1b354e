//! Names and hashes that follow from a value: the same in, the same out.

use serde::Serialize;
use std::io::{Result as IoResult, Write};

/// The longest name that every kind takes, and that fits in a label.
const LONGEST: usize = 63;

/// A hash of a value's JSON in 16 hexadecimal digits, which fits in a name, a label or an annotation. It is the same in each
/// call and in each version of the SDK. It is not cryptographic: do not use it for secrets.
///
/// With this hash in an annotation of its Pod template, a Deployment rolls when a ConfigMap changes:
///
/// ```
/// let data = serde_json::json!({ "colour": "blue" });
/// assert_eq!(metahook_sdk::hash(&data).unwrap(), "54b39e52fbc11d0b");
/// ```
///
/// # Errors
/// The value cannot be written as JSON, for example because a map has keys that are not text.
pub fn hash(value: &(impl Serialize + ?Sized)) -> Result<String, String> {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    serde_json::to_writer(&mut hash, value).map_err(|why| format!("hash: {why}"))?;
    Ok(format!("{:016x}", hash.0))
}

/// The name of a parent's child, of at most 63 bytes: `web-cache` from `web` and `cache`. When this is longer than 63 bytes,
/// the name is the beginning of the parent's name, a hash of the whole, and the suffix. So children of two parents with long
/// names do not get the same name.
///
/// ```
/// use metahook_sdk::owned_name;
///
/// assert_eq!(owned_name("web", "cache"), "web-cache");
/// assert_eq!(owned_name(&"w".repeat(70), "cache").len(), 63);
/// ```
pub fn owned_name(parent: &str, suffix: &str) -> String {
    let whole = format!("{parent}-{suffix}");
    if whole.len() <= LONGEST {
        return whole;
    }
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.add(whole.as_bytes());
    let end = format!("-{:016x}-{suffix}", hash.0);
    let room = LONGEST.saturating_sub(end.len());
    let begin: String = parent.chars().take(room).collect();
    let begin = begin.trim_end_matches(['-', '.']);
    let name: String = format!("{begin}{end}").chars().take(LONGEST).collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// FNV-1a of 64 bits.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_hash_is_that_of_the_json() {
        // The reference values of FNV-1a are those of texts without quotes.
        let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
        fnv.add(b"foobar");
        assert_eq!(fnv.0, 0x8594_4171_f739_67e8);
        assert_eq!(hash("a"), hash(&'a'));
        assert_ne!(hash("a"), hash("b"));
        assert_eq!(hash(&BTreeMap::from([((), 1)])).unwrap_err(), "hash: key must be a string");
    }

    #[test]
    fn a_name_is_cut_where_it_is_too_long_and_stays_its_own() {
        let name = |length: usize| owned_name(&"p".repeat(length), "web");
        assert_eq!(name(59), format!("{}-web", "p".repeat(59)));
        assert_eq!((name(59).len(), name(60).len(), name(253).len()), (63, 63, 63));
        assert!(name(60).ends_with("-web") && name(60) != name(61), "{} {}", name(60), name(61));
        let odd = owned_name(&format!("{}--{}", "p".repeat(41), "q".repeat(40)), "web");
        assert!(!odd.contains("--") && odd.len() < LONGEST, "{odd}");
        let all_suffix = owned_name("a", &"s".repeat(80));
        assert!(
            all_suffix.len() <= LONGEST && all_suffix != owned_name("b", &"s".repeat(80)),
            "{all_suffix}"
        );
    }
}
