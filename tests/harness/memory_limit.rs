//! A memory limit that the kernel enforces, as a container has one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A cgroup of either version, removed when it is dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    folder: PathBuf,
}

/// Names of files in the two versions: where their memory cgroups are, the limit, and the count of kills.
const VERSIONS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
];

impl MemoryLimit {
    /// `None` where no cgroups with limits can be made: not root, or none are mounted.
    pub fn of(name: &str, bytes: u64) -> Option<Self> {
        VERSIONS.iter().find_map(|(root, limit, _)| {
            let folder = Path::new(root).join(format!("metahook-{}-{name}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let made = Self { folder };
            // Dropped again where memory has no limits here.
            fs::write(made.folder.join(limit), bytes.to_string()).ok()?;
            Some(made)
        })
    }

    /// Where a process writes its number to be limited.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Processes that the kernel killed as they needed more.
    pub fn kills(&self) -> Result<u64> {
        let texts =
            VERSIONS.iter().filter_map(|(_, _, file)| fs::read_to_string(self.folder.join(file)).ok());
        let count = |text: String| text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        texts.into_iter().find_map(count).context("the kernel counts no kills")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.folder));
    }
}
