//! A list of byte strings as 128 bits that no two lists share.

use sha2::{Digest, Sha256};

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
    use super::*;

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
