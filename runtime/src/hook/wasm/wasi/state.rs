//! State of one call: its input, its output, its clocks and files, and the memory it asked for.

use std::time::SystemTime;

use bytes::Bytes;
use metahook_core::api::limits::Limits;
use wasmtime::ResourceLimiter;

use super::clock::Clock;
use super::descriptors::Descriptors;
use super::mounts::MountedFolder;
use super::random::{Random, Seed};

/// The input of a call.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// `argv[0]`.
    pub controller: &'a str,
    /// `argv[1]`: sync, finalize or customize.
    pub hook: &'a str,
    pub request: Bytes,
    /// The time that the hook's realtime clock starts at.
    pub now: SystemTime,
    pub limits: Limits,
    /// The source of the hook's random numbers.
    pub seed: Seed,
    /// The folders that the hook may read.
    pub mounts: &'a [MountedFolder],
}

/// The data of one instance.
pub(in crate::hook::wasm) struct CallState {
    pub(super) args: Args,
    /// The part of the request that the hook has not read yet.
    pub(super) stdin: Bytes,
    pub(in crate::hook::wasm) stdout: Output,
    pub(in crate::hook::wasm) stderr: Output,
    pub(in crate::hook::wasm) clock: Clock,
    pub(super) random: Random,
    pub(super) files: Descriptors,
    pub(in crate::hook::wasm) limiter: Limiter,
    /// The fuel that was left when a call into the host last gave way to others.
    pub(super) fuel_at_yield: u64,
}

/// `argv`.
#[derive(Debug)]
pub(super) struct Args {
    /// Each with a 0 behind it.
    pub(super) text: Vec<u8>,
    /// The position of the second.
    second: usize,
}

/// Memory with a bound, which a hook's output is written to.
#[derive(Debug)]
pub(in crate::hook::wasm) struct Output {
    pub(in crate::hook::wasm) bytes: Vec<u8>,
    /// Bytes beyond the bound.
    pub(in crate::hook::wasm) lost: usize,
    bound: usize,
    overflow: Overflow,
}

/// The effect of output beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// The call ends: half an answer is no answer.
    Fail,
    /// The rest is counted and dropped.
    Cut,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output is longer than its limit")]
pub(super) struct OutputTooLong;

/// Bound of an instance's memory and tables, which remembers a refusal.
#[derive(Debug)]
pub(in crate::hook::wasm) struct Limiter {
    budget: u64,
    pub(in crate::hook::wasm) max_table_elements: usize,
    /// The largest linear memory so far, in bytes.
    pub(in crate::hook::wasm) peak_memory: u64,
    pub(in crate::hook::wasm) refused: Option<RefusedGrowth>,
}

/// A size that was asked for and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hook::wasm) enum RefusedGrowth {
    /// In bytes.
    Memory(u64),
    /// In elements.
    Table(usize),
}

impl CallState {
    pub(in crate::hook::wasm) fn new(call: Call<'_>, max_table_elements: usize) -> Self {
        let limits = call.limits;
        Self {
            args: Args::new(call.controller, call.hook),
            stdin: call.request,
            stdout: Output::new(limits.output, Overflow::Fail),
            stderr: Output::new(limits.log, Overflow::Cut),
            clock: Clock::new(call.now),
            random: Random::new(call.seed),
            files: Descriptors::new(call.mounts),
            limiter: Limiter { budget: limits.memory, max_table_elements, peak_memory: 0, refused: None },
            fuel_at_yield: limits.instructions,
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

    pub(super) fn starts(&self) -> [usize; 2] {
        [0, self.second]
    }
}

impl Output {
    fn new(bound: u64, overflow: Overflow) -> Self {
        Self { bytes: Vec::new(), lost: 0, bound: usize::try_from(bound).unwrap_or(usize::MAX), overflow }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), OutputTooLong> {
        let room = self.bound.saturating_sub(self.bytes.len());
        let (kept, lost) = bytes.split_at(room.min(bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.lost = self.lost.saturating_add(lost.len());
        if lost.is_empty() || self.overflow == Overflow::Cut { Ok(()) } else { Err(OutputTooLong) }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = u64::try_from(desired).unwrap_or(u64::MAX);
        if wanted > self.budget {
            self.refused = Some(RefusedGrowth::Memory(wanted));
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false); // the module's own bound
        }
        self.peak_memory = self.peak_memory.max(wanted);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.max_table_elements {
            self.refused = Some(RefusedGrowth::Table(desired));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_up_to_the_bound_is_kept() {
        let mut output = Output::new(4, Overflow::Fail);
        assert_eq!((output.push(b"ab"), output.push(b"cd"), output.push(b"")), (Ok(()), Ok(()), Ok(())));
        assert_eq!(output.push(b"e"), Err(OutputTooLong));
        assert_eq!((output.bytes.as_slice(), output.lost), (b"abcd".as_slice(), 1));
    }

    #[test]
    fn output_that_is_cut_is_counted() {
        let mut output = Output::new(3, Overflow::Cut);
        assert_eq!((output.push(b"abcdef"), output.push(b"gh")), (Ok(()), Ok(())));
        assert_eq!((output.bytes.as_slice(), output.lost), (b"abc".as_slice(), 5));
    }
}
