//! Memory of a hook: every address is checked, every length has a bound.

use crate::hook::wasm::wasi::errno::Errno;

/// Pieces that one call reads or writes; of more, the first ones, which is a short read or write.
const MAX_PIECES: u32 = 1024;

/// Bytes of a path, as on Linux.
const MAX_PATH: u32 = 4096;

pub(super) struct Memory<'a>(pub(super) &'a mut [u8]);

/// A part of the memory, which may lie outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Memory<'_> {
    pub(super) fn bytes(&self, span: Span) -> Result<&[u8], Errno> {
        let (start, end) = span.bounds()?;
        self.0.get(start..end).ok_or(Errno::Fault)
    }

    pub(super) fn bytes_mut(&mut self, span: Span) -> Result<&mut [u8], Errno> {
        let (start, end) = span.bounds()?;
        self.0.get_mut(start..end).ok_or(Errno::Fault)
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
        let (start, _) = Span { at, len: 0 }.bounds()?;
        let rest = self.0.get(start..).ok_or(Errno::Fault)?;
        rest.first_chunk().copied().ok_or(Errno::Fault)
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

    /// One of the pieces that a list of addresses and lengths names.
    pub(super) fn piece(&self, list: u32, number: u32) -> Result<Span, Errno> {
        let at = after(list, number * 8)?;
        Ok(Span { at: self.u32(at)?, len: self.u32(after(at, 4)?)? })
    }
}

/// The numbers of the pieces in a list of `count` that one call reads or writes.
pub(super) fn pieces(count: u32) -> std::ops::Range<u32> {
    0..count.min(MAX_PIECES)
}

impl Span {
    fn bounds(self) -> Result<(usize, usize), Errno> {
        let start = usize::try_from(self.at).map_err(|_too_far| Errno::Fault)?;
        let len = usize::try_from(self.len).map_err(|_too_long| Errno::Fault)?;
        Ok((start, start.checked_add(len).ok_or(Errno::Fault)?))
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
