//! `release PARTS FOLDER REPOSITORY IMAGE` packs the parts that `cargo xtask release` builds.
#![allow(clippy::print_stdout, reason = "commands print")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use binaries::{exit_code, paths};
use release::Places;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [parts, folder, repository, image] = arguments.as_slice() else {
        anyhow::bail!("usage: release PARTS FOLDER REPOSITORY IMAGE");
    };
    let (repository, image) = (repository.to_string_lossy(), image.to_string_lossy());
    let places = Places { repository: &repository, image: &image };
    let sums = release::pack(&paths::workspace(), parts, folder, &places)?;
    print!("{sums}");
    println!("{}", Path::display(folder));
    Ok(())
}
