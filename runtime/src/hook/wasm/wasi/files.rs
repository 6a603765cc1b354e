//! Functions of descriptors: reading, writing and polling, paths below mounts, listings and stats.

use std::io::Read as _;

use bytes::Buf as _;

use super::descriptors::OpenDescriptor;
use super::determinism::{ClockKind, Until};
use super::memory::{Errno, Failure, List, Memory, Span, after, length};
use super::mounts::{Entry, FileType, Stat};
use super::state::CallState;
use super::{ENTRY_COST, EVENT_COST};

/// Subscriptions of one `poll_oneoff`.
const MAX_SUBSCRIPTIONS: u32 = 4096;

/// Bytes that one `fd_write` adds to the log.
const MAX_WRITE: u32 = 1 << 20;

/// Bytes of a subscription and of an event.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

/// Rights of WASI preview 1, which C libraries look at; the host goes by the kind of the open descriptor.
mod rights {
    pub(super) const READ: u64 = 1 << 1;
    pub(super) const WRITE: u64 = 1 << 6;
    /// `fd_read`, `fd_seek`, `fd_tell`, `fd_filestat_get`, `poll_fd_readwrite`
    pub(super) const FILE: u64 = READ | 1 << 2 | 1 << 5 | 1 << 21 | 1 << 27;
    /// `path_open`, `fd_readdir`, `path_filestat_get`, `fd_filestat_get`
    pub(super) const FOLDER: u64 = 1 << 13 | 1 << 14 | 1 << 18 | 1 << 21;
}

/// The mode that a file is opened with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    /// `oflags`
    pub(super) flags: u32,
    /// `fs_rights_base`
    pub(super) rights: u64,
}

/// `fd_read`. Returns how many bytes were read.
pub(super) fn read(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    list: List,
) -> Result<u32, Failure> {
    match state.files.get(fd)? {
        OpenDescriptor::Stdin => {
            let read = fill(memory, list, &state.input.stdin)?;
            state.input.stdin.advance(read as usize);
            Ok(read)
        }
        OpenDescriptor::File(file) => {
            let position = file.position;
            let read = read_at(state, memory, fd, list, position)?;
            state.files.file_mut(fd)?.position = position.saturating_add(read.into());
            Ok(read)
        }
        OpenDescriptor::Folder(_) => Err(Errno::Isdir.into()),
        OpenDescriptor::Stdout | OpenDescriptor::Stderr => Err(Errno::Badf.into()),
    }
}

/// `fd_pread`. Returns how many bytes were read.
pub(super) fn read_at(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    list: List,
    position: u64,
) -> Result<u32, Failure> {
    let content = &state.files.file_mut(fd)?.content;
    let rest = usize::try_from(position).ok().and_then(|position| content.get(position..));
    Ok(fill(memory, list, rest.unwrap_or_default())?)
}

/// Fills one piece after the other until `from` has no more. Returns how many bytes were read. A bad piece ends it, and is an
/// error only where nothing was read before: bytes that were copied are always counted.
fn fill(memory: &mut Memory<'_>, list: List, mut from: &[u8]) -> Result<u32, Errno> {
    let all = from.len();
    for number in list.numbers() {
        let buffer = match memory.piece(list, number).and_then(|piece| memory.bytes_mut(piece)) {
            Err(errno) if from.len() == all => return Err(errno),
            Err(_) => break,
            Ok(buffer) => buffer,
        };
        // Reading from a slice does not fail.
        if from.read(buffer).unwrap_or_default() < buffer.len() {
            break;
        }
    }
    length(all - from.len())
}

/// `fd_write`. Returns how many bytes were written; a bad piece is treated as by [`fill`].
/// See <https://github.com/bytecodealliance/wasmtime/issues/3303>.
///
/// The pieces may be one memory a thousand times over, all of which would be read in one go: the log takes [`MAX_WRITE`] bytes
/// at once, and of an answer a byte beyond its bound ends the call.
pub(super) fn write(state: &mut CallState, memory: &Memory<'_>, fd: u32, list: List) -> Result<u32, Failure> {
    let (output, most) = match state.files.get(fd)? {
        OpenDescriptor::Stdout => {
            let most = length(state.stdout.room().saturating_add(1))?;
            (&mut state.stdout, most)
        }
        OpenDescriptor::Stderr => (&mut state.stderr, MAX_WRITE),
        OpenDescriptor::Stdin | OpenDescriptor::Folder(_) | OpenDescriptor::File(_) => {
            return Err(Errno::Badf.into());
        }
    };
    let mut sum = 0_u32;
    for number in list.numbers() {
        let bytes = match memory.piece(list, number).and_then(|piece| memory.bytes(piece)) {
            Err(errno) if sum == 0 => return Err(errno.into()),
            Err(_) => break,
            Ok(bytes) => bytes,
        };
        let taken = length(bytes.len())?.min(most - sum);
        let bytes = bytes.get(..taken as usize).unwrap_or_default();
        output.push(bytes).map_err(|short| Failure::trap(short.to_string()))?;
        sum += taken;
        if sum == most {
            break;
        }
    }
    if state.stdout.lost > 0 {
        return Err(Failure::trap("the output is longer than its limit".to_owned()));
    }
    Ok(sum)
}

/// `fd_seek`. Returns the position.
pub(super) fn seek(state: &mut CallState, fd: u32, distance: i64, from: u32) -> Result<u64, Failure> {
    let file = state.files.file_mut(fd)?;
    let base = match from {
        0 => 0,
        1 => file.position,
        2 => file.stat.size,
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
        state.host_calls.cost += EVENT_COST;
        let at = after(subscriptions, number * SUBSCRIPTION)?;
        let user_data: [u8; 8] = memory.array(at)?;
        let [kind] = memory.array(after(at, 8)?)?;
        let id = memory.u32(after(at, 16)?)?;
        let happened = match kind {
            0 => {
                let time = u64::from_le_bytes(memory.array(after(at, 24)?)?);
                let [flags, _] = memory.array(after(at, 40)?)?;
                let until = if flags & 1 == 0 { Until::After(time) } else { Until::At(time) };
                state.clock.wait(ClockKind::of(id)?, until);
                Ok(0)
            }
            1 => readable(state, id),
            2 => writable(state, id),
            _ => return Err(Errno::Inval.into()),
        };
        let event = after(events, number * EVENT)?;
        memory.bytes_mut(Span { at: event, len: EVENT })?.fill(0);
        memory.write(event, &user_data)?;
        memory.write(after(event, 10)?, &[kind])?;
        match happened {
            Ok(bytes) => memory.write_u64(after(event, 16)?, bytes)?,
            Err(errno) => memory.write(after(event, 8)?, &[errno as u8])?,
        }
    }
    Ok(count)
}

fn readable(state: &CallState, fd: u32) -> Result<u64, Errno> {
    match state.files.get(fd)? {
        OpenDescriptor::Stdin => Ok(state.input.stdin.len() as u64),
        OpenDescriptor::File(file) => Ok(file.stat.size.saturating_sub(file.position)),
        OpenDescriptor::Stdout | OpenDescriptor::Stderr | OpenDescriptor::Folder(_) => Err(Errno::Badf),
    }
}

fn writable(state: &CallState, fd: u32) -> Result<u64, Errno> {
    match state.files.get(fd)? {
        OpenDescriptor::Stdout | OpenDescriptor::Stderr => Ok(1),
        OpenDescriptor::Stdin | OpenDescriptor::Folder(_) | OpenDescriptor::File(_) => Err(Errno::Badf),
    }
}

/// `path_open` below an open folder. Returns the descriptor's number.
pub(super) fn open(
    state: &mut CallState,
    memory: &Memory<'_>,
    fd: u32,
    path: Span,
    mode: Mode,
) -> Result<u32, Failure> {
    const CREATE: u32 = 1;
    const FOLDER: u32 = 2;
    const TRUNCATE: u32 = 8;
    let found = state.files.mount(fd)?.find(memory.path(path)?);
    let writes = mode.flags & (CREATE | TRUNCATE) != 0 || mode.rights & rights::WRITE != 0;
    let found = match found {
        Err(errno @ (Errno::Perm | Errno::Ilseq)) => return Err(errno.into()),
        _ if writes => return Err(Errno::Rofs.into()),
        found => found?,
    };
    if mode.flags & FOLDER != 0 && found.stat.kind != FileType::Folder {
        return Err(Errno::Notdir.into());
    }
    state.files.open(fd, found)
}

/// `fd_filestat_get`.
pub(super) fn stat(state: &CallState, memory: &mut Memory<'_>, fd: u32, to: u32) -> Result<(), Failure> {
    let stat = match state.files.get(fd)? {
        OpenDescriptor::Stdin | OpenDescriptor::Stdout | OpenDescriptor::Stderr => {
            Stat { kind: FileType::Unknown, size: 0, inode: 0 }
        }
        OpenDescriptor::Folder(_) => state.files.mount(fd)?.find(".")?.stat,
        OpenDescriptor::File(file) => file.stat,
    };
    write_stat(memory, stat, to)
}

/// `path_filestat_get`.
pub(super) fn stat_path(
    state: &CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    path: Span,
    to: u32,
) -> Result<(), Failure> {
    let found = state.files.mount(fd)?.find(memory.path(path)?)?;
    write_stat(memory, found.stat, to)
}

/// Device and times are 0, and everything has one link.
fn write_stat(memory: &mut Memory<'_>, stat: Stat, to: u32) -> Result<(), Failure> {
    memory.bytes_mut(Span { at: to, len: 64 })?.fill(0);
    memory.write_u64(after(to, 8)?, stat.inode)?;
    memory.write(after(to, 16)?, &[stat.kind as u8])?;
    memory.write_u64(after(to, 24)?, 1)?;
    memory.write_u64(after(to, 32)?, stat.size)?;
    Ok(())
}

/// `fd_fdstat_get`.
pub(super) fn status(state: &CallState, memory: &mut Memory<'_>, fd: u32, to: u32) -> Result<(), Failure> {
    let (kind, own, below) = match state.files.get(fd)? {
        OpenDescriptor::Stdin => (FileType::Unknown, rights::READ, rights::READ),
        OpenDescriptor::Stdout | OpenDescriptor::Stderr => (FileType::Unknown, rights::WRITE, rights::WRITE),
        // C libraries open files with no more rights than these: without WRITE they would not see the error `rofs`.
        OpenDescriptor::Folder(_) => {
            (FileType::Folder, rights::FOLDER, rights::FOLDER | rights::FILE | rights::WRITE)
        }
        OpenDescriptor::File(_) => (FileType::File, rights::FILE, 0),
    };
    memory.bytes_mut(Span { at: to, len: 24 })?.fill(0);
    memory.write(to, &[kind as u8])?;
    memory.write_u64(after(to, 8)?, own)?;
    memory.write_u64(after(to, 16)?, below)?;
    Ok(())
}

/// `fd_prestat_get`.
pub(super) fn prestat(state: &CallState, memory: &mut Memory<'_>, fd: u32, to: u32) -> Result<(), Failure> {
    let len = length(state.files.given(fd)?.path.len())?;
    memory.write_u32(to, 0)?;
    memory.write_u32(after(to, 4)?, len)?;
    Ok(())
}

/// `fd_prestat_dir_name`.
pub(super) fn prestat_name(
    state: &CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    to: Span,
) -> Result<(), Failure> {
    let name = state.files.given(fd)?.path.as_bytes();
    if length(name.len())? > to.len {
        return Err(Errno::Nametoolong.into());
    }
    memory.write(to.at, name)?;
    Ok(())
}

/// `fd_readdir` from an entry on. Returns how many bytes were written.
pub(super) fn list(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    to: Span,
    from: u64,
) -> Result<u32, Failure> {
    let listed = if from == 0 {
        let listed = state.files.list(fd)?;
        state.host_calls.cost += ENTRY_COST.saturating_mul(listed.len() as u64);
        listed
    } else {
        state.files.listed(fd)?
    };
    let mut written = 0;
    for (entry, next) in listed.iter().zip(1_u64..).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
        if written == to.len {
            break;
        }
        let bytes = dirent(entry, next)?;
        // An entry that does not fit is cut: from the full buffer the hook sees that it has to ask again.
        let fitting = bytes.get(..(to.len - written) as usize).unwrap_or(&bytes);
        memory.write(after(to.at, written)?, fitting)?;
        written += length(fitting.len())?;
        state.host_calls.cost += ENTRY_COST;
    }
    Ok(written)
}

/// An entry, with the number of the next one, as WASI lays it out.
fn dirent(entry: &Entry, next: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(24 + entry.name.len());
    bytes.extend_from_slice(&next.to_le_bytes());
    bytes.extend_from_slice(&entry.inode.to_le_bytes());
    bytes.extend_from_slice(&length(entry.name.len())?.to_le_bytes());
    bytes.extend_from_slice(&[entry.kind as u8, 0, 0, 0]);
    bytes.extend_from_slice(entry.name.as_bytes());
    Ok(bytes)
}
