//! What belongs to one instance: what it was given, what it printed, what it used.

use bytes::Bytes;
use wasmtime::ResourceLimiter;

use super::sink::{Over, Sink};
use super::{Clock, Descriptors, Random};
use crate::hook::wasm::run::Call;

pub(crate) struct Host {
    pub(crate) args: Args,
    /// What the hook has not read yet.
    pub(crate) stdin: Bytes,
    pub(crate) stdout: Sink,
    pub(crate) stderr: Sink,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) files: Descriptors,
    pub(crate) limiter: Limiter,
    /// How many instructions were left when a call into the host last gave way to others.
    pub(crate) gave_way_at: u64,
}

/// `argv`.
#[derive(Debug)]
pub(crate) struct Args {
    /// Each with a 0 behind it.
    text: Vec<u8>,
    /// Where the second begins.
    second: usize,
}

/// Refuses what goes over the budget, and remembers that it did.
#[derive(Debug)]
pub(crate) struct Limiter {
    budget: u64,
    /// Elements that a table may have.
    pub(crate) table: usize,
    /// Most linear memory, in bytes.
    pub(crate) most: u64,
    pub(crate) refused: Option<Refused>,
}

/// What was wanted and not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Bytes.
    Memory(u64),
    /// Elements.
    Table(usize),
}

impl Host {
    pub(crate) fn new(call: Call<'_>, table: usize) -> Self {
        let limits = call.limits;
        Self {
            args: Args::new(call.controller, call.hook),
            stdin: call.request,
            stdout: Sink::new(limits.output, Over::Fail),
            stderr: Sink::new(limits.log, Over::Cut),
            clock: Clock::new(call.now),
            random: Random::new(call.seed),
            files: Descriptors::new(call.mounts),
            limiter: Limiter { budget: limits.memory, table, most: 0, refused: None },
            gave_way_at: limits.instructions,
        }
    }
}

impl Args {
    fn new(first: &str, second: &str) -> Self {
        let mut text = Vec::with_capacity(first.len() + second.len() + 2);
        let mut add = |arg: &str| {
            // A 0 within one would make two of it.
            text.extend(arg.bytes().filter(|byte| *byte != 0));
            text.push(0);
            text.len()
        };
        let start = add(first);
        add(second);
        Self { text, second: start }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn starts(&self) -> [usize; 2] {
        [0, self.second]
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = u64::try_from(desired).unwrap_or(u64::MAX);
        if wanted > self.budget {
            self.refused = Some(Refused::Memory(wanted));
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false); // the module's own bound
        }
        self.most = self.most.max(wanted);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.table {
            self.refused = Some(Refused::Table(desired));
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}
