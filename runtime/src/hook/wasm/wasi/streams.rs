//! Reading and writing: a hook's pipes, and the files it has open.

use bytes::Buf as _;

use super::descriptors::Open;
use super::errno::{Errno, Failure};
use super::memory::{Memory, length, pieces};
use super::state::Host;

/// A list of pieces in the hook's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) at: u32,
    pub(super) count: u32,
}

/// `fd_read`. Gives how many bytes were read.
pub(super) fn read(host: &mut Host, memory: &mut Memory<'_>, fd: u32, list: List) -> Result<u32, Failure> {
    match host.files.get_mut(fd)? {
        Open::Stdin => {
            let input = &mut host.stdin;
            let read = fill(memory, list, |buffer| {
                let len = buffer.len().min(input.len());
                input.copy_to_slice(buffer.get_mut(..len)?);
                Some(len)
            })?;
            Ok(read)
        }
        Open::File(file) => {
            let read = fill(memory, list, |buffer| {
                let len = copy(&file.content, file.position, buffer)?;
                file.position = file.position.saturating_add(u64::try_from(len).ok()?);
                Some(len)
            })?;
            Ok(read)
        }
        Open::Folder(_) => Err(Errno::Isdir.into()),
        Open::Stdout | Open::Stderr => Err(Errno::Badf.into()),
    }
}

/// `fd_pread`.
pub(super) fn read_at(
    host: &mut Host,
    memory: &mut Memory<'_>,
    fd: u32,
    (list, mut position): (List, u64),
) -> Result<u32, Failure> {
    let file = host.files.file_mut(fd)?;
    let read = fill(memory, list, |buffer| {
        let len = copy(&file.content, position, buffer)?;
        position = position.saturating_add(u64::try_from(len).ok()?);
        Some(len)
    })?;
    Ok(read)
}

/// Fills one piece after the other until `next` has no more.
fn fill(
    memory: &mut Memory<'_>,
    list: List,
    mut next: impl FnMut(&mut [u8]) -> Option<usize>,
) -> Result<u32, Errno> {
    let mut sum = 0_u32;
    for number in pieces(list.count) {
        let span = memory.piece(list.at, number)?;
        let buffer = memory.bytes_mut(span)?;
        let (asked, read) = (buffer.len(), next(buffer).ok_or(Errno::Overflow)?);
        sum = sum.saturating_add(length(read)?);
        if read < asked {
            break;
        }
    }
    Ok(sum)
}

/// Copies what a file has from a position on; gives how many bytes that were.
fn copy(content: &[u8], position: u64, buffer: &mut [u8]) -> Option<usize> {
    let mut rest =
        usize::try_from(position).ok().and_then(|position| content.get(position..)).unwrap_or_default();
    let len = rest.len().min(buffer.len());
    rest.copy_to_slice(buffer.get_mut(..len)?);
    Some(len)
}

/// `fd_write`. Gives how many bytes were written.
pub(super) fn write(host: &mut Host, memory: &Memory<'_>, fd: u32, list: List) -> Result<u32, Failure> {
    let sink = match host.files.get(fd)? {
        Open::Stdout => &mut host.stdout,
        Open::Stderr => &mut host.stderr,
        Open::Stdin | Open::Folder(_) | Open::File(_) => return Err(Errno::Badf.into()),
    };
    let mut sum = 0_u32;
    for number in pieces(list.count) {
        let span = memory.piece(list.at, number)?;
        let Some(next) = sum.checked_add(span.len) else { break };
        sink.push(memory.bytes(span)?).map_err(Failure::ends)?;
        sum = next;
    }
    Ok(sum)
}

/// `fd_seek`. Gives the position.
pub(super) fn seek(host: &mut Host, fd: u32, distance: i64, from: u32) -> Result<u64, Failure> {
    let file = host.files.file_mut(fd)?;
    let base = match from {
        0 => 0,
        1 => file.position,
        2 => u64::try_from(file.content.len()).map_err(|_too_long| Errno::Overflow)?,
        _ => return Err(Errno::Inval.into()),
    };
    file.position = base.checked_add_signed(distance).ok_or(Errno::Inval)?;
    Ok(file.position)
}
