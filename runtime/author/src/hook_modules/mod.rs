//! Files of a controller's hooks: what the toolchain left, and the scripts that lie beside the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use metahook_core::api::hook::{HookName, Language};
use metahook_core::bundle::{ModulePlace, modules_of};

use crate::build_command::build_command;
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

    /// A file that an author gives the hooks: where these are of one kind it is of that, whatever its name.
    pub fn given(path: PathBuf, documents: &[Document]) -> Self {
        match &*kinds(documents) {
            [only] => Self { path, language: *only },
            _ => Self::named(path, documents),
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
    "a hook's key is {key}, and {} and {} have this name: remove one of them, or put the right one beside the controller's file",
    one.display(),
    other.display()
)]
pub struct AmbiguousFile {
    key: String,
    one: PathBuf,
    other: PathBuf,
}

/// Why the hooks have no files.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookFileError {
    #[error(transparent)]
    Ambiguous(#[from] AmbiguousFile),
    #[error("{}: no hook of the controller is of this file: their keys are {keys}", file.display())]
    NoHook { file: PathBuf, keys: String },
}

impl HookFileError {
    pub fn no_hook(file: &Path, documents: &[Document]) -> Self {
        let keys: BTreeSet<_> = places(documents).map(|(place, _)| place.key).collect();
        let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
        Self::NoHook { file: file.to_owned(), keys }
    }
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
    /// The file that `--module` names. Controllers that come later use it, too.
    named: Option<T>,
    /// The file that no controller names.
    built: Option<T>,
    by_place: BTreeMap<ModulePlace, T>,
    /// Places of other hooks than the named file's for which no file is found.
    missing: BTreeSet<ModulePlace>,
    /// The command that builds a module which is not there.
    pub(crate) build: &'static str,
}

impl HookModules<HookFile> {
    /// `named`: by `--module`, for the hooks that it is the file of; those of others are what is found for the controllers among
    /// the documents, as `metahook apply` finds it.
    pub fn of(
        named: Option<PathBuf>,
        documents: &[Document],
        found: &FoundFiles,
    ) -> Result<Self, HookFileError> {
        let Some(path) = named else { return Ok(Self::found(documents, found)?) };
        let file = HookFile::given(path, documents);
        let this = Self::with(&file, documents, found)?;
        let is_used = places(documents).next().is_none() || this.by_place.values().any(|it| *it == file);
        if !is_used {
            return Err(HookFileError::no_hook(&file.path, documents));
        }
        Ok(Self { named: Some(file), ..this })
    }

    fn found(documents: &[Document], found: &FoundFiles) -> Result<Self, AmbiguousFile> {
        let places: BTreeSet<_> = places(documents).map(|(place, _)| place).collect();
        let built = found.module().filter(|_| places.is_empty()).cloned().map(HookFile::alone);
        let each = found.each(&places.iter().collect::<Vec<_>>())?;
        let by_place = each.into_iter().map(|(place, path)| HookFile::stored_at(&place, path)).collect();
        let missing = BTreeSet::new();
        Ok(Self { named: None, built, by_place, missing, build: build_command(&found.folders) })
    }

    /// The files that `metahook check FILE` tries. The file counts for those hooks alone that it is the file of.
    pub fn checked(
        file: &HookFile,
        documents: &[Document],
        found: &FoundFiles,
    ) -> Result<Self, AmbiguousFile> {
        Ok(Self { built: Some(file.clone()), ..Self::with(file, documents, found)? })
    }

    /// A file is that of the hooks whose key has its name, or, if there is none, of those of its language. The files of others
    /// are found as usual.
    fn with(file: &HookFile, documents: &[Document], found: &FoundFiles) -> Result<Self, AmbiguousFile> {
        let places: BTreeSet<_> = places(documents).map(|(place, _)| place).collect();
        let name = name(&file.path);
        let is_of_kind = |place: &&ModulePlace| place.language == file.language;
        let is_named = places.iter().filter(is_of_kind).any(|place| place.key == name);
        let is_own = |place: &&ModulePlace| is_of_kind(place) && (!is_named || place.key == name);
        let (own, others): (Vec<_>, Vec<_>) = places.iter().partition(is_own);
        let each = found.each(&others)?.into_iter().filter(|(_, path)| *path != file.path);
        let mut by_place: BTreeMap<_, _> =
            each.map(|(place, path)| HookFile::stored_at(&place, path)).collect();
        let missing = others.into_iter().filter(|place| !by_place.contains_key(place)).cloned().collect();
        by_place.extend(own.into_iter().map(|place| (place.clone(), file.clone())));
        Ok(Self { named: None, built: None, by_place, missing, build: build_command(&found.folders) })
    }
}

/// The kinds of the hooks of the controllers among the documents: modules, or the language of scripts.
pub fn kinds(documents: &[Document]) -> Vec<Option<Language>> {
    let kinds: BTreeSet<_> = places(documents).map(|(place, _)| place.language).collect();
    kinds.into_iter().collect()
}

/// Places where the controllers among the documents store their hooks; shadows are none of them.
pub fn places(documents: &[Document]) -> impl Iterator<Item = (ModulePlace, HookName)> {
    let all = documents.iter().flat_map(|document| modules_of(&document.value));
    all.filter_map(|(place, hook)| Some((place, hook?)))
}

impl<T> HookModules<T> {
    /// The module or script that is stored at a place.
    pub fn of_place(&self, place: &ModulePlace) -> Option<&T> {
        let named = self.named.as_ref().filter(|_| !self.missing.contains(place));
        self.by_place.get(place).or(named)
    }

    /// The module or script that a hook of the controllers among the documents calls; where they name none, the only one that there is.
    pub fn of_hook(&self, documents: &[Document], hook: HookName) -> Option<&T> {
        let all: Vec<_> = places(documents).collect();
        if all.is_empty() {
            return self.alone();
        }
        let of = |wanted| all.iter().find(|(_, of)| *of == wanted).map(|(place, _)| place);
        // As the server does, sync is called where there is no finalize.
        self.of_place(of(hook).or_else(|| of(HookName::Sync))?)
    }

    /// The places of the controllers among the documents of which nothing is known yet.
    pub fn unknown(&self, documents: &[Document]) -> BTreeSet<ModulePlace> {
        places(documents).map(|(place, _)| place).filter(|place| self.of_place(place).is_none()).collect()
    }

    pub fn add(&mut self, place: ModulePlace, it: T) {
        self.missing.remove(&place);
        self.by_place.insert(place, it);
    }

    /// A file that is tried without a controller.
    pub fn alone(&self) -> Option<&T> {
        self.named.as_ref().or(self.built.as_ref())
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.named.iter().chain(&self.built).chain(self.by_place.values())
    }

    /// Copy of the places, with another value at each.
    pub fn map<U>(&self, of: impl Fn(&T) -> Option<U>) -> HookModules<U> {
        let by_place = self.by_place.iter().filter_map(|(place, it)| Some((place.clone(), of(it)?)));
        HookModules {
            named: self.named.as_ref().and_then(&of),
            built: self.built.as_ref().and_then(&of),
            by_place: by_place.collect(),
            missing: self.missing.clone(),
            build: self.build,
        }
    }
}

#[cfg(test)]
mod tests;
