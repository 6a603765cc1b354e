//! Files without a name that hold the code of loaded modules: the kernel gives their memory to others, and reads them again.
//!
//! Only this process can open them, so what it wrote there is what runs. All code together takes a bounded space.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Seek, Write};
use std::sync::{Arc, Mutex};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{MemfdFlags, memfd_create};

use super::cache::{Cache, UNFINISHED};
use super::module_error::ModuleError;
use crate::sync::lock;

/// A maker of files: in the folder of a cache, else in memory.
pub(super) struct CodeFiles {
    cache: Option<Arc<Cache>>,
    /// Bytes of all code that is loaded.
    loaded: Arc<Mutex<u64>>,
}

/// The space that one module's code takes, which is given back with it.
#[derive(Default)]
pub(in crate::hook::wasm) struct CodeSpace {
    bytes: u64,
    loaded: Arc<Mutex<u64>>,
}

impl CodeFiles {
    pub(super) fn new(cache: Option<Arc<Cache>>) -> Self {
        Self { cache, loaded: Arc::default() }
    }

    /// Takes space for the code of one module.
    ///
    /// # Errors
    /// With it, all code would take more than `max`.
    pub(super) fn space(&self, bytes: u64, max: u64) -> Result<CodeSpace, ModuleError> {
        let mut loaded = lock(&self.loaded);
        let together = loaded.saturating_add(bytes);
        if together > max {
            return Err(ModuleError::AllCode { bytes, others: *loaded, max });
        }
        *loaded = together;
        Ok(CodeSpace { bytes, loaded: Arc::clone(&self.loaded) })
    }

    /// Moves bytes to a file on disk, at whose beginning a reader begins; without a cache they stay where they are.
    pub(super) fn spill(&self, bytes: &[u8]) -> Option<File> {
        let spill = |cache: &Arc<Cache>| {
            let mut file = in_folder(cache.folder())?;
            file.write_all(bytes)?;
            file.rewind()?;
            Ok::<_, io::Error>(file)
        };
        spill(self.cache.as_ref()?).ok()
    }

    /// An empty file. Where the folder has no room for one, it lies in memory.
    pub(super) fn create(&self) -> io::Result<File> {
        let Some(cache) = &self.cache else { return in_memory() };
        in_folder(cache.folder()).or_else(|error| {
            tracing::warn!(%error, "no file can be made in --module-cache-dir: a module's code stays in memory");
            in_memory()
        })
    }
}

impl Drop for CodeSpace {
    fn drop(&mut self) {
        let mut loaded = lock(&self.loaded);
        *loaded = loaded.saturating_sub(self.bytes);
    }
}

fn in_memory() -> io::Result<File> {
    Ok(memfd_create("module", MemfdFlags::CLOEXEC)?.into())
}

/// Where the server ends before the file has lost its name, the cache removes it later.
fn in_folder(folder: &Dir) -> io::Result<File> {
    let name = format!("{UNFINISHED}{:016x}", RandomState::new().build_hasher().finish());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = folder.open_with(&name, &options)?;
    folder.remove_file(&name)?;
    Ok(file.into_std())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::SealKey;
    use super::*;

    #[test]
    fn a_file_has_no_name_in_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("cache");
        let cache = Arc::new(Cache::open(&folder, SealKey::of(b"secret")).unwrap());
        let on_disk = CodeFiles::new(Some(Arc::clone(&cache))).create().unwrap().metadata().unwrap();
        assert_eq!((on_disk.nlink(), std::fs::read_dir(&folder).unwrap().count()), (0, 0));
        assert_eq!(on_disk.dev(), std::fs::metadata(&folder).unwrap().dev());
        assert!(CodeFiles::new(None).create().unwrap().metadata().is_ok_and(|file| file.nlink() == 0));
        std::fs::remove_dir(&folder).unwrap();
        let none = CodeFiles::new(Some(cache)).create().unwrap().metadata().unwrap();
        assert!(none.dev() != on_disk.dev(), "a folder that is gone");
    }

    #[test]
    fn all_code_has_one_space_which_is_given_back() {
        const MAX: u64 = 100 << 20;
        let (files, mib) = (CodeFiles::new(None), |mib: u64| mib << 20);
        let (first, second) = (files.space(mib(60), MAX).unwrap(), files.space(mib(40), MAX).unwrap());
        let message = files.space(1, MAX).err().unwrap().to_string();
        assert_eq!(
            message,
            "with this module's 1Mi, the code of all loaded modules would take 101Mi, and 100Mi are allowed (--module-code-max): raise it where disk and memory have room, or make the modules smaller"
        );
        drop(second);
        assert!(files.space(mib(40) + 1, MAX).is_err());
        assert!(files.space(mib(40), MAX).is_ok());
        drop(first);
        assert!(files.space(MAX, MAX).is_ok());
        assert!(files.space(u64::MAX, u64::MAX).is_ok(), "a runner has no bound");
    }

    #[test]
    fn bytes_are_spilled_where_there_is_a_disk_for_them() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::open(&place.path().join("cache"), SealKey::of(b"secret")).unwrap();
        let file = CodeFiles::new(Some(Arc::new(cache))).spill(b"wasm").unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "wasm");
        assert!(CodeFiles::new(None).spill(b"wasm").is_none());
    }
}
