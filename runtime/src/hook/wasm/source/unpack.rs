//! Decompression of stored modules: plain, gzip or zstd, by their first bytes.

use std::io::{self, BufRead, Read, Write};

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::hook::wasm::compile::{Encoding, ModuleBounds, ModuleError};

/// Memory of the decoder, as a power of two: 8 MiB.
const MAX_ZSTD_WINDOW: u32 = 23;

/// Unpacks one module.
///
/// *Guarantees*: `bounds` limits memory and work, whatever the header of the data says.
///
/// *Caveats*: exactly one gzip member or zstd frame; bytes behind it are refused, not ignored.
pub fn unpack(stored: Vec<u8>, bounds: &ModuleBounds) -> Result<Vec<u8>, ModuleError> {
    let Some(encoding) = encoding(&stored) else {
        let fits = stored.len() as u64 <= bounds.size;
        return if fits { Ok(stored) } else { Err(ModuleError::Size(bounds.size)) };
    };
    if stored.len() as u64 > bounds.packed {
        return Err(ModuleError::Packed { encoding, found: stored.len(), bound: bounds.packed });
    }
    let mut bytes = Vec::new();
    decode(&stored, encoding, bounds.size, &mut bytes)?;
    Ok(bytes)
}

/// The bytes that [`unpack`] makes of a module, which are counted and not kept.
pub(super) fn unpacked_size(stored: &[u8], bounds: &ModuleBounds) -> Result<u64, ModuleError> {
    let packed = stored.len() as u64;
    match encoding(stored) {
        // Too many are refused later.
        Some(encoding) if packed <= bounds.packed => decode(stored, encoding, bounds.size, &mut io::sink()),
        _ => Ok(packed),
    }
}

/// Decodes all that is stored, up to the bound; gives back how much that is.
fn decode(stored: &[u8], encoding: Encoding, bound: u64, into: &mut impl Write) -> Result<u64, ModuleError> {
    let (size, left) = match encoding {
        Encoding::Gzip => {
            let mut decoder = GzDecoder::new(stored);
            (read(&mut decoder, encoding, bound, into)?, decoder.into_inner())
        }
        Encoding::Zstd => {
            let mut decoder = zstd_decoder(stored).map_err(|error| broken(encoding, &error))?;
            (read(&mut decoder, encoding, bound, into)?, decoder.finish())
        }
    };
    match left.len() {
        0 => Ok(size),
        count => Err(ModuleError::Trailing { encoding, count }),
    }
}

/// Whether what is stored begins as compressed bytes do.
pub fn is_compressed(stored: &[u8]) -> bool {
    encoding(stored).is_some()
}

fn encoding(stored: &[u8]) -> Option<Encoding> {
    match stored {
        [0x1f, 0x8b, ..] => Some(Encoding::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Encoding::Zstd),
        _ => None,
    }
}

fn zstd_decoder<R: BufRead>(stored: R) -> io::Result<ZstdDecoder<'static, R>> {
    let mut decoder = ZstdDecoder::with_buffer(stored)?.single_frame();
    decoder.window_log_max(MAX_ZSTD_WINDOW)?;
    Ok(decoder)
}

/// Reads to the end, or to one byte beyond the bound.
fn read(
    decoder: &mut impl Read,
    encoding: Encoding,
    bound: u64,
    into: &mut impl Write,
) -> Result<u64, ModuleError> {
    let size = io::copy(&mut decoder.take(bound.saturating_add(1)), into);
    let size = size.map_err(|error| broken(encoding, &error))?;
    if size <= bound { Ok(size) } else { Err(ModuleError::Size(bound)) }
}

fn broken(encoding: Encoding, error: &io::Error) -> ModuleError {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
        // zstd's message about a window that is too large.
        _ if error.to_string().contains("too much memory") => return ModuleError::Window(encoding),
        _ => error.to_string(),
    };
    ModuleError::Broken { encoding, why }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use zstd::zstd_safe::CParameter;

    use super::*;

    const BOUNDS: ModuleBounds = ModuleBounds {
        packed: 1000,
        size: 10_000,
        functions: 0,
        compile_time: std::time::Duration::ZERO,
        compile_memory: 0,
        code: 0,
    };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 3).unwrap()
    }

    fn both(bytes: &[u8]) -> [(Encoding, Vec<u8>); 2] {
        [(Encoding::Gzip, gzip(bytes)), (Encoding::Zstd, zstd(bytes))]
    }

    #[test]
    fn a_module_is_the_same_in_each_encoding() {
        let module = b"\0asm and so on".repeat(100);
        assert_eq!(unpack(module.clone(), &BOUNDS), Ok(module.clone()));
        for (encoding, stored) in both(&module) {
            assert!(stored.len() < module.len());
            assert_eq!(unpack(stored, &BOUNDS), Ok(module.clone()), "{encoding}");
        }
    }

    #[test]
    fn a_module_may_be_as_large_as_the_bound_and_no_larger() {
        let largest = vec![0; 10_000];
        let larger = vec![0; 10_001];
        assert_eq!(unpack(largest.clone(), &BOUNDS), Ok(largest.clone()));
        assert_eq!(unpack(larger.clone(), &BOUNDS), Err(ModuleError::Size(10_000)));
        for (encoding, stored) in both(&largest) {
            assert_eq!(unpacked_size(&stored, &BOUNDS), Ok(10_000));
            assert_eq!(unpack(stored, &BOUNDS), Ok(largest.clone()), "{encoding}");
        }
        for (encoding, stored) in both(&larger) {
            assert_eq!(unpacked_size(&stored, &BOUNDS), Err(ModuleError::Size(10_000)));
            assert_eq!(unpack(stored, &BOUNDS), Err(ModuleError::Size(10_000)), "{encoding}");
        }
    }

    #[test]
    fn compressed_bytes_have_a_bound_of_their_own() {
        for (encoding, stored) in both(b"\0asm") {
            let found = stored.len();
            let bounds = |packed| ModuleBounds { packed, ..BOUNDS };
            assert_eq!(unpack(stored.clone(), &bounds(found as u64)), Ok(b"\0asm".to_vec()));
            let bound = found as u64 - 1;
            assert_eq!(unpack(stored, &bounds(bound)), Err(ModuleError::Packed { encoding, found, bound }));
        }
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_bound() {
        struct Counted<R>(R, u64);
        impl<R: Read> Read for Counted<R> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = self.0.read(buffer)?;
                self.1 += length as u64;
                Ok(length)
            }
        }
        let zeros = vec![0; 64 << 20];
        let (gzip, zstd) = (gzip(&zeros), zstd(&zeros));
        let mut decoder = Counted(GzDecoder::new(gzip.as_slice()), 0);
        assert_eq!(
            read(&mut decoder, Encoding::Gzip, 10_000, &mut io::sink()),
            Err(ModuleError::Size(10_000))
        );
        assert_eq!(decoder.1, 10_001);
        let mut decoder = Counted(zstd_decoder(zstd.as_slice()).unwrap(), 0);
        assert_eq!(
            read(&mut decoder, Encoding::Zstd, 10_000, &mut io::sink()),
            Err(ModuleError::Size(10_000))
        );
        assert_eq!(decoder.1, 10_001);
    }

    #[test]
    fn every_truncation_is_refused() {
        for (encoding, stored) in both(b"\0asm and so on, with a checksum or without") {
            for length in 4..stored.len() {
                let error = unpack(stored[..length].to_vec(), &BOUNDS).unwrap_err();
                let why = "it is cut off".to_owned();
                assert_eq!(error, ModuleError::Broken { encoding, why }, "{encoding}, {length} bytes");
            }
        }
    }

    #[test]
    fn bytes_behind_the_end_are_refused() {
        for (encoding, stored) in both(b"\0asm") {
            let twice = stored.repeat(2);
            let count = stored.len();
            assert_eq!(
                unpack(twice, &BOUNDS),
                Err(ModuleError::Trailing { encoding, count }),
                "concatenated"
            );
            let garbage = [stored.as_slice(), b"x"].concat();
            assert_eq!(unpack(garbage, &BOUNDS), Err(ModuleError::Trailing { encoding, count: 1 }));
        }
    }

    #[test]
    fn broken_data_is_refused() {
        for (encoding, mut stored) in both(&b"\0asm and so on".repeat(10)) {
            stored[4..].fill(0xff);
            let error = unpack(stored, &BOUNDS).unwrap_err();
            assert!(matches!(&error, ModuleError::Broken { encoding: of, .. } if *of == encoding), "{error}");
        }
    }

    #[test]
    fn a_window_of_eight_mebibytes_is_the_largest() {
        let bounds = ModuleBounds { packed: 1 << 20, size: 64 << 20, ..BOUNDS };
        let stored = |window: u32| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.set_parameter(CParameter::WindowLog(window)).unwrap();
            encoder.write_all(&vec![0; 17 << 20]).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(unpack(stored(23), &bounds).map(|bytes| bytes.len()), Ok(17 << 20));
        assert_eq!(unpack(stored(24), &bounds), Err(ModuleError::Window(Encoding::Zstd)));
    }
}
