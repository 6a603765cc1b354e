//! `cargo xtask fuzz`, and the part `fuzz` of the tests: the targets of `tests/fuzz` under libFuzzer, and its oracle.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use binaries::paths;
use clap::Args;

use crate::cargo::{self, Counts, cargo};
use crate::children;

/// How long the part `fuzz` runs each target.
const TARGET_SECONDS: u32 = 10;

#[derive(Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u32,
    /// Compares our WASI with wasmtime's instead, which is compiled first
    #[arg(long)]
    oracle: bool,
    /// Only these targets: folders of tests/fuzz/seeds
    targets: Vec<String>,
}

/// Runs the chosen targets, or all.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.oracle {
        // Not of the whole workspace: that would be compiled for the oracle's features, too.
        return cargo::run(&mut cargo(&[
            "test",
            "--package",
            "fuzz",
            "--features",
            "oracle",
            "--test",
            "oracle",
        ]));
    }
    let all = targets()?;
    for target in &options.targets {
        ensure!(all.contains(target), "{target} is not a target: there are {}", all.join(", "));
    }
    let chosen = if options.targets.is_empty() { &all } else { &options.targets };
    chosen.iter().try_for_each(|target| fuzz(target, options.seconds))
}

/// The part of the tests.
pub(crate) fn part(filters: &[String]) -> Result<(Counts, bool)> {
    let mut counts = Counts::default();
    let is_wanted = |target: &String| filters.is_empty() || filters.iter().any(|word| target.contains(word));
    let targets = targets()?.into_iter().filter(is_wanted);
    for target in targets {
        if !has_cpp_compiler() {
            println!("target {target} ... ignored, there is no C++ compiler for libFuzzer");
            counts.skipped += 1;
            continue;
        }
        fuzz(&target, TARGET_SECONDS)?;
        println!("target {target} ... ok");
        counts.passed += 1;
    }
    Ok((counts, true))
}

/// Runs a target for some time.
///
/// Only crates of the workspace are compiled for libFuzzer: their dependencies are those of all other tests. The
/// inputs it finds are kept in the target folder, where the next run goes on, and one that fails beside them.
fn fuzz(target: &str, seconds: u32) -> Result<()> {
    ensure!(children::interrupted().is_none(), "interrupted");
    println!("\nfuzzing {target} for {seconds} s");
    let folder = paths::target()?.join("fuzz").join(target);
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
    let mut command = cargo(&["test", "--workspace", "--features", "fuzz/libfuzzer", "--test", "fuzz", "--"]);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", folder.display()))
        .args(["-verbosity=0", "-timeout=20", "-rss_limit_mb=2048"])
        .args([corpus, paths::workspace().join("tests/fuzz/seeds").join(target)])
        .env("FUZZ_TARGET", target)
        .env("CARGO_INCREMENTAL", "0") // its many small units take twice as long to instrument
        .env("RUSTC_WORKSPACE_WRAPPER", paths::workspace().join("tests/fuzz/rustc.sh"));
    cargo::run(&mut command).with_context(|| {
        format!("{target} fails; the input is in {}, and belongs into tests/fuzz/seeds", folder.display())
    })
}

/// The targets' names, which are those of their folders of seeds.
fn targets() -> Result<Vec<String>> {
    let folder = paths::workspace().join("tests/fuzz/seeds");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn has_cpp_compiler() -> bool {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let version =
        Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}
