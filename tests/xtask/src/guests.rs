//! Wasm guests: built for demo, tests and benches, their sizes printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use binaries::paths;

use crate::cargo::{cargo, run};
use crate::children;

const TARGET: &str = "wasm32-wasip1";

/// Components of preview 2.
const COMPONENT_TARGET: &str = "wasm32-wasip2";

/// The guests that are built as components too.
const COMPONENTS: [&str; 6] =
    ["hello", "probe_answers", "probe_clock", "probe_component", "probe_files", "probe_hashmap"];

/// Builds every guest, Rust with the guest profile; prints their sizes.
pub(crate) fn build_all() -> Result<()> {
    let rust = guests_with("Cargo.toml")?;
    let go = guests_with("go.mod")?;
    build(&rust.iter().map(String::as_str).collect::<Vec<_>>())?;
    build_target(COMPONENT_TARGET, &COMPONENTS)?;
    let folder = folder()?;
    let sources = paths::workspace().join("guests");
    go.iter().try_for_each(|name| build_go(&sources.join(name), &folder.join(format!("{name}.wasm"))))?;
    go.iter().try_for_each(|name| print_size(name))
}

/// Builds these guests in Rust; prints their sizes.
pub(crate) fn build(names: &[&str]) -> Result<()> {
    build_packages(names)?;
    names.iter().try_for_each(|name| print_size(name))
}

/// Builds all modules of these packages.
pub(crate) fn build_packages(packages: &[&str]) -> Result<()> {
    build_target(TARGET, packages)
}

pub(crate) fn build_components(packages: &[&str]) -> Result<()> {
    build_target(COMPONENT_TARGET, packages)
}

fn build_target(target: &str, packages: &[&str]) -> Result<()> {
    need(target)?;
    let mut command = cargo(&["build", "--profile", "guest", "--target", target]);
    run(command.args(packages.iter().flat_map(|name| ["-p", name])))
}

/// Folder of the modules of preview 1.
pub(crate) fn folder() -> Result<PathBuf> {
    Ok(paths::target()?.join(TARGET).join("guest"))
}

/// Bytes of the smallest hook with the SDK.
const MAX_HELLO: u64 = 100_000;

fn print_size(name: &str) -> Result<()> {
    let module = paths::guest(name)?;
    let size = fs::metadata(&module).with_context(|| format!("cannot read {}", module.display()))?.len();
    println!("{name}.wasm  {size} bytes  {}", module.display());
    ensure!(
        name != "hello" || size < MAX_HELLO,
        "hello.wasm has {size} bytes, and the SDK promises less than {MAX_HELLO}: `metahook pack` says what they are"
    );
    Ok(())
}

/// Builds a module of a folder that is a Go module without dependencies.
pub(crate) fn build_go(source: &Path, into: &Path) -> Result<()> {
    let mut go = Command::new("go");
    go.current_dir(source)
        .envs([
            ("GOOS", "wasip1"),
            ("GOARCH", "wasm"),
            ("CGO_ENABLED", "0"),
            ("GOWORK", "off"),
            ("GOFLAGS", ""),
        ])
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"])
        .arg(into);
    let status = children::wait(&mut go).context("install Go (https://go.dev/dl)")?;
    ensure!(status.success(), "go build of {} failed ({status})", source.display());
    Ok(())
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
pub(crate) fn need(target: &str) -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(paths::workspace())
        .output()
        .context("cannot run rustc")?;
    if Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        return Ok(());
    }
    eprintln!("rustup target add {target}");
    let added =
        Command::new("rustup").args(["target", "add", target]).current_dir(paths::workspace()).status();
    ensure!(added.context("cannot run rustup")?.success(), "cannot install the target {target}");
    Ok(())
}
