//! Cargo in this workspace, as a person in a shell runs it.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::iter;
use std::ops::AddAssign;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use binaries::paths;

use crate::children;

/// How many tests ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Counts {
    /// From a line that ends a test binary: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn of_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut sum = Self::default();
        for count in counts.split("; ") {
            match count.split_once(' ') {
                Some((number, "passed")) => sum.passed += number.parse::<u64>().ok()?,
                Some((number, "failed")) => sum.failed += number.parse::<u64>().ok()?,
                Some((number, "ignored")) => sum.skipped += number.parse::<u64>().ok()?,
                _ => {}
            }
        }
        Some(sum)
    }
}

/// cargo, without the variables that `cargo run` sets for xtask: build scripts take them for a change and run again.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::workspace()).args(args);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_BIN_NAME" {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs it to its end; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = children::wait(command)?;
    ensure!(status.success(), "{} failed ({status})", line(command));
    Ok(())
}

/// Builds programs of the workspace into `target/debug`, with the features that its tests have.
pub(crate) fn build_programs(names: &[&str]) -> Result<()> {
    let mut command = cargo(&["build", "--workspace"]);
    run(command.args(names.iter().flat_map(|name| ["--bin", name])))
}

/// A program of `target/debug`.
pub(crate) fn program(name: &str) -> Result<Command> {
    Ok(Command::new(paths::target()?.join("debug").join(name)))
}

/// Builds a program and becomes it.
pub(crate) fn become_program(name: &str, argument: Option<&str>) -> Result<()> {
    build_programs(&[name])?;
    exec(program(name)?.args(argument))
}

/// Becomes the program: signals reach it, and its exit code is that of xtask.
pub(crate) fn exec(command: &mut Command) -> Result<()> {
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", command.get_program().display()))
}

/// Runs a command, and returns its stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{} failed ({})", line(command), output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{program} prints no UTF-8"))
}

/// Runs tests, passes on what they print, and sums up how they ended; whether all is well.
pub(crate) fn run_tests(command: &mut Command) -> Result<(Counts, bool)> {
    run_tests_to(command, &mut io::stdout())
}

/// Runs tests, passes on to `out` what they print, and sums up how they ended; whether all is well.
pub(crate) fn run_tests_to(command: &mut Command, out: &mut impl Write) -> Result<(Counts, bool)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let mut sum = Counts::default();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.context("cannot read what cargo test prints")?;
        writeln!(out, "{line}").context("cannot print what cargo test prints")?;
        sum += Counts::of_line(&line).unwrap_or_default();
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok((sum, status.success()))
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> =
        iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_ends_a_test_binary_is_counted() {
        let line = "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 4.10s";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 1, skipped: 2 }));
        assert_eq!(Counts::of_line("test a::b ... ok"), None);
    }
}
