//! Checks what needs no test to run: formats, lints, documentation.

use anyhow::Result;

use crate::cargo;

pub(crate) fn run() -> Result<()> {
    format()?;
    lints()?;
    documentation()
}

pub(crate) fn format() -> Result<()> {
    cargo::run(&mut cargo::cargo(&["fmt", "--all", "--check"]))
}

pub(crate) fn lints() -> Result<()> {
    cargo::run(&mut cargo::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation() -> Result<()> {
    let mut doc = cargo::cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    cargo::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
