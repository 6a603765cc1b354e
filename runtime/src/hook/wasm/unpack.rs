//! Stored bytes to the bytes of a module: as they are, or out of gzip or zstd, told apart by their first bytes.

use std::io::Read;

use super::module::{ModuleError, Runtime};

/// A module may be this large.
const LARGEST: u64 = 64 << 20;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The window of a zstd frame may have 2^23 bytes.
const WINDOW: u32 = 23;

impl Runtime {
    /// The bound of a module's size after decompression.
    #[expect(clippy::unused_self, reason = "a server's flag will say it")]
    pub(super) fn largest(&self) -> u64 {
        LARGEST
    }

    /// Decompresses what is compressed.
    pub async fn unpack(&self, stored: Vec<u8>) -> Result<Vec<u8>, ModuleError> {
        if stored.starts_with(&GZIP) || stored.starts_with(&ZSTD) {
            let unpacked = tokio::task::spawn_blocking(move || unpack(&stored)).await;
            return unpacked.unwrap_or_else(|panic| Err(ModuleError::Refused(panic.to_string())));
        }
        Ok(stored)
    }
}

fn unpack(stored: &[u8]) -> Result<Vec<u8>, ModuleError> {
    let broken = |error: std::io::Error| ModuleError::Refused(format!("it cannot be decompressed: {error}"));
    let mut bytes = Vec::new();
    if stored.starts_with(&GZIP) {
        let mut decoder = flate2::read::GzDecoder::new(stored).take(LARGEST + 1);
        decoder.read_to_end(&mut bytes).map_err(broken)?;
    } else {
        let mut decoder = zstd::Decoder::with_buffer(stored).map_err(broken)?;
        decoder.window_log_max(WINDOW).map_err(broken)?;
        decoder.take(LARGEST + 1).read_to_end(&mut bytes).map_err(broken)?;
    }
    Ok(bytes)
}
