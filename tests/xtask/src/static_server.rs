//! The server as one static program, optimized and without any path of this machine in it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use binaries::architecture::Architecture;
use binaries::paths;

use crate::cargo::{cargo, output, run};

/// Builds it and returns its path. For another architecture than this machine's it takes Debian's cross compiler.
pub(crate) fn build(architecture: Architecture) -> Result<PathBuf> {
    let target = architecture.target();
    let mut build = cargo(&["build", "--release", "--locked", "--package", "metahook", "--target", &target]);
    build.env("CARGO_ENCODED_RUSTFLAGS", flags()?.join("\x1f"));
    if architecture != Architecture::of_host()? {
        let linker = cross_linker(architecture)?;
        let machine = architecture.machine().to_uppercase();
        build.env(format!("CARGO_TARGET_{machine}_UNKNOWN_LINUX_GNU_LINKER"), linker);
        add_target(&target)?;
    }
    run(&mut build)?;
    Ok(paths::target()?.join(target).join("release/metahook"))
}

fn flags() -> Result<Vec<String>> {
    let mut flags =
        vec!["-Ctarget-feature=+crt-static".to_owned(), "-Clink-arg=-Wl,--build-id=none".to_owned()];
    let places = places(&paths::target()?);
    flags.extend(places.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())));
    Ok(flags)
}

/// Folders of this machine that paths in a program begin with, and names for them. Code that build scripts write lies in the
/// target folder, wherever that is.
pub(crate) fn places(target: &Path) -> Vec<(PathBuf, &'static str)> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let workspace = paths::workspace();
    let outside = (!target.starts_with(&workspace)).then(|| target.to_owned());
    let places = [(home, "/cargo"), (Some(workspace), "/metahook"), (outside, "/metahook/target")];
    places.into_iter().filter_map(|(path, name)| Some((path?, name))).collect()
}

/// Debian's name of the compiler, which the crates that compile C look for, too.
fn cross_linker(architecture: Architecture) -> Result<String> {
    let machine = architecture.machine();
    let linker = format!("{machine}-linux-gnu-gcc");
    match Command::new(&linker).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(linker),
        _ => bail!(
            "{linker} cannot be run, which links the server for {}: apt-get install gcc-{}-linux-gnu libc6-dev-{}-cross",
            architecture.name(),
            machine.replace('_', "-"),
            architecture.name(),
        ),
    }
}

/// Rust's library for the target, which rustup downloads where it is missing.
fn add_target(target: &str) -> Result<()> {
    let folder = output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    if PathBuf::from(folder.trim()).is_dir() {
        return Ok(());
    }
    let status =
        Command::new("rustup").args(["target", "add", target]).current_dir(paths::workspace()).status();
    let status =
        status.context("cannot run rustup, which downloads Rust's library for another architecture")?;
    ensure!(status.success(), "rustup target add {target} failed ({status})");
    Ok(())
}
