//! Cost of calls of one controller while the hook of another one does its worst.
//!
//! In one process, with the server's slots and as many callers for each controller as it has workers. That is harder
//! than a server is hit: there the passes of a controller whose hook fails are tried again with growing pauses; here
//! its callers start the next call at once.

use std::path::Path;

use anyhow::Result;
use binaries::paths;
use serde::Serialize;

use crate::stats::{Times, ratio};
use crate::{fixture, modules, ours, verdict};

/// The usual calls are measured before each neighbour's, so that a slow moment of the machine hits both.
const ROUNDS: usize = 5;

/// How long the callers call in a round: counted calls could take hours beside a neighbour that takes every slot.
const MILLISECONDS: usize = 500;

/// Observed children of each call.
const CHILDREN: usize = 10;

/// The most that p99 may be of the usual one.
const GOAL: f64 = 2.0;

/// Harm that a hook may try to do to others: the modules of `tests/bench/modules`.
const KINDS: [(&str, &str); 7] = [
    ("endless", "counts until its instructions are used up"),
    ("sleeper", "sleeps"),
    ("bomb", "takes all memory"),
    ("recursion", "uses its stack up"),
    ("stdout", "floods stdout"),
    ("stderr", "floods stderr"),
    ("random", "asks for random bytes"),
];

#[derive(Debug, Serialize, PartialEq)]
struct Report {
    rows: Vec<Row>,
}

/// Microseconds.
#[derive(Debug, Serialize, PartialEq)]
struct Row {
    neighbour: &'static str,
    usual_p50_us: f64,
    usual_p99_us: f64,
    beside_p50_us: f64,
    beside_p99_us: f64,
    /// p99 beside the neighbour of the usual p99.
    ratio: f64,
    goal: f64,
    goal_met: bool,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let report = measure()?;
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(())
}

fn measure() -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let hello = paths::guest("hello")?;
    let request = fixture::write(folder.path(), CHILDREN)?;
    let mut ours = ours()?;
    let mut beside = |neighbour: &Path| {
        let neighbour = neighbour.display();
        let hello = hello.display();
        let request = request.display();
        ours.ask(&format!("beside {neighbour} {hello} {request} {MILLISECONDS}"))
    };
    beside(Path::new("-"))?; // caches are warm from here on
    let mut rows = Vec::new();
    for (kind, does) in KINDS {
        eprintln!("{kind}: {does}");
        let mut usual = Times::default();
        let mut besides = Times::default();
        for _ in 0..ROUNDS {
            usual.extend(beside(Path::new("-"))?);
            besides.extend(beside(&modules().join(kind).with_extension("wat"))?);
        }
        rows.push(row(kind, &usual, &besides));
    }
    Ok(Report { rows })
}

fn row(neighbour: &'static str, usual: &Times, beside: &Times) -> Row {
    let ratio = ratio(beside.p99(), usual.p99());
    Row {
        neighbour,
        usual_p50_us: usual.p50(),
        usual_p99_us: usual.p99(),
        beside_p50_us: beside.p50(),
        beside_p99_us: beside.p99(),
        ratio,
        goal: GOAL,
        goal_met: ratio <= GOAL,
    }
}

impl Report {
    fn table(&self) -> String {
        let mut lines = vec![format!(
            "{:>10} {:>17} {:>19} {:>8}  {}",
            "neighbour", "usual p50/p99", "beside p50/p99", "ratio", "goal"
        )];
        lines.extend(self.rows.iter().map(|row| {
            format!(
                "{:>10} {:>8.1}/{:>8.1} {:>9.1}/{:>9.1} {:>8.2}  goal {} {}",
                row.neighbour,
                row.usual_p50_us,
                row.usual_p99_us,
                row.beside_p50_us,
                row.beside_p99_us,
                row.ratio,
                row.goal,
                verdict(row.goal_met),
            )
        }));
        lines.push(format!(
            "Microseconds of a call of guests/hello with {CHILDREN} children, five callers at once; the ratio is that of the p99.\n"
        ));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_compares_the_slowest_calls() {
        let usual = Times::parse("10000 40000").unwrap();
        let beside = Times::parse("20000 90000").unwrap();
        let report = Report { rows: vec![row("endless", &usual, &beside)] };
        let one = json!({
            "neighbour": "endless", "usual_p50_us": 10.0, "usual_p99_us": 40.0, "beside_p50_us": 20.0,
            "beside_p99_us": 90.0, "ratio": 2.25, "goal": 2.0, "goal_met": false,
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), json!({ "rows": [one] }));
        assert!(report.table().lines().nth(1).unwrap().ends_with("2.25  goal 2 missed"));
    }

    #[test]
    fn every_kind_has_its_module() {
        for (kind, _) in KINDS {
            assert!(modules().join(kind).with_extension("wat").is_file(), "{kind}");
        }
    }
}
