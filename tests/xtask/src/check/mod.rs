//! `cargo xtask check`: what needs no test to run: formats, circles between modules, lints, documentation.

mod circles;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use binaries::paths;
use clap::Args;

use crate::cargo::{cargo, run as run_cargo};

#[derive(Args)]
pub(crate) struct Options {
    /// Only prints the circles between modules
    #[arg(long)]
    circles: bool,
}

/// Where modules may not go round in circles.
const CRATES: [&str; 3] = ["runtime/core/src", "runtime/src", "guest-sdk/src"];

/// Whether a circle fails the check, or is only counted.
const CIRCLES_FAIL: bool = false;

/// Whether everything is as it should be; what is not is printed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.circles {
        return circles(true);
    }
    all()
}

/// The cheap checks first.
pub(crate) fn all() -> Result<bool> {
    format()?;
    let layered = circles(false)? || !CIRCLES_FAIL;
    lints()?;
    documentation()?;
    Ok(layered)
}

fn format() -> Result<()> {
    run_cargo(&mut cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> Result<()> {
    run_cargo(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation() -> Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    run_cargo(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Whether there are none.
fn circles(print: bool) -> Result<bool> {
    let mut count = 0;
    for folder in CRATES {
        let root = paths::workspace().join(folder);
        let mut files = Vec::new();
        rust_files(&root, &mut files)?;
        files.sort();
        let mut texts = Vec::new();
        for file in files {
            let text =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let path = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
            texts.push((path, text));
        }
        let found = circles::circles(&texts);
        count += found.len();
        for circle in found.iter().filter(|_| print || CIRCLES_FAIL) {
            print!("{folder}: {circle}");
        }
    }
    println!("circles between modules: {count}");
    Ok(count == 0)
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}
