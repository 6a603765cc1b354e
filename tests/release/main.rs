//! `release PARTS FOLDER REPOSITORY` packs the parts that `cargo xtask release` builds.
#![allow(clippy::print_stdout, reason = "commands print")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use binaries::{exit_code, paths};

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [parts, folder, repository] = arguments.as_slice() else {
        anyhow::bail!("usage: release PARTS FOLDER REPOSITORY");
    };
    let sums = release::pack(&paths::workspace(), parts, folder, &repository.to_string_lossy())?;
    print!("{sums}");
    println!("{}", Path::display(folder));
    Ok(())
}
