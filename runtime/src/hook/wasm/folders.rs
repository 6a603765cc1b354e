//! Folders of this machine with the files that hooks read: made whole, and gone with their last user.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, MetadataExt, OpenOptions, OpenOptionsExt};

/// A server's folder is called this and something unique.
const PREFIX: &str = "metahook-mounts-";

/// While it has this ending it is not locked yet.
const UNFINISHED: &str = ".new";

/// In a server's folder: locked as long as the server lives, whatever ends it.
const LOCK: &str = "lock";

/// The folder of one server; removed with it.
pub(crate) struct Folders {
    base: Dir,
    dir: Dir,
    name: String,
    path: PathBuf,
    made: AtomicU64,
    _lock: File,
}

/// A folder that nobody changes any more. Whoever holds it keeps it.
pub(crate) struct Folder {
    folders: Arc<Folders>,
    name: String,
}

/// There is no place for mounted files.
#[derive(Debug, thiserror::Error)]
#[error(
    "the files of mounts cannot be kept in {}: let --mount-dir name a folder that the server may write to, best one in memory",
    path.display()
)]
pub struct FoldersError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Folders {
    /// Makes this server's folder in `base`, and removes those of servers that were killed. `unique` tells servers apart.
    pub(crate) fn create(base: &Path, unique: &str) -> Result<Self, FoldersError> {
        Self::try_create(base, unique).map_err(|source| FoldersError { path: base.to_owned(), source })
    }

    fn try_create(path: &Path, unique: &str) -> io::Result<Self> {
        Dir::create_ambient_dir_all(path, ambient_authority())?;
        let path = path.canonicalize()?;
        let base = Dir::open_ambient_dir(&path, ambient_authority())?;
        let name = format!("{PREFIX}{unique}");
        let unfinished = format!("{name}{UNFINISHED}");
        let dir = create(&base, &unfinished)?;
        let lock = write(&dir, LOCK, b"")?;
        lock.try_lock()?;
        base.rename(&unfinished, &base, &name)?;
        let folders = Self { path: path.join(&name), base, dir, name, made: AtomicU64::new(0), _lock: lock };
        folders.remove_orphans();
        Ok(folders)
    }

    /// A folder with these files.
    pub(crate) fn make(self: &Arc<Self>, files: &BTreeMap<String, Vec<u8>>) -> io::Result<Folder> {
        let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
        let dir = create(&self.dir, &name)?;
        // From here on it is removed also if something fails.
        let folder = Folder { folders: Arc::clone(self), name };
        for (name, bytes) in files {
            write(&dir, name, bytes)?;
        }
        Ok(folder)
    }

    fn remove_orphans(&self) {
        for entry in self.base.entries().into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != self.name
                && self.is_orphan(&name).unwrap_or_default()
                && let Err(error) = self.base.remove_dir_all(&name)
            {
                tracing::warn!(folder = name, error = %error, "files that a killed server left cannot be removed");
            }
        }
    }

    /// Surely a server's, surely of the same user, surely of a server that lives no more.
    fn is_orphan(&self, name: &str) -> io::Result<bool> {
        if !name.starts_with(PREFIX) || name.ends_with(UNFINISHED) {
            return Ok(false);
        }
        let (ours, theirs) = (self.dir.dir_metadata()?, self.base.symlink_metadata(name)?);
        if !theirs.is_dir() || theirs.uid() != ours.uid() || theirs.mode() & 0o777 != 0o700 {
            return Ok(false);
        }
        let dir = self.base.open_dir(name)?;
        if dir.dir_metadata()?.ino() != theirs.ino() || !dir.symlink_metadata(LOCK)?.is_file() {
            return Ok(false);
        }
        Ok(dir.open(LOCK)?.into_std().try_lock().is_ok())
    }
}

impl Folder {
    pub(crate) fn path(&self) -> PathBuf {
        self.folders.path.join(&self.name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = self.folders.dir.remove_dir_all(&self.name) {
            tracing::warn!(folder = %self.path().display(), error = %error, "mounted files cannot be removed");
        }
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        if let Err(error) = self.base.remove_dir_all(&self.name) {
            tracing::warn!(folder = %self.path.display(), error = %error, "mounted files cannot be removed");
        }
    }
}

/// A folder for the server alone; an error where there is one of that name.
fn create(parent: &Dir, name: &str) -> io::Result<Dir> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    parent.create_dir_with(name, &builder)?;
    parent.open_dir(name)
}

/// A file for the server alone; an error where there is one of that name.
fn write(dir: &Dir, name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = dir.open_with(name, &options)?.into_std();
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn files(name: &str) -> BTreeMap<String, Vec<u8>> {
        [(name.to_owned(), b"text".to_vec())].into()
    }

    #[test]
    fn a_folder_is_for_the_server_alone_and_gone_with_its_last_user() {
        let base = tempfile::tempdir().unwrap();
        let folders = Arc::new(Folders::create(base.path(), "1").unwrap());
        let folder = folders.make(&files("a")).unwrap();
        let path = folder.path();
        assert_eq!((mode(&path), mode(&path.join("a"))), (0o700, 0o600));
        assert_eq!(
            (fs::read(path.join("a")).unwrap(), names(&path)),
            (b"text".to_vec(), vec!["a".to_owned()])
        );
        drop(folder);
        assert!(!path.exists());
        drop(folders);
        assert_eq!(names(base.path()), [""; 0]);
    }

    #[test]
    fn no_name_leads_out_of_a_folder_and_what_fails_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let folders = Arc::new(Folders::create(base.path(), "1").unwrap());
        for name in ["../out", "/tmp/metahook-out", "no/folder"] {
            assert!(folders.make(&files(name)).is_err(), "{name}");
        }
        assert_eq!(names(&base.path().join("metahook-mounts-1")), ["lock"]);
        assert_eq!(names(base.path()), ["metahook-mounts-1"]);
    }

    #[test]
    fn what_a_killed_server_left_is_removed_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join(LOCK), b"").unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let living = Folders::create(base.path(), "living").unwrap();
        make("metahook-mounts-killed", 0o700);
        make("metahook-mounts-open-to-all", 0o755);
        make("metahook-mounts-starting.new", 0o700);
        make("others", 0o700);
        fs::create_dir(base.path().join("metahook-mounts-without-lock")).unwrap();
        fs::write(base.path().join("metahook-mounts-file"), b"").unwrap();
        std::os::unix::fs::symlink("others", base.path().join("metahook-mounts-link")).unwrap();
        let before = names(base.path());
        let next = Folders::create(base.path(), "next").unwrap();
        let mut expected: Vec<_> =
            before.into_iter().filter(|name| name != "metahook-mounts-killed").collect();
        expected.push("metahook-mounts-next".to_owned());
        expected.sort();
        assert_eq!(names(base.path()), expected);
        drop((living, next));
    }

    #[test]
    fn a_place_that_cannot_be_written_to_is_named() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = Folders::create(&file, "1").err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("the files of mounts cannot be kept in {}", file.display())),
            "{error}"
        );
        assert!(error.contains("--mount-dir"), "{error}");
    }
}
