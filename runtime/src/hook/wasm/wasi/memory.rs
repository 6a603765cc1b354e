//! Memory of a hook: every address is checked, every length has a bound, and every failure has its number.

use std::ops::Range;

/// Pieces that one call reads or writes; of more, the first ones, which is a short read or write.
const MAX_PIECES: u32 = 1024;

/// Bytes of a path, as on Linux.
pub(super) const MAX_PATH: u32 = 4096;

/// An error number of `wasi_snapshot_preview1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errno {
    Badf = 8,
    Fault = 21,
    Ilseq = 25,
    Inval = 28,
    Isdir = 31,
    Mfile = 33,
    Nametoolong = 37,
    Noent = 44,
    Notdir = 54,
    Notsock = 57,
    Notsup = 58,
    Overflow = 61,
    Perm = 63,
    Rofs = 69,
    Spipe = 70,
}

/// The failure of a function of the host.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hook sees the number and goes on.
    Errno(Errno),
    /// The call ends.
    Trap(wasmtime::Error),
}

pub(super) struct Memory<'a>(pub(super) &'a mut [u8]);

/// A part of the memory, which may lie outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: u32,
    pub(super) len: u32,
}

/// A list of addresses and lengths in the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) at: u32,
    pub(super) count: u32,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Failure {
    pub(super) fn trap(why: String) -> Self {
        Self::Trap(wasmtime::Error::msg(why))
    }
}

impl Memory<'_> {
    pub(super) fn bytes(&self, span: Span) -> Result<&[u8], Errno> {
        self.0.get(span.range()).ok_or(Errno::Fault)
    }

    pub(super) fn bytes_mut(&mut self, span: Span) -> Result<&mut [u8], Errno> {
        self.0.get_mut(span.range()).ok_or(Errno::Fault)
    }

    pub(super) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.bytes_mut(Span { at, len: length(bytes.len())? })?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn write_u32(&mut self, at: u32, number: u32) -> Result<(), Errno> {
        self.write(at, &number.to_le_bytes())
    }

    pub(super) fn write_u64(&mut self, at: u32, number: u64) -> Result<(), Errno> {
        self.write(at, &number.to_le_bytes())
    }

    pub(super) fn array<const N: usize>(&self, at: u32) -> Result<[u8; N], Errno> {
        let bytes = self.bytes(Span { at, len: length(N)? })?;
        bytes.first_chunk().copied().ok_or(Errno::Fault)
    }

    pub(super) fn u32(&self, at: u32) -> Result<u32, Errno> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(super) fn path(&self, span: Span) -> Result<&str, Errno> {
        if span.len > MAX_PATH {
            return Err(Errno::Nametoolong);
        }
        std::str::from_utf8(self.bytes(span)?).map_err(|_not_utf8| Errno::Ilseq)
    }

    /// One of the pieces that a list names.
    pub(super) fn piece(&self, list: List, number: u32) -> Result<Span, Errno> {
        let at = after(list.at, number * 8)?;
        Ok(Span { at: self.u32(at)?, len: self.u32(after(at, 4)?)? })
    }
}

impl List {
    /// The numbers of the pieces that one call reads or writes.
    pub(super) fn numbers(self) -> Range<u32> {
        0..self.count.min(MAX_PIECES)
    }
}

impl Span {
    fn range(self) -> Range<usize> {
        let start = self.at as usize;
        start..start.saturating_add(self.len as usize)
    }
}

/// The address `distance` bytes behind another.
pub(super) fn after(at: u32, distance: u32) -> Result<u32, Errno> {
    at.checked_add(distance).ok_or(Errno::Fault)
}

/// A length as WASI has it.
pub(super) fn length(len: usize) -> Result<u32, Errno> {
    u32::try_from(len).map_err(|_too_long| Errno::Overflow)
}
