//! Pipes of a component. Those that it prints to are shared with its state, which has what was printed when the call has ended.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::cost::Cost;
use crate::hook::wasm::wasi::state::Output;
use crate::memory::MemoryShort;
use crate::sync::lock;

/// Bytes that a component may write at once.
const PERMIT: usize = 1 << 20;

/// Bytes of one read. A component that gets fewer than it wanted asks again.
pub(super) const MAX_READ: usize = 1 << 20;

/// A pipe that a component reads: its request, or a file. Clones share the place in it.
#[derive(Clone)]
pub(super) struct Source {
    pipe: MemoryInputPipe,
    cost: Cost,
}

impl Source {
    pub(super) fn new(bytes: Bytes, cost: Cost) -> Self {
        Self { pipe: MemoryInputPipe::new(bytes), cost }
    }
}

impl IsTerminal for Source {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Source {
    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }

    /// A stream of preview 3, which components do not get: it is empty.
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(tokio::io::empty())
    }
}

#[async_trait]
impl Pollable for Source {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for Source {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let read = self.pipe.read(size.min(MAX_READ))?;
        self.cost.copied(read.len());
        Ok(read)
    }
}

/// A pipe that a component prints to.
#[derive(Clone)]
pub(super) struct Sink {
    output: Arc<Mutex<Output>>,
    cost: Cost,
    /// Nothing may be lost: half an answer is no answer.
    whole: bool,
}

impl Sink {
    /// The answer.
    pub(super) fn whole(output: &mut Output, cost: Cost) -> Self {
        Self { output: Arc::new(Mutex::new(output.take())), cost, whole: true }
    }

    /// The log, of which the end may be lost.
    pub(super) fn cut(output: &mut Output, cost: Cost) -> Self {
        Self { output: Arc::new(Mutex::new(output.take())), cost, whole: false }
    }

    pub(super) fn print(&self, bytes: &[u8]) -> wasmtime::Result<()> {
        self.cost.copied(bytes.len());
        self.add(|output| output.push(bytes))
    }

    /// Prints bytes without a copy: their only holder gives them away.
    pub(super) fn give(&self, bytes: Vec<u8>) -> wasmtime::Result<()> {
        self.add(|output| output.give(bytes))
    }

    fn add(&self, add: impl FnOnce(&mut Output) -> Result<(), MemoryShort>) -> wasmtime::Result<()> {
        let mut output = lock(&self.output);
        add(&mut output).map_err(|short| wasmtime::format_err!("{short}"))?;
        if self.whole && output.lost > 0 {
            wasmtime::bail!("the output is longer than its limit");
        }
        Ok(())
    }

    /// Counts bytes that were dropped elsewhere.
    pub(super) fn lose(&self, bytes: usize) {
        let mut output = lock(&self.output);
        output.lost = output.lost.saturating_add(bytes.max(1));
    }

    /// Gives back what was printed.
    pub(super) fn end(&self, output: &mut Output) {
        *output = lock(&self.output).take();
    }
}

impl IsTerminal for Sink {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Sink {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    /// A stream of preview 3, which components do not get: it drops all bytes.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}

#[async_trait]
impl Pollable for Sink {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Sink {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.print(&bytes).map_err(StreamError::Trap)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}
