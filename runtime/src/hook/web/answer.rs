//! Body of a webhook's answer, unpacked where it comes packed, and bounded as it is then.
//!
//! # Guarantees
//! - What is unpacked takes at most the bound, and the memory that is reserved for it.
//! - Others of the same thread have their turn after each [`PIECE`] of a packed body: it may unpack to a thousand times as much.
//! - A packed body that is longer than what comes out of it is refused: one of empty parts would go on without an end.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use metahook_core::shorten;
use tokio::task::yield_now;

use crate::memory::{MemoryShort, Reservation};

/// Bytes of an answer with another status than 200.
const MAX_ERROR_BODY: usize = 1024;

/// Bytes of a packed body that are unpacked in one turn.
const PIECE: usize = 4096;

/// Bytes that a packed body may be longer than what came out of it: its headers, and what the decoder holds back.
const MAX_PACKED_EXCESS: usize = 128 << 10;

#[derive(Debug)]
pub(super) enum BodyError {
    TooLong,
    MemoryShort(MemoryShort),
    Broken(hyper::Error),
    Packed(io::Error),
}

/// The bytes so far, up to a bound, and as far as there is memory for them.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
    /// Bytes that the answer says that it has.
    said: usize,
    memory: Reservation,
}

impl Bounded {
    fn make_room(&mut self, bytes: usize) -> Result<(), MemoryShort> {
        let (needed, capacity) = (self.bytes.len() + bytes, self.bytes.capacity());
        if needed > capacity {
            // As much as the answer says that it has, once a part of it came, and twice as much where it says nothing.
            let wanted = needed.max(self.said.min(16 * needed)).max((2 * capacity).min(self.max));
            self.memory.charge(wanted - capacity)?;
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        Ok(())
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.max - self.bytes.len());
        self.make_room(fits).map_err(io::Error::other)?;
        self.bytes.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        if fits < bytes.len() { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(fits) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Unpacker {
    Plain(Bounded),
    Gzip(Box<Gzip>),
}

struct Gzip {
    decoder: MultiGzDecoder<Bounded>,
    /// Bytes so far, as they came.
    packed: usize,
}

impl Gzip {
    fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.decoder.write_all(piece)?;
        self.packed += piece.len();
        let unpacked = self.decoder.get_ref().bytes.len();
        // What cannot be compressed is a little longer when it is packed.
        if self.packed > unpacked + unpacked / 512 + MAX_PACKED_EXCESS {
            let packed = self.packed;
            return Err(io::Error::other(format!("only {unpacked} bytes come out of {packed}")));
        }
        Ok(())
    }
}

impl Unpacker {
    /// `said`: bytes of the body, where it says how many.
    fn new(headers: &HeaderMap, said: usize, max: usize, memory: Reservation) -> Self {
        let mut bounded = Bounded { bytes: Vec::new(), max, said, memory };
        let encoding = headers.get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes);
        match encoding {
            Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => {
                // What comes out of them is not known.
                bounded.said = 0;
                Self::Gzip(Box::new(Gzip { decoder: MultiGzDecoder::new(bounded), packed: 0 }))
            }
            // Another encoding was not asked for: the bytes are taken as they are.
            Some(_) | None => Self::Plain(bounded),
        }
    }

    async fn add(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        match self {
            Self::Plain(plain) => plain.write_all(bytes).map_err(BodyError::of),
            Self::Gzip(gzip) => {
                for piece in bytes.chunks(PIECE) {
                    gzip.add(piece).map_err(BodyError::of)?;
                    yield_now().await;
                }
                Ok(())
            }
        }
    }

    fn end(self) -> Result<Vec<u8>, BodyError> {
        match self {
            Self::Plain(plain) => Ok(plain.bytes),
            Self::Gzip(gzip) => gzip.decoder.finish().map(|bounded| bounded.bytes).map_err(BodyError::of),
        }
    }

    fn so_far(&mut self) -> &[u8] {
        match self {
            Self::Plain(plain) => &plain.bytes,
            Self::Gzip(gzip) => {
                // What it still holds back is not worth an error about an error.
                gzip.decoder.flush().unwrap_or_default();
                &gzip.decoder.get_ref().bytes
            }
        }
    }
}

impl BodyError {
    fn of(error: io::Error) -> Self {
        let short = error.get_ref().and_then(|inner| inner.downcast_ref::<MemoryShort>());
        match short {
            Some(short) => Self::MemoryShort(*short),
            None if error.kind() == io::ErrorKind::FileTooLarge => Self::TooLong,
            None => Self::Packed(error),
        }
    }
}

/// # Errors
/// The body breaks off, cannot be unpacked, is longer than `max`, or there is no memory for it.
pub(super) async fn whole(
    headers: &HeaderMap,
    mut body: Incoming,
    max: usize,
    memory: &Reservation,
) -> Result<Vec<u8>, BodyError> {
    let said = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if said > max {
        return Err(BodyError::TooLong);
    }
    let mut unpacker = Unpacker::new(headers, said, max, memory.clone());
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame.map_err(BodyError::Broken)?.into_data() {
            unpacker.add(&bytes).await?;
        }
    }
    unpacker.end()
}

/// The beginning of a body, as far as it comes.
pub(super) async fn beginning(headers: &HeaderMap, mut body: Incoming) -> String {
    let mut unpacker = Unpacker::new(headers, 0, MAX_ERROR_BODY + 1, Reservation::default());
    while unpacker.so_far().len() <= MAX_ERROR_BODY
        && let Some(Ok(frame)) = body.frame().await
        && unpacker.add(&frame.into_data().unwrap_or_default()).await.is_ok()
    {}
    shorten(&String::from_utf8_lossy(unpacker.so_far()), MAX_ERROR_BODY)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn unpacker(encoding: &'static str, packed: &[u8], max: usize) -> Unpacker {
        let headers = [(CONTENT_ENCODING, encoding.parse().unwrap())].into_iter().collect();
        Unpacker::new(&headers, packed.len().min(max), max, Reservation::default())
    }

    async fn unpacked(encoding: &'static str, packed: &[u8], max: usize) -> Result<Vec<u8>, BodyError> {
        let mut unpacker = unpacker(encoding, packed, max);
        for byte in packed {
            unpacker.add(&[*byte]).await?;
        }
        unpacker.end()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn what_comes_packed_is_unpacked() {
        assert_eq!(unpacked("GZIP", &gzip(b"{}"), 2).await.unwrap(), b"{}");
        let twice = [gzip(b"{"), gzip(b"}")].concat();
        assert_eq!(unpacked("gzip", &twice, 2).await.unwrap(), b"{}");
        assert_eq!(unpacked("identity", b"{}", 2).await.unwrap(), b"{}");
    }

    #[tokio::test]
    async fn the_bound_is_on_what_comes_out() {
        let bomb = gzip(&vec![0; 1 << 20]);
        assert!(bomb.len() < 2000);
        assert!(matches!(unpacked("gzip", &bomb, (1 << 20) - 1).await, Err(BodyError::TooLong)));
        assert_eq!(unpacked("gzip", &bomb, 1 << 20).await.unwrap().len(), 1 << 20);
        assert!(matches!(unpacked("identity", b"abc", 2).await, Err(BodyError::TooLong)));
    }

    #[tokio::test]
    async fn what_is_damaged_is_refused() {
        let whole = gzip(b"{\"children\":[]}");
        for packed in [&whole[..whole.len() - 1], &whole[..12], b"{\"children\":[]}".as_slice()] {
            assert!(matches!(unpacked("gzip", packed, 100).await, Err(BodyError::Packed(_))), "{packed:?}");
        }
    }

    #[tokio::test]
    async fn a_body_of_empty_parts_ends_at_its_bound() {
        let part = gzip(b"");
        let fitting = MAX_PACKED_EXCESS / part.len();
        assert!(unpacked("gzip", &part.repeat(fitting), 100).await.unwrap().is_empty());
        let refused = unpacked("gzip", &part.repeat(fitting + 1), 100).await;
        let BodyError::Packed(error) = refused.unwrap_err() else {
            panic!("it is refused for something else")
        };
        assert!(error.to_string().starts_with("only 0 bytes come out of 131"), "{error}");
    }

    #[tokio::test]
    async fn what_cannot_be_compressed_may_be_packed() {
        let random: Vec<u8> = (0..1_u32 << 18)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n % 31).to_le_bytes())
            .collect();
        let packed: Vec<u8> = random.chunks(1 << 16).flat_map(gzip).collect();
        assert_eq!(unpacked("gzip", &packed, random.len()).await.unwrap(), random);
    }

    /// On one thread: a frame of a connection may have all of it at once.
    #[tokio::test]
    async fn others_have_their_turns_while_a_body_is_unpacked() {
        let (bomb, turns) = (gzip(&vec![0; 16 << 20]), std::rc::Rc::new(std::cell::Cell::new(0)));
        let others = async {
            loop {
                turns.set(turns.get() + 1);
                yield_now().await;
            }
        };
        let mut unpacker = unpacker("gzip", &bomb, 16 << 20);
        tokio::select! {
            biased;
            added = unpacker.add(&bomb) => added.unwrap(),
            () = others => {}
        }
        assert_eq!(unpacker.end().unwrap().len(), 16 << 20);
        assert!(turns.get() >= bomb.len() / PIECE && bomb.len() > 3 * PIECE, "{turns:?} of {}", bomb.len());
    }
}
