//! Descriptors of a hook: its pipes, its mounts, and the files and folders that it opened in them.

use bytes::Bytes;

use super::errno::{Errno, Failure};
use super::mounts::{Entry, Found, MountedFolder, Mounts, Place, Stat};

/// Files and folders that a hook may open at once.
const MAX_OPEN: usize = 1000;

/// Bytes of all open files and of the listings of all open folders.
const MAX_HELD: usize = 32 << 20;

/// The table of descriptors.
pub(super) struct Descriptors {
    pub(super) mounts: Mounts,
    open: Vec<Option<Open>>,
    /// The number of those that were open at the start.
    given: usize,
    /// Bytes of open files and listings.
    held: usize,
}

pub(super) enum Open {
    Stdin,
    Stdout,
    Stderr,
    Folder(Folder),
    File(File),
}

pub(super) struct Folder {
    pub(super) mount: usize,
    /// It was open at the start.
    pub(super) given: bool,
    /// Its entries, from the moment that the hook begins to list it.
    pub(super) listed: Vec<Entry>,
}

/// A file, which shares its content with the mount.
pub(super) struct File {
    pub(super) stat: Stat,
    pub(super) content: Bytes,
    pub(super) position: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("it has files open with more than {} MiB together: close what has been read", MAX_HELD >> 20)]
struct TooMuch;

impl Descriptors {
    pub(super) fn new(mounts: &[MountedFolder]) -> Self {
        let mounts = Mounts::new(mounts);
        let mounted =
            (0..mounts.len()).map(|mount| Open::Folder(Folder { mount, given: true, listed: Vec::new() }));
        let open: Vec<_> =
            [Open::Stdin, Open::Stdout, Open::Stderr].into_iter().chain(mounted).map(Some).collect();
        Self { mounts, given: open.len(), open, held: 0 }
    }

    pub(super) fn get(&self, fd: u32) -> Result<&Open, Errno> {
        self.open.get(index(fd)?).and_then(Option::as_ref).ok_or(Errno::Badf)
    }

    pub(super) fn get_mut(&mut self, fd: u32) -> Result<&mut Open, Errno> {
        self.open.get_mut(index(fd)?).and_then(Option::as_mut).ok_or(Errno::Badf)
    }

    pub(super) fn folder(&self, fd: u32) -> Result<&Folder, Errno> {
        match self.get(fd)? {
            Open::Folder(folder) => Ok(folder),
            Open::Stdin | Open::Stdout | Open::Stderr | Open::File(_) => Err(Errno::Notdir),
        }
    }

    pub(super) fn file_mut(&mut self, fd: u32) -> Result<&mut File, Errno> {
        match self.get_mut(fd)? {
            Open::File(file) => Ok(file),
            Open::Folder(_) => Err(Errno::Isdir),
            Open::Stdin | Open::Stdout | Open::Stderr => Err(Errno::Spipe),
        }
    }

    /// Opens a file or folder to be read; returns its number.
    pub(super) fn open(&mut self, place: &Place) -> Result<u32, Failure> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free >= MAX_OPEN + self.given {
            return Err(Errno::Mfile.into());
        }
        let open = match self.mounts.find(place)? {
            Found::Folder => Open::Folder(Folder { mount: place.mount, given: false, listed: Vec::new() }),
            Found::File(content) if content.len() > MAX_HELD.saturating_sub(self.held) => {
                return Err(Failure::trap(TooMuch));
            }
            Found::File(content) => Open::File(File { stat: self.mounts.stat(place)?, content, position: 0 }),
        };
        self.put(free, open);
        Ok(u32::try_from(free).map_err(|_too_many| Errno::Mfile)?)
    }

    /// Keeps the listing of an open folder until the folder is closed or listed again.
    pub(super) fn keep_listing(&mut self, fd: u32, listed: Vec<Entry>) -> Result<(), Failure> {
        let before = self.get(fd)?.held();
        let Open::Folder(folder) = self.get_mut(fd)? else { return Err(Errno::Notdir.into()) };
        folder.listed = listed;
        self.held = self.held.saturating_sub(before).saturating_add(self.get(fd)?.held());
        if self.held > MAX_HELD { Err(Failure::trap(TooMuch)) } else { Ok(()) }
    }

    pub(super) fn close(&mut self, fd: u32) -> Result<(), Errno> {
        self.take(fd).map(drop)
    }

    /// Moves a descriptor to the number of another one, which is closed.
    pub(super) fn renumber(&mut self, from: u32, to: u32) -> Result<(), Errno> {
        self.get(to)?;
        let moved = self.take(from)?;
        if from != to {
            self.take(to)?;
        }
        self.put(index(to)?, moved);
        Ok(())
    }

    fn take(&mut self, fd: u32) -> Result<Open, Errno> {
        let taken = self.open.get_mut(index(fd)?).and_then(Option::take).ok_or(Errno::Badf)?;
        self.held = self.held.saturating_sub(taken.held());
        Ok(taken)
    }

    fn put(&mut self, at: usize, open: Open) {
        self.held = self.held.saturating_add(open.held());
        match self.open.get_mut(at) {
            Some(free) => *free = Some(open),
            None => self.open.push(Some(open)),
        }
    }
}

impl Open {
    fn held(&self) -> usize {
        match self {
            Self::File(file) => file.content.len(),
            Self::Folder(folder) => folder.listed.iter().map(Entry::held).sum(),
            Self::Stdin | Self::Stdout | Self::Stderr => 0,
        }
    }
}

fn index(fd: u32) -> Result<usize, Errno> {
    usize::try_from(fd).map_err(|_too_large| Errno::Badf)
}
