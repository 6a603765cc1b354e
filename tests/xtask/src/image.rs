//! `cargo xtask image`: the server as one static binary in an OCI image, made without Docker.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use binaries::paths;

use crate::cargo::{self, build_programs, cargo, run};
use crate::runners;

/// Leaves `target/image`, an OCI image layout, and the same as one file beside it.
pub(crate) fn build() -> Result<()> {
    eprintln!("building the server, optimized and static (some eight minutes the first time, on two cores)");
    let server = server()?;
    runners::build_what_can_be()?;
    runners::compile(Command::new(&server))?;
    build_programs(&["image"])?;
    let target = paths::target()?;
    cargo::exec(cargo::program("image")?.arg(server).arg(target.join("image")).arg(target.join("runners")))
}

/// Optimized, static, and without any path of this machine in it.
fn server() -> Result<PathBuf> {
    let target = host()?;
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let mut flags =
        vec!["-Ctarget-feature=+crt-static".to_owned(), "-Clink-arg=-Wl,--build-id=none".to_owned()];
    let workspace = paths::workspace();
    let target_folder = paths::target()?;
    // Code that build scripts write lies in the target folder, wherever that is.
    let outside = (!target_folder.starts_with(&workspace)).then_some(target_folder);
    for (path, name) in [(home, "/cargo"), (Some(workspace), "/metahook"), (outside, "/metahook/target")] {
        flags.extend(path.map(|path| format!("--remap-path-prefix={}={name}", path.display())));
    }
    run(cargo(&["build", "--release", "--locked", "--package", "metahook", "--target", &target])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")))?;
    Ok(paths::target()?.join(target).join("release/metahook"))
}

/// The target that rustc builds for by itself.
fn host() -> Result<String> {
    let version = Command::new("rustc").arg("-vV").current_dir(paths::workspace()).output();
    let version = String::from_utf8(version.context("cannot run rustc")?.stdout)?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc prints no host")?.to_owned())
}
