//! `cargo xtask release`: what a release holds, in one folder; two runs make the same bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use binaries::architecture::Architecture;
use binaries::{go, paths};
use clap::Args;

use crate::cargo::{self, cargo, output};
use crate::{docs, runners, static_server};

/// That of Cargo.toml.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const CYCLONEDX: &str = "0.5.9";

#[derive(Args)]
pub(crate) struct Options {
    /// Fails unless Cargo.toml has this version: the one of the tag
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Where releases are downloaded, for krew's manifest
    #[arg(long, value_name = "HOST/PATH", default_value = "github.com/metahook/metahook")]
    repository: String,
    /// The image without its tag, as it is pulled: the manifests and the chart of the release name it
    #[arg(long, value_name = "NAME", default_value = "metahook/metahook")]
    image: String,
}

/// Returns whether the release is made; links of the book that lead nowhere are printed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(wanted) = options.version.as_deref().map(|version| version.trim_start_matches('v'))
        && wanted != VERSION
    {
        bail!(
            "--version is {wanted}, and Cargo.toml has version {VERSION}: change it in [workspace.package], and in what \
             `cargo test -p release` names"
        );
    }
    let changed =
        output(Command::new("git").args(["status", "--porcelain"]).current_dir(paths::workspace()))?;
    ensure!(changed.is_empty(), "the checkout has changes, and a release is one of a commit:\n{changed}");
    let parts = paths::target()?.join("release-parts");
    if parts.is_dir() {
        fs::remove_dir_all(&parts)?;
    }
    fs::create_dir_all(&parts)?;
    runners::build_all()?;
    for architecture in Architecture::ALL {
        program(architecture, &parts.join(architecture.name()))?;
    }
    if !docs::run()? {
        return Ok(false);
    }
    copy_folder(&paths::target()?.join("book"), &parts.join("book"))?;
    sdk(&parts)?;
    bill_of_materials(&parts)?;
    cargo::build_programs(&["release"])?;
    let release = paths::target()?.join(format!("metahook-{VERSION}"));
    cargo::exec(
        cargo::program("release")?.arg(parts).arg(release).args([&options.repository, &options.image]),
    )?;
    Ok(true)
}

/// The static program for one architecture, and the interpreters of scripts with their code for it.
fn program(architecture: Architecture, folder: &Path) -> Result<()> {
    eprintln!(
        "release: the server for {} (some eight minutes the first time, on two cores)",
        architecture.name()
    );
    let server = static_server::build(architecture)?;
    let runners = folder.join("runners");
    runners::copy_all(&runners)?;
    copy(&server, &folder.join("metahook"))?;
    let name = architecture.name();
    if !can_run(&server)? {
        eprintln!(
            "release: this machine runs no programs for {name}: the one of the release is not tried, and its server \
             compiles the interpreter of a script when it is first used (with qemu-user-static and binfmt_misc it would be)"
        );
        return Ok(());
    }
    runners::compile(Command::new(&server), &runners)
}

/// Whether the program runs and says its version. A machine with `binfmt_misc` and QEMU runs those for others, too.
fn can_run(server: &Path) -> Result<bool> {
    match Command::new(server).arg("--version").stderr(Stdio::null()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(said.contains(VERSION), "{} --version says {said:?}", server.display());
            Ok(true)
        }
        // ENOEXEC.
        Err(error) if error.raw_os_error() == Some(8) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot run {}", server.display())),
    }
}

/// The SDK as a registry gets it.
fn sdk(parts: &Path) -> Result<()> {
    eprintln!("release: the package of the SDK");
    cargo::run(&mut cargo(&["package", "--package", "metahook-sdk", "--locked", "--quiet"]))?;
    let name = format!("metahook-sdk-{VERSION}.crate");
    copy(&paths::target()?.join("package").join(&name), &parts.join(&name))
}

/// A bill of materials of the server.
fn bill_of_materials(parts: &Path) -> Result<()> {
    eprintln!("release: what the server is made of");
    // Its program writes a file into each package of a workspace: it gets a clone of this one.
    let clone = paths::target()?.join("release-source");
    if clone.is_dir() {
        fs::remove_dir_all(&clone)?;
    }
    cargo::run(Command::new("git").args(["clone", "--quiet"]).arg(paths::workspace()).arg(&clone))?;
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&clone))?;
    let mut list = Command::new(cyclonedx()?);
    list.args([
        "cyclonedx",
        "--quiet",
        "--format",
        "json",
        "--spec-version",
        "1.5",
        "--override-filename",
        "bom",
    ])
    .args(["--target", &Architecture::Amd64.target()])
    .arg("--manifest-path")
    .arg(clone.join("runtime/cli/Cargo.toml"))
    // Else it would have the time of day and a random number.
    .env("SOURCE_DATE_EPOCH", time.trim());
    cargo::run(&mut list)?;
    let written = clone.join("runtime/cli/bom.json");
    let text = fs::read_to_string(&written).with_context(|| format!("no {}", written.display()))?;
    let text = text.replace(&clone.display().to_string(), "/metahook");
    fs::write(parts.join("metahook.cdx.json"), text)?;
    Ok(fs::remove_dir_all(&clone)?)
}

/// The program that makes it, which is built once per machine.
fn cyclonedx() -> Result<PathBuf> {
    let folder = go::cache_folder()?.join(format!("cargo-cyclonedx-{CYCLONEDX}"));
    let program = folder.join("bin/cargo-cyclonedx");
    if !program.is_file() {
        let mut install =
            cargo(&["install", "--locked", "cargo-cyclonedx", "--version", CYCLONEDX, "--root"]);
        cargo::run(install.arg(&folder).env_remove("CARGO_TARGET_DIR"))?;
    }
    Ok(program)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
