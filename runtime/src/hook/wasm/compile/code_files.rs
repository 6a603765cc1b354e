//! Files without a name that hold the code of loaded modules: the kernel gives their memory to others, and reads them again.
//!
//! Only this process can open them, so what it wrote there is what runs.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

use super::cache::Cache;
use super::module_error::ModuleError;

/// A maker of files: in the folder of a cache, else in memory.
pub(super) struct CodeFiles(Option<Arc<Cache>>);

impl CodeFiles {
    pub(super) fn new(cache: Option<Arc<Cache>>) -> Self {
        Self(cache)
    }

    /// Moves bytes to a file on disk, at whose beginning a reader begins; without a cache they stay where they are.
    pub(super) fn spill(&self, bytes: &[u8]) -> Option<File> {
        let spill = |cache: &Arc<Cache>| {
            let mut file = cache.nameless()?;
            file.write_all(bytes)?;
            file.rewind()?;
            Ok::<_, io::Error>(file)
        };
        spill(self.0.as_ref()?).ok()
    }

    /// An empty file. Where the folder has no room for one, it lies in memory.
    pub(super) fn create(&self) -> Result<File, ModuleError> {
        let on_disk = self.0.as_ref().and_then(|cache| {
            let warn = |error: &io::Error| {
                tracing::warn!(%error, "no file can be made in --module-cache-dir: a module's code stays in memory");
            };
            cache.nameless().inspect_err(warn).ok()
        });
        on_disk.map_or_else(in_memory, Ok).map_err(|error| ModuleError::Code(error.to_string()))
    }
}

fn in_memory() -> io::Result<File> {
    Ok(memfd_create("module", MemfdFlags::CLOEXEC)?.into())
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
    fn bytes_are_spilled_where_there_is_a_disk_for_them() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::open(&place.path().join("cache"), SealKey::of(b"secret")).unwrap();
        let file = CodeFiles::new(Some(Arc::new(cache))).spill(b"wasm").unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "wasm");
        assert!(CodeFiles::new(None).spill(b"wasm").is_none());
    }
}
