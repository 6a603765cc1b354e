//! Image builder of `cargo xtask image`: `image SERVER FOLDER RUNNERS` packs the server's binary and the interpreters of scripts
//! into an OCI image.
#![allow(clippy::print_stdout, reason = "commands print")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use binaries::architecture::Architecture;
use binaries::exit_code;
use image::{
    ABOUT, ABOUT_RUNNERS, Effort, Files, Image, Layout, NAME, RUNNERS, THIRD_PARTY, hex, libraries, runners,
    third_party,
};

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
    let (there, missing): (Vec<&str>, Vec<&str>) =
        ["javascript", "python"].iter().partition(|name| built.join(format!("{name}.wasm")).is_file());
    for name in missing {
        println!("no runner for {name}: the image runs no scripts in it");
    }
    let mut files = runners(built, RUNNERS, ABOUT_RUNNERS)?;
    match third_party(&[Architecture::of_host()?], &there) {
        Ok(text) => files.push((format!("{ABOUT}/{THIRD_PARTY}"), text.into_bytes())),
        // Who passes the image on needs it; who uses it need not.
        Err(error) => println!("the image has no {THIRD_PARTY}, which who publishes it needs: {error:#}"),
    }
    build(server, folder, files)
}

/// Writes the folder, an OCI image layout, and the same as one file beside it; prints where they are.
fn build(server: &Path, folder: &Path, runners: Files) -> Result<()> {
    let libraries = libraries(server)?;
    ensure!(libraries.is_empty(), "the server is not static: it needs {}", libraries.join(", "));
    let image = Image::of_server(server, runners, Architecture::of_host()?, Effort::Much)?;
    let layout = Layout::of_one(&image, NAME);
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
