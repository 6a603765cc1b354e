//! Scaffold of a hook: the files of a folder that builds by itself, in Rust with the SDK's source beside it.

mod files;
mod languages;
mod sdk;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use languages::Toolkit;

/// Bytes of a name: it becomes that of a crate, a controller and a kind.
const MAX_NAME: usize = 40;

/// The hook that the scaffold begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Template {
    /// A `CompositeController` with a sync hook.
    Composite,
    /// A `DecoratorController`.
    Decorator,
    /// A `CompositeController` whose customize hook asks for related objects.
    Customize,
    /// A `CompositeController` that cleans up before its parent goes.
    Finalize,
}

/// The language of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    /// A module, by `cargo build --target wasm32-wasip1`.
    Rust,
    /// A component in Rust, by `cargo build --target wasm32-wasip2`.
    Component,
    /// A module, by `GOOS=wasip1 GOARCH=wasm go build`.
    Go,
    /// A module, by `make` with clang and wasi-libc.
    C,
    /// A script, with types for editors.
    Python,
    /// A script, with types for editors.
    #[value(name = "javascript", alias = "js")]
    JavaScript,
}

/// A name that a crate, a controller and a kind can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    #[error("{} is there already: choose another name, or remove it", path.display())]
    Exists { path: PathBuf },
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// A new hook's folder.
pub struct Scaffold {
    /// The files, by their path.
    pub files: Vec<(String, String)>,
    /// The command that builds the hook; a script has none.
    pub build: Option<&'static str>,
}

impl Scaffold {
    pub fn new(name: &Name, template: Template, language: Language) -> Self {
        let toolkit = Toolkit::of(language, template, name);
        Self { build: toolkit.build, files: files::files(name, template, language, toolkit) }
    }
}

impl Name {
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
        if text.len() > MAX_NAME || !begins || text.ends_with('-') || !text.chars().all(is_part) {
            return Err(format!(
                "write a name of at most {MAX_NAME} lower case letters, digits and dashes that begins with a letter"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// `my-hook` as `MyHook`.
    fn kind(&self) -> String {
        let words = self.0.split('-').filter_map(|word| Some((word.get(..1)?, word.get(1..)?)));
        words.map(|(first, rest)| first.to_uppercase() + rest).collect::<Vec<_>>().concat()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes the files to a new folder.
pub fn write(folder: &Path, files: &[(String, String)]) -> Result<(), ScaffoldError> {
    if folder.symlink_metadata().is_ok() {
        return Err(ScaffoldError::Exists { path: folder.to_owned() });
    }
    for (name, content) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, content));
        written.map_err(|source| ScaffoldError::Write { path: path.clone(), source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_that_of_a_kind() {
        assert_eq!(Name::parse("my-1st-hook").unwrap().kind(), "My1stHook");
        assert!(Name::parse(&"a".repeat(MAX_NAME)).is_ok());
        for wrong in ["", "A", "1a", "-a", "a-", "a_b", "a/b", "..", "ü", &"a".repeat(MAX_NAME + 1)] {
            assert!(Name::parse(wrong).is_err(), "{wrong}");
        }
    }
}
