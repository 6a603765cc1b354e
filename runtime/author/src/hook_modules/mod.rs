//! Files of a controller's hooks: what the toolchain left, and the scripts that lie beside the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use metahook_core::api::hook::{HookName, Language};
use metahook_core::bundle::{ModulePlace, modules_of};

use crate::documents::Document;

/// Where Cargo leaves modules and components, below the folder of the controller.
const BUILT: [&str; 2] = ["target/wasm32-wasip1/release", "target/wasm32-wasip2/release"];

/// The file of a module or a script.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookFile {
    pub path: PathBuf,
    /// Language of a script; a module has none. As on a server the spec decides, and the name of a file that no spec names.
    pub language: Option<Language>,
}

impl HookFile {
    /// A file that no controller names.
    fn alone(path: PathBuf) -> Self {
        let language = Language::of_file(&name(&path));
        Self { path, language }
    }

    /// A file that an author names: of the kind of the key of its name among the controllers of the documents, if there is one.
    pub fn named(path: PathBuf, documents: &[Document]) -> Self {
        let key = places(documents).find(|(place, _)| place.key == name(&path));
        match key {
            Some((place, _)) => Self { path, language: place.language },
            None => Self::alone(path),
        }
    }

    fn stored_at(place: &ModulePlace, path: PathBuf) -> (ModulePlace, Self) {
        (place.clone(), Self { path, language: place.language })
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Modules and folders beside the files of controllers.
#[derive(Debug, Default)]
pub struct FoundFiles {
    /// The modules that the toolchain left.
    pub(crate) built: Vec<PathBuf>,
    pub(crate) folders: Vec<PathBuf>,
    /// The folders of the controllers that name a place.
    pub(crate) homes: BTreeMap<ModulePlace, Vec<PathBuf>>,
}

/// Several files have the name of a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a hook's key is {key}, and {} and {} have this name: remove one of them, or name the right one with --module",
    one.display(),
    other.display()
)]
pub struct AmbiguousFile {
    key: String,
    one: PathBuf,
    other: PathBuf,
}

/// The folder that files of a name lie in.
fn folder(path: &Path) -> Option<PathBuf> {
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    folder.map(|it| if it.as_os_str().is_empty() { Path::new(".") } else { it }.to_owned())
}

/// Each folder once, also where it is written in several ways.
fn distinct(folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let resolved = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_absent| folder.clone());
    let mut seen = BTreeSet::new();
    folders.filter(|folder| seen.insert(resolved(folder))).collect()
}

impl FoundFiles {
    /// Beside these files, and in these folders; the documents are those of the files.
    pub fn beside(files: &[PathBuf], documents: &[Document]) -> Self {
        let folders = distinct(files.iter().filter_map(|file| folder(file)));
        let targets = folders.iter().flat_map(|folder| BUILT.map(|built| folder.join(built)));
        let entries = targets.filter_map(|folder| std::fs::read_dir(folder).ok());
        let mut built: Vec<_> = entries.flatten().flatten().map(|entry| entry.path()).collect();
        built.retain(|path| path.extension().is_some_and(|ending| ending == "wasm"));
        built.sort();
        let mut homes = BTreeMap::<_, Vec<_>>::new();
        for document in documents {
            let home = document.place.file().and_then(folder);
            for (place, _) in modules_of(&document.value) {
                homes.entry(place).or_default().extend(home.clone());
            }
        }
        let homes = homes.into_iter().map(|(place, folders)| (place, distinct(folders.into_iter())));
        Self { built, folders, homes: homes.collect() }
    }

    /// The only module that the toolchain left.
    pub(crate) fn module(&self) -> Option<&PathBuf> {
        self.built.first().filter(|_| self.built.len() == 1)
    }

    /// The file of each place of which one is known: of the only module that is sought the only one that was built, else the file
    /// that has the name of the key.
    pub(crate) fn each(
        &self,
        places: &[&ModulePlace],
    ) -> Result<BTreeMap<ModulePlace, PathBuf>, AmbiguousFile> {
        let mut modules = places.iter().filter(|place| place.language.is_none());
        let only = modules.next().filter(|_| modules.next().is_none());
        let mut all = BTreeMap::new();
        for place in places {
            // What was built last goes before a copy of it.
            let built = self.module().filter(|_| only == Some(place)).cloned();
            let file = if built.is_some() { built } else { self.file(place)? };
            all.extend(file.map(|file| ((*place).clone(), file)));
        }
        Ok(all)
    }

    /// The file that has the name of the key: beside the controller, else beside any file.
    fn file(&self, place: &ModulePlace) -> Result<Option<PathBuf>, AmbiguousFile> {
        let in_folders = |folders: &[PathBuf]| {
            let files = folders.iter().map(|folder| folder.join(&place.key));
            files.filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        let near = self.homes.get(place).map(|homes| in_folders(homes)).unwrap_or_default();
        let mut found = if near.is_empty() { in_folders(&self.folders) } else { near }.into_iter();
        match (found.next(), found.next()) {
            (Some(one), Some(other)) => Err(AmbiguousFile { key: place.key.clone(), one, other }),
            (only, _) => Ok(only),
        }
    }
}

/// The module or the script of each hook: its file, or what was loaded of it.
#[derive(Debug, Clone)]
pub struct HookModules<T> {
    /// What `--module` names is also the hook's of controllers that come later.
    named: Option<T>,
    /// What no controller names.
    built: Option<T>,
    by_place: BTreeMap<ModulePlace, T>,
}

impl HookModules<HookFile> {
    /// `named`: by `--module`; else what is found for the controllers among the documents, as `metahook apply` finds it.
    pub fn of(
        named: Option<PathBuf>,
        documents: &[Document],
        found: &FoundFiles,
    ) -> Result<Self, AmbiguousFile> {
        let places: BTreeSet<_> = places(documents).map(|(place, _)| place).collect();
        if let Some(path) = named {
            let by_place: BTreeMap<_, _> =
                places.iter().map(|place| HookFile::stored_at(place, path.clone())).collect();
            let named = by_place.values().next().cloned().unwrap_or_else(|| HookFile::alone(path));
            return Ok(Self { named: Some(named), built: None, by_place });
        }
        let built = found.module().filter(|_| places.is_empty()).cloned().map(HookFile::alone);
        let each = found.each(&places.iter().collect::<Vec<_>>())?;
        let by_place = each.into_iter().map(|(place, path)| HookFile::stored_at(&place, path)).collect();
        Ok(Self { named: None, built, by_place })
    }
}

impl HookModules<HookFile> {
    /// The files that `metahook check FILE` tries: those hooks are of the file whose key has its name, or, if there is none, those
    /// of its language. The files of others are found as usual.
    pub fn checked(
        file: &HookFile,
        documents: &[Document],
        found: &FoundFiles,
    ) -> Result<Self, AmbiguousFile> {
        let places: BTreeSet<_> = places(documents).map(|(place, _)| place).collect();
        let name = name(&file.path);
        let is_named = places.iter().any(|place| place.key == name);
        let (own, others): (Vec<_>, Vec<_>) = places
            .iter()
            .partition(|place| if is_named { place.key == name } else { place.language == file.language });
        let each = found.each(&others)?.into_iter().filter(|(_, path)| *path != file.path);
        let mut by_place: BTreeMap<_, _> =
            each.map(|(place, path)| HookFile::stored_at(&place, path)).collect();
        by_place.extend(own.into_iter().map(|place| (place.clone(), file.clone())));
        Ok(Self { named: None, built: Some(file.clone()), by_place })
    }
}

/// What the controllers among the documents store their hooks in; shadows are none of them.
pub fn places(documents: &[Document]) -> impl Iterator<Item = (ModulePlace, HookName)> {
    let all = documents.iter().flat_map(|document| modules_of(&document.value));
    all.filter_map(|(place, hook)| Some((place, hook?)))
}

impl<T> HookModules<T> {
    /// The module or script that is stored at a place.
    pub fn of_place(&self, place: &ModulePlace) -> Option<&T> {
        self.by_place.get(place).or(self.named.as_ref())
    }

    /// What a hook of the controllers among the documents calls; where they name none, the only one that there is.
    pub fn of_hook(&self, documents: &[Document], hook: HookName) -> Option<&T> {
        let all: Vec<_> = places(documents).collect();
        if all.is_empty() {
            return self.alone();
        }
        let of = |wanted| all.iter().find(|(_, of)| *of == wanted).map(|(place, _)| place);
        // As the server does, sync is called where there is no finalize.
        self.of_place(of(hook).or_else(|| of(HookName::Sync))?)
    }

    /// What is tried without a controller.
    pub fn alone(&self) -> Option<&T> {
        self.named.as_ref().or(self.built.as_ref())
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.named.iter().chain(&self.built).chain(self.by_place.values())
    }

    /// The same places with something else at each.
    pub fn map<U>(&self, of: impl Fn(&T) -> Option<U>) -> HookModules<U> {
        let by_place = self.by_place.iter().filter_map(|(place, it)| Some((place.clone(), of(it)?)));
        HookModules {
            named: self.named.as_ref().and_then(&of),
            built: self.built.as_ref().and_then(&of),
            by_place: by_place.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
