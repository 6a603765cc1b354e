//! Reading, writing and polling: the pipes of a hook and the files that it has open.

use bytes::Buf as _;

use super::clock::{Kind, Until};
use super::descriptors::Open;
use super::errno::{Errno, Failure};
use super::memory::{Memory, Span, after, length, pieces};
use super::state::CallState;

/// Subscriptions of one `poll_oneoff`.
const MAX_SUBSCRIPTIONS: u32 = 4096;

/// Bytes of a subscription and of an event.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

/// A list of pieces in the hook's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) at: u32,
    pub(super) count: u32,
}

/// A subscription of `poll_oneoff`.
#[derive(Debug, Clone, Copy)]
enum Subscription {
    Clock(Kind, Until),
    Read(u32),
    Write(u32),
}

/// `fd_read`. Returns how many bytes were read.
pub(super) fn read(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    list: List,
) -> Result<u32, Failure> {
    match state.files.get_mut(fd)? {
        Open::Stdin => {
            let input = &mut state.stdin;
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

/// `fd_pread`. Returns how many bytes were read.
pub(super) fn read_at(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    list: List,
    mut position: u64,
) -> Result<u32, Failure> {
    let file = state.files.file_mut(fd)?;
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
        let wanted = buffer.len();
        let read = next(buffer).ok_or(Errno::Overflow)?;
        sum = sum.saturating_add(length(read)?);
        if read < wanted {
            break;
        }
    }
    Ok(sum)
}

/// Copies a file's bytes from a position on; returns how many.
fn copy(content: &[u8], position: u64, buffer: &mut [u8]) -> Option<usize> {
    let mut rest =
        usize::try_from(position).ok().and_then(|position| content.get(position..)).unwrap_or_default();
    let len = rest.len().min(buffer.len());
    rest.copy_to_slice(buffer.get_mut(..len)?);
    Some(len)
}

/// `fd_write`. Returns how many bytes were written.
pub(super) fn write(state: &mut CallState, memory: &Memory<'_>, fd: u32, list: List) -> Result<u32, Failure> {
    let output = match state.files.get(fd)? {
        Open::Stdout => &mut state.stdout,
        Open::Stderr => &mut state.stderr,
        Open::Stdin | Open::Folder(_) | Open::File(_) => return Err(Errno::Badf.into()),
    };
    let mut sum = 0_u32;
    for number in pieces(list.count) {
        let span = memory.piece(list.at, number)?;
        let Some(next) = sum.checked_add(span.len) else { break };
        output.push(memory.bytes(span)?).map_err(Failure::trap)?;
        sum = next;
    }
    Ok(sum)
}

/// `fd_seek`. Returns the position.
pub(super) fn seek(state: &mut CallState, fd: u32, distance: i64, from: u32) -> Result<u64, Failure> {
    let file = state.files.file_mut(fd)?;
    let base = match from {
        0 => 0,
        1 => file.position,
        2 => u64::try_from(file.content.len()).map_err(|_too_long| Errno::Overflow)?,
        _ => return Err(Errno::Inval.into()),
    };
    file.position = base.checked_add_signed(distance).ok_or(Errno::Inval)?;
    Ok(file.position)
}

/// `poll_oneoff`, which never waits. Returns how many events there are: one for each subscription.
pub(super) fn poll(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    subscriptions: u32,
    events: u32,
    count: u32,
) -> Result<u32, Failure> {
    if count == 0 || count > MAX_SUBSCRIPTIONS {
        return Err(Errno::Inval.into());
    }
    for number in 0..count {
        let at = after(subscriptions, number * SUBSCRIPTION)?;
        let user_data: [u8; 8] = memory.array(at)?;
        let kind: [u8; 1] = memory.array(after(at, 8)?)?;
        let (error, ready) = match happen(state, subscription(memory, at, kind)?) {
            Ok(ready) => (0, ready),
            Err(errno) => (errno.number(), 0),
        };
        let event = after(events, number * EVENT)?;
        memory.bytes_mut(Span { at: event, len: EVENT })?.fill(0);
        memory.write(event, &user_data)?;
        memory.write(after(event, 8)?, &error.to_le_bytes())?;
        memory.write(after(event, 10)?, &kind)?;
        memory.write_u64(after(event, 16)?, ready)?;
    }
    Ok(count)
}

fn subscription(memory: &Memory<'_>, at: u32, kind: [u8; 1]) -> Result<Subscription, Errno> {
    let clock_or_fd = memory.u32(after(at, 16)?)?;
    match kind {
        [0] => {
            let time = u64::from_le_bytes(memory.array(after(at, 24)?)?);
            let flags = u16::from_le_bytes(memory.array(after(at, 40)?)?);
            let until = if flags & 1 == 0 { Until::After(time) } else { Until::At(time) };
            Ok(Subscription::Clock(Kind::of(clock_or_fd)?, until))
        }
        [1] => Ok(Subscription::Read(clock_or_fd)),
        [2] => Ok(Subscription::Write(clock_or_fd)),
        _ => Err(Errno::Inval),
    }
}

/// Returns how many bytes can be read or written.
fn happen(state: &mut CallState, subscription: Subscription) -> Result<u64, Errno> {
    match subscription {
        Subscription::Clock(kind, until) => {
            state.clock.wait(kind, until);
            Ok(0)
        }
        Subscription::Read(fd) => match state.files.get(fd)? {
            Open::Stdin => u64::try_from(state.stdin.len()).map_err(|_too_long| Errno::Overflow),
            Open::File(file) => Ok(file.stat.size.saturating_sub(file.position)),
            Open::Stdout | Open::Stderr | Open::Folder(_) => Err(Errno::Badf),
        },
        Subscription::Write(fd) => match state.files.get(fd)? {
            Open::Stdout | Open::Stderr => Ok(1),
            Open::Stdin | Open::Folder(_) | Open::File(_) => Err(Errno::Badf),
        },
    }
}
