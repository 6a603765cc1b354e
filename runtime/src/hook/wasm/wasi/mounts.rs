//! Folders that a hook may read: a map of files in memory, shown without times, devices or the order of a disk.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::errno::Errno;

/// Bytes of a file's name, as on Linux; a longer one is an error of its own.
const MAX_NAME: usize = 255;

/// A folder that a hook sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedFolder {
    /// Absolute, as the hook sees it.
    pub path: String,
    pub files: MountedFiles,
}

/// Contents of files by name.
pub type Files = BTreeMap<String, Bytes>;

/// The files of a folder; clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MountedFiles(Arc<Files>);

/// The mounts of one call.
#[derive(Debug)]
pub(super) struct Mounts(Vec<MountedFolder>);

/// A path in a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) mount: usize,
    /// Without `.` and `..`; empty: the mount itself.
    inside: String,
}

/// The entry of a mount at a place.
#[derive(Clone)]
pub(super) enum Found {
    Folder,
    File(Bytes),
}

/// Numbers of WASI preview 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unknown = 0,
    Folder = 3,
    File = 4,
}

/// The answer of `fd_filestat_get` and `path_filestat_get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) inode: u64,
}

/// An entry of a folder: `.` and `..`, then the files in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) inode: u64,
}

impl From<Files> for MountedFiles {
    fn from(files: Files) -> Self {
        Self(Arc::new(files))
    }
}

impl Deref for MountedFiles {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.0
    }
}

/// Contents of Secrets never reach a log.
impl fmt::Debug for MountedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files", self.0.len())
    }
}

impl Entry {
    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.name.capacity()
    }
}

impl Mounts {
    pub(super) fn new(mounts: &[MountedFolder]) -> Self {
        Self(mounts.to_vec())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn path(&self, mount: usize) -> Result<&str, Errno> {
        self.mount(mount).map(|mount| mount.path.as_str())
    }

    pub(super) fn find(&self, place: &Place) -> Result<Found, Errno> {
        let (name, below) = match place.inside.split_once('/') {
            Some((name, _)) => (name, true),
            None => (place.inside.as_str(), false),
        };
        let mount = self.mount(place.mount)?;
        if name.is_empty() {
            return Ok(Found::Folder);
        }
        if name.len() > MAX_NAME {
            return Err(Errno::Nametoolong);
        }
        let content = mount.files.get(name).ok_or(Errno::Noent)?;
        if below { Err(Errno::Notdir) } else { Ok(Found::File(content.clone())) }
    }

    pub(super) fn stat(&self, place: &Place) -> Result<Stat, Errno> {
        let (kind, size) = match self.find(place)? {
            Found::Folder => (Kind::Folder, 0),
            Found::File(content) => (Kind::File, content.len() as u64),
        };
        let path = &self.mount(place.mount)?.path;
        Ok(Stat { kind, size, inode: inode(&joined(path, &place.inside)) })
    }

    /// The entries of a mount, which is a folder without folders.
    pub(super) fn list(&self, mount: usize) -> Result<Vec<Entry>, Errno> {
        let MountedFolder { path, files } = self.mount(mount)?;
        let entry = |name: &str, kind, path: &str| Entry { name: name.to_owned(), kind, inode: inode(path) };
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let own = [entry(".", Kind::Folder, path), entry("..", Kind::Folder, above)];
        let files = files.keys().map(|name| entry(name, Kind::File, &joined(path, name)));
        Ok(own.into_iter().chain(files).collect())
    }

    fn mount(&self, mount: usize) -> Result<&MountedFolder, Errno> {
        self.0.get(mount).ok_or(Errno::Badf)
    }
}

impl Place {
    pub(super) fn root(mount: usize) -> Self {
        Self { mount, inside: String::new() }
    }

    /// A path below a mount. `..` is resolved by the text alone and stays below the mount.
    pub(super) fn below(mount: usize, path: &str) -> Result<Self, Errno> {
        if path.is_empty() {
            return Err(Errno::Noent);
        }
        if path.contains('\0') {
            return Err(Errno::Ilseq);
        }
        if path.starts_with('/') {
            return Err(Errno::Perm);
        }
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop().ok_or(Errno::Perm)?),
                _ => parts.push(part),
            }
        }
        Ok(Self { mount, inside: parts.join("/") })
    }
}

impl Kind {
    pub(super) fn number(self) -> u8 {
        self as u8
    }
}

fn joined(folder: &str, name: &str) -> String {
    if name.is_empty() { folder.to_owned() } else { format!("{folder}/{name}") }
}

/// The same for the same path on every machine; never 0, which programs take for unknown.
fn inode(path: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(path).into();
    hash.first_chunk().map_or(1, |first| u64::from_le_bytes(*first)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(path: &str) -> Result<String, Errno> {
        Place::below(0, path).map(|place| place.inside)
    }

    #[test]
    fn a_path_stays_below_its_mount() {
        assert_eq!(below("."), Ok(String::new()));
        assert_eq!(below("b/./c//d"), Ok("b/c/d".to_owned()));
        assert_eq!(below("b/../c"), Ok("c".to_owned()));
        for path in ["..", "b/../..", "b/../../a", "/etc/passwd", "/a"] {
            assert_eq!(below(path), Err(Errno::Perm), "{path}");
        }
        assert_eq!(below("b\0c"), Err(Errno::Ilseq));
        assert_eq!(below(""), Err(Errno::Noent));
    }

    #[test]
    fn the_debug_output_of_files_has_no_content() {
        let files = Files::from([("password".to_owned(), Bytes::from("secret"))]).into();
        let folder = MountedFolder { path: "/run/db".to_owned(), files };
        assert_eq!(format!("{folder:?}"), r#"MountedFolder { path: "/run/db", files: 1 files }"#);
    }
}
