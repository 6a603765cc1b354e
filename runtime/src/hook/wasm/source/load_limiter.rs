//! Turns of modules to be unpacked and loaded, so that the bytes of many never lie in memory together.

use std::sync::Arc;

use metahook_core::pacing::shares::{ALL_SHARES, shares_of};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::unpack::{unpack, unpacked_size};
use crate::hook::wasm::compile::{ModuleBounds, ModuleError, Unpacked, blocking};

/// Lets the modules of a server be unpacked in turn.
pub(super) struct LoadLimiter {
    /// Permits for the bytes of modules, from before they are unpacked until they are loaded.
    bytes: Arc<Semaphore>,
    /// One at a time: a decoder has a window of 8 MiB, whatever it reads.
    decoder: Arc<Semaphore>,
}

impl LoadLimiter {
    pub(super) fn new() -> Self {
        let bytes = Arc::new(Semaphore::new(ALL_SHARES as usize));
        Self { bytes, decoder: Arc::new(Semaphore::new(1)) }
    }

    /// Unpacks a module when it is its turn.
    ///
    /// *Guarantees*: the bytes count from before they are there until they are dropped, also where the caller is.
    pub(super) async fn unpack(
        &self,
        stored: Vec<u8>,
        bounds: ModuleBounds,
    ) -> Result<Unpacked, ModuleError> {
        let decoder = turn(&self.decoder, 1).await?;
        // No header is believed: the first pass counts, and keeps nothing.
        let count = move || Ok((unpacked_size(&stored, &bounds)?, stored, decoder));
        let (size, stored, decoder) = blocking(count).await?;
        // The decoder waits, too: a large module would be passed by small ones for ever.
        let turn = turn(&self.bytes, shares_of(size)).await?;
        let unpack = move || {
            let bytes = unpack(stored, &bounds)?;
            drop(decoder);
            Ok(Unpacked::in_turn(bytes, turn))
        };
        blocking(unpack).await
    }
}

async fn turn(turns: &Arc<Semaphore>, shares: u32) -> Result<OwnedSemaphorePermit, ModuleError> {
    let turn = Arc::clone(turns).acquire_many_owned(shares).await;
    turn.map_err(|closed| ModuleError::Bug(closed.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use flate2::write::GzEncoder;
    use futures_util::FutureExt as _;

    use super::*;

    const BOUNDS: ModuleBounds = ModuleBounds {
        packed: 1 << 20,
        size: 65 << 20,
        functions: 0,
        compile_time: Duration::ZERO,
        compile_memory: 0,
        code: 0,
    };

    fn packed(size: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![0; size]).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn modules_wait_until_there_is_room_for_their_bytes() {
        let limiter = LoadLimiter::new();
        let small = limiter.unpack(packed(1 << 20), BOUNDS).await.unwrap();
        let half = limiter.unpack(packed(40 << 20), BOUNDS).await.unwrap();
        assert_eq!((half.bytes.len(), limiter.bytes.available_permits()), (40 << 20, 23 << 10));
        let mut large = Box::pin(limiter.unpack(packed(65 << 20), BOUNDS));
        let wait = tokio::time::timeout(Duration::from_millis(300), &mut large).await;
        assert!(wait.is_err(), "65 MiB beside 41");
        drop(half);
        assert!((&mut large).now_or_never().is_none(), "65 MiB beside 1");
        drop(small);
        let large = large.await.unwrap();
        assert_eq!((large.bytes.len(), limiter.bytes.available_permits()), (65 << 20, 0), "it goes alone");
        drop(large);
        assert_eq!(limiter.bytes.available_permits(), ALL_SHARES as usize);
    }

    #[tokio::test]
    async fn a_refused_module_gives_its_turns_back() {
        let limiter = LoadLimiter::new();
        let bounds = ModuleBounds { size: 1 << 20, ..BOUNDS };
        assert_eq!(
            limiter.unpack(packed((1 << 20) + 1), bounds).await.err(),
            Some(ModuleError::Size(1 << 20))
        );
        assert!(limiter.unpack(packed(1 << 20), bounds).await.is_ok());
        let free = (limiter.bytes.available_permits(), limiter.decoder.available_permits());
        assert_eq!(free, (ALL_SHARES as usize, 1));
    }
}
