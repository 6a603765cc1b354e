//! A temporary folder that goes with its owner, unless it is kept to be looked at.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const PREFIX: &str = "metahook-";

/// Locked as long as the owner lives: the kernel lets go of it however the owner ends.
const OWNER: &str = "owner.lock";

/// Removed when dropped. What an owner killed with -9 left behind is removed by the next one.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    kept: Option<&'static str>,
    _owner: File,
}

impl Folder {
    pub fn new() -> Result<Self> {
        sweep(&env::temp_dir());
        Self::within(&env::temp_dir())
    }

    fn within(parent: &Path) -> Result<Self> {
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let path = made.with_context(|| format!("cannot make a folder in {}", parent.display()))?.keep();
        let unlocked = path.join("owner.new"); // locked before it has its name: a sweep never sees it unlocked
        let owner = File::create(&unlocked).context("cannot make the owner's lock")?;
        owner.lock().context("cannot lock a new file")?;
        fs::rename(&unlocked, path.join(OWNER)).context("cannot name the owner's lock")?;
        Ok(Self { path, kept: None, _owner: owner })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One file or folder in it stays when it is dropped, and so does it.
    pub fn keep(&mut self, name: &'static str) {
        self.kept = Some(name);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let Some(kept) = self.kept else {
            drop(fs::remove_dir_all(&self.path));
            return;
        };
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name() != kept {
                let path = entry.path();
                drop(if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) });
            }
        }
    }
}

/// Removes the folders whose owner is gone. A folder without a lock is kept, or is just being made.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let abandoned = || File::open(entry.path().join(OWNER)).is_ok_and(|lock| lock.try_lock().is_ok());
        if ours && abandoned() {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_with_its_owner_unless_kept() {
        let parent = tempfile::tempdir().unwrap();
        let dropped = Folder::within(parent.path()).unwrap();
        let mut kept = Folder::within(parent.path()).unwrap();
        for name in ["logs", "data"] {
            fs::create_dir(kept.path().join(name)).unwrap();
        }
        kept.keep("logs");
        let paths = [dropped.path().to_owned(), kept.path().join("logs"), kept.path().join("data")];
        drop((dropped, kept));
        sweep(parent.path());
        assert_eq!(paths.map(|path| path.exists()), [false, true, false]);
    }

    #[test]
    fn what_a_killed_owner_left_is_swept_and_what_a_living_one_uses_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let living = Folder::within(parent.path()).unwrap();
        let left = parent.path().join("metahook-left");
        fs::create_dir(&left).unwrap();
        File::create(left.join(OWNER)).unwrap();
        sweep(parent.path());
        assert_eq!([living.path().exists(), left.exists()], [true, false]);
    }
}
