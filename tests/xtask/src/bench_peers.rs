//! Operators beside which `cargo xtask bench converge` measures the server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use binaries::{go, paths};
use clap::ValueEnum;

use crate::children;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// One in Go with controller-runtime
    Go,
    /// One in Python with kopf
    Kopf,
}

/// Builds these; the arguments that tell where they are.
pub(crate) fn build(peers: &[Peer]) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    if peers.contains(&Peer::Go) {
        arguments.push(format!("--go={}", build_go("operator")?.display()));
    }
    if peers.contains(&Peer::Kopf) {
        match missing() {
            None => arguments.push(format!("--kopf={}", kopf()?.display())),
            Some(why) => eprintln!("no operator with kopf: {why}"),
        }
    }
    Ok(arguments)
}

/// The program of a folder in `tests/bench`, as `bench-FOLDER` in the target folder.
pub(crate) fn build_go(folder: &str) -> Result<PathBuf> {
    let program = paths::target()?.join(format!("bench-{folder}"));
    let mut go = Command::new("go");
    go.current_dir(paths::workspace().join("tests/bench").join(folder)).env("GOWORK", "off");
    go.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    let built = children::wait(&mut go).context("install Go (https://go.dev/dl)")?;
    ensure!(built.success(), "go build failed ({built})");
    Ok(program)
}

/// Why kopf cannot be installed here.
fn missing() -> Option<&'static str> {
    let mut python = Command::new("python3");
    python.args(["-c", "import pip, sys, venv; sys.exit(sys.version_info < (3, 11))"]);
    let found = python.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    (!found).then_some(
        "python3 of 3.11 or later with pip and venv is missing (Debian: apt-get install python3-pip python3-venv)",
    )
}

/// The virtual environment that has kopf, made once per machine.
fn kopf() -> Result<PathBuf> {
    let pinned = paths::workspace().join("tests/bench/peers/hello_kopf.txt");
    let name = format!("kopf-{}", go::fingerprint(std::slice::from_ref(&pinned))?);
    let folder = go::cache_folder()?.join(name);
    let is_whole = |folder: &Path| python(folder).exists();
    go::once(&folder, "a virtual environment with kopf", is_whole, |partial| {
        let mut environment = Command::new("python3");
        // The machine's pip installs: Debian's Python has none to give.
        call(environment.args(["-m", "venv", "--without-pip"]).arg(partial))?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--python"]).arg(python(partial));
        pip.args(["install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]);
        pip.args(["--no-deps", "--only-binary=:all:", "-r"]).arg(&pinned);
        call(&mut pip)
    })?;
    Ok(folder)
}

fn python(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

fn call(command: &mut Command) -> Result<()> {
    let status = children::wait(command)?;
    ensure!(status.success(), "{} failed ({status})", command.get_program().display());
    Ok(())
}
