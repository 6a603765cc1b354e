//! Interpreters of scripts: where their files lie, and those that are loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use metahook_core::api::hook::Language;
use tokio::sync::Mutex;

use crate::hook::wasm::run::Module;

/// The interpreters, each loaded as long as a script uses it.
pub(super) struct Runners {
    folder: Option<PathBuf>,
    pub(super) loaded: BTreeMap<Language, Mutex<Weak<Module>>>,
    /// Runners that no cache keeps.
    pub(super) held: Mutex<Vec<Arc<Module>>>,
}

impl Runners {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        let loaded = Language::ALL.map(|language| (language, Mutex::default())).into();
        Self { folder, loaded, held: Mutex::default() }
    }

    pub(super) fn path(&self, language: Language) -> PathBuf {
        let folder = self.folder.as_deref().unwrap_or(Path::new("runners"));
        folder.join(format!("{}.wasm", language.as_str()))
    }

    /// Where the code of a runner may lie that was compiled before.
    pub(super) fn code_path(&self, language: Language) -> PathBuf {
        self.path(language).with_extension("code")
    }
}
