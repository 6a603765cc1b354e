//! Modules and scripts of a bundle: which file is which controller's, as flags say, as the toolchain left it, or by its name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use metahook_core::bundle::ModulePlace;

use crate::hook_modules::{AmbiguousFile, FoundFiles};

/// `--module NAME=PATH`, or a path alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFlag {
    pub name: Option<String>,
    pub path: PathBuf,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModulesError {
    #[error(
        "--module {name}: no controller of the files names a ConfigMap {name} that is not among them; it could be {could}"
    )]
    Unknown { name: String, could: String },
    #[error("--module {}: say which module it is, as NAME=PATH: it could be {could}", path.display())]
    Ambiguous { path: PathBuf, could: String },
    #[error("--module {name} comes twice: give it once")]
    Twice { name: String },
    #[error(
        "the controllers name two keys of the ConfigMap {map}, {one:?} and {other:?}, and a module is written into a ConfigMap of its own: name two ConfigMaps, or write that one with `metahook pack`"
    )]
    TwoKeys { map: String, one: String, other: String },
    #[error("{0}, or name it with --module NAME=PATH")]
    File(AmbiguousFile),
}

impl ModuleFlag {
    /// A file whose name has a `=` is given as `./PATH`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.starts_with('.') && !name.starts_with('/') => {
                (Some(name.to_owned()), path)
            }
            _ => (None, text),
        };
        if path.is_empty() || name.as_deref() == Some("") {
            return Err("write NAME=PATH, for example hook=target/wasm32-wasip1/release/demo.wasm".to_owned());
        }
        Ok(Self { name, path: path.into() })
    }
}

fn named(place: &ModulePlace) -> String {
    format!("{}/{}", place.namespace, place.name)
}

fn could(places: &[&ModulePlace]) -> String {
    let all: Vec<_> = places.iter().map(|place| named(place)).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" or ") }
}

/// The file of each module and script; none for those that nothing is known of.
pub fn assign(
    places: &[&ModulePlace],
    flags: &[ModuleFlag],
    found: &FoundFiles,
) -> Result<BTreeMap<ModulePlace, PathBuf>, ModulesError> {
    let mut all = BTreeMap::new();
    for ModuleFlag { name, path } in flags {
        let is_meant = |place: &&&ModulePlace| {
            name.as_ref().is_none_or(|name| *name == place.name || *name == named(place))
        };
        let meant: Vec<_> = places.iter().filter(is_meant).copied().collect();
        let place = match (&*meant, name) {
            ([one], _) => *one,
            ([], _) => {
                let name = name.clone().unwrap_or_else(|| path.display().to_string());
                return Err(ModulesError::Unknown { name, could: could(places) });
            }
            ([one, other, ..], _) if named(one) == named(other) => {
                let (map, one, other) = (named(one), one.key.clone(), other.key.clone());
                return Err(ModulesError::TwoKeys { map, one, other });
            }
            (several, _) => {
                return Err(ModulesError::Ambiguous { path: path.clone(), could: could(several) });
            }
        };
        if all.insert(place.clone(), path.clone()).is_some() {
            return Err(ModulesError::Twice { name: named(place) });
        }
    }
    let left: Vec<_> = places.iter().copied().filter(|place| !all.contains_key(*place)).collect();
    all.extend(found.each(&left).map_err(ModulesError::File)?);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: &str, name: &str) -> ModulePlace {
        let key = "hook.wasm".to_owned();
        ModulePlace { namespace: namespace.to_owned(), name: name.to_owned(), key, language: None }
    }

    #[test]
    fn flags_name_modules_and_the_only_build_is_the_only_module() {
        let (a, b, other) = (place("n", "a"), place("n", "b"), place("m", "b"));
        let of = |places: &[&ModulePlace], flags: &[&str], built: &[&str]| {
            let flags: Vec<_> = flags.iter().map(|flag| ModuleFlag::parse(flag).unwrap()).collect();
            let built: Vec<_> = built.iter().map(PathBuf::from).collect();
            let found = assign(places, &flags, &FoundFiles { built, ..FoundFiles::default() })?;
            let shown = found.iter().map(|(place, path)| format!("{}={}", named(place), path.display()));
            Ok::<_, ModulesError>(shown.collect::<Vec<_>>().join(" "))
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(of(&[&a], &[], &["x.wasm"]), ok("n/a=x.wasm"));
        assert_eq!(of(&[&a], &[], &["x.wasm", "y.wasm"]), ok(""), "either could be it");
        assert_eq!(of(&[&a, &b], &[], &["x.wasm"]), ok(""));
        assert_eq!(of(&[&a, &b], &["a=y.wasm"], &["x.wasm"]), ok("n/a=y.wasm n/b=x.wasm"));
        assert_eq!(of(&[&a], &["y.wasm"], &["x.wasm"]), ok("n/a=y.wasm"));
        assert_eq!(of(&[&b, &other], &["m/b=y.wasm"], &[]), ok("m/b=y.wasm"));
        let error = |places: &[&ModulePlace], flags: &[&str]| of(places, flags, &[]).unwrap_err().to_string();
        assert!(error(&[&b, &other], &["b=y.wasm"]).ends_with("it could be n/b or m/b"));
        assert!(error(&[&a, &b], &["y.wasm"]).contains("as NAME=PATH: it could be n/a or n/b"));
        assert!(error(&[&a], &["c=y.wasm"]).contains("names a ConfigMap c that is not among them"));
        assert!(error(&[], &["y.wasm"]).ends_with("it could be none"));
        let keyed = ModulePlace { key: "k".to_owned(), ..a.clone() };
        assert!(
            error(&[&a, &keyed], &["a=x"]).contains("two keys of the ConfigMap n/a, \"hook.wasm\" and \"k\"")
        );
        assert_eq!(error(&[&a], &["a=x", "n/a=y"]), "--module n/a comes twice: give it once");
    }

    #[test]
    fn a_flag_is_a_name_and_a_path_or_a_path() {
        let parse = |text: &str| ModuleFlag::parse(text).map(|flag| (flag.name, flag.path));
        assert_eq!(parse("a=b.wasm"), Ok((Some("a".to_owned()), "b.wasm".into())));
        assert_eq!(parse("n/a=./b=c"), Ok((Some("n/a".to_owned()), "./b=c".into())));
        assert_eq!(parse("./b=c"), Ok((None, "./b=c".into())));
        for wrong in ["", "a=", "=b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_is_the_file_of_its_keys_name() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let script = ModulePlace {
            key: "sync.py".to_owned(),
            language: Some(metahook_core::api::hook::Language::Python),
            ..place("n", "a")
        };
        let folders = [one.path().to_owned(), other.path().to_owned()];
        let of = |flags: &[ModuleFlag]| assign(&[&script], flags, &FoundFiles::beside(&folders, &[]));
        assert!(of(&[]).unwrap().is_empty(), "there is no such file");
        std::fs::write(one.path().join("sync.py"), "").unwrap();
        assert_eq!(of(&[]), Ok([(script.clone(), one.path().join("sync.py"))].into()));
        std::fs::write(other.path().join("sync.py"), "").unwrap();
        let error = of(&[]).unwrap_err().to_string();
        assert!(
            error.ends_with("beside the controller's file, or name it with --module NAME=PATH"),
            "{error}"
        );
        let flag = ModuleFlag::parse("a=./x.py").unwrap();
        assert_eq!(of(&[flag]), Ok([(script.clone(), "./x.py".into())].into()));
    }
}
