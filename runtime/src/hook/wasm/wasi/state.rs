//! State of one call: its input, its output, its clocks and files, and the memory it asked for.

use std::time::SystemTime;

use bytes::Bytes;
use metahook_core::api::policy::Limits;
use wasmtime::ResourceLimiter;

use super::descriptors::Descriptors;
use super::determinism::{Clock, Random, Seed};
use super::mounts::MountedFolder;
use crate::memory::{MemoryShort, Reservation};

/// The input of a call.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// `argv[0]`.
    pub controller: &'a str,
    /// `argv[1]`: sync, finalize or customize.
    pub hook: &'a str,
    /// The call is of a shadow: it waits in the queue of shadows, so that no call of a reconcile waits for it.
    pub is_of_shadow: bool,
    pub request: Bytes,
    /// The time that the hook's realtime clock starts at.
    pub now: SystemTime,
    pub limits: Limits,
    /// The source of the hook's random numbers.
    pub seed: Seed,
    /// The folders that the hook may read.
    pub mounts: &'a [MountedFolder],
    /// Reservation that the call's memory and output are charged to.
    pub memory: Reservation,
}

/// `argv[1]` by which an interpreter makes bytecode of a script.
pub(crate) const COMPILE: &str = "compile";

/// The script that an interpreter runs, as the interpreter sees it.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// `argv[2]`, a file of the folder.
    pub(crate) file: String,
    /// Mounted before all others.
    pub(crate) folder: MountedFolder,
    /// `argv[3]`: instructions within which the interpreter stops the script, and says where.
    pub(crate) stop_within: Option<String>,
}

impl Call<'_> {
    /// `argv`
    pub(super) fn args<'a>(&'a self, script: Option<&'a Script>) -> impl Iterator<Item = &'a str> {
        let of_script = script.map(|script| [Some(script.file.as_str()), script.stop_within.as_deref()]);
        [self.controller, self.hook].into_iter().chain(of_script.into_iter().flatten().flatten())
    }

    /// The folders that the program may read.
    pub(super) fn folders(&self, script: Option<&Script>) -> Vec<MountedFolder> {
        script.map(|script| script.folder.clone()).into_iter().chain(self.mounts.iter().cloned()).collect()
    }
}

/// Instances of one component: that of `CPython` has about forty instances, a few tables, and one memory. A module has
/// one of each.
pub(crate) const MAX_INSTANCES: usize = 128;
pub(crate) const MAX_TABLES: usize = 16;
pub(crate) const MAX_MEMORIES: usize = 4;

/// Bytes that there is room for once anything is printed.
const MIN_OUTPUT: usize = 1 << 10;

/// Bytes beyond the bound that are kept at least, the last ones: a hook that fails says why at its end.
const MAX_TAIL: usize = 8 << 10;

/// The data of one instance.
pub struct CallState {
    pub(super) input: CallInput,
    /// More than its bound ends the call: half an answer is no answer.
    pub(crate) stdout: Output,
    /// More than its bound is counted and dropped.
    pub(crate) stderr: Output,
    pub(crate) clock: Clock,
    pub(super) random: Random,
    pub(super) files: Descriptors,
    pub(crate) limiter: Limiter,
    pub(super) host_calls: HostCalls,
    /// The hook asked for a socket, which no hook gets.
    pub(crate) wanted_network: bool,
    /// The program is an interpreter: its last words are about its script.
    pub(crate) is_script: bool,
}

/// The arguments and the request of a call, as the program reads them.
pub(super) struct CallInput {
    /// `argv`, each with a 0 behind it.
    pub(super) args: Vec<u8>,
    pub(super) arg_count: u32,
    /// The part of the request that the hook has not read yet.
    pub(super) stdin: Bytes,
}

/// Calls of the program into the host, which the hook pays for with its instructions.
pub(super) struct HostCalls {
    /// The fuel that was left when a call into the host last gave way to others.
    pub(super) fuel_at_yield: u64,
    /// The cost so far of the call into the host that is under way, also where it fails in the end.
    pub(super) cost: u64,
}

/// Memory with a bound, which a hook's output is written to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    memory: Reservation,
    /// The last bytes beyond the bound.
    tail: Vec<u8>,
    /// Bytes beyond the bound, and the lines that begin there.
    pub(crate) lost: usize,
    pub(crate) lost_lines: usize,
    /// The line that is written now has text, and began before.
    is_within_line: bool,
    bound: usize,
}

/// Bound of an instance's memory and tables, which remembers a refusal.
#[derive(Debug)]
pub(crate) struct Limiter {
    budget: u64,
    pub(crate) max_table_elements: usize,
    /// All linear memories together, in bytes; they never shrink.
    pub(crate) peak_memory: u64,
    /// Elements of all tables.
    table_elements: usize,
    pub(crate) refused: Option<RefusedGrowth>,
    memory: Reservation,
}

/// A size that was asked for and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedGrowth {
    /// In bytes.
    Memory(u64),
    /// In elements.
    Table(usize),
}

impl CallState {
    pub fn new(call: Call<'_>, max_table_elements: usize) -> Self {
        Self::with_script(call, None, max_table_elements)
    }

    pub(crate) fn with_script(call: Call<'_>, script: Option<&Script>, max_table_elements: usize) -> Self {
        let limits = call.limits;
        let mut args = Vec::with_capacity(call.controller.len() + call.hook.len() + 2);
        let mut arg_count = 0;
        for arg in call.args(script) {
            arg_count += 1;
            // A 0 within one would make two of it.
            args.extend(arg.bytes().filter(|byte| *byte != 0));
            args.push(0);
        }
        let files = Descriptors::new(call.folders(script));
        Self {
            input: CallInput { args, arg_count, stdin: call.request },
            stdout: Output::new(limits.output, call.memory.clone()),
            stderr: Output::new(limits.log, call.memory.clone()),
            clock: Clock::new(call.now),
            random: Random::new(call.seed),
            files,
            limiter: Limiter {
                budget: limits.memory,
                max_table_elements,
                peak_memory: 0,
                table_elements: 0,
                refused: None,
                memory: call.memory,
            },
            host_calls: HostCalls { fuel_at_yield: limits.instructions, cost: 0 },
            wanted_network: false,
            is_script: script.is_some(),
        }
    }

    pub fn limiter(&mut self) -> &mut dyn ResourceLimiter {
        &mut self.limiter
    }

    /// Gives the memory of an instance that is gone back.
    pub(crate) fn refund(&self) {
        self.limiter.memory.refund(usize::try_from(self.limiter.peak_memory).unwrap_or(usize::MAX));
    }

    /// The server's budget had no room for the call.
    pub(crate) fn is_short(&self) -> bool {
        self.limiter.memory.short_of().is_some()
    }

    /// The bytes that are kept of stdout and stderr.
    pub fn printed(&self) -> [&[u8]; 2] {
        [&self.stdout.bytes, &self.stderr.bytes]
    }
}

impl Output {
    fn new(bound: u64, memory: Reservation) -> Self {
        let bound = usize::try_from(bound).unwrap_or(usize::MAX);
        Self {
            bytes: Vec::new(),
            memory,
            tail: Vec::new(),
            lost: 0,
            lost_lines: 0,
            is_within_line: false,
            bound,
        }
    }

    /// Takes the output so far and the room for more, which are gone from here.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(0, self.memory.clone()))
    }

    /// Takes bytes over from their only holder. Where they are the whole output, no copy is made of them.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn give(&mut self, bytes: Vec<u8>) -> Result<(), MemoryShort> {
        if !self.bytes.is_empty() || bytes.len() > self.bound {
            return self.push(&bytes);
        }
        self.memory.charge(bytes.capacity())?;
        self.bytes = bytes;
        Ok(())
    }

    /// Bytes that it still keeps.
    pub(super) fn room(&self) -> usize {
        self.bound.saturating_sub(self.bytes.len())
    }

    /// # Errors
    /// There is no memory for it.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), MemoryShort> {
        let (kept, lost) = bytes.split_at(self.room().min(bytes.len()));
        let (needed, capacity) = (self.bytes.len() + kept.len(), self.bytes.capacity());
        if needed > capacity {
            let wanted = needed.max(2 * capacity).max(MIN_OUTPUT).min(self.bound);
            self.memory.charge(wanted - capacity)?;
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(kept);
        if self.lost == 0 {
            self.is_within_line = self.bytes.last().is_some_and(|last| *last != b'\n');
        }
        self.lost = self.lost.saturating_add(lost.len());
        self.count_lines(lost);
        self.keep_tail(lost)
    }

    /// Keeps the last bytes of those beyond the bound.
    fn keep_tail(&mut self, lost: &[u8]) -> Result<(), MemoryShort> {
        if lost.is_empty() {
            return Ok(());
        }
        if self.tail.capacity() == 0 {
            self.memory.charge(2 * MAX_TAIL)?;
            self.tail.reserve_exact(2 * MAX_TAIL);
        }
        let end = lost.get(lost.len().saturating_sub(MAX_TAIL)..).unwrap_or_default();
        if end.len() < lost.len() {
            self.tail.clear();
        }
        // Twice the bytes have room, so that few of many short writes move those before.
        if self.tail.len() + end.len() > 2 * MAX_TAIL {
            self.tail.drain(..self.tail.len().saturating_sub(MAX_TAIL));
        }
        self.tail.extend_from_slice(end);
        Ok(())
    }

    /// The output with its end, as text: what is missing between both is a new line.
    pub(crate) fn with_tail(&self) -> String {
        let gap = if self.lost > self.tail.len() { b"\n".as_slice() } else { b"" };
        String::from_utf8_lossy(&[&self.bytes, gap, &self.tail].concat()).into_owned()
    }

    fn count_lines(&mut self, lost: &[u8]) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lost) {
            self.lost_lines += usize::from(end > start && !self.is_within_line);
            self.is_within_line = false;
            start = end + 1;
        }
        if start < lost.len() {
            self.lost_lines += usize::from(!self.is_within_line);
            self.is_within_line = true;
        }
    }
}

impl ResourceLimiter for Limiter {
    /// Where the budget of the server is used up the call ends: a hook that went on without the memory could give another answer.
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let wanted = self.peak_memory.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
        if wanted > self.budget {
            self.refused = Some(RefusedGrowth::Memory(wanted));
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false); // the module's own bound
        }
        self.memory.charge(more)?;
        self.peak_memory = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.table_elements.saturating_add(desired.saturating_sub(current));
        if wanted > self.max_table_elements {
            self.refused = Some(RefusedGrowth::Table(wanted));
            return Ok(false);
        }
        self.table_elements = wanted;
        Ok(true)
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_up_to_the_bound_is_kept_and_the_rest_is_counted() {
        let mut output = Output::new(4, Reservation::default());
        for bytes in [b"ab".as_slice(), b"cd", b""] {
            output.push(bytes).unwrap();
            assert_eq!(output.lost, 0);
        }
        for bytes in [b"e\n\nf".as_slice(), b"g\n", b"h"] {
            output.push(bytes).unwrap();
        }
        assert_eq!((output.bytes.as_slice(), output.lost, output.lost_lines), (b"abcd".as_slice(), 7, 2));
    }

    #[test]
    fn the_end_of_a_long_output_is_kept_too() {
        let printed = |pieces: &[&[u8]]| {
            let mut output = Output::new(4, Reservation::default());
            for piece in pieces {
                output.push(piece).unwrap();
            }
            assert!(output.tail.len() <= 2 * MAX_TAIL && output.tail.capacity() <= 2 * MAX_TAIL);
            output.with_tail()
        };
        assert_eq!(printed(&[b"ab"]), "ab");
        assert_eq!(printed(&[b"abcd", b"e", b"f\n"]), "abcdef\n");
        assert_eq!(printed(&["abcé".as_bytes()]), "abcé");
        let long = vec![b'x'; 10 * MAX_TAIL];
        assert!(printed(&[b"abcd", &long, b"\nend"]).ends_with("x\nend"));
        assert!(printed(&[b"abcd", &long]).starts_with("abcd\nx"));
        let lines: Vec<_> = (0..100_000).map(|line| format!("{line}\n")).collect();
        let lines: Vec<_> = lines.iter().map(String::as_bytes).collect();
        let kept = printed(&lines);
        assert!(kept.starts_with("0\n1\n\n") && kept.ends_with("99998\n99999\n"));
        assert!((MAX_TAIL..=2 * MAX_TAIL + 5).contains(&kept.len()));
    }

    #[test]
    fn what_is_given_is_not_copied_and_has_the_same_bound() {
        let mut output = Output::new(4, Reservation::default());
        let given = b"abc".to_vec();
        let place = given.as_ptr();
        output.give(given).unwrap();
        assert!(output.bytes.as_ptr() == place && output.lost == 0);
        output.give(b"def".to_vec()).unwrap();
        assert_eq!((output.bytes.as_slice(), output.lost), (b"abcd".as_slice(), 2));
        let mut output = Output::new(2, Reservation::default());
        output.give(b"abc".to_vec()).unwrap();
        assert_eq!((output.bytes.as_slice(), output.lost), (b"ab".as_slice(), 1));
    }
}
