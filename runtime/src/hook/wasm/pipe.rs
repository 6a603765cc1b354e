//! Where a hook's output goes: memory with a bound, which remembers what went over it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// What one write may bring; wasmtime-wasi copies that much at once.
const PERMIT: usize = 64 << 10;

/// A sink with a bound. Clones share it.
#[derive(Clone)]
pub(super) struct Sink {
    shared: Arc<Mutex<Written>>,
    bound: usize,
    over: Over,
    /// Bytes since the call gave way to others: writing costs no fuel, however long it takes.
    unyielded: usize,
}

/// What happens beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The call ends: half an answer is no answer.
    Fail,
    /// The rest is counted and dropped.
    Cut,
}

#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    /// Bytes beyond the bound.
    pub(super) lost: usize,
}

impl Sink {
    pub(super) fn new(bound: u64, over: Over) -> Self {
        Self {
            shared: Arc::default(),
            bound: usize::try_from(bound).unwrap_or(usize::MAX),
            over,
            unyielded: 0,
        }
    }

    /// Takes out what has been written.
    pub(super) fn take(&self) -> Written {
        std::mem::take(&mut *self.lock())
    }

    fn push(&self, bytes: &[u8]) -> Result<(), TooLong> {
        let mut written = self.lock();
        let room = self.bound - written.bytes.len().min(self.bound);
        let (kept, lost) = bytes.split_at(room.min(bytes.len()));
        written.bytes.extend_from_slice(kept);
        written.lost += lost.len();
        if lost.is_empty() || self.over == Over::Cut { Ok(()) } else { Err(TooLong) }
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the output is longer than its limit")]
struct TooLong;

impl IsTerminal for Sink {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Sink {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl OutputStream for Sink {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.unyielded += bytes.len();
        self.push(&bytes).map_err(|error| StreamError::Trap(wasmtime::Error::new(error)))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl Pollable for Sink {
    fn ready<'life, 'future>(&'life mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        let give_way = self.unyielded >= PERMIT;
        if give_way {
            self.unyielded = 0;
        }
        Box::pin(async move {
            if give_way {
                tokio::task::yield_now().await;
            }
        })
    }
}

impl AsyncWrite for Sink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_the_bound_everything_is_kept() {
        let sink = Sink::new(4, Over::Fail);
        assert!(sink.push(b"ab").is_ok() && sink.push(b"cd").is_ok() && sink.push(b"").is_ok());
        assert!(sink.push(b"e").is_err());
        let written = sink.take();
        assert_eq!((written.bytes.as_slice(), written.lost), (b"abcd".as_slice(), 1));
    }

    #[test]
    fn what_is_cut_is_counted() {
        let sink = Sink::new(3, Over::Cut);
        assert!(sink.push(b"abcdef").is_ok() && sink.push(b"gh").is_ok());
        let written = sink.take();
        assert_eq!((written.bytes.as_slice(), written.lost), (b"abc".as_slice(), 5));
    }
}
