//! Interpreters of scripts: where their files lie, and those that are loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use metahook_core::api::hook::Language;
use tokio::sync::Mutex;

use crate::hook::wasm::run::Module;

/// Compilation of an interpreter, which a user waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerCompilation {
    /// It begins. `refused`: why its code, which lies there, is not used.
    Begins {
        language: Language,
        code: PathBuf,
        refused: Option<String>,
    },
    Ended {
        language: Language,
        took: Duration,
    },
}

pub(super) type Listener = Box<dyn Fn(RunnerCompilation) + Send + Sync>;

/// The interpreters, each loaded as long as a script uses it.
pub(super) struct Runners {
    folder: Option<PathBuf>,
    pub(super) loaded: BTreeMap<Language, Mutex<Weak<Module>>>,
    /// Runners that no cache keeps.
    pub(super) held: Mutex<Vec<Arc<Module>>>,
    pub(super) listener: OnceLock<Listener>,
}

impl Runners {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        let loaded = Language::ALL.map(|language| (language, Mutex::default())).into();
        Self { folder, loaded, held: Mutex::default(), listener: OnceLock::new() }
    }

    pub(super) fn path(&self, language: Language) -> PathBuf {
        let folder = self.folder.as_deref().unwrap_or(Path::new("runners"));
        folder.join(format!("{}.wasm", language.as_str()))
    }

    pub(super) fn report(&self, compilation: RunnerCompilation) {
        if let Some(listener) = self.listener.get() {
            listener(compilation);
        }
    }

    /// Where the code of a runner may lie that was compiled before.
    pub(super) fn code_path(&self, language: Language) -> PathBuf {
        self.path(language).with_extension("code")
    }
}
