//! Random numbers of a hook: made from one key of the installation and the parent that the hook is called for.

use std::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use metahook_core::object::id::Uid;
use sha2::{Digest as _, Sha256};

use crate::cluster::seed::SeedKey;

/// Random bytes of one call into the host, which gives way to no other call while they are made.
const MAX_BYTES: u32 = 16 << 10;

/// The seed of one call: the same seed gives the same numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

/// The seeds of an installation: the same at every call for a parent, others for each parent, and none that can be
/// guessed.
pub(crate) struct Seeds {
    key: SeedKey,
    #[cfg(debug_assertions)]
    calls: Option<std::sync::atomic::AtomicU64>,
}

/// The random numbers of one call, begun when the hook first asks for some.
pub(super) struct Random {
    seed: Seed,
    stream: Option<ChaCha20Rng>,
}

#[derive(Debug, thiserror::Error)]
#[error("it wanted {0} random bytes at once and may have {MAX_BYTES}: ask for less, more often")]
pub(super) struct TooMany(u32);

/// The seed is secret: it gives a hook's random numbers away.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl Seeds {
    pub(crate) fn new(key: SeedKey) -> Self {
        Self {
            key,
            #[cfg(debug_assertions)]
            calls: None,
        }
    }

    /// Other seeds at each call, which tests need for a hook that gives two answers to one request. No release has it.
    #[cfg(debug_assertions)]
    pub(crate) fn other_for_each_call(self) -> Self {
        Self { calls: Some(std::sync::atomic::AtomicU64::default()), ..self }
    }

    pub(crate) fn of(&self, parent: &Uid) -> Seed {
        let hash = Sha256::new().chain_update(self.key).chain_update(parent.as_str());
        #[cfg(debug_assertions)]
        if let Some(calls) = &self.calls {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Seed(hash.chain_update(call.to_le_bytes()).finalize().into());
        }
        Seed(hash.finalize().into())
    }
}

/// The key is secret.
impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seeds").finish_non_exhaustive()
    }
}

impl Random {
    pub(super) fn new(seed: Seed) -> Self {
        Self { seed, stream: None }
    }

    pub(super) fn check(len: u32) -> Result<(), TooMany> {
        if len > MAX_BYTES { Err(TooMany(len)) } else { Ok(()) }
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        self.stream.get_or_insert_with(|| ChaCha20Rng::from_seed(self.seed.0)).fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u8, pieces: &[usize]) -> Vec<u8> {
        let mut random = Random::new(Seed([seed; 32]));
        let mut bytes = vec![0; pieces.iter().sum()];
        let mut rest = bytes.as_mut_slice();
        for len in pieces {
            let (piece, after) = rest.split_at_mut(*len);
            random.fill(piece);
            rest = after;
        }
        bytes
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        assert_eq!(numbers(1, &[300]), numbers(1, &[300]));
        assert_ne!(numbers(1, &[300]), numbers(2, &[300]));
    }

    #[test]
    fn numbers_do_not_come_twice() {
        let bytes = numbers(1, &[32, 32]);
        assert_ne!(bytes[..32], bytes[32..]);
    }

    /// A version of the cipher that counts otherwise would change what every hook sees.
    #[test]
    fn the_numbers_are_those_of_chacha20() {
        let first = numbers(0, &[8]);
        assert_eq!(first, [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    }

    #[test]
    fn parents_and_installations_have_other_seeds_and_calls_do_not() {
        let (seeds, others) = (Seeds::new([1; 32]), Seeds::new([2; 32]));
        assert_eq!(seeds.of(&Uid::new("a")), seeds.of(&Uid::new("a")));
        assert_ne!(seeds.of(&Uid::new("a")), seeds.of(&Uid::new("b")));
        assert_ne!(seeds.of(&Uid::new("a")), others.of(&Uid::new("a")));
    }

    #[test]
    fn in_tests_each_call_may_have_another_seed() {
        let seeds = Seeds::new([1; 32]).other_for_each_call();
        assert_ne!(seeds.of(&Uid::new("a")), seeds.of(&Uid::new("a")));
    }
}
