//! Paths below mounts, listings of folders, and the stat of files: all of it read-only.

use super::descriptors::Open;
use super::errno::{Errno, Failure};
use super::memory::{Memory, Span, after, length};
use super::mounts::{Entry, Kind, Place, Stat};
use super::state::CallState;

/// Bytes of an entry before its name.
const HEADER: usize = 24;

/// Rights of WASI preview 1, which C libraries look at; the host goes by the kind of the open descriptor.
mod rights {
    pub(super) const READ: u64 = 1 << 1;
    pub(super) const WRITE: u64 = 1 << 6;
    /// `fd_read`, `fd_seek`, `fd_tell`, `fd_filestat_get`, `poll_fd_readwrite`
    pub(super) const FILE: u64 = READ | 1 << 2 | 1 << 5 | 1 << 21 | 1 << 27;
    /// `path_open`, `fd_readdir`, `path_filestat_get`, `fd_filestat_get`
    pub(super) const FOLDER: u64 = 1 << 13 | 1 << 14 | 1 << 18 | 1 << 21;
}

/// A path below an open folder, in the hook's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) fd: u32,
    pub(super) at: u32,
    pub(super) len: u32,
}

/// The mode that a file is opened with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    /// `oflags`
    pub(super) flags: u32,
    /// `fs_rights_base`
    pub(super) rights: u64,
}

impl Path {
    fn text<'a>(self, memory: &'a Memory<'_>) -> Result<&'a str, Errno> {
        memory.path(Span { at: self.at, len: self.len })
    }
}

/// `path_open`. Returns the descriptor's number.
pub(super) fn open(
    state: &mut CallState,
    memory: &Memory<'_>,
    path: Path,
    mode: Mode,
) -> Result<u32, Failure> {
    const CREATE: u32 = 1;
    const FOLDER: u32 = 2;
    const TRUNCATE: u32 = 8;
    let name = path.text(memory)?;
    let place = Place::below(state.files.folder(path.fd)?.mount, name)?;
    if mode.flags & (CREATE | TRUNCATE) != 0 || mode.rights & rights::WRITE != 0 {
        return Err(Errno::Rofs.into());
    }
    let folder = mode.flags & FOLDER != 0 || name.ends_with('/');
    if folder && state.files.mounts.stat(&place)?.kind != Kind::Folder {
        return Err(Errno::Notdir.into());
    }
    state.files.open(&place)
}

/// `fd_filestat_get`.
pub(super) fn stat(state: &CallState, memory: &mut Memory<'_>, fd: u32, to: u32) -> Result<(), Failure> {
    let stat = match state.files.get(fd)? {
        Open::Stdin | Open::Stdout | Open::Stderr => Stat { kind: Kind::Unknown, size: 0, inode: 0 },
        Open::Folder(folder) => state.files.mounts.stat(&Place::root(folder.mount))?,
        Open::File(file) => file.stat,
    };
    write_stat(memory, stat, to)
}

/// `path_filestat_get`.
pub(super) fn stat_path(
    state: &CallState,
    memory: &mut Memory<'_>,
    path: Path,
    to: u32,
) -> Result<(), Failure> {
    let place = Place::below(state.files.folder(path.fd)?.mount, path.text(memory)?)?;
    write_stat(memory, state.files.mounts.stat(&place)?, to)
}

/// Device and times are 0, and everything has one link.
fn write_stat(memory: &mut Memory<'_>, stat: Stat, to: u32) -> Result<(), Failure> {
    memory.bytes_mut(Span { at: to, len: 64 })?.fill(0);
    memory.write_u64(after(to, 8)?, stat.inode)?;
    memory.write(after(to, 16)?, &[stat.kind.number()])?;
    memory.write_u64(after(to, 24)?, 1)?;
    memory.write_u64(after(to, 32)?, stat.size)?;
    Ok(())
}

/// `fd_fdstat_get`.
pub(super) fn status(state: &CallState, memory: &mut Memory<'_>, fd: u32, to: u32) -> Result<(), Failure> {
    let (kind, own, below) = match state.files.get(fd)? {
        Open::Stdin => (Kind::Unknown, rights::READ, rights::READ),
        Open::Stdout | Open::Stderr => (Kind::Unknown, rights::WRITE, rights::WRITE),
        // C libraries open files with no more rights than these: without WRITE they would not see the error `rofs`.
        Open::Folder(_) => (Kind::Folder, rights::FOLDER, rights::FOLDER | rights::FILE | rights::WRITE),
        Open::File(_) => (Kind::File, rights::FILE, 0),
    };
    memory.bytes_mut(Span { at: to, len: 24 })?.fill(0);
    memory.write(to, &[kind.number()])?;
    memory.write_u64(after(to, 8)?, own)?;
    memory.write_u64(after(to, 16)?, below)?;
    Ok(())
}

/// The path of a mount, by its descriptor.
fn mount_path(state: &CallState, fd: u32) -> Result<&str, Failure> {
    match state.files.get(fd)? {
        Open::Folder(folder) if folder.given => Ok(state.files.mounts.path(folder.mount)?),
        _ => Err(Errno::Badf.into()),
    }
}

/// `fd_prestat_get`.
pub(super) fn prestat(state: &CallState, memory: &mut Memory<'_>, fd: u32, to: u32) -> Result<(), Failure> {
    let len = length(mount_path(state, fd)?.len())?;
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
    let name = mount_path(state, fd)?.as_bytes();
    if length(name.len())? > to.len {
        return Err(Errno::Nametoolong.into());
    }
    memory.write(to.at, name)?;
    Ok(())
}

/// `fd_readdir` from an entry on. Returns how many bytes were written, and how many entries were read or written for it.
pub(super) fn list(
    state: &mut CallState,
    memory: &mut Memory<'_>,
    fd: u32,
    to: Span,
    from: u64,
) -> Result<(u32, usize), Failure> {
    let mut read = 0;
    if from == 0 {
        let listed = state.files.mounts.list(state.files.folder(fd)?.mount)?;
        read = listed.len();
        state.files.keep_listing(fd, listed)?;
    }
    let entries = state.files.folder(fd)?.listed.iter().zip(1_u64..);
    let mut written = 0;
    for (entry, next) in entries.skip(usize::try_from(from).unwrap_or(usize::MAX)) {
        if written == to.len {
            break;
        }
        let bytes = dirent(entry, next)?;
        // An entry that does not fit is cut: from the full buffer the hook sees that it has to ask again.
        let room = usize::try_from(to.len - written).map_err(|_too_large| Errno::Overflow)?;
        let fitting = bytes.get(..room).unwrap_or(&bytes);
        memory.write(after(to.at, written)?, fitting)?;
        written += length(fitting.len())?;
        read += 1;
    }
    Ok((written, read))
}

/// An entry, with the number of the next one, as WASI lays it out.
fn dirent(entry: &Entry, next: u64) -> Result<Vec<u8>, Errno> {
    let len = length(entry.name.len())?;
    let mut bytes = Vec::with_capacity(HEADER + entry.name.len());
    bytes.extend_from_slice(&next.to_le_bytes());
    bytes.extend_from_slice(&entry.inode.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&[entry.kind.number(), 0, 0, 0]);
    bytes.extend_from_slice(entry.name.as_bytes());
    Ok(bytes)
}
