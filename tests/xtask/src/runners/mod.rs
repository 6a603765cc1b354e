//! `cargo xtask runners`: builds the interpreters of scripts into the folder `runners` of the target folder, where the server of
//! this build finds them, and has it compile them. They are kept in the cache by what they are made of.

pub(crate) mod javascript;
mod python;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use binaries::{go, paths};
use clap::{Args, ValueEnum};

use crate::{cargo, children};

#[derive(Args)]
pub(crate) struct Options {
    /// Only this one
    #[arg(value_enum)]
    language: Option<Language>,
    /// Leaves out what cannot be built here, and says why
    #[arg(long)]
    if_possible: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Python,
    #[value(name = "javascript")]
    JavaScript,
}

const ALL: [Language; 2] = [Language::Python, Language::JavaScript];

impl Language {
    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = ALL.into_iter().filter(|language| options.language.is_none_or(|only| only == *language));
    build(chosen, options.if_possible)?;
    cargo::run(&mut cargo::cargo(&["build", "--package", "metahook"]))?;
    compile(cargo::program("metahook")?, &paths::runners()?)
}

pub(crate) fn build_one(language: Language) -> Result<()> {
    build([language].into_iter(), false)
}

/// Builds all; what cannot be built here is an error.
pub(crate) fn build_all() -> Result<()> {
    build(ALL.into_iter(), false)
}

/// Builds all that can be built here, and says of the others why not.
pub(crate) fn build_what_can_be() -> Result<()> {
    build(ALL.into_iter(), true)
}

fn build(languages: impl Iterator<Item = Language>, if_possible: bool) -> Result<()> {
    for language in languages {
        let missing = match language {
            Language::Python => python::missing(),
            Language::JavaScript => javascript::missing(),
        };
        let name = language.name();
        match missing {
            Some(why) if if_possible => eprintln!("no runner for {name}, and its tests are skipped: {why}"),
            Some(why) => bail!("the runner for {name} cannot be built: {why}"),
            None => place(language).with_context(|| format!("the runner for {name}"))?,
        }
    }
    Ok(())
}

/// Has the server compile the runners that the folder has: their first scripts then wait for no compiler.
pub(crate) fn compile(mut server: Command, folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let status = children::wait(server.arg("compile-runners").arg("--runners").arg(folder))?;
    ensure!(status.success(), "the server cannot compile the runners ({status})");
    Ok(())
}

/// Builds one where the cache has it not, and copies it into the target folder.
fn place(language: Language) -> Result<()> {
    let name = language.name();
    let file = kept(language)?;
    if !file.is_file() {
        eprintln!("building the runner for {name}");
        let cached = file.parent().context("the cache is a folder")?;
        let work = cached.with_extension("new");
        let built = make(language, &work)?;
        fs::create_dir_all(cached)?;
        fs::rename(built, &file)?;
        fs::remove_dir_all(&work)?;
    }
    let folder = paths::runners()?;
    make_folder(&folder)?;
    let placed = folder.join(format!("{name}.wasm"));
    // Anew: what reads the old one keeps it, and so does a copy of the target folder that is made of hard links.
    let new = placed.with_extension("new");
    let size = fs::copy(&file, &new).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, &placed).with_context(|| format!("cannot write {}", placed.display()))?;
    eprintln!("{name}.wasm  {size} bytes  {}", placed.display());
    Ok(())
}

/// Where the cache keeps one, by what it is made of.
fn kept(language: Language) -> Result<PathBuf> {
    let name = language.name();
    let compilers = match language {
        Language::Python => Vec::new(), // its parts are pinned, and compiled
        Language::JavaScript => javascript::compilers()?,
    };
    let made_of = go::fingerprint_with(&sources(language), &compilers)?;
    Ok(go::cache_folder()?.join(format!("runner-{name}-{made_of}")).join(format!("{name}.wasm")))
}

/// Builds one in a folder that is made anew.
fn make(language: Language, work: &Path) -> Result<PathBuf> {
    if work.is_dir() {
        fs::remove_dir_all(work)?;
    }
    fs::create_dir_all(work).with_context(|| format!("cannot make {}", work.display()))?;
    match language {
        Language::Python => python::build(work)?,
        Language::JavaScript => javascript::build(work)?,
    }
    let built = work.join(format!("{}.wasm", language.name()));
    ensure!(built.is_file(), "the build left no {}", built.display());
    Ok(built)
}

/// Builds all again elsewhere: a release has what anybody builds of its commit with the same tools.
pub(crate) fn build_all_again(work: &Path) -> Result<()> {
    for language in ALL {
        let name = language.name();
        let again = make(language, &work.join(name))?;
        ensure!(
            fs::read(again)? == fs::read(kept(language)?)?,
            "a second build of {name}.wasm has other bytes: something of this machine or of the moment came into it"
        );
        eprintln!("{name}.wasm is the same, built again");
    }
    Ok(())
}

/// Copies the runners of the target folder into another one.
pub(crate) fn copy_all(folder: &Path) -> Result<()> {
    make_folder(folder)?;
    for language in ALL {
        let name = format!("{}.wasm", language.name());
        fs::copy(paths::runners()?.join(&name), folder.join(&name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

/// Makes a folder for runners. A server uses no code of one that others may write.
fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    Ok(fs::set_permissions(folder, Permissions::from_mode(0o755))?)
}

fn folder(language: Language) -> PathBuf {
    paths::workspace().join("runtime/runners").join(language.name())
}

/// Files that a runner is made of, with the one that says how; with any other content it is another one.
fn sources(language: Language) -> Vec<PathBuf> {
    let names: &[&str] = match language {
        Language::Python => &[
            "licenses/componentize-py.txt",
            "licenses/pyyaml.txt",
            "requirements.txt",
            "runner.py",
            "runner.wit",
        ],
        Language::JavaScript => &[
            "Cargo.lock",
            "Cargo.toml",
            "before.h",
            "src/bytecode.rs",
            "src/driver.js",
            "src/engine.rs",
            "src/integers.rs",
            "src/main.rs",
            "src/misfit.rs",
            "src/script.rs",
        ],
    };
    let builders: &[&str] = match language {
        Language::Python => &["tests/xtask/src/runners/python.rs", "tests/xtask/src/runners/reproducible.c"],
        // The program that starts it, with the version of wasmtime that it does so in, and the paths that are left out.
        Language::JavaScript => &[
            "Cargo.lock",
            "tests/runners/src/main.rs",
            "tests/xtask/src/runners/javascript.rs",
            "tests/xtask/src/static_server.rs",
        ],
    };
    let builders = builders.iter().map(|file| paths::workspace().join(file));
    names.iter().map(|name| folder(language).join(name)).chain(builders).collect()
}

/// Runs a program of a build; its output is shown.
fn call(command: &mut Command) -> Result<()> {
    let status = children::wait(command)?;
    if !status.success() {
        bail!("{} failed ({status})", command.get_program().display());
    }
    Ok(())
}
