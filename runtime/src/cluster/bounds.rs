//! Bounds of the API server's answers: no answer, whatever sends it, grows the server's memory without end.

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use kube::client::DynBody;
use metahook_core::api::units::print_bytes;
use tower::BoxError;

/// An object, in an answer or in an event of a watch. etcd takes 1.5 MiB of one and a request has 3 MiB, but the API server
/// writes each `<`, `>` and `&` of a text in six bytes.
pub(super) const MAX_OBJECT: u64 = 12 << 20;

/// Bytes of the API server's answer about its kinds, and of a page of an API that follows no `limit`.
pub(super) const MAX_LARGE: u64 = 32 << 20;

/// A refusal is cut here: its status counts, and its beginning says why.
pub(super) const MAX_REFUSAL: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
#[error("the answer to {method} {path} has more than {}", print_bytes(*bound))]
pub struct TooLarge {
    method: Method,
    path: String,
    bound: u64,
}

impl TooLarge {
    /// `path`: with a query, or without.
    pub(super) fn new(method: &Method, path: &str, bound: u64) -> Self {
        let path = path.split('?').next().unwrap_or(path).to_owned();
        Self { method: method.clone(), path, bound }
    }
}

/// The beginning of a body.
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    pub(super) end: End,
}

/// Why the server stops reading a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// The body has more bytes than its bound.
    TooLarge,
    /// There is no memory for so many bytes now.
    NoRoom(u64),
}

/// Reads a body to its end or its bound. One that is known to be larger is not read.
pub(super) async fn read(body: Box<DynBody>, bound: u64) -> Result<Head, BoxError> {
    read_with_room(body, bound, |_| true).await
}

/// Like [`read`], but asks for room before it keeps more bytes.
pub(super) async fn read_with_room(
    mut body: Box<DynBody>,
    bound: u64,
    mut has_room: impl FnMut(u64) -> bool,
) -> Result<Head, BoxError> {
    let mut bytes = Vec::new();
    let mut end_after = |bytes: u64| {
        if bytes > bound {
            End::TooLarge
        } else if has_room(bytes) {
            End::Whole
        } else {
            End::NoRoom(bytes)
        }
    };
    let end = end_after(body.size_hint().lower());
    if end != End::Whole {
        return Ok(Head { bytes, end });
    }
    let cut = usize::try_from(bound).unwrap_or(usize::MAX);
    while let Some(frame) = body.frame().await {
        // Trailers say nothing.
        let Ok(data) = frame?.into_data() else { continue };
        let end = end_after(u64::try_from(bytes.len() + data.len()).unwrap_or(u64::MAX));
        if let End::NoRoom(_) = end {
            return Ok(Head { bytes, end });
        }
        bytes.extend_from_slice(data.get(..cut.saturating_sub(bytes.len())).unwrap_or(&data));
        if end == End::TooLarge {
            return Ok(Head { bytes, end });
        }
    }
    Ok(Head { bytes, end: End::Whole })
}

/// The beginning of a refusal, as text.
pub(super) async fn read_refusal(body: Box<DynBody>) -> Result<String, BoxError> {
    let bytes = read(body, MAX_REFUSAL).await?.bytes;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The line of a watch that is being read: each is an event.
pub(super) struct Line {
    path: String,
    bytes: usize,
}

impl Line {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_owned(), bytes: 0 }
    }

    /// Reads on.
    pub(super) fn read(&mut self, data: &Bytes) -> Result<(), TooLarge> {
        let bound = usize::try_from(MAX_OBJECT).unwrap_or(usize::MAX);
        for (nth, part) in data.split(|byte| *byte == b'\n').enumerate() {
            self.bytes = if nth == 0 { self.bytes.saturating_add(part.len()) } else { part.len() };
            if self.bytes > bound {
                return Err(TooLarge::new(&Method::GET, &self.path, MAX_OBJECT));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A body without an end, and how many bytes of it were read.
    fn endless() -> (Box<DynBody>, Arc<AtomicU64>) {
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let frames = stream::repeat_with(move || {
            counted.fetch_add(1 << 14, Ordering::Relaxed);
            Ok(Frame::data(Bytes::from_static(&[b' '; 1 << 14])))
        });
        (Box::new(StreamBody::new(frames)), read)
    }

    fn whole(text: &'static str) -> Box<DynBody> {
        Box::new(http_body_util::Full::from(text).map_err(|never| match never {}))
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_bound() {
        for (bound, bytes, is_whole) in [(5, "12345", true), (4, "", false), (6, "12345", true)] {
            let head = read(whole("12345"), bound).await.unwrap();
            let found = (head.bytes.as_slice(), head.end == End::Whole);
            assert_eq!(found, (bytes.as_bytes(), is_whole), "{bound}");
        }
    }

    #[tokio::test]
    async fn a_body_is_read_while_there_is_room() {
        let (body, count) = endless();
        let head = read_with_room(body, 1 << 30, |bytes| bytes <= 100_000).await.unwrap();
        let End::NoRoom(bytes) = head.end else { panic!("it has no end") };
        assert!((100_001..=100_000 + (1 << 14)).contains(&bytes) && head.bytes.len() <= 100_000, "{bytes}");
        assert!(count.load(Ordering::Relaxed) < 200_000);
        let of_five = read_with_room(whole("12345"), 5, |bytes| bytes < 5).await.unwrap();
        assert!(of_five.end == End::NoRoom(5) && of_five.bytes.is_empty());
    }

    #[tokio::test]
    async fn a_body_without_an_end_is_left_at_its_bound() {
        let (body, count) = endless();
        let head = read(body, 100_000).await.unwrap();
        assert!(head.end == End::TooLarge);
        assert_eq!(head.bytes.len(), 100_000);
        assert!(count.load(Ordering::Relaxed) < 200_000);
        let refusal = read_refusal(endless().0).await.unwrap();
        assert_eq!(refusal.len() as u64, MAX_REFUSAL);
    }

    #[test]
    fn an_event_of_a_watch_has_a_bound_and_a_watch_has_none() {
        let mut line = Line::new("/x");
        let half = Bytes::from(vec![b'x'; usize::try_from(MAX_OBJECT / 2).unwrap()]);
        for _ in 0..3 {
            assert!(line.read(&half).is_ok() && line.read(&half).is_ok(), "at the bound");
            assert!(line.read(&Bytes::from_static(b"\n")).is_ok());
        }
        assert!(line.read(&half).is_ok() && line.read(&half).is_ok());
        let error = line.read(&Bytes::from_static(b"x\n")).unwrap_err();
        assert_eq!(error.to_string(), "the answer to GET /x has more than 12Mi");
    }
}
