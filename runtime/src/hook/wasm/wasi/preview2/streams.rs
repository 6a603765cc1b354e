//! Pipes that a component prints to: shared with its state, which has what was printed when the call has ended.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::hook::wasm::wasi::state::Output;
use crate::sync::lock;

/// Bytes that a component may write at once.
const PERMIT: usize = 1 << 20;

/// One pipe.
#[derive(Clone)]
pub(super) struct Sink {
    output: Arc<Mutex<Output>>,
    /// Nothing may be lost: half an answer is no answer.
    whole: bool,
}

impl Sink {
    /// The answer.
    pub(super) fn whole(output: &mut Output) -> Self {
        Self { output: Arc::new(Mutex::new(output.take())), whole: true }
    }

    /// The log, of which the end may be lost.
    pub(super) fn cut(output: &mut Output) -> Self {
        Self { output: Arc::new(Mutex::new(output.take())), whole: false }
    }

    pub(super) fn print(&self, bytes: &[u8]) -> wasmtime::Result<()> {
        let mut output = lock(&self.output);
        output.push(bytes).map_err(|short| wasmtime::format_err!("{short}"))?;
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

    /// Of preview 3, which components do not get.
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
