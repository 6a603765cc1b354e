//! `cargo xtask test`: runs its parts in order, and prints how each ended and how long it took.

use std::env;
use std::time::{Duration, Instant};

use anyhow::Result;
use binaries::cluster::Binaries;
use binaries::elapsed::{elapsed, readable};
use binaries::helm;
use binaries::node::Parts;
use binaries::paths;
use clap::{Args, ValueEnum};

use crate::cargo::{self, Counts, cargo, run_tests};
use crate::steps::{Steps, usual_time};
use crate::{check, children, fuzz, guests, runners};

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
    /// Only tests with one of these in their name
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Part {
    /// Formats, links, circles between modules, dependencies, workflows, lints, documentation
    Check,
    /// Unit tests, plans by example, laws and examples in the documentation, of all crates
    Unit,
    /// Each limit of the Wasm sandbox, obeyed and violated
    Sandbox,
    /// The server against a real control plane
    Acceptance,
    /// Random input under libFuzzer
    Fuzz,
}

/// Test targets of the part "unit", which runs the tests of all libraries and programs, too.
const UNIT: [&str; 13] = [
    "alerts",
    "answers",
    "cases",
    "crd_formats",
    "customize",
    "dashboard",
    "deletion_brake",
    "leader_election",
    "reference",
    "requests",
    "response_matrix",
    "settling",
    "tree_size",
];

/// Test targets that need guests.
const SANDBOX: [&str; 2] = ["sandbox", "author"];

/// The test target that needs a control plane.
const ACCEPTANCE: &str = "suite";

const ALL: [Part; 5] = [Part::Check, Part::Unit, Part::Sandbox, Part::Acceptance, Part::Fuzz];

impl Options {
    /// Acceptance tests with one of these in their name.
    pub(crate) fn acceptance(filters: Vec<String>, repeat: u32, install: bool) -> Self {
        Self { only: vec![Part::Acceptance], repeat, install, filters }
    }
}

/// How one part ended, once.
struct Row {
    name: String,
    counts: Counts,
    ok: bool,
    took: Duration,
}

/// Runs the chosen tests, and returns whether all passed; what did not is printed.
pub(crate) fn run(options: &Options) -> bool {
    let chosen: Vec<Part> =
        ALL.into_iter().filter(|part| options.only.is_empty() || options.only.contains(part)).collect();
    let mut steps = Steps::announce("test", &plan(&chosen));
    let mut rows: Vec<Row> = Vec::new();
    for part in chosen {
        if part == Part::Acceptance && rows.iter().all(|row| row.ok) {
            steps.begin("build");
            rows.push(row("build", || {
                build_for_acceptance(options)?;
                Ok((Counts::default(), true))
            }));
        }
        if rows.iter().all(|row| row.ok) {
            steps.begin(part.name());
            rows.extend(runs(part, options));
        }
    }
    children::interrupted().is_none() && close(&rows)
}

/// Steps and what they take as a rule.
fn plan(parts: &[Part]) -> Vec<(&'static str, String)> {
    let mut plan = Vec::new();
    for part in parts {
        if *part == Part::Acceptance {
            let kubernetes = Binaries::usual_time().unwrap_or_default();
            let helm = helm::usual_time().unwrap_or_default();
            plan.push((
                "build",
                format!("Kubernetes: {kubernetes}; Helm: {helm}; server and guests: two minutes at most"),
            ));
        }
        plan.push((part.name(), part.usual_time()));
    }
    plan
}

/// One row for each time the part is run; a failed run does not keep the next from running.
fn runs(part: Part, options: &Options) -> Vec<Row> {
    let repeated = options.only.contains(&part) || part == Part::Acceptance;
    let times = if repeated { options.repeat.max(1) } else { 1 };
    let name = move |time: u32| match times {
        1 => part.name().to_owned(),
        _ => format!("{} {time}/{times}", part.name()),
    };
    let times = (1..=times).take_while(|_| children::interrupted().is_none());
    times.map(|time| row(&name(time), || part.run(&options.filters))).collect()
}

fn row(name: &str, part: impl FnOnce() -> Result<(Counts, bool)>) -> Row {
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
            Self::Check => "check",
            Self::Unit => "unit",
            Self::Sandbox => "sandbox",
            Self::Fuzz => "fuzz",
            Self::Acceptance => "acceptance",
        }
    }

    fn usual_time(self) -> String {
        match self {
            Self::Check => usual_time("five minutes", "a minute"),
            Self::Unit => usual_time("ten minutes", "a minute"),
            Self::Sandbox => "a minute".to_owned(),
            Self::Fuzz => usual_time("three minutes", "a minute"),
            Self::Acceptance => "four minutes".to_owned(),
        }
    }

    fn run(self, filters: &[String]) -> Result<(Counts, bool)> {
        // Always the whole workspace, so that dependencies are built once, with the features that all of it needs.
        match self {
            Self::Check => check::all().map(|ok| (Counts::default(), ok)),
            Self::Unit => {
                let targets = UNIT.iter().flat_map(|name| ["--test", name]);
                let targets: Vec<&str> = ["--lib", "--bins"].into_iter().chain(targets).collect();
                let (mut counts, units) = tests(&targets, filters)?;
                let (examples, documentation) = tests(&["--doc"], filters)?;
                counts += examples;
                Ok((counts, units && documentation))
            }
            Self::Sandbox => tests(&SANDBOX.map(|name| ["--test", name]).concat(), filters),
            Self::Fuzz => fuzz::part(filters),
            Self::Acceptance => tests(&["--test", ACCEPTANCE], filters),
        }
    }
}

fn tests(which: &[&str], filters: &[String]) -> Result<(Counts, bool)> {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    run_tests(command.args(which).arg("--").args(filters))
}

fn build_for_acceptance(options: &Options) -> Result<()> {
    let start = Instant::now();
    Binaries::find_or_build()?;
    if options.filters.is_empty() || options.install {
        // with a filter the first test that wants a node looks for its parts
        if let Err(missing) = Parts::find_or_build(may_install(options.install))? {
            println!("no node, so tests that need one are skipped: {}", missing.with_hint());
        }
        if let Err(why) = helm::find_or_build() {
            println!("no Helm, so the chart's tests are skipped: {why:#}");
        }
    }
    // The server comes with the sandbox tests, with the features that the tests build their dependencies with.
    for test in ["sandbox", "suite"] {
        cargo::run(&mut cargo(&["test", "--workspace", "--test", test, "--no-run"]))?;
    }
    guests::build_all()?;
    runners::build_what_can_be()?;
    runners::compile(cargo::program("metahook")?, &paths::runners()?)?;
    println!("built in {}", elapsed(start));
    Ok(())
}

/// Whether to install missing Debian packages: where it is asked for, or where CI=true.
pub(crate) fn may_install(asked: bool) -> bool {
    asked || env::var_os("CI").is_some_and(|value| value == "true")
}

/// The closing table; the last line has the sums.
fn close(rows: &[Row]) -> bool {
    let mut sum = Counts::default();
    println!("\n{:<18} {:<8} {:>7} {:>7} {:>8}  took", "part", "", "passed", "failed", "skipped");
    for Row { name, counts, ok, took } in rows {
        let how = if *ok { "ok" } else { "FAILED" };
        let Counts { passed, failed, skipped } = counts;
        println!("{name:<18} {how:<8} {passed:>7} {failed:>7} {skipped:>8}  {}", readable(*took));
        sum += *counts;
    }
    println!("all in {}", readable(rows.iter().map(|row| row.took).sum()));
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    rows.iter().all(|row| row.ok)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cargo::output;

    /// Run by `cargo xtask fuzz`, with features that nothing else has.
    const FUZZ: [&str; 2] = ["fuzz", "oracle"];

    #[test]
    fn each_test_target_of_the_workspace_belongs_to_a_part() {
        let metadata =
            output(&mut cargo(&["metadata", "--no-deps", "--format-version=1", "--offline"])).unwrap();
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
        let tests = targets.filter(|target| target["kind"][0] == "test");
        let mut there: Vec<&str> = tests.map(|target| target["name"].as_str().unwrap()).collect();
        let mut run = [&UNIT[..], &SANDBOX, &FUZZ, &[ACCEPTANCE]].concat();
        there.sort_unstable();
        run.sort_unstable();
        assert_eq!(run, there);
    }
}
