//! Runs the parts of `cargo xtask test` in order, and says how each ended and how long it took.

use std::time::{Duration, Instant};

use acceptance::cluster::Binaries;
use acceptance::node::Parts;
use acceptance::wait::spoken;
use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cargo::{self, Counts, cargo, run_tests};
use crate::{build, check};

#[derive(Args)]
pub(crate) struct Options {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Runs the chosen parts, or else the acceptance tests, so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Installs Debian packages that a node needs and that are missing (done without asking where CI=true)
    #[arg(long)]
    install: bool,
    /// Only tests with this in their name
    filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Part {
    /// Formats are as rustfmt leaves them
    Fmt,
    /// No lint warns
    Clippy,
    /// Unit tests, plans by example, laws and examples in the documentation, of all crates
    Unit,
    /// Each limit of the Wasm sandbox, obeyed and violated
    Sandbox,
    /// The server against a real control plane
    Acceptance,
}

const ALL: [Part; 5] = [Part::Fmt, Part::Clippy, Part::Unit, Part::Sandbox, Part::Acceptance];

/// How one part ended, once.
struct Row {
    name: String,
    counts: Counts,
    ok: bool,
    took: Duration,
}

/// Whether everything passed; what did not has been said.
pub(crate) fn run(options: &Options) -> bool {
    let mut rows = Vec::new();
    for part in ALL {
        if !options.only.is_empty() && !options.only.contains(&part) {
            continue;
        }
        let goes_on = rows.iter().all(|row: &Row| row.ok);
        if goes_on && part == Part::Acceptance {
            rows.push(row("build", || {
                Ok((Counts::default(), what_acceptance_needs(options).map(|()| true)?))
            }));
        }
        if rows.iter().all(|row| row.ok) {
            rows.extend(runs(part, options));
        }
    }
    close(&rows)
}

/// One row for each time the part is run; a failed run does not keep the next from running.
fn runs(part: Part, options: &Options) -> Vec<Row> {
    let repeated = options.only.contains(&part) || part == Part::Acceptance;
    let times = if repeated { options.repeat.max(1) } else { 1 };
    let name = |time: u32| match times {
        1 => part.name().to_owned(),
        _ => format!("{} {time}/{times}", part.name()),
    };
    (1..=times).map(|time| row(&name(time), || part.run(options.filter.as_deref()))).collect()
}

fn row(name: &str, part: impl FnOnce() -> Result<(Counts, bool)>) -> Row {
    println!("\n== {name}");
    let start = Instant::now();
    let (mut counts, ok) = part().unwrap_or_else(|why| {
        eprintln!("error: {why:#}");
        (Counts::default(), false)
    });
    if !ok && counts.failed == 0 {
        counts.failed = 1; // what failed was no test: it counts all the same
    }
    Row { name: name.to_owned(), counts, ok, took: start.elapsed() }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Sandbox => "sandbox",
            Self::Acceptance => "acceptance",
        }
    }

    fn run(self, filter: Option<&str>) -> Result<(Counts, bool)> {
        // Always the whole workspace, so that dependencies are built once, with the features that all of it needs.
        match self {
            Self::Fmt => check::format().map(|()| (Counts::default(), true)),
            Self::Clippy => check::lints().map(|()| (Counts::default(), true)),
            Self::Unit => {
                let (mut counts, units) = tests(
                    &[
                        "--lib",
                        "--bins",
                        "--test",
                        "cases",
                        "--test",
                        "settling",
                        "--test",
                        "answers",
                        "--test",
                        "requests",
                        "--test",
                        "response_matrix",
                    ],
                    filter,
                )?;
                let (examples, documentation) = tests(&["--doc"], filter)?;
                counts += examples;
                Ok((counts, units && documentation))
            }
            Self::Sandbox => tests(&["--test", "sandbox"], filter),
            Self::Acceptance => tests(&["--test", "suite"], filter),
        }
    }
}

fn tests(which: &[&str], filter: Option<&str>) -> Result<(Counts, bool)> {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    run_tests(command.args(which).arg("--").args(filter))
}

fn what_acceptance_needs(options: &Options) -> Result<()> {
    Binaries::find_or_build()?;
    if options.filter.is_none() || options.install {
        // else what a node is made of is looked for by the first test that wants one
        if let Err(missing) = Parts::find_or_build(build::may_install(options.install))? {
            println!("no node, so tests that need one are skipped: {}", missing.said());
        }
    }
    build::all()?;
    cargo::run(&mut cargo(&["test", "--workspace", "--test", "suite", "--no-run"]))
}

/// The closing table; the last line has the sums.
fn close(rows: &[Row]) -> bool {
    let mut sum = Counts::default();
    println!("\n{:<18} {:<8} {:>7} {:>7} {:>8}  took", "part", "", "passed", "failed", "skipped");
    for Row { name, counts, ok, took } in rows {
        let how = if *ok { "ok" } else { "FAILED" };
        let Counts { passed, failed, skipped } = counts;
        println!("{name:<18} {how:<8} {passed:>7} {failed:>7} {skipped:>8}  {}", spoken(*took));
        sum += *counts;
    }
    println!("all in {}", spoken(rows.iter().map(|row| row.took).sum()));
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    rows.iter().all(|row| row.ok)
}
