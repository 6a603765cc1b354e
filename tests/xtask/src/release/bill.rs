//! What the server is made of: a bill of materials (`CycloneDX`) for each architecture, since some crates are for one alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use binaries::architecture::Architecture;
use binaries::{go, paths};

use crate::cargo::{self, cargo, output};

const CYCLONEDX: &str = "0.5.9";

/// Writes `metahook.cdx.json` into the folder of each architecture.
pub(super) fn write(parts: &Path) -> Result<()> {
    eprintln!("release: what the server is made of");
    // Its program writes a file into each package of a workspace: it gets a clone of this one.
    let clone = paths::target()?.join("release-source");
    if clone.is_dir() {
        fs::remove_dir_all(&clone)?;
    }
    cargo::run(Command::new("git").args(["clone", "--quiet"]).arg(paths::workspace()).arg(&clone))?;
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&clone))?;
    let program = cyclonedx()?;
    for architecture in Architecture::ALL {
        let text = of(&program, &clone, architecture, time.trim())?;
        fs::write(parts.join(architecture.name()).join("metahook.cdx.json"), text)?;
    }
    Ok(fs::remove_dir_all(&clone)?)
}

fn of(program: &Path, clone: &Path, architecture: Architecture, time: &str) -> Result<String> {
    let mut list = Command::new(program);
    list.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"])
        .args(["--override-filename", "bom", "--target", &architecture.target(), "--manifest-path"])
        .arg(clone.join("runtime/cli/Cargo.toml"))
        // Else it would have the time of day and a random number.
        .env("SOURCE_DATE_EPOCH", time);
    cargo::run(&mut list)?;
    let written = clone.join("runtime/cli/bom.json");
    let text = fs::read_to_string(&written).with_context(|| format!("no {}", written.display()))?;
    fs::remove_file(&written)?;
    Ok(text.replace(&clone.display().to_string(), "/metahook"))
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
