//! Image builder of `cargo xtask image`: `image SERVER FOLDER` packs the server's binary into an OCI image.
#![allow(clippy::print_stdout, reason = "commands print")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use binaries::exit_code;
use image::{Effort, Layout, NAME, hex, libraries};

/// A larger image takes a user too long to pull.
const MAX_BYTES: usize = 40_000_000;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [server, folder] = arguments.as_slice() else {
        anyhow::bail!("usage: image SERVER FOLDER");
    };
    build(server, folder)
}

/// Writes the folder, an OCI image layout, and the same as one file beside it; prints where they are.
fn build(server: &Path, folder: &Path) -> Result<()> {
    let libraries = libraries(server)?;
    ensure!(libraries.is_empty(), "the server is not static: it needs {}", libraries.join(", "));
    let layout = Layout::of_server(server, Effort::Much)?;
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
