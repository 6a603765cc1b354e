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
}

impl FoundFiles {
    /// Beside these files, and in these folders.
    pub fn beside(files: &[PathBuf]) -> Self {
        let folder = |file: &PathBuf| {
            let folder = if file.is_dir() { Some(file.as_path()) } else { file.parent() };
            folder.map(|it| if it.as_os_str().is_empty() { Path::new(".") } else { it }.to_owned())
        };
        // One folder may be written in several ways.
        let resolved = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_absent| folder.clone());
        let mut seen = BTreeSet::new();
        let folders: Vec<_> =
            files.iter().filter_map(folder).filter(|folder| seen.insert(resolved(folder))).collect();
        let targets = folders.iter().flat_map(|folder| BUILT.map(|built| folder.join(built)));
        let entries = targets.filter_map(|folder| std::fs::read_dir(folder).ok());
        let mut built: Vec<_> = entries.flatten().flatten().map(|entry| entry.path()).collect();
        built.retain(|path| path.extension().is_some_and(|ending| ending == "wasm"));
        built.sort();
        Self { built, folders }
    }

    /// The only module that the toolchain left.
    pub(crate) fn module(&self) -> Option<&PathBuf> {
        self.built.first().filter(|_| self.built.len() == 1)
    }

    /// The file of each place of which one is known: of the only module that is sought the only one that was built, else the file
    /// that has the name of the key.
    pub(crate) fn each(&self, places: &[&ModulePlace]) -> BTreeMap<ModulePlace, PathBuf> {
        let mut modules = places.iter().filter(|place| place.language.is_none());
        let only = modules.next().filter(|_| modules.next().is_none());
        let built = only.and_then(|place| Some(((**place).clone(), self.module()?.clone())));
        let beside = places.iter().filter_map(|place| Some(((*place).clone(), self.file(&place.key)?)));
        // What was built last goes before a copy of it.
        beside.chain(built).collect()
    }

    /// The only file that has the name of the key.
    fn file(&self, key: &str) -> Option<PathBuf> {
        let mut files = self.folders.iter().map(|folder| folder.join(key)).filter(|path| path.is_file());
        files.next().filter(|_| files.next().is_none())
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
    pub fn of(named: Option<PathBuf>, documents: &[Document], found: &FoundFiles) -> Self {
        let places: BTreeSet<_> = places(documents).map(|(place, _)| place).collect();
        if let Some(path) = named {
            let by_place: BTreeMap<_, _> =
                places.iter().map(|place| HookFile::stored_at(place, path.clone())).collect();
            let named = by_place.values().next().cloned().unwrap_or_else(|| HookFile::alone(path));
            return Self { named: Some(named), built: None, by_place };
        }
        let built = found.module().filter(|_| places.is_empty()).cloned().map(HookFile::alone);
        let each = found.each(&places.iter().collect::<Vec<_>>());
        let by_place = each.into_iter().map(|(place, path)| HookFile::stored_at(&place, path)).collect();
        Self { named: None, built, by_place }
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
            return self.named.as_ref().or(self.built.as_ref());
        }
        let of = |wanted| all.iter().find(|(_, of)| *of == wanted).map(|(place, _)| place);
        // As the server does, sync is called where there is no finalize.
        self.of_place(of(hook).or_else(|| of(HookName::Sync))?)
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::documents::of_text;

    fn controller(hooks: &serde_json::Value) -> Vec<Document> {
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": { "name": "c" }, "spec": { "hooks": hooks },
        });
        of_text("c.yaml", &controller.to_string()).unwrap()
    }

    fn script(name: &str, key: &str) -> serde_json::Value {
        json!({ "script": { "language": "python", "configMap": { "namespace": "n", "name": name, "key": key } } })
    }

    fn python(path: PathBuf) -> HookFile {
        HookFile { path, language: Some(Language::Python) }
    }

    #[test]
    fn the_spec_decides_whether_a_file_is_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["sync", "customize.py"] {
            std::fs::write(path(name), "").unwrap();
        }
        let module = json!({ "configMap": { "namespace": "n", "name": "m", "key": "customize.py" } });
        let hooks = json!({ "sync": script("s", "sync"), "customize": { "wasm": module } });
        let documents = controller(&hooks);
        let found = FoundFiles::beside(&[path("c.yaml")]);
        let modules = HookModules::of(None, &documents, &found);
        assert_eq!(modules.of_hook(&documents, HookName::Sync), Some(&python(path("sync"))));
        let module = HookFile { path: path("customize.py"), language: None };
        assert_eq!(modules.of_hook(&documents, HookName::Customize), Some(&module));
        let named = HookModules::of(Some("other".into()), &documents, &found);
        assert_eq!(named.of_hook(&documents, HookName::Sync), Some(&python("other".into())));
        let later = modules_of(&controller(&json!({ "sync": script("later", "sync") }))[0].value);
        assert_eq!(named.of_place(&later[0].0).unwrap().path, PathBuf::from("other"));
        let language = |name: &str, documents: &[Document]| HookFile::named(name.into(), documents).language;
        assert_eq!(language("x/sync", &documents), Some(Language::Python));
        assert_eq!((language("sync", &[]), language("x.py", &documents)), (None, Some(Language::Python)));
    }

    #[test]
    fn builds_are_found_beside_files_and_in_folders() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join(BUILT[1]);
        std::fs::create_dir_all(&target).unwrap();
        for file in ["b.wasm", "a.wasm", "a.d"] {
            std::fs::write(target.join(file), "").unwrap();
        }
        let found = FoundFiles::beside(&[folder.path().to_owned(), folder.path().join("controller.yaml")]);
        assert_eq!(found.built, [target.join("a.wasm"), target.join("b.wasm")]);
        assert!(FoundFiles::beside(&["nowhere/x.yaml".into()]).built.is_empty());
    }

    #[test]
    fn each_hook_has_the_file_of_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let beside = || FoundFiles::beside(&[path("c.yaml"), folder.path().join("sub/..")]);
        for name in ["a.py", "b.py", "c.py"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("sub")).unwrap();
        let documents = controller(&json!({ "sync": script("a", "a.py"), "customize": script("b", "b.py") }));
        let modules = HookModules::of(None, &documents, &beside());
        assert_eq!(
            modules.of_hook(&documents, HookName::Sync),
            Some(&python(path("a.py"))),
            "the folder counts once"
        );
        assert_eq!(modules.of_hook(&documents, HookName::Customize), Some(&python(path("b.py"))));
        assert_eq!(modules.of_hook(&documents, HookName::Finalize), Some(&python(path("a.py"))), "as sync");
        assert_eq!(modules.of_hook(&[], HookName::Sync), None, "no controller names it");
        let missing =
            controller(&json!({ "sync": script("a", "a.py"), "customize": script("b", "none.py") }));
        let modules = HookModules::of(None, &missing, &beside());
        assert_eq!(modules.of_hook(&missing, HookName::Customize), None, "sync's file is another hook's");
        let named = HookModules::of(Some(path("c.py")), &documents, &beside());
        assert_eq!(named.of_hook(&documents, HookName::Customize), Some(&python(path("c.py"))));
        let wasm =
            controller(&json!({ "sync": { "wasm": { "configMap": { "namespace": "n", "name": "m" } } } }));
        std::fs::create_dir_all(path(BUILT[0])).unwrap();
        std::fs::write(path(BUILT[0]).join("hook.wasm"), "").unwrap();
        let built = HookModules::of(None, &wasm, &beside());
        assert_eq!(
            built.of_hook(&wasm, HookName::Sync),
            Some(&HookFile::alone(path(BUILT[0]).join("hook.wasm")))
        );
        let other = json!({ "wasm": { "configMap": { "namespace": "n", "name": "o" } } });
        let sync = json!({ "wasm": { "configMap": { "namespace": "n", "name": "m" } } });
        let two = controller(&json!({ "sync": sync, "customize": other }));
        let modules = HookModules::of(None, &two, &beside());
        assert_eq!(modules.of_hook(&two, HookName::Sync), None, "either could be the one that was built");
        let modules = HookModules::of(None, &[], &beside());
        assert_eq!(
            modules.of_hook(&[], HookName::Sync),
            Some(&HookFile::alone(path(BUILT[0]).join("hook.wasm")))
        );
        let mixed = HookModules::of(None, &controller(&json!({ "sync": script("d", "d.py") })), &beside());
        let absent = controller(&json!({ "sync": script("d", "d.py") }));
        assert_eq!(mixed.of_place(&modules_of(&absent[0].value)[0].0), None, "a module is no script");
    }
}
