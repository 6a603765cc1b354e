//! `THIRD-PARTY.txt`: what others wrote of the server and of the interpreters of scripts, and the texts of its licences.

mod crates;
mod standard_library;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use binaries::architecture::Architecture;
use binaries::paths;

/// The file's name wherever it lies.
pub const THIRD_PARTY: &str = "THIRD-PARTY.txt";

/// Where Debian has the licences of its packages, and those that many packages share.
const PACKAGES: &str = "/usr/share/doc";
const COMMON: &str = "/usr/share/common-licenses";

/// Of `python.wasm`: files of its folder `licenses`, and what each is for.
const PYTHON: [(&str, &str, &str); 6] = [
    ("componentize-py.txt", "componentize-py 0.25.1", "Apache-2.0 WITH LLVM-exception"),
    ("cpython.txt", "CPython 3.14", "PSF-2.0"),
    ("expat.txt", "Expat (in CPython)", "MIT"),
    ("libmpdec.txt", "libmpdec (in CPython)", "BSD-2-Clause"),
    ("pyyaml.txt", "PyYAML 6.0.3", "MIT"),
    ("zlib.txt", "zlib 1.3.1 (in CPython)", "Zlib"),
];

const HEAD: &str = "The server, and the interpreters of scripts beside it, hold software of others. This file lists it, and has the texts of its
licences. Where a licence is a choice (OR), the texts of all choices are here. LICENSE is the licence of metahook itself.

glibc is linked statically, under the LGPL 2.1: who wants to use another glibc builds metahook, whose source is published,
with it.
";

/// Parts with their licences, and each text once with the parts that it is for.
#[derive(Debug, Default)]
struct Notices {
    parts: BTreeMap<String, String>,
    texts: BTreeMap<String, BTreeSet<String>>,
}

/// The content of the file for servers of these architectures, with the interpreters of these languages.
///
/// # Errors
/// The text of a licence is found nowhere on this machine.
pub fn third_party(architectures: &[Architecture], languages: &[&str]) -> Result<String> {
    let mut notices = Notices::default();
    let workspace = paths::workspace();
    for architecture in architectures {
        crates::add(&mut notices, &workspace.join("runtime/cli"), &architecture.target())?;
    }
    standard_library::add(&mut notices)?;
    debian(&mut notices, "glibc", "libc6", "LGPL-2.1-or-later")?;
    for language in languages {
        let source = workspace.join("runtime/runners").join(language);
        match *language {
            "javascript" => {
                crates::add(&mut notices, &source, "wasm32-wasip1")?;
                notices.parts.insert("QuickJS (in rquickjs-sys)".to_owned(), "MIT".to_owned());
            }
            _ => python(&mut notices, &source.join("licenses"))?,
        }
        debian(&mut notices, "wasi-libc", "wasi-libc", "Apache-2.0 WITH LLVM-exception AND MIT")?;
    }
    Ok(notices.print())
}

/// What a package of Debian says, with the texts that it refers to.
fn debian(notices: &mut Notices, part: &str, package: &str, licence: &str) -> Result<()> {
    let path = Path::new(PACKAGES).join(package).join("copyright");
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "no licence of {part}: {} cannot be read, which Debian's package {package} has",
            path.display()
        )
    })?;
    for (at, _) in text.match_indices(COMMON) {
        let name = text.get(at + COMMON.len() + 1..).unwrap_or_default();
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c)).unwrap_or(name.len());
        let name = name.get(..end).unwrap_or_default().trim_end_matches('.');
        let common = Path::new(COMMON).join(name);
        let content = fs::read_to_string(&common)
            .with_context(|| format!("no licence of {part}: {} cannot be read", common.display()))?;
        notices.text(part, &content);
    }
    notices.add(part, licence, &text);
    Ok(())
}

/// Texts that the repository keeps, since the packages that the interpreter is built from lack some.
fn python(notices: &mut Notices, folder: &Path) -> Result<()> {
    for (file, part, licence) in PYTHON {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        notices.add(part, licence, &text);
    }
    notices.parts.insert("SQLite (in CPython)".to_owned(), "public domain".to_owned());
    Ok(())
}

impl Notices {
    fn add(&mut self, part: &str, licence: &str, text: &str) {
        self.parts.insert(part.to_owned(), licence.to_owned());
        self.text(part, text);
    }

    fn text(&mut self, part: &str, text: &str) {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let text = lines.join("\n").trim_matches('\n').to_owned();
        self.texts.entry(text).or_default().insert(part.to_owned());
    }

    /// Parts by their names, then texts by the names of their parts.
    fn print(&self) -> String {
        let head = format!("Third-party software in metahook {}\n\n{HEAD}\n", env!("CARGO_PKG_VERSION"));
        let parts = self.parts.iter().map(|(part, licence)| format!("- {part}: {licence}\n"));
        let mut texts: Vec<(Vec<&str>, &String)> = self
            .texts
            .iter()
            .map(|(text, parts)| (parts.iter().map(String::as_str).collect(), text))
            .collect();
        texts.sort();
        let line = "=".repeat(100);
        let texts = texts.iter().map(|(parts, text)| format!("\n{line}\n{}:\n\n{text}\n", parts.join(", ")));
        [head].into_iter().chain(parts).chain(texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_there_once_with_all_its_parts_whatever_the_order() {
        let mut one = Notices::default();
        one.add("b 1", "MIT", "Permission\r\n");
        one.add("a 1", "MIT", "\nPermission");
        one.add("c 1", "Zlib", "as-is");
        let mut other = Notices::default();
        other.add("c 1", "Zlib", "as-is");
        other.add("a 1", "MIT", "Permission");
        other.add("b 1", "MIT", "Permission");
        let text = one.print();
        assert_eq!(text, other.print());
        assert_eq!(text.matches("Permission").count(), 1, "{text}");
        assert!(text.contains("\n- a 1: MIT\n- b 1: MIT\n- c 1: Zlib\n"), "{text}");
        assert!(text.contains("=\na 1, b 1:\n\nPermission\n"), "{text}");
    }

    #[test]
    fn a_package_that_is_not_installed_is_named() {
        let error = debian(&mut Notices::default(), "libx", "no-such-package", "MIT").unwrap_err();
        assert!(format!("{error:#}").contains("no licence of libx"), "{error:#}");
        assert!(format!("{error:#}").contains("Debian's package no-such-package"), "{error:#}");
    }

    #[test]
    fn each_package_of_python_is_named_with_its_version_and_each_text_is_used() {
        let source = paths::workspace().join("runtime/runners/python");
        let mut notices = Notices::default();
        python(&mut notices, &source.join("licenses")).unwrap();
        let files = fs::read_dir(source.join("licenses")).unwrap().count();
        assert_eq!(notices.texts.len(), files);
        let pinned = fs::read_to_string(source.join("requirements.txt")).unwrap();
        for line in pinned.lines().filter(|line| !line.starts_with('#')) {
            let package = line.split_whitespace().next().unwrap().replace("==", " ");
            let is_it = |part: &String| part.to_lowercase() == package;
            assert!(notices.parts.keys().any(is_it), "{package}: {:?}", notices.parts);
        }
    }
}
