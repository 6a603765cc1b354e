//! The folders that a hook may read, as it sees them: nothing shows where or when they were made.
//!
//! What lies in a mount is small and was written by the server (a file per key of a `ConfigMap`), in memory or in the
//! page cache: it is read on the spot, which takes microseconds. A thread for each read would cost more.

use std::cell::OnceCell;
use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType};
use sha2::{Digest as _, Sha256};

use crate::hook::wasm::run::Mounted;
use crate::hook::wasm::wasi::errno::{Errno, Failure};

#[derive(Debug)]
pub(super) struct Mounts(Vec<Mount>);

#[derive(Debug)]
struct Mount {
    /// Absolute, as the hook sees it.
    path: String,
    folder: PathBuf,
    /// Opened when the hook first looks into it.
    root: OnceCell<Dir>,
}

/// A file or folder in a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    mount: usize,
    /// Without `.` and `..`; empty: the mount itself.
    inside: String,
}

/// Numbers of WASI preview 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unknown = 0,
    Folder = 3,
    File = 4,
    Link = 7,
}

/// What can be told of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) inode: u64,
}

/// What lies in a folder: `.` and `..`, then the rest in the order of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) inode: u64,
}

/// Whether the last part of a path may be a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Named,
}

#[derive(Debug, thiserror::Error)]
#[error("the mount {path} cannot be read: {why}")]
struct Unreadable {
    path: String,
    why: ErrorKind,
}

impl Entry {
    /// Bytes that it takes.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.name.capacity()
    }
}

impl Mounts {
    pub(super) fn new(mounts: &[Mounted]) -> Self {
        let mount = |mounted: &Mounted| Mount {
            path: mounted.path.clone(),
            folder: mounted.folder.clone(),
            root: OnceCell::new(),
        };
        Self(mounts.iter().map(mount).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn path(&self, mount: usize) -> Result<&str, Errno> {
        self.0.get(mount).map(|mount| mount.path.as_str()).ok_or(Errno::Badf)
    }

    pub(super) fn look(&self, place: &Place, links: Links) -> Result<Stat, Failure> {
        let (root, path) = self.host(place)?;
        let found = match links {
            Links::Followed => root.metadata(path),
            Links::Named => root.symlink_metadata(path),
        };
        let found = found.map_err(|error| self.failed(place, &error))?;
        let kind = Kind::of(found.file_type());
        // How large a folder or a link is depends on the file system.
        let size = if kind == Kind::File { found.len() } else { 0 };
        Ok(Stat { kind, size, inode: self.inode(place) })
    }

    /// The content of a file, or `None` if it has more bytes than `bound`.
    pub(super) fn read(&self, place: &Place, bound: usize) -> Result<Option<Vec<u8>>, Failure> {
        let (root, path) = self.host(place)?;
        let read = || {
            let mut bytes = Vec::new();
            let one_more = u64::try_from(bound).unwrap_or(u64::MAX).saturating_add(1);
            root.open(path)?.take(one_more).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error| self.failed(place, &error))?;
        Ok(if bytes.len() > bound { None } else { Some(bytes) })
    }

    pub(super) fn list(&self, place: &Place) -> Result<Vec<Entry>, Failure> {
        let (root, path) = self.host(place)?;
        let list =
            || root.read_dir(path)?.map(|entry| entry.and_then(|entry| self.entry(place, &entry))).collect();
        let listed: io::Result<Vec<Entry>> = list();
        let mut entries = listed.map_err(|error| self.failed(place, &error))?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let folder = |name: &str, inode| Entry { name: name.to_owned(), kind: Kind::Folder, inode };
        let above = self.seen(place).rsplit_once('/').map_or_else(String::new, |(above, _)| above.to_owned());
        let own = [folder(".", self.inode(place)), folder("..", inode(&above))];
        Ok(own.into_iter().chain(entries).collect())
    }

    fn entry(&self, folder: &Place, entry: &cap_std::fs::DirEntry) -> io::Result<Entry> {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = Kind::of(entry.file_type()?);
        let place = Place { mount: folder.mount, inside: joined(&folder.inside, &name) };
        Ok(Entry { inode: self.inode(&place), name, kind })
    }

    /// Where the place lies on the host.
    fn host<'a>(&'a self, place: &'a Place) -> Result<(&'a Dir, &'a str), Failure> {
        let mount = self.0.get(place.mount).ok_or(Errno::Badf)?;
        let root = if let Some(root) = mount.root.get() {
            root
        } else {
            let root = Dir::open_ambient_dir(&mount.folder, ambient_authority());
            let root = root.map_err(|error| unreadable(&mount.path, &error))?;
            mount.root.get_or_init(|| root)
        };
        Ok((root, if place.inside.is_empty() { "." } else { &place.inside }))
    }

    /// The path as the hook sees it.
    fn seen(&self, place: &Place) -> String {
        let mount = self.0.get(place.mount).map_or("", |mount| mount.path.as_str());
        joined(mount.trim_end_matches('/'), &place.inside)
    }

    fn inode(&self, place: &Place) -> u64 {
        inode(&self.seen(place))
    }

    /// What a hook is told; whatever could tell it more about the host ends it.
    fn failed(&self, place: &Place, error: &io::Error) -> Failure {
        Failure::Told(match error.kind() {
            ErrorKind::NotFound => Errno::Noent,
            ErrorKind::NotADirectory => Errno::Notdir,
            ErrorKind::IsADirectory => Errno::Isdir,
            ErrorKind::InvalidFilename => Errno::Nametoolong,
            // A link that leads out of the mount.
            ErrorKind::PermissionDenied => Errno::Perm,
            _ => return unreadable(self.path(place.mount).unwrap_or_default(), error),
        })
    }
}

impl Place {
    pub(super) fn root(mount: usize) -> Self {
        Self { mount, inside: String::new() }
    }

    /// A path below this folder. `..` is worked out here, so that it never reaches the host, and stays below the folder.
    pub(super) fn below(&self, path: &str) -> Result<Self, Errno> {
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
        let inside = parts.iter().fold(self.inside.clone(), |path, part| joined(&path, part));
        Ok(Self { mount: self.mount, inside })
    }
}

impl Kind {
    fn of(kind: FileType) -> Self {
        match kind {
            kind if kind.is_dir() => Self::Folder,
            kind if kind.is_file() => Self::File,
            kind if kind.is_symlink() => Self::Link,
            _ => Self::Unknown,
        }
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }
}

fn unreadable(path: &str, error: &io::Error) -> Failure {
    Failure::ends(Unreadable { path: path.to_owned(), why: error.kind() })
}

/// Empty is what stands before the first `/`, and what lies in no folder.
fn joined(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}

/// The same for the same path, wherever and whenever; never 0, which programs take for unknown.
fn inode(path: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(path).into();
    hash.first_chunk().map_or(1, |first| u64::from_le_bytes(*first)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(path: &str) -> Result<String, Errno> {
        Place { mount: 0, inside: "a".to_owned() }.below(path).map(|place| place.inside)
    }

    #[test]
    fn a_path_stays_below_its_folder() {
        assert_eq!(below("."), Ok("a".to_owned()));
        assert_eq!(below("b/./c//d"), Ok("a/b/c/d".to_owned()));
        assert_eq!(below("b/../c"), Ok("a/c".to_owned()));
        for path in ["..", "b/../..", "b/../../a", "/etc/passwd", "/a"] {
            assert_eq!(below(path), Err(Errno::Perm), "{path}");
        }
        assert_eq!(below("b\0c"), Err(Errno::Ilseq));
        assert_eq!(below(""), Err(Errno::Noent));
    }

    #[test]
    fn a_mount_at_the_root_has_paths_like_any_other() {
        let mounts = |path: &str| Mounts::new(&[Mounted { path: path.to_owned(), folder: PathBuf::new() }]);
        let place = Place { mount: 0, inside: "key".to_owned() };
        assert_eq!(mounts("/etc/greeting").seen(&place), "/etc/greeting/key");
        assert_eq!(mounts("/etc/greeting/").seen(&place), "/etc/greeting/key");
    }
}
