//! Go programs, built once per machine into the cache, with their progress on stderr.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::elapsed::elapsed;

/// How often a build prints its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// Input of one `go build`.
#[derive(Debug)]
pub(crate) struct Build<'a> {
    pub(crate) module: &'a Path,
    pub(crate) cgo: bool,
    pub(crate) flags: &'a [&'a str],
    pub(crate) packages: &'a [&'a str],
}

impl Build<'_> {
    pub(crate) fn run(&self, into: &Path) -> Result<()> {
        let start = Instant::now();
        let mut go = Command::new("go")
            .current_dir(self.module)
            .env("CGO_ENABLED", if self.cgo { "1" } else { "0" })
            .env("GOWORK", "off")
            .args(["build", "-v", "-trimpath", "-buildvcs=false"])
            .args(self.flags)
            .arg("-o")
            .arg(into.join("")) // with a slash at the end: a folder
            .args(self.packages)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `go`: install Go (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder with the binaries")?;
        let printed = go.stderr.take().map(|stderr| follow(stderr, start)).unwrap_or_default();
        let status = go.wait().context("cannot wait for go build")?;
        if !status.success() {
            bail!("go build failed ({status}); its last lines:\n{}", printed.join("\n"));
        }
        Ok(())
    }
}

/// Fills `folder` unless it is there. It is filled under another name and renamed at the end: a build that was cut off
/// is never taken for a whole one.
pub fn once(
    folder: &Path,
    what: &str,
    is_whole: impl Fn(&Path) -> bool,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    if is_whole(folder) {
        return Ok(());
    }
    let cache = folder.parent().context("a cache is no root folder")?;
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let _lock = lock(&beside(folder, "lock"), what)?;
    if is_whole(folder) {
        return Ok(());
    }
    let start = Instant::now();
    let partial = beside(folder, "partial");
    remove(&partial)?;
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    eprintln!("building {what}, once per machine, into {}", folder.display());
    fill(&partial)?;
    remove(folder)?;
    fs::rename(&partial, folder).with_context(|| format!("cannot make {}", folder.display()))?;
    eprintln!("built in {}", elapsed(start));
    Ok(())
}

/// Where the project keeps what it builds once per machine.
pub fn cache_folder() -> Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => {
            env::home_dir().context("there is no home folder to cache in: set XDG_CACHE_HOME")?.join(".cache")
        }
    };
    Ok(cache.join("metahook"))
}

/// The first digits of a digest of files: with other sources, what is built from them lies in another folder.
pub fn fingerprint(files: &[PathBuf]) -> Result<String> {
    fingerprint_with(files, &[])
}

/// That of files and of words, such as the versions of compilers.
pub fn fingerprint_with(files: &[PathBuf], words: &[String]) -> Result<String> {
    let mut digest = Sha256::new();
    for file in files {
        digest.update(read(file)?);
    }
    for word in words {
        digest.update(word);
    }
    Ok(digest.finalize().iter().take(4).fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// `k8s-v1.36.3-0123abcd.lock` beside `k8s-v1.36.3-0123abcd`.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = folder.to_owned().into_os_string();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// Held until dropped, so that two commands at once do not build twice.
fn lock(path: &Path, what: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("another command is building {what}: waiting for it ({})", path.display());
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

/// Prints now and then how far `go build -v` is; gives back its last lines.
fn follow(stderr: ChildStderr, start: Instant) -> Vec<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    let mut compiled = 0_u32;
    let mut printed: Vec<String> = Vec::new();
    let mut last_progress = Instant::now();
    loop {
        match lines.recv_timeout(PROGRESS_INTERVAL) {
            Ok(line) => {
                compiled += u32::from(!line.contains(' ')); // a package's path alone; else a download or an error
                printed.push(line);
                printed.drain(..printed.len().saturating_sub(20));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return printed,
        }
        if last_progress.elapsed() >= PROGRESS_INTERVAL {
            let last = printed.last().map_or("nothing: it reads or links", String::as_str);
            eprintln!("  {}: {compiled} packages compiled, last {last}", elapsed(start));
            last_progress = Instant::now();
        }
    }
}
