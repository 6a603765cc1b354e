//! What a hook's random numbers are made of: one key of the installation, and the parent it is called about.

use std::fmt;

use metahook_core::object::id::Uid;
use sha2::{Digest, Sha256};

use crate::cluster::seed::SeedKey;
use crate::hook::wasm::run::Seed;

/// The same numbers at every call about a parent, other numbers for each parent, and none that an outsider can guess.
pub(crate) struct Seeds {
    key: SeedKey,
    #[cfg(debug_assertions)]
    each_call: Option<std::sync::atomic::AtomicU64>,
}

impl Seeds {
    pub(crate) fn new(key: SeedKey) -> Self {
        Self {
            key,
            #[cfg(debug_assertions)]
            each_call: None,
        }
    }

    /// A seam for tests, which no release has: hooks that give two answers to one request do not exist otherwise.
    #[cfg(debug_assertions)]
    pub(crate) fn anew_for_each_call(self) -> Self {
        Self { each_call: Some(std::sync::atomic::AtomicU64::default()), ..self }
    }

    pub(crate) fn of(&self, parent: &Uid) -> Seed {
        let hash = Sha256::new().chain_update(self.key).chain_update(parent.as_str());
        #[cfg(debug_assertions)]
        if let Some(calls) = &self.each_call {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Seed(hash.chain_update(call.to_le_bytes()).finalize().into());
        }
        Seed(hash.finalize().into())
    }
}

/// The key is a secret.
impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seeds").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_installations_differ_and_calls_do_not() {
        let (seeds, others) = (Seeds::new([1; 32]), Seeds::new([2; 32]));
        assert_eq!(seeds.of(&Uid::new("a")), seeds.of(&Uid::new("a")));
        assert_ne!(seeds.of(&Uid::new("a")), seeds.of(&Uid::new("b")));
        assert_ne!(seeds.of(&Uid::new("a")), others.of(&Uid::new("a")));
    }

    #[test]
    fn the_seam_for_tests_makes_calls_differ() {
        let seeds = Seeds::new([1; 32]).anew_for_each_call();
        assert_ne!(seeds.of(&Uid::new("a")), seeds.of(&Uid::new("a")));
    }
}
