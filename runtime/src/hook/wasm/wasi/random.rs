//! A hook's random numbers: made from the call's seed alone.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

use crate::hook::wasm::run::Seed;

/// Random bytes that one call into the host may want: nobody gets a turn while they are made.
const AT_ONCE: u32 = 16 << 10;

/// The stream of one call, begun when the hook first wants of it.
pub(crate) struct Random {
    seed: Seed,
    stream: Option<ChaCha20Rng>,
}

#[derive(Debug, thiserror::Error)]
#[error("it wanted {0} random bytes at once and may have {AT_ONCE}: ask for less, more often")]
pub(super) struct TooMany(u32);

impl Random {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { seed, stream: None }
    }

    pub(super) fn check(len: u32) -> Result<(), TooMany> {
        if len > AT_ONCE { Err(TooMany(len)) } else { Ok(()) }
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
}
