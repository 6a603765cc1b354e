//! `cargo xtask docs`: the book in runtime/docs, built by mdBook, its links checked.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use binaries::{go, paths};

use crate::cargo::{cargo, run as run_cargo};
use crate::{check, children};

const VERSION: &str = "0.5.4";

/// What builds the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// That of the PATH where there is one.
    OfPath,
    /// The version above, whatever the PATH has: another one makes another book.
    Pinned,
}

/// Checks the links and builds the book, and returns whether all links lead somewhere; those that do not are printed.
pub(crate) fn run(program: Program) -> Result<bool> {
    if !check::links()? {
        return Ok(false);
    }
    let book = paths::target()?.join("book");
    let mut build = Command::new(mdbook(program)?);
    build.arg("build").arg(paths::workspace().join("runtime/docs")).arg("--dest-dir").arg(&book);
    let status = children::wait(&mut build)?;
    ensure!(status.success(), "mdbook failed ({status})");
    println!("{}", book.join("index.html").display());
    Ok(true)
}

/// The one on the PATH, or the pinned one, which is built once per machine.
fn mdbook(program: Program) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).map(|folder| folder.join("mdbook"));
    if program == Program::OfPath
        && let Some(found) = folders.find(|file| file.is_file())
    {
        return Ok(found);
    }
    let folder = go::cache_folder()?.join(format!("mdbook-{VERSION}"));
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        eprintln!("building mdbook, once per machine, into {} (some three minutes)", folder.display());
        let mut install = cargo(&["install", "--locked", "--no-default-features", "--features", "search"]);
        install.args(["mdbook", "--version", VERSION, "--root"]).arg(&folder).env_remove("CARGO_TARGET_DIR");
        run_cargo(&mut install)?;
    }
    Ok(program)
}
