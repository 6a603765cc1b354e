//! Descriptors of a hook: its pipes, its mounts, and the files and folders that it opened in them.

use bytes::Bytes;

use super::memory::{Errno, Failure};
use super::mounts::{Entry, MountedFolder, ResolvedPath, Stat};

/// Files and folders that a hook may open at once.
const MAX_OPEN: usize = 1000;

/// Bytes of all open files and of the listings of all open folders.
const MAX_HELD: usize = 32 << 20;

/// The table of descriptors.
pub(super) struct Descriptors {
    mounts: Vec<MountedFolder>,
    open: Vec<Option<OpenDescriptor>>,
    /// Bytes of open files and listings.
    held: usize,
}

pub(super) enum OpenDescriptor {
    Stdin,
    Stdout,
    Stderr,
    Folder(Folder),
    File(File),
}

pub(super) struct Folder {
    mount: usize,
    /// The descriptor was open at the start.
    given: bool,
    /// The folder's entries, from the moment that the hook begins to list it.
    listed: Vec<Entry>,
}

/// A file, which shares its content with the mount.
pub(super) struct File {
    pub(super) stat: Stat,
    pub(super) content: Bytes,
    pub(super) position: u64,
}

impl Descriptors {
    pub(super) fn new(mounts: Vec<MountedFolder>) -> Self {
        let mounted = |mount| OpenDescriptor::Folder(Folder { mount, given: true, listed: Vec::new() });
        let pipes = [OpenDescriptor::Stdin, OpenDescriptor::Stdout, OpenDescriptor::Stderr];
        let open = pipes.into_iter().chain((0..mounts.len()).map(mounted)).map(Some).collect();
        Self { mounts, open, held: 0 }
    }

    pub(super) fn get(&self, fd: u32) -> Result<&OpenDescriptor, Errno> {
        self.open.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::Badf)
    }

    fn get_mut(&mut self, fd: u32) -> Result<&mut OpenDescriptor, Errno> {
        self.open.get_mut(fd as usize).and_then(Option::as_mut).ok_or(Errno::Badf)
    }

    fn folder(&self, fd: u32) -> Result<&Folder, Errno> {
        match self.get(fd)? {
            OpenDescriptor::Folder(folder) => Ok(folder),
            OpenDescriptor::Stdin
            | OpenDescriptor::Stdout
            | OpenDescriptor::Stderr
            | OpenDescriptor::File(_) => Err(Errno::Notdir),
        }
    }

    /// The mount that an open folder is.
    pub(super) fn mount(&self, fd: u32) -> Result<&MountedFolder, Errno> {
        self.mounts.get(self.folder(fd)?.mount).ok_or(Errno::Badf)
    }

    /// The mount that was open at the start under this number.
    pub(super) fn given(&self, fd: u32) -> Result<&MountedFolder, Errno> {
        match self.get(fd)? {
            OpenDescriptor::Folder(folder) if folder.given => self.mount(fd),
            _ => Err(Errno::Badf),
        }
    }

    pub(super) fn file_mut(&mut self, fd: u32) -> Result<&mut File, Errno> {
        match self.get_mut(fd)? {
            OpenDescriptor::File(file) => Ok(file),
            OpenDescriptor::Folder(_) => Err(Errno::Isdir),
            OpenDescriptor::Stdin | OpenDescriptor::Stdout | OpenDescriptor::Stderr => Err(Errno::Spipe),
        }
    }

    /// Opens to be read what was found below an open folder; returns its number.
    pub(super) fn open(&mut self, below: u32, found: ResolvedPath) -> Result<u32, Failure> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free >= MAX_OPEN + 3 + self.mounts.len() {
            return Err(Errno::Mfile.into());
        }
        let mount = self.folder(below)?.mount;
        let open = match found.content {
            Some(content) => OpenDescriptor::File(File { stat: found.stat, content, position: 0 }),
            None => OpenDescriptor::Folder(Folder { mount, given: false, listed: Vec::new() }),
        };
        self.hold(open.held())?;
        self.put(free, open);
        Ok(u32::try_from(free).map_err(|_too_many| Errno::Mfile)?)
    }

    /// Lists an open folder, and keeps that until the folder is closed or listed again.
    pub(super) fn list(&mut self, fd: u32) -> Result<&[Entry], Failure> {
        let listed = self.mount(fd)?.list();
        let OpenDescriptor::Folder(folder) = self.get_mut(fd)? else { return Err(Errno::Notdir.into()) };
        let before = std::mem::replace(&mut folder.listed, listed);
        let now = held(&folder.listed);
        self.held = self.held.saturating_sub(held(&before));
        self.hold(now)?;
        Ok(self.listed(fd)?)
    }

    /// The entries of a folder as it was listed last.
    pub(super) fn listed(&self, fd: u32) -> Result<&[Entry], Errno> {
        self.folder(fd).map(|folder| folder.listed.as_slice())
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
        self.held = self.held.saturating_add(moved.held());
        self.put(to as usize, moved);
        Ok(())
    }

    fn take(&mut self, fd: u32) -> Result<OpenDescriptor, Errno> {
        let taken = self.open.get_mut(fd as usize).and_then(Option::take).ok_or(Errno::Badf)?;
        self.held = self.held.saturating_sub(taken.held());
        Ok(taken)
    }

    fn put(&mut self, at: usize, open: OpenDescriptor) {
        match self.open.get_mut(at) {
            Some(free) => *free = Some(open),
            None => self.open.push(Some(open)),
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Failure> {
        self.held = self.held.saturating_add(bytes);
        if self.held <= MAX_HELD {
            return Ok(());
        }
        let most = MAX_HELD >> 20;
        Err(Failure::trap(format!(
            "it has files open with more than {most} MiB together: close what has been read"
        )))
    }
}

impl OpenDescriptor {
    fn held(&self) -> usize {
        match self {
            Self::File(file) => file.content.len(),
            Self::Folder(folder) => held(&folder.listed),
            Self::Stdin | Self::Stdout | Self::Stderr => 0,
        }
    }
}

/// Bytes of memory.
fn held(listed: &[Entry]) -> usize {
    listed.iter().map(|entry| size_of::<Entry>() + entry.name.capacity()).sum()
}
