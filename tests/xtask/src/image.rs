//! `cargo xtask image`: the server as one static binary in an OCI image, made without Docker.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use acceptance::oci::{self, Effort, Layout, NAME, hex};
use acceptance::paths;
use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, run};

/// Nobody waits for a larger one.
const LARGEST: usize = 40_000_000;

/// Writes `target/image`, an OCI image layout, and the same as one file beside it; says what they are.
pub(crate) fn build() -> Result<()> {
    let server = server()?;
    let libraries = oci::libraries(&server)?;
    ensure!(libraries.is_empty(), "the server is not static: it needs {}", libraries.join(", "));
    let layout = Layout::of_server(&server, Effort::Much)?;
    let folder = paths::target()?.join("image");
    let (file, bytes) = (folder.with_extension("tar"), layout.tar()?);
    ensure!(bytes.len() < LARGEST, "the image has {} bytes, and {LARGEST} are allowed", bytes.len());
    layout.write(&folder)?;
    fs::write(&file, &bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    println!("{NAME}  {} bytes  sha256:{}", bytes.len(), hex(&bytes));
    println!("OCI layout: {}", folder.display());
    println!("one file:   {} (docker load -i, ctr images import, skopeo copy oci-archive:)", file.display());
    Ok(())
}

/// Optimized, static, and without any path of this machine in it.
fn server() -> Result<PathBuf> {
    let target = host()?;
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let mut flags =
        vec!["-Ctarget-feature=+crt-static".to_owned(), "-Clink-arg=-Wl,--build-id=none".to_owned()];
    let (workspace, target_folder) = (paths::workspace(), paths::target()?);
    // Code that build scripts write lies in the target folder, wherever that is.
    let outside = (!target_folder.starts_with(&workspace)).then_some(target_folder);
    for (path, name) in [(home, "/cargo"), (Some(workspace), "/metahook"), (outside, "/metahook/target")] {
        flags.extend(path.map(|path| format!("--remap-path-prefix={}={name}", path.display())));
    }
    println!("building the server, optimized and static");
    run(cargo(&["build", "--release", "--locked", "--package", "metahook", "--target", &target])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")))?;
    Ok(paths::target()?.join(target).join("release/metahook"))
}

/// The target that rustc builds for by itself.
fn host() -> Result<String> {
    let version = Command::new("rustc").arg("-vV").current_dir(paths::workspace()).output();
    let version = String::from_utf8(version.context("cannot run rustc")?.stdout)?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say what it builds for")?.to_owned())
}
