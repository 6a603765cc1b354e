//! Archives that hold no time and no user of the machine that makes them.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A tar archive.
pub struct Archive(Builder<Vec<u8>>);

impl Archive {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "an archive that nothing is added to is no archive")]
    pub fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub fn folder(&mut self, path: &str) -> Result<()> {
        self.append(EntryType::Directory, path, 0o755, &[])
    }

    /// A file that everybody may read.
    pub fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.append(EntryType::Regular, path, 0o644, content)
    }

    /// A file that everybody may run.
    pub fn program(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.append(EntryType::Regular, path, 0o755, content)
    }

    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        Ok(self.0.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?)
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        Ok(self.0.into_inner()?)
    }

    fn append(&mut self, kind: EntryType, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = header(kind, mode, content.len() as u64);
        Ok(self.0.append_data(&mut header, path, content)?)
    }
}

/// How long packing may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// For a test that uses it once.
    Little,
    /// For what is pulled or downloaded.
    Much,
}

pub fn gzip(bytes: &[u8], effort: Effort) -> Result<Vec<u8>> {
    let level = match effort {
        Effort::Little => Compression::fast(),
        Effort::Much => Compression::best(),
    };
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), level);
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}
