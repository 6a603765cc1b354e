//! Paths of this checkout and of what was built from it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The checkout.
pub fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")); // tests/binaries
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// The folder Cargo builds into, as the running program was built into it: `target/debug/deps/suite-…` or `target/debug/xtask`.
pub fn target() -> Result<PathBuf> {
    let profile = profile()?;
    let target = profile.parent().context("the running program lies in no target folder")?;
    Ok(target.to_owned())
}

/// Our server: `METAHOOK_BIN`, else the one beside the running program.
pub fn server() -> Result<PathBuf> {
    let (path, why) = match env::var_os("METAHOOK_BIN") {
        Some(path) => (PathBuf::from(path), "METAHOOK_BIN names it"),
        None => (profile()?.join("metahook"), "cargo build -p metahook makes it"),
    };
    ensure!(path.is_file(), "there is no server at {} ({why})", path.display());
    Ok(path)
}

/// The Wasm module of a guest: from the folder `METAHOOK_GUESTS`, else from the target folder.
pub fn guest(name: &str) -> Result<PathBuf> {
    let folder = match env::var_os("METAHOOK_GUESTS") {
        Some(folder) => PathBuf::from(folder),
        None => target()?.join("wasm32-wasip1").join("guest"),
    };
    found(&folder, name)
}

/// The component of a guest, from the target folder.
pub fn component(name: &str) -> Result<PathBuf> {
    found(&target()?.join("wasm32-wasip2").join("guest"), name)
}

/// The folder of the runners that could be built here.
pub fn runners() -> Result<PathBuf> {
    Ok(target()?.join("runners"))
}

/// The runner for a language; `None`: it could not be built here.
pub fn runner(language: &str) -> Result<Option<PathBuf>> {
    let path = runners()?.join(format!("{language}.wasm"));
    Ok(path.is_file().then_some(path))
}

fn found(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.wasm"));
    ensure!(path.is_file(), "there is no guest at {} (cargo xtask guests makes it)", path.display());
    Ok(path)
}

fn profile() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where the running program lies")?;
    let folder = program.parent().context("the running program lies in no folder")?;
    match folder.file_name() {
        Some(name) if name == "deps" => Ok(folder.parent().unwrap_or(folder).to_owned()),
        _ => Ok(folder.to_owned()),
    }
}
