//! `release PARTS FOLDER REPOSITORY IMAGE` packs the parts that `cargo xtask release` builds; `release PARTS` writes one of them,
//! the licences of others.
#![allow(clippy::print_stdout, reason = "commands print")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use binaries::architecture::Architecture;
use binaries::{exit_code, paths};
use image::{THIRD_PARTY, third_party};
use release::Places;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let (parts, folder, repository, image) = match arguments.as_slice() {
        [parts] => return write_licences(parts),
        [parts, folder, repository, image] => (parts, folder, repository, image),
        _ => anyhow::bail!("usage: release PARTS [FOLDER REPOSITORY IMAGE]"),
    };
    let (repository, image) = (repository.to_string_lossy(), image.to_string_lossy());
    let places = Places { repository: &repository, image: &image };
    let sums = release::pack(&paths::workspace(), parts, folder, &places)?;
    print!("{sums}");
    println!("{}", Path::display(folder));
    Ok(())
}

fn write_licences(parts: &Path) -> Result<()> {
    let licences = third_party(&Architecture::ALL, &["javascript", "python"])?;
    Ok(fs::write(parts.join(THIRD_PARTY), licences)?)
}
