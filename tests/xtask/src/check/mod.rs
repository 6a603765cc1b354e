//! `cargo xtask check`: what needs no test to run: formats, links, circles, sizes of structs, dependencies, workflows, lints,
//! documentation.

mod circles;
mod dependencies;
mod links;
mod structs;
mod tokens;
mod workflows;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use binaries::paths;
use clap::Args;

use crate::cargo::{cargo, output, run as run_cargo};

#[derive(Args)]
pub(crate) struct Options {
    /// Only prints the circles between modules
    #[arg(long)]
    circles: bool,
}

/// Where modules may not go round in circles.
const CRATES: [&str; 6] = [
    "runtime/core/src",
    "runtime/src",
    "runtime/author/src",
    "runtime/cli/src",
    "runtime/runners/javascript/src",
    "guest-sdk/src",
];

/// Whether a circle fails the check, or is only counted.
const CIRCLES_FAIL: bool = true;

/// Where pages with links are.
const PAGES: [&str; 5] = ["README.md", ".github", "guests", "runtime", "tests"];

/// Runs the checks, and returns whether all passed; what did not is printed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.circles {
        return circles(true);
    }
    all()
}

/// Runs all checks. Those that take seconds come first, and each of these runs even where another one found something.
pub(crate) fn all() -> Result<bool> {
    let layered = circles(CIRCLES_FAIL)? || !CIRCLES_FAIL;
    let small = structs()?;
    let linked = links()?;
    let allowed = dependencies()?;
    let runnable = workflows()?;
    format()?;
    if !(layered && small && linked && allowed && runnable) {
        return Ok(false);
    }
    lints()?;
    documentation()?;
    package()?;
    Ok(true)
}

fn format() -> Result<()> {
    eprintln!("check: formats");
    run_cargo(&mut cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> Result<()> {
    eprintln!("check: lints");
    run_cargo(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Checks that the SDK can be published: what it needs is in its own folder. That it builds outside is tested by
/// `metahook new`.
fn package() -> Result<()> {
    eprintln!("check: the package of the SDK");
    run_cargo(&mut cargo(&[
        "package",
        "-p",
        "metahook-sdk",
        "--no-verify",
        "--allow-dirty",
        "--offline",
        "-q",
    ]))
}

fn documentation() -> Result<()> {
    eprintln!("check: documentation");
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    run_cargo(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Whether all links of pages lead somewhere, and all source files and modules that they name are there.
pub(crate) fn links() -> Result<bool> {
    eprintln!("check: links");
    let root = paths::workspace();
    let (mut pages, mut sources) = (Vec::new(), Vec::new());
    for place in PAGES {
        texts(&root.join(place), "md", &root, &mut pages)?;
        texts(&root.join(place), "rs", &root, &mut sources)?;
    }
    texts(&root.join("guest-sdk"), "rs", &root, &mut sources)?;
    let mut broken = links::broken(&pages, |path| root.join(path).exists());
    for (page, text) in pages.iter().filter(|(page, _)| page.ends_with("/ARCHITECTURE.md")) {
        broken.extend(links::unknown_items(page, text, &sources));
    }
    broken.extend(links::unknown_names(&pages, &sources.into_iter().map(|(path, _)| path).collect()));
    for problem in &broken {
        println!("broken link: {problem}");
    }
    Ok(broken.is_empty())
}

/// Whether modules are free of circles.
fn circles(print: bool) -> Result<bool> {
    eprintln!("check: circles between modules");
    let mut count = 0;
    for folder in CRATES {
        let root = paths::workspace().join(folder);
        let mut files = Vec::new();
        texts(&root, "rs", &root, &mut files)?;
        let found = circles::circles(&files);
        count += found.len();
        for circle in found.iter().filter(|_| print) {
            print!("{folder}: {circle}");
        }
    }
    let hint = if print || count == 0 { "" } else { " (cargo xtask check --circles prints them)" };
    println!("circles between modules: {count}{hint}");
    Ok(count == 0)
}

/// Whether no struct has too many fields.
fn structs() -> Result<bool> {
    eprintln!("check: sizes of structs");
    let root = paths::workspace();
    let mut files = Vec::new();
    for folder in CRATES {
        texts(&root.join(folder), "rs", &root, &mut files)?;
    }
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    files.retain(|(path, _)| !is_test(path));
    let large = structs::problems(&files);
    for problem in &large {
        println!("struct: {problem}");
    }
    Ok(large.is_empty())
}

/// Whether all dependencies keep to the rules.
fn dependencies() -> Result<bool> {
    eprintln!("check: dependencies");
    let lock = fs::read_to_string(paths::workspace().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let everything = tree(&["--workspace", "--edges", "normal,build,dev"])?;
    let mut problems = dependencies::sources(&lock);
    problems.extend(dependencies::licences(&everything));
    for (package, banned, reason) in dependencies::BANNED {
        let found = dependencies::banned(&tree(&["--package", package, "--edges", "normal,build"])?, banned);
        problems.extend(found.iter().map(|name| format!("{package} depends on {name}, but {reason}")));
    }
    let server = tree(&["--package", "metahook", "--edges", "normal"])?;
    let several = dependencies::duplicates(&server);
    problems.extend(several.iter().map(|versions| format!("the server has several versions of {versions}")));
    for problem in &problems {
        println!("dependency: {problem}");
    }
    Ok(problems.is_empty())
}

/// Whether GitHub would run all workflows.
fn workflows() -> Result<bool> {
    eprintln!("check: workflows");
    let root = paths::workspace();
    let mut files = Vec::new();
    texts(&root.join(".github/workflows"), "yml", &root, &mut files)?;
    workflows::are_sound(&files.into_iter().map(|(path, _)| path).collect::<Vec<_>>())
}

/// A line for each package: its name and version, `|`, its licence.
fn tree(which: &[&str]) -> Result<String> {
    let mut command = cargo(&["tree", "--locked", "--quiet", "--prefix", "none", "--format", "{p}|{l}"]);
    output(command.args(which))
}

/// The files with this ending in a folder, in order: their paths below `root` and what they hold.
fn texts(place: &Path, ending: &str, root: &Path, into: &mut Vec<(String, String)>) -> Result<()> {
    let cannot_read = || format!("cannot read {}", place.display());
    if place.is_dir() {
        let mut entries: Vec<_> =
            fs::read_dir(place).with_context(cannot_read)?.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        return entries.iter().try_for_each(|entry| texts(entry, ending, root, into));
    }
    if place.extension().is_some_and(|extension| extension == ending) {
        let path = place.strip_prefix(root).unwrap_or(place).display().to_string();
        into.push((path, fs::read_to_string(place).with_context(cannot_read)?));
    }
    Ok(())
}
