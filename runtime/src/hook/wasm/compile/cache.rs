//! Cache of compiled modules: a folder that outlives the server and that several servers may share.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::artifact::{Artifact, Name, SealKey, Stored};
use super::module_error::ModuleError;

/// Bytes of all files in the folder: some thousand modules of 100 KB.
const MAX_BYTES: u64 = 512 << 20;

/// The prefix of files that are being written.
const UNFINISHED: &str = ".new-";

/// The age at which an unfinished file has no writer any more.
const UNFINISHED_TIMEOUT: Duration = Duration::from_hours(1);

/// An open folder that belongs to the server's user alone.
pub(super) struct Cache {
    folder: Dir,
    key: SealKey,
    max_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    #[error("it cannot be made: {0}")]
    Create(io::Error),
    #[error("it cannot be opened: {0}")]
    Open(io::Error),
    #[error("it belongs to user {owner}, and the server is user {us}: chown it, or name another folder")]
    Foreign { owner: u32, us: u32 },
    #[error("its mode is {0:04o}, so that others could put code there: chmod 700 it, or name another folder")]
    Shared(u32),
}

impl Cache {
    /// Opens the folder, and makes it where it is missing.
    pub(super) fn open(path: &Path, key: SealKey) -> Result<Self, CacheError> {
        Self::with_bound(path, key, MAX_BYTES)
    }

    fn with_bound(path: &Path, key: SealKey, max_bytes: u64) -> Result<Self, CacheError> {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        builder.create(path).map_err(CacheError::Create)?;
        let folder = Dir::open_ambient_dir(path, ambient_authority()).map_err(CacheError::Open)?;
        let found = folder.dir_metadata().map_err(CacheError::Open)?;
        let owner = found.uid();
        let us = geteuid().as_raw();
        if owner != us {
            return Err(CacheError::Foreign { owner, us });
        }
        let mode = found.mode() & 0o777;
        if mode != 0o700 {
            return Err(CacheError::Shared(mode));
        }
        let cache = Self { folder, key, max_bytes };
        cache.prune();
        Ok(cache)
    }

    /// The artifact under a name, which is copied to one that `own` makes for its length. What our key did not seal is left to
    /// be replaced.
    ///
    /// # Errors
    /// `own` makes none: there is no room for the code, and to compile it would make none.
    pub(super) fn find(
        &self,
        name: &Name,
        own: impl FnOnce(u64) -> Result<Artifact, ModuleError>,
    ) -> Result<Option<Artifact>, ModuleError> {
        let found = match self.open_file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(_) => None,
            Ok(stored) => {
                let own = own(stored.len)?;
                Artifact::open(&self.key, name, stored, own).ok().flatten()
            }
        };
        if found.is_none() {
            let file = name.as_str();
            tracing::warn!(file, "damaged, or of another installation: the module is compiled again");
        }
        Ok(found)
    }

    /// Keeps an artifact under its name.
    ///
    /// *Guarantees*: a reader finds all of it or nothing, also with several writers.
    ///
    /// *Caveats*: no `fsync`. The seal of a file with a lost page is wrong, which costs a compilation.
    pub(super) fn keep(&self, name: &Name, artifact: &Artifact) {
        let kept = self.unfinished().and_then(|(path, mut file)| {
            let written = artifact
                .store(&self.key, name, &mut file)
                .and_then(|()| self.folder.rename(&path, &self.folder, name.as_str()));
            // Where this fails, the file is pruned later.
            written.inspect_err(|_| self.folder.remove_file(&path).unwrap_or_default())
        });
        if let Err(error) = kept {
            tracing::warn!(%error, "a compiled module cannot be kept in --module-cache-dir");
        }
        self.prune();
    }

    /// An empty file under a name of its own, by which it is pruned later where its writer ends before.
    fn unfinished(&self) -> io::Result<(String, File)> {
        let path = format!("{UNFINISHED}{:016x}", RandomState::new().build_hasher().finish());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = self.folder.open_with(&path, &options)?;
        Ok((path, file.into_std()))
    }

    /// An empty file that has lost its name, so that only this process can open it.
    pub(super) fn nameless(&self) -> io::Result<File> {
        let (path, file) = self.unfinished()?;
        self.folder.remove_file(&path)?;
        Ok(file)
    }

    fn open_file(&self, name: &Name) -> io::Result<Stored<File>> {
        // No links; and a pipe must not block the open.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = self.folder.open_with(name.as_str(), options.read(true).custom_flags(flags))?;
        let stored = Stored::of(file.into_std())?;
        // The time of the last use, by which files are pruned. Without it this file goes earlier than it should.
        stored.file.set_modified(SystemTime::now()).unwrap_or_default();
        Ok(stored)
    }

    /// Removes the least recently used files until the rest is within the bound.
    fn prune(&self) {
        if let Err(error) = self.try_prune() {
            tracing::warn!(%error, "--module-cache-dir cannot be tidied up");
        }
    }

    fn try_prune(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in self.folder.entries()? {
            let entry = entry?;
            // Another server may have removed it meanwhile.
            let Ok(found) = entry.metadata() else { continue };
            let Ok(name) = entry.file_name().into_string() else { continue };
            files.push((found.modified()?.into_std(), name, found.len()));
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(.., length)| length).sum();
        for (used, name, length) in files {
            let given_up =
                name.starts_with(UNFINISHED) && used.elapsed().is_ok_and(|age| age > UNFINISHED_TIMEOUT);
            if given_up || total > self.max_bytes {
                total -= length;
                self.folder.remove_file(&name).unwrap_or_default();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;

    use wasmtime::Engine;

    use super::super::code_space::CodeSpace;
    use super::*;
    use crate::hook::wasm::compile::Digest;

    fn key() -> SealKey {
        SealKey::of(b"secret")
    }

    fn name(module: &str) -> Name {
        Name::new(Digest::of(module.as_bytes()), &Engine::default())
    }

    /// Sets the last use of a file to so many hours ago.
    fn used(folder: &Path, file: &str, hours: u64) {
        let file = File::options().append(true).create(true).open(folder.join(file)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_hours(hours)).unwrap();
    }

    fn files(folder: &Path) -> BTreeSet<String> {
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn the_least_recently_used_file_goes_first() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("cache");
        // Room for two artifacts of 100 bytes with their seals.
        let cache = Cache::with_bound(&folder, key(), 300).unwrap();
        let artifact = || {
            let mut code = tempfile::tempfile().unwrap();
            code.write_all(&[7; 100]).unwrap();
            Artifact::new(code, CodeSpace::default())
        };
        let [a, b, c] = ["a", "b", "c"].map(name);
        for (name, hours) in [(&a, 3), (&b, 2)] {
            cache.keep(name, &artifact());
            used(&folder, name.as_str(), hours);
        }
        let found = cache
            .find(&a, |_| Ok(Artifact::new(tempfile::tempfile().unwrap(), CodeSpace::default())))
            .unwrap();
        assert!(found.is_some(), "which is a use");
        cache.keep(&c, &artifact());
        assert_eq!(files(&folder), BTreeSet::from([&a, &c].map(|name| name.as_str().to_owned())));
    }

    #[test]
    fn an_unfinished_file_goes_after_an_hour() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("cache");
        drop(Cache::open(&folder, key()).unwrap());
        for (file, hours) in [(".new-1", 0), (".new-2", 2)] {
            used(&folder, file, hours);
        }
        drop(Cache::open(&folder, key()).unwrap());
        assert_eq!(files(&folder), BTreeSet::from([".new-1".to_owned()]));
    }

    #[test]
    fn a_foreign_folder_is_an_error_that_says_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Cache::open(&file, key()).err().unwrap().to_string();
        assert!(error.starts_with("it cannot be made: "), "{error}");
        let folder = place.path().join("folder");
        std::fs::DirBuilder::new().create(&folder).unwrap();
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(
            Cache::open(&folder, key()).err().unwrap().to_string(),
            "its mode is 0755, so that others could put code there: chmod 700 it, or name another folder"
        );
        let foreign = CacheError::Foreign { owner: 0, us: 65532 };
        assert_eq!(
            foreign.to_string(),
            "it belongs to user 0, and the server is user 65532: chown it, or name another folder"
        );
    }
}
