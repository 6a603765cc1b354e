//! Builds what demo and acceptance tests run: the Wasm guests and the server.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use acceptance::paths;
use acceptance::wait::elapsed;
use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, run};

pub(crate) const TARGET: &str = "wasm32-wasip1";

/// Builds every guest, Rust with the guest profile; prints their sizes.
pub(crate) fn guests() -> Result<()> {
    need_target()?;
    let folder = paths::target()?.join(TARGET).join("guest");
    let (rust, go) = (guests_with("Cargo.toml")?, guests_with("go.mod")?);
    let mut command = cargo(&["build", "--profile", "guest", "--target", TARGET]);
    run(command.args(rust.iter().flat_map(|name| ["-p", name])))?;
    go.iter().try_for_each(|name| build_go(name, &folder))?;
    for name in rust.iter().chain(&go) {
        let module = folder.join(format!("{name}.wasm"));
        let size = fs::metadata(&module).with_context(|| format!("there is no {}", module.display()))?.len();
        println!("{name}.wasm  {size} bytes  {}", module.display());
    }
    Ok(())
}

/// Builds a guest that is a Go module without dependencies.
fn build_go(name: &str, into: &Path) -> Result<()> {
    let status = Command::new("go")
        .current_dir(paths::workspace().join("guests").join(name))
        .envs([
            ("GOOS", "wasip1"),
            ("GOARCH", "wasm"),
            ("CGO_ENABLED", "0"),
            ("GOWORK", "off"),
            ("GOFLAGS", ""),
        ])
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"])
        .arg(into.join(format!("{name}.wasm")))
        .status()
        .context("cannot run `go`: install Go (https://go.dev/dl)")?;
    ensure!(status.success(), "go build of guests/{name} failed ({status})");
    Ok(())
}

/// Builds the server among the sandbox tests: with the features that the tests build their dependencies with, so that
/// these are built once.
pub(crate) fn server() -> Result<()> {
    run(&mut cargo(&["test", "--quiet", "--workspace", "--test", "sandbox", "--no-run"]))
}

/// Both; says how long it took.
pub(crate) fn all() -> Result<()> {
    let start = Instant::now();
    println!("building the server and the guests");
    server()?;
    guests()?;
    println!("built in {}", elapsed(start));
    Ok(())
}

/// Whether missing Debian packages are to be installed: nowhere but where it was asked for, or where nobody is there to ask.
pub(crate) fn may_install(asked: bool) -> bool {
    asked || env::var_os("CI").is_some_and(|value| value == "true")
}

/// Guests whose folder has this file.
fn guests_with(manifest: &str) -> Result<Vec<String>> {
    let folder = paths::workspace().join("guests");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let packages = entries.flatten().filter(|entry| entry.path().join(manifest).is_file());
    let mut names: Vec<String> =
        packages.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// A toolchain file's targets are not installed where rustup's auto-install is off.
pub(crate) fn need_target() -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(paths::workspace())
        .output()
        .context("cannot run rustc")?;
    if Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        return Ok(());
    }
    eprintln!("rustup target add {TARGET}");
    let added =
        Command::new("rustup").args(["target", "add", TARGET]).current_dir(paths::workspace()).status();
    ensure!(added.context("cannot run rustup")?.success(), "cannot install the target {TARGET}");
    Ok(())
}
