//! Image builder of `cargo xtask image`: `image SERVER FOLDER RUNNERS` packs the server's binary and the interpreters of scripts
//! into an OCI image.
#![allow(clippy::print_stdout, reason = "commands print")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use binaries::{exit_code, paths};
use image::{Effort, Layout, NAME, hex, libraries};

/// A larger image takes a user too long to pull.
const MAX_BYTES: usize = 60_000_000;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [server, folder, built] = arguments.as_slice() else {
        anyhow::bail!("usage: image SERVER FOLDER RUNNERS");
    };
    build(server, folder, runners(built)?)
}

/// The interpreters that could be built, beside the server, where it looks for them, with their licences.
fn runners(built: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in ["javascript", "python"] {
        let file = built.join(format!("{name}.wasm"));
        if !file.is_file() {
            println!("no runner for {name}: the image runs no scripts in it");
            continue;
        }
        for part in ["wasm", "code"] {
            let file = file.with_extension(part);
            let content = fs::read(&file).with_context(|| format!("no {}", file.display()))?;
            files.push((format!("usr/bin/runners/{name}.{part}"), content));
        }
        let source = paths::workspace().join("runtime/runners").join(name);
        for about in ["LICENSES.md", "sbom.json"] {
            let content = fs::read(source.join(about)).with_context(|| format!("{about} of {name}"))?;
            files.push((format!("usr/share/metahook/runners/{name}/{about}"), content));
        }
    }
    Ok(files)
}

/// Writes the folder, an OCI image layout, and the same as one file beside it; prints where they are.
fn build(server: &Path, folder: &Path, runners: Vec<(String, Vec<u8>)>) -> Result<()> {
    let libraries = libraries(server)?;
    ensure!(libraries.is_empty(), "the server is not static: it needs {}", libraries.join(", "));
    let layout = Layout::with_files(server, runners, Effort::Much)?;
    let file = folder.with_extension("tar");
    let bytes = layout.tar()?;
    ensure!(bytes.len() < MAX_BYTES, "the image has {} bytes, and {MAX_BYTES} are allowed", bytes.len());
    layout.write(folder)?;
    fs::write(&file, &bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    println!("{NAME}  {} bytes  sha256:{}", bytes.len(), hex(&bytes));
    println!("OCI layout: {}", folder.display());
    println!("one file:   {} (docker load -i, ctr images import, skopeo copy oci-archive:)", file.display());
    Ok(())
}
