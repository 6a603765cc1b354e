//! Folders that a hook may read: a map of files in memory, shown without times, devices or the order of a disk.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::memory::Errno;

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

/// The end of a path.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    pub(super) stat: Stat,
    /// Content of a file.
    pub(super) content: Option<Bytes>,
}

/// Numbers of WASI preview 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileType {
    Unknown = 0,
    Folder = 3,
    File = 4,
}

/// The answer of `fd_filestat_get` and `path_filestat_get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) kind: FileType,
    pub(super) size: u64,
    pub(super) inode: u64,
}

/// An entry of a folder: `.` and `..`, then the files in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: FileType,
    pub(super) inode: u64,
}

impl MountedFiles {
    pub(crate) fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.0.values().map(|content| &**content)
    }
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

impl MountedFolder {
    /// Goes along a path below the folder, part by part: each has to be there, and `..` leads out of files and of the
    /// folder nowhere.
    pub(super) fn find(&self, path: &str) -> Result<ResolvedPath, Errno> {
        if path.is_empty() {
            return Err(Errno::Noent);
        }
        if path.contains('\0') {
            return Err(Errno::Ilseq);
        }
        if path.starts_with('/') {
            return Err(Errno::Perm);
        }
        let mut file = None;
        for part in path.split('/') {
            file = match part {
                _ if file.is_some() => return Err(Errno::Notdir),
                "" | "." => None,
                ".." => return Err(Errno::Perm),
                name if name.len() > MAX_NAME => return Err(Errno::Nametoolong),
                name => Some(self.files.get_key_value(name).ok_or(Errno::Noent)?),
            };
        }
        let stat = match file {
            None => self.stat(),
            Some((name, content)) => {
                Stat { kind: FileType::File, size: content.len() as u64, inode: inode(&self.below(name)) }
            }
        };
        Ok(ResolvedPath { stat, content: file.map(|(_, content)| content.clone()) })
    }

    pub(super) fn stat(&self) -> Stat {
        Stat { kind: FileType::Folder, size: 0, inode: inode(&self.path) }
    }

    /// The entries of this folder, which holds no folders.
    pub(super) fn list(&self) -> Vec<Entry> {
        let entry = |name: &str, kind, path: &str| Entry { name: name.to_owned(), kind, inode: inode(path) };
        let above = self.path.rsplit_once('/').map_or("", |(above, _)| above);
        let own = [entry(".", FileType::Folder, &self.path), entry("..", FileType::Folder, above)];
        let files = self.files.keys().map(|name| entry(name, FileType::File, &self.below(name)));
        own.into_iter().chain(files).collect()
    }

    fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Inode of a path, the same on every machine; never 0, which programs take for unknown.
fn inode(path: &str) -> u64 {
    let hash: [u8; 32] = Sha256::digest(path).into();
    hash.first_chunk().map_or(1, |first| u64::from_le_bytes(*first)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> MountedFolder {
        let files = Files::from([("password".to_owned(), Bytes::from("secret"))]).into();
        MountedFolder { path: "/run/db".to_owned(), files }
    }

    #[test]
    fn a_path_is_walked_part_by_part() {
        let folder = folder();
        let kind = |path: &str| folder.find(path).map(|found| found.stat.kind);
        for path in [".", "./", "./.", ".//."] {
            assert_eq!(kind(path), Ok(FileType::Folder), "{path}");
        }
        for path in ["password", "./password", ".//./password"] {
            assert_eq!(kind(path), Ok(FileType::File), "{path}");
        }
        for path in ["password/", "password/.", "password/..", "password/../password", "password/x"] {
            assert_eq!(kind(path), Err(Errno::Notdir), "{path}");
        }
        for path in ["", "none", "none/", "none/..", "none/../password", "none/../.."] {
            assert_eq!(kind(path), Err(Errno::Noent), "{path}");
        }
        for path in ["..", "./..", "../", "../db/password", "/run/db/password", "/"] {
            assert_eq!(kind(path), Err(Errno::Perm), "{path}");
        }
        assert_eq!(kind("b\0c"), Err(Errno::Ilseq));
    }

    #[test]
    fn the_debug_output_of_files_has_no_content() {
        assert_eq!(format!("{:?}", folder()), r#"MountedFolder { path: "/run/db", files: 1 files }"#);
    }
}
