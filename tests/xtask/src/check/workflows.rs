//! GitHub's workflows in `.github/workflows`: actionlint finds what GitHub would refuse.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, Result, ensure};
use binaries::{go, paths};

use crate::children;

const PACKAGE: &str = "github.com/rhysd/actionlint/cmd/actionlint";

const VERSION: &str = "v1.7.12";

/// The exit code of actionlint where it found something in a workflow.
const FOUND: i32 = 1;

/// Whether these files have no fault; actionlint prints each fault with its line. Without Go they are not checked.
pub(super) fn are_sound(files: &[String]) -> Result<bool> {
    if files.is_empty() {
        return Ok(true);
    }
    let Some(program) = actionlint()? else {
        println!("workflows: not checked, since Go is missing, which builds actionlint: https://go.dev/dl");
        return Ok(true);
    };
    let mut lint = Command::new(program);
    // shellcheck and pyflakes are off: a machine that has them would find more than one that has not.
    lint.current_dir(paths::workspace()).args(["-no-color", "-shellcheck=", "-pyflakes="]).args(files);
    let status = children::wait(&mut lint)?;
    ensure!(status.success() || status.code() == Some(FOUND), "actionlint failed ({status})");
    Ok(status.success())
}

/// The program, which is built once per machine; `None` without Go.
fn actionlint() -> Result<Option<PathBuf>> {
    let folder = go::cache_folder()?.join(format!("actionlint-{VERSION}"));
    let program = folder.join("actionlint");
    if program.is_file() {
        return Ok(Some(program));
    }
    let module = format!("{PACKAGE}@{VERSION}");
    let mut install = Command::new("go");
    install.args(["install", &module]).env("GOBIN", &folder).env("CGO_ENABLED", "0");
    match children::wait(&mut install) {
        Ok(status) => ensure!(status.success(), "go install {module} failed ({status})"),
        Err(error) if is_missing_program(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(program))
}

fn is_missing_program(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_differs_from_one_that_cannot_run() {
        let run = |program: &str| children::wait(&mut Command::new(program)).unwrap_err();
        assert!(is_missing_program(&run("no-program-has-this-name")));
        assert!(!is_missing_program(&run("/dev/null")));
    }
}
