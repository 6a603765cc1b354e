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
    /// There is no more.
    pub(super) is_whole: bool,
}

/// Reads a body to its end or its bound. One that is known to be larger is not read.
pub(super) async fn read(mut body: Box<DynBody>, bound: u64) -> Result<Head, BoxError> {
    let mut bytes = Vec::new();
    if body.size_hint().lower() > bound {
        return Ok(Head { bytes, is_whole: false });
    }
    let bound = usize::try_from(bound).unwrap_or(usize::MAX);
    while let Some(frame) = body.frame().await {
        // Trailers say nothing.
        let Ok(data) = frame?.into_data() else { continue };
        let room = bound.saturating_sub(bytes.len());
        bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        if data.len() > room {
            return Ok(Head { bytes, is_whole: false });
        }
    }
    Ok(Head { bytes, is_whole: true })
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
            assert_eq!((head.bytes.as_slice(), head.is_whole), (bytes.as_bytes(), is_whole), "{bound}");
        }
    }

    #[tokio::test]
    async fn a_body_without_an_end_is_left_at_its_bound() {
        let (body, count) = endless();
        let head = read(body, 100_000).await.unwrap();
        assert!(!head.is_whole);
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
