//! Index of a module that is too large for one ConfigMap; it names the module's parts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::api::units::print_bytes;
use crate::object::id::{MAX_NAME_BYTES, is_dns_name};
use crate::shorten;

/// Parts of one module. Each holds at most 1 MiB.
pub const MAX_PARTS: usize = 64;

/// The key of a part's bytes.
pub const PART_KEY: &str = "part";

/// The one encoding there is.
const ENCODING: &str = "zstd";

/// An index as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// SHA-256 of the module's bytes after decompression, in hexadecimal.
    pub sha256: String,
    /// Bytes of the module after decompression.
    pub size: u64,
    pub encoding: String,
    /// Names of ConfigMaps in the namespace of the index, in the order of their bytes.
    pub parts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("it is not the JSON of an index ({0}): write it with `metahook pack`")]
    Json(String),
    #[error("its sha256 {0:?} is no digest: 64 hexadecimal digits in lower case")]
    Digest(String),
    #[error("its size is {} and {} are allowed", print_bytes(*size), print_bytes(*most))]
    Size { size: u64, most: u64 },
    #[error("its encoding {0:?} is unknown: it can be {ENCODING:?}")]
    Encoding(String),
    #[error("it names {0} parts, and there can be 1 to {MAX_PARTS}")]
    Count(usize),
    #[error("its part {0:?} is no name of a ConfigMap")]
    Name(String),
    #[error("it names the part {0:?} twice")]
    Twice(String),
}

impl Index {
    /// An index for `count` parts, whose names carry the module's digest.
    pub fn of(name: &str, sha256: &str, size: u64, count: usize) -> Self {
        Self {
            sha256: sha256.to_owned(),
            size,
            encoding: ENCODING.to_owned(),
            parts: (0..count).map(|number| part_name(name, sha256, number)).collect(),
        }
    }

    /// Reads an index for a module of at most `most` bytes.
    pub fn parse(json: &str, most: u64) -> Result<Self, IndexError> {
        let index: Self =
            serde_json::from_str(json).map_err(|error| IndexError::Json(shorten(&error.to_string(), 200)))?;
        let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if index.sha256.len() != 64 || !index.sha256.bytes().all(hexadecimal) {
            return Err(IndexError::Digest(shorten(&index.sha256, 100)));
        }
        if index.size > most {
            return Err(IndexError::Size { size: index.size, most });
        }
        if index.encoding != ENCODING {
            return Err(IndexError::Encoding(shorten(&index.encoding, 100)));
        }
        if !(1..=MAX_PARTS).contains(&index.parts.len()) {
            return Err(IndexError::Count(index.parts.len()));
        }
        let mut seen = BTreeSet::new();
        for part in &index.parts {
            if !is_dns_name(part) {
                return Err(IndexError::Name(shorten(part, 100)));
            }
            if !seen.insert(part) {
                return Err(IndexError::Twice(part.clone()));
            }
        }
        Ok(index)
    }
}

/// The key of the index of the module under `key`.
pub fn index_key(key: &str) -> String {
    format!("{key}.json")
}

/// Another module's part never has this name, so that two versions never mix.
fn part_name(name: &str, sha256: &str, number: usize) -> String {
    let tail = format!("-{}-{number}", sha256.get(..16).unwrap_or(sha256));
    let room = MAX_NAME_BYTES.saturating_sub(tail.len());
    let head = name.get(..room).unwrap_or(name).trim_end_matches(['.', '-']);
    format!("{head}{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHA256: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn refused(change: impl FnOnce(&mut Index)) -> String {
        let mut index = Index::of("hook", SHA256, 1000, 2);
        change(&mut index);
        Index::parse(&json!(index).to_string(), 1 << 20).unwrap_err().to_string()
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let index = Index::of("hello-hook", SHA256, 3_000_000, 2);
        assert_eq!(index.parts, ["hello-hook-9f86d081884c7d65-0", "hello-hook-9f86d081884c7d65-1"]);
        let text = json!(index).to_string();
        assert!(text.contains(r#""encoding":"zstd""#), "{text}");
        assert_eq!(Index::parse(&text, 3_000_000), Ok(index));
    }

    #[test]
    fn what_is_wrong_with_an_index_is_named() {
        for (says, error) in [
            (
                "its sha256 \"9F86\" is no digest: 64 hexadecimal digits in lower case",
                refused(|i| i.sha256 = "9F86".into()),
            ),
            ("its size is 1048577 and 1Mi are allowed", refused(|i| i.size = (1 << 20) + 1)),
            (
                "its encoding \"brotli\" is unknown: it can be \"zstd\"",
                refused(|i| i.encoding = "brotli".into()),
            ),
            ("it names 0 parts, and there can be 1 to 64", refused(|i| i.parts.clear())),
            (
                "it names 65 parts, and there can be 1 to 64",
                refused(|i| i.parts = (0..65).map(|n| n.to_string()).collect()),
            ),
            ("its part \"../x\" is no name of a ConfigMap", refused(|i| i.parts = vec!["../x".into()])),
            (
                "it names the part \"a\" twice",
                refused(|i| i.parts = vec!["a".into(), "b".into(), "a".into()]),
            ),
        ] {
            assert_eq!(error, says);
        }
        let error = Index::parse("{", 1).unwrap_err().to_string();
        assert!(error.starts_with("it is not the JSON of an index ("), "{error}");
        let more = json!({"sha256": SHA256, "size": 1, "encoding": "zstd", "parts": ["a"], "window": 27});
        assert!(Index::parse(&more.to_string(), 1).unwrap_err().to_string().contains("window"));
    }

    #[test]
    fn the_name_of_a_part_is_a_name_also_where_the_modules_is_long() {
        for name in ["a".to_owned(), "x".repeat(253), format!("{}.{}", "x".repeat(232), "y".repeat(20))] {
            let parts = Index::of(&name, SHA256, 1, 64).parts;
            assert!(parts.iter().all(|part| is_dns_name(part)), "{parts:?}");
        }
        assert!(!["", ".", "a.", "-a", "a-", "A", "a_b", "a/b", "a..b"].into_iter().any(is_dns_name));
    }
}
