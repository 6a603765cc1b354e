//! Module out of a file: followed while its author builds it again and again, and loaded once a build is complete.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use metahook_core::api::hook::Language;
use metahook_core::api::units::print_bytes;
use tokio::sync::watch;

use super::module_state::{ModuleSourceError, ModuleState, publish};
use super::registry::ModuleRegistry;
use crate::hook::wasm::compile::{Digest, blocking};
use crate::hook::wasm::run::Module;

/// How often the file is looked at. Two looks in a row have to agree.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Metadata of the file, which is seen without reading it; `None`: it is not there.
type Look = Option<(SystemTime, u64)>;

pub(super) struct ModuleFile {
    path: PathBuf,
    /// Language of a script, as the spec names it.
    language: Option<Language>,
    registry: Arc<ModuleRegistry>,
}

impl ModuleFile {
    pub(super) fn new(path: PathBuf, language: Option<Language>, registry: Arc<ModuleRegistry>) -> Self {
        Self { path, language, registry }
    }

    /// Follows the file for as long as anybody reads the state.
    pub(super) async fn run(self, state: watch::Sender<ModuleState>) {
        let mut looks = Looks::default();
        let mut digest = None;
        loop {
            if looks.is_complete(self.look()) {
                match self.load(&mut digest).await {
                    Ok(None) => {}
                    Ok(Some(module)) => publish(&state, Ok(module)),
                    Err(problem) => publish(&state, Err(problem)),
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                () = state.closed() => return,
            }
        }
    }

    fn look(&self) -> Look {
        let found = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_file)?;
        Some((found.modified().ok()?, found.len()))
    }

    /// `None`: the bytes are those of the load before.
    async fn load(&self, digest: &mut Option<Digest>) -> Result<Option<Arc<Module>>, ModuleSourceError> {
        let path: Arc<str> = self.path.display().to_string().into();
        let (file, bound) = (self.path.clone(), self.registry.bounds.size);
        let read = blocking(move || Ok(read(&file, bound))).await;
        let refused =
            |source| ModuleSourceError::InFile { path: Arc::clone(&path), source: Box::new(source) };
        let stored = read.map_err(refused)?.map_err(|error| ModuleSourceError::File {
            path: Arc::clone(&path),
            message: error.to_string().into(),
        })?;
        let now = Digest::of(&stored);
        if digest.replace(now) == Some(now) {
            return Ok(None);
        }
        self.registry.load_file(&self.path, self.language, stored).await.map(Some).map_err(refused)
    }
}

fn read(path: &PathBuf, bound: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bound.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bound {
        let why = format!("it has more than {}: make it smaller", print_bytes(bound));
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

/// The looks so far: a file that a linker still writes to changes between two of them.
#[derive(Default)]
struct Looks {
    last: Look,
    loaded: Look,
}

impl Looks {
    /// Whether a build is complete that was not before.
    fn is_complete(&mut self, now: Look) -> bool {
        let is_still = std::mem::replace(&mut self.last, now) == now;
        let is_new = is_still && now.is_some() && now != self.loaded;
        if is_new {
            self.loaded = now;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_complete_when_two_looks_agree() {
        let at =
            |seconds: u64, size: u64| Some((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), size));
        let mut looks = Looks::default();
        for (now, complete) in [
            (None, false),
            (at(1, 10), false),
            (at(1, 20), false),
            (at(1, 20), true),
            (at(1, 20), false),
            (None, false),
            (None, false),
            (at(2, 20), false),
            (at(3, 20), false),
            (at(3, 20), true),
        ] {
            assert_eq!(looks.is_complete(now), complete, "{now:?}");
        }
    }

    #[test]
    fn a_file_may_have_its_bound_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        std::fs::write(&path, [0; 1024]).unwrap();
        assert_eq!(read(&path, 1024).unwrap().len(), 1024);
        let error = read(&path, 1023).unwrap_err().to_string();
        assert!(error.starts_with("it has more than 1023"), "{error}");
    }
}
