//! `cargo xtask release`: what a release holds, in one folder. Two runs of one commit with the same tools make the same bytes.

mod bill;
mod notes;

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use binaries::architecture::Architecture;
use binaries::paths;
use clap::Args;

use crate::cargo::{self, cargo, output};
use crate::{docs, runners, static_server};

/// That of Cargo.toml.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Args)]
pub(crate) struct Options {
    /// Fails unless Cargo.toml has this version: the one of the tag
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Where releases are downloaded, for krew's manifest
    #[arg(long, value_name = "HOST/PATH", default_value = "github.com/metahook/metahook")]
    repository: String,
    /// The image without its tag, as it is pulled: the manifests and the chart of the release name it
    #[arg(long, value_name = "NAME", default_value = "ghcr.io/metahook/metahook")]
    image: String,
    /// The archive and the image for arm64 have no code of the interpreters of scripts where this machine runs no programs for
    /// arm64: a server then compiles an interpreter when its first script comes
    #[arg(long)]
    without_arm64_code: bool,
}

/// Returns whether the release is made; links of the book that lead nowhere are printed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(wanted) = options.version.as_deref().map(|version| version.trim_start_matches('v'))
        && wanted != VERSION
    {
        bail!(
            "--version is {wanted}, and Cargo.toml has version {VERSION}: change it in [workspace.package], and in what \
             `cargo test -p release` names"
        );
    }
    let changelog = fs::read_to_string(paths::workspace().join("runtime/CHANGELOG.md"))?;
    let notes = notes::of(&changelog, VERSION, options.version.is_some())?;
    let changed =
        output(Command::new("git").args(["status", "--porcelain"]).current_dir(paths::workspace()))?;
    ensure!(changed.is_empty(), "the checkout has changes, and a release is one of a commit:\n{changed}");
    let parts = paths::target()?.join("release-parts");
    if parts.is_dir() {
        fs::remove_dir_all(&parts)?;
    }
    fs::create_dir_all(&parts)?;
    fs::write(parts.join("RELEASE_NOTES.md"), notes)?;
    // First, so that a licence that is missing is named before half an hour of building.
    cargo::build_programs(&["release"])?;
    cargo::run(cargo::program("release")?.arg(&parts))?;
    runners::build_all()?;
    runners::build_all_again(&parts.join("again"))?;
    fs::remove_dir_all(parts.join("again"))?;
    for architecture in Architecture::ALL {
        program(architecture, &parts.join(architecture.name()), options.without_arm64_code)?;
    }
    if !docs::run(docs::Program::Pinned)? {
        return Ok(false);
    }
    copy_folder(&paths::target()?.join("book"), &parts.join("book"))?;
    sdk(&parts)?;
    bill::write(&parts)?;
    let release = paths::target()?.join(format!("metahook-{VERSION}"));
    cargo::exec(
        cargo::program("release")?.arg(parts).arg(release).args([&options.repository, &options.image]),
    )?;
    Ok(true)
}

/// The static program for one architecture, and the interpreters of scripts with their code for it.
fn program(architecture: Architecture, folder: &Path, without_arm64_code: bool) -> Result<()> {
    eprintln!(
        "release: the server for {} (some eight minutes the first time, on two cores)",
        architecture.name()
    );
    let server = static_server::build(architecture)?;
    let runners = folder.join("runners");
    runners::copy_all(&runners)?;
    copy(&server, &folder.join("metahook"))?;
    if has_code(architecture, can_run(&server)?, without_arm64_code)? {
        runners::compile(Command::new(&server), &runners)?;
    }
    Ok(())
}

/// Whether the interpreters come with their code for an architecture, for which the machine `runs` programs or not.
fn has_code(architecture: Architecture, runs: bool, without_arm64_code: bool) -> Result<bool> {
    let name = architecture.name();
    let without = without_arm64_code && architecture == Architecture::Arm64;
    ensure!(
        runs || without,
        "this machine runs no programs for {name}, so that the one of the release is not tried, and the interpreters of \
         scripts have no code for it: install qemu-user-static and binfmt-support{}",
        if architecture == Architecture::Arm64 {
            ", or leave the code out with --without-arm64-code"
        } else {
            ""
        }
    );
    if !runs {
        eprintln!(
            "release: the program for {name} is not tried, and its server compiles the interpreter of a script when it is \
             first used (--without-arm64-code)"
        );
    }
    Ok(runs)
}

/// Whether the program runs and says its version. A machine with `binfmt_misc` and QEMU runs those for others, too.
fn can_run(server: &Path) -> Result<bool> {
    match Command::new(server).arg("--version").stderr(Stdio::null()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(said.contains(VERSION), "{} --version says {said:?}", server.display());
            Ok(true)
        }
        // ENOEXEC.
        Err(error) if error.raw_os_error() == Some(8) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot run {}", server.display())),
    }
}

/// The SDK as a registry gets it.
fn sdk(parts: &Path) -> Result<()> {
    eprintln!("release: the package of the SDK");
    cargo::run(&mut cargo(&["package", "--package", "metahook-sdk", "--locked", "--quiet"]))?;
    let name = format!("metahook-sdk-{VERSION}.crate");
    copy(&paths::target()?.join("package").join(&name), &parts.join(&name))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_book_names_the_default_image() {
        let Line { options } = Line::parse_from(["release"]);
        let page = fs::read_to_string(paths::workspace().join("runtime/docs/src/operations.md")).unwrap();
        let sentence = format!("the image is called `{}:{VERSION}`", options.image);
        assert!(page.contains(&sentence), "operations.md does not say: {sentence}");
    }

    #[test]
    fn code_is_left_out_for_arm64_alone_and_only_if_that_is_said() {
        use Architecture::{Amd64, Arm64};
        for (architecture, runs, without, expected) in [
            (Amd64, true, false, Some(true)),
            (Arm64, true, false, Some(true)),
            // It is for machines that cannot make it.
            (Arm64, true, true, Some(true)),
            (Arm64, false, true, Some(false)),
            (Arm64, false, false, None),
            (Amd64, false, true, None),
        ] {
            let decided = has_code(architecture, runs, without);
            assert_eq!(decided.as_ref().ok(), expected.as_ref(), "{architecture:?} {runs} {without}");
            if let Err(error) = decided {
                let names_the_option = error.to_string().contains("--without-arm64-code");
                assert_eq!(names_the_option, architecture == Arm64, "{error}");
            }
        }
    }
}
