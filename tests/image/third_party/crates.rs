//! The crates of a program, and the licences that their packages hold.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use binaries::paths;
use serde::Deserialize;

use super::Notices;

/// Beginnings of the names of files with a licence or a notice.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "UNLICENSE", "NOTICE", "COPYRIGHT", COPYING];

/// Beside a file `LICENSE` it is the other choice (zstd: the GPL), or says that there is one.
const COPYING: &str = "COPYING";

const APACHE: &str = "Apache-2.0";

/// Wasmtime's own packages share one text; some of them lack it, and do not name their repository.
const OF_WASMTIME: &str = "Apache-2.0 WITH LLVM-exception";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// `None`: it is ours.
    source: Option<String>,
    license: Option<String>,
    license_file: Option<PathBuf>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

/// All crates that a package links for a target, also through others, but those of this repository.
pub(super) fn add(notices: &mut Notices, package: &Path, target: &str) -> Result<()> {
    let manifest = package.join("Cargo.toml");
    let tree = cargo(&["tree", "--edges", "normal", "--prefix", "none", "--target", target], &manifest)?;
    let linked: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    let described = cargo(&["metadata", "--format-version", "1", "--filter-platform", target], &manifest)?;
    let metadata: Metadata = serde_json::from_str(&described).context("what cargo metadata prints")?;
    for package in metadata.packages.iter().filter(|package| package.source.is_some()) {
        if linked.contains(&(package.name.as_str(), package.version.as_str())) {
            package.add(notices, &metadata.packages)?;
        }
    }
    Ok(())
}

impl Package {
    fn add(&self, notices: &mut Notices, all: &[Self]) -> Result<()> {
        let part = format!("{} {}", self.name, self.version);
        let licence = self.license.as_deref().unwrap_or("see its text");
        let (mut own, inner) = self.texts()?;
        if own.is_empty() {
            own = self.shared(licence, all)?;
        }
        ensure!(
            !own.is_empty(),
            "the package of {part} holds no text of its licence ({licence}): say in {} where it is from",
            file!()
        );
        for text in own.iter().chain(&inner) {
            notices.add(&part, licence, text);
        }
        Ok(())
    }

    /// Its licence where its own package lacks it: that of another package of its repository, or that of Apache if it may be.
    fn shared(&self, licence: &str, all: &[Self]) -> Result<Vec<String>> {
        let is_sibling = |other: &&Self| {
            let repository = other.repository.as_ref().zip(self.repository.as_ref());
            // By the parts of the path: `…/wasm` is not where `…/wasm-tools` is.
            let is_of_it = repository.is_some_and(|(whole, own)| Path::new(own).starts_with(whole));
            let is_of_wasmtime = licence == OF_WASMTIME && other.name == "wasmtime";
            other.license == self.license && (is_of_it || is_of_wasmtime)
        };
        for sibling in all.iter().filter(is_sibling) {
            let (texts, _) = sibling.texts()?;
            if !texts.is_empty() {
                return Ok(texts);
            }
        }
        let apache = allows_apache(licence).then(|| read(&paths::workspace().join("LICENSE")));
        apache.into_iter().collect()
    }

    /// The texts of its own licence, and those of what it has from others in folders below.
    fn texts(&self) -> Result<(Vec<String>, Vec<String>)> {
        let folder = self.manifest_path.parent().context("a manifest lies in a folder")?;
        let mut files = files(folder)?;
        let named = self.license_file.as_ref().map(|file| folder.join(file));
        files.extend(named.clone());
        files.sort();
        files.dedup();
        let is_own = |file: &PathBuf| file.parent() == Some(folder) || Some(file) == named.as_ref();
        let (own, inner): (Vec<_>, Vec<_>) = files.into_iter().partition(is_own);
        let read_all = |files: Vec<PathBuf>| files.iter().map(|file| read(file)).collect::<Result<_>>();
        Ok((read_all(own)?, read_all(inner)?))
    }
}

/// Of a line of `cargo tree`, such as `serde v1.0.0 (proc-macro) (*)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

/// Whether an expression is the Apache licence, or lets one choose it.
fn allows_apache(licence: &str) -> bool {
    let mut choices = licence.split(" OR ").flat_map(|one| one.split('/'));
    !licence.contains(" AND ") && choices.any(|one| one.trim() == APACHE)
}

/// Licences and notices in a folder and in those below it, which code of yet others brings.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        let mut here = Vec::new();
        for entry in fs::read_dir(&next).with_context(|| format!("{} cannot be read", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if name(&path).is_some_and(|name| NAMES.iter().any(|start| name.starts_with(start))) {
                here.push(path);
            }
        }
        let begins = |path: &PathBuf, start| name(path).is_some_and(|name| name.starts_with(start));
        if here.iter().any(|path| begins(path, "LICENSE")) {
            here.retain(|path| !begins(path, COPYING));
        }
        found.append(&mut here);
    }
    Ok(found)
}

/// The name of a file that is no source, in capitals.
fn name(path: &Path) -> Option<String> {
    let is_source = path.extension().is_some_and(|extension| extension == "rs" || extension == "h");
    path.file_name().filter(|_| !is_source).map(|name| name.to_string_lossy().to_uppercase())
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What cargo prints; it downloads what is missing of what `Cargo.lock` names.
fn cargo(args: &[&str], manifest: &Path) -> Result<String> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).args(["--locked", "--manifest-path"]).arg(manifest).current_dir(paths::workspace());
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo {} failed ({})", args.join(" "), output.status);
    String::from_utf8(output.stdout).context("cargo prints no UTF-8")
}

#[cfg(test)]
mod tests {
    use binaries::architecture::Architecture;

    use super::*;

    /// A package of a folder with these files.
    fn package(files: &[&str], license: &str) -> (tempfile::TempDir, Package) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("text of {file}")).unwrap();
        }
        let package = Package {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            source: Some("registry".to_owned()),
            license: Some(license.to_owned()),
            license_file: None,
            repository: Some("https://git/x".to_owned()),
            manifest_path: folder.path().join("Cargo.toml"),
        };
        (folder, package)
    }

    #[test]
    fn texts_of_a_package_are_those_of_its_folders_without_sources_and_the_other_choice() {
        let files = ["License-MIT", "src/copying.rs", "c/COPYING", "c/LICENSE", "d/COPYING", "README.md"];
        let (_folder, package) = package(&files, "MIT");
        let (own, inner) = package.texts().unwrap();
        assert_eq!(own, ["text of License-MIT"]);
        assert_eq!(inner, ["text of c/LICENSE", "text of d/COPYING"]);
    }

    #[test]
    fn a_package_without_a_text_has_that_of_apache_if_it_may_and_else_is_named() {
        for (licence, found) in [
            ("Apache-2.0", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
            ("Apache-2.0 WITH LLVM-exception", false),
        ] {
            let (_folder, package) = package(&[], licence);
            let mut notices = Notices::default();
            let added = package.add(&mut notices, &[]);
            assert_eq!(added.is_ok(), found, "{licence}: {added:?}");
            let error = added.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(found || error.contains("x 1.0.0 holds no text of its licence"), "{error}");
        }
    }

    #[test]
    fn a_package_without_a_text_has_that_of_another_one_of_its_repository() {
        let (_of_sibling, sibling) = package(&["LICENSE"], "MIT");
        let (_of_other, mut other) = package(&["LICENSE-MIT"], "MIT");
        other.repository = Some("https://git/y".to_owned());
        let (_of_it, mut it) = package(&["c/LICENSE"], "MIT");
        it.repository = Some("https://git/x/tree/main/it".to_owned());
        let mut notices = Notices::default();
        it.add(&mut notices, &[other, sibling]).unwrap();
        let texts: Vec<&String> = notices.texts.keys().collect();
        assert_eq!(texts, ["text of LICENSE", "text of c/LICENSE"]);
    }

    #[test]
    fn another_repository_whose_name_begins_alike_has_no_licence_for_it() {
        let (_of_other, mut other) = package(&["LICENSE"], "MIT");
        other.repository = Some("https://git/x-tools".to_owned());
        let (_of_it, mut it) = package(&[], "MIT");
        for (own, found) in [("https://git/x-tools/tree/main/it", true), ("https://git/x-tools-2", false)] {
            it.repository = Some(own.to_owned());
            let added = it.add(&mut Notices::default(), std::slice::from_ref(&other));
            assert_eq!(added.is_ok(), found, "{own}");
        }
    }

    #[test]
    fn each_crate_of_the_server_has_a_text() {
        let mut notices = Notices::default();
        let target = Architecture::of_host().unwrap().target();
        add(&mut notices, &paths::workspace().join("runtime/cli"), &target).unwrap();
        for name in ["kube", "pulley-interpreter", "ring", "wasmtime", "zstd-sys"] {
            let is_it = |part: &String| part.split(' ').next() == Some(name);
            assert!(notices.parts.keys().any(is_it), "{name}");
            assert!(notices.texts.values().flatten().any(is_it), "{name}");
        }
        assert!(!notices.parts.keys().any(|part| part.starts_with("metahook")));
        assert!(!notices.print().contains("GNU GENERAL PUBLIC LICENSE"));
    }
}
