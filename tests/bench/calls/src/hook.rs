//! Cost of one call of a hook, beside the same hook as a webhook and beside calls that do less.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use binaries::paths;
use serde::Serialize;

use crate::meter::Meter;
use crate::stats::{Times, ratio};
use crate::{fixture, modules, ours, verdict, webhook};

/// Each way is measured once a round, so that a slow moment of the machine hits all of them.
const ROUNDS: usize = 20;

/// Observed children, calls a round, and the most that ours may be of the webhook's.
const SIZES: [(usize, usize, f64); 5] =
    [(0, 250, 0.6), (1, 250, 0.5), (10, 100, 0.15), (100, 25, 0.08), (1000, 10, 0.08)];

/// The most that the tutorial's hook may take of a Rust program that only reads and decodes the same request.
const MAX_OF_PARSE: f64 = 1.3;

/// So many are compiled, and loaded from the cache.
const COMPILED: usize = 9;

/// Milliseconds that this may take.
const MAX_COMPILE_MS: f64 = 250.0;
const MAX_CACHED_MS: f64 = 1.0;

#[derive(Debug, Serialize, PartialEq)]
struct Report {
    rows: Vec<Row>,
    /// Milliseconds from the bytes of `guests/hello` to a module that can be called.
    compile_ms: f64,
    /// Milliseconds to load `guests/hello` with the artifact out of the cache.
    load_cached_ms: f64,
}

/// Microseconds.
#[derive(Debug, Serialize, PartialEq)]
struct Row {
    children: usize,
    ours_p50_us: f64,
    ours_p99_us: f64,
    /// A Go webhook that decodes children into maps.
    webhook_p50_us: f64,
    webhook_p99_us: f64,
    /// A Go webhook that does not look into the children (`json.RawMessage`).
    unread_p50_us: f64,
    /// An instance whose `_start` returns at once.
    floor_p50_us: f64,
    /// A Rust program with an empty `main`.
    empty_p50_us: f64,
    /// A Rust program that decodes the request and ends.
    parse_p50_us: f64,
    /// Ours of the webhook's.
    ratio: f64,
    goal: f64,
    goal_met: bool,
    /// Ours of `parse`.
    parse_ratio: f64,
    parse_goal_met: bool,
}

/// Times that were measured with one number of children.
#[derive(Debug, Default)]
struct Measured {
    ours: Times,
    webhook: Times,
    unread: Times,
    floor: Times,
    empty: Times,
    parse: Times,
}

struct Bench {
    ours: Meter,
    /// Serves until the caller is gone.
    caller: Meter,
    _webhook: Meter,
    hello: PathBuf,
    floor: PathBuf,
    empty: PathBuf,
    parse: PathBuf,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let mut bench = Bench::start()?;
    let report = bench.measure()?;
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(())
}

impl Bench {
    fn start() -> Result<Self> {
        let mut served = Meter::start(Command::new(webhook()?).arg("serve"))?;
        let caller = Meter::start(Command::new(webhook()?).args(["call", &served.line()?]))?;
        Ok(Self {
            ours: ours()?,
            caller,
            _webhook: served,
            hello: paths::guest("hello")?,
            floor: modules().join("floor.wat"),
            empty: paths::guest("empty")?,
            parse: paths::guest("parse")?,
        })
    }

    fn measure(&mut self) -> Result<Report> {
        let folder = tempfile::tempdir()?;
        let mut sizes = Vec::new();
        for (children, calls, goal) in SIZES {
            let request = fixture::write(folder.path(), children)?;
            // The first round warms caches up, and is forgotten.
            self.round(&request, calls, &mut Measured::default())?;
            sizes.push((children, calls, goal, request, Measured::default()));
        }
        for round in 1..=ROUNDS {
            eprintln!("round {round} of {ROUNDS}");
            for (_, calls, _, request, measured) in &mut sizes {
                self.round(request, *calls, measured)?;
            }
        }
        let kept = folder.path().join("modules");
        let cached =
            self.ours.ask(&format!("cached {} {} {COMPILED}", kept.display(), self.hello.display()))?;
        let compiled = self.ours.ask(&format!("compile {} {COMPILED}", self.hello.display()))?;
        Ok(Report {
            rows: sizes
                .iter()
                .map(|(children, _, goal, _, measured)| measured.row(*children, *goal))
                .collect(),
            compile_ms: ratio(compiled.p50(), 1000.0),
            load_cached_ms: ratio(cached.p50(), 1000.0),
        })
    }

    fn round(&mut self, request: &Path, calls: usize, into: &mut Measured) -> Result<()> {
        let request = request.display();
        let ours = |way: &str, module: &Path| format!("{way} {} {request} {calls}", module.display());
        into.ours.extend(self.ours.ask(&ours("answer", &self.hello))?);
        into.webhook.extend(self.caller.ask(&format!("maps {request} {calls}"))?);
        into.unread.extend(self.caller.ask(&format!("unread {request} {calls}"))?);
        into.floor.extend(self.ours.ask(&ours("run", &self.floor))?);
        into.empty.extend(self.ours.ask(&ours("run", &self.empty))?);
        into.parse.extend(self.ours.ask(&ours("run", &self.parse))?);
        Ok(())
    }
}

impl Measured {
    fn row(&self, children: usize, goal: f64) -> Row {
        let of_webhook = ratio(self.ours.p50(), self.webhook.p50());
        let of_parse = ratio(self.ours.p50(), self.parse.p50());
        Row {
            children,
            ours_p50_us: self.ours.p50(),
            ours_p99_us: self.ours.p99(),
            webhook_p50_us: self.webhook.p50(),
            webhook_p99_us: self.webhook.p99(),
            unread_p50_us: self.unread.p50(),
            floor_p50_us: self.floor.p50(),
            empty_p50_us: self.empty.p50(),
            parse_p50_us: self.parse.p50(),
            ratio: of_webhook,
            goal,
            goal_met: of_webhook <= goal,
            parse_ratio: of_parse,
            parse_goal_met: of_parse < MAX_OF_PARSE,
        }
    }
}

impl Report {
    fn table(&self) -> String {
        let mut lines = vec![format!(
            "{:>8} {:>15} {:>19} {:>8} {:>7} {:>7} {:>8} {:>7}  {}",
            "children",
            "ours p50/p99",
            "webhook p50/p99",
            "unread",
            "floor",
            "empty",
            "parse",
            "ratio",
            "goals"
        )];
        lines.extend(self.rows.iter().map(|row| {
            format!(
                "{:>8} {:>7.1}/{:>7.1} {:>9.1}/{:>9.1} {:>8.1} {:>7.1} {:>7.1} {:>8.1} {:>7.3}  goal {} {}; {:.2} of parse, goal {MAX_OF_PARSE} {}",
                row.children,
                row.ours_p50_us,
                row.ours_p99_us,
                row.webhook_p50_us,
                row.webhook_p99_us,
                row.unread_p50_us,
                row.floor_p50_us,
                row.empty_p50_us,
                row.parse_p50_us,
                row.ratio,
                row.goal,
                verdict(row.goal_met),
                row.parse_ratio,
                verdict(row.parse_goal_met),
            )
        }));
        lines.push(format!(
            "compile {} ms, goal {MAX_COMPILE_MS} {}; from the cache {} ms, goal {MAX_CACHED_MS} {}",
            self.compile_ms,
            verdict(self.compile_ms < MAX_COMPILE_MS),
            self.load_cached_ms,
            verdict(self.load_cached_ms < MAX_CACHED_MS),
        ));
        lines.push(LEGEND.to_owned());
        lines.join("\n")
    }
}

const LEGEND: &str = "\
Microseconds. ours: from a request's bytes to its decoded answer, guests/hello. webhook: the same hook in Go, over
loopback, from objects to a decoded answer; its ratio is ours/webhook. unread: that webhook without a look into the
children. floor: an instance whose _start returns at once. empty: a Rust program with an empty main. parse: one that
decodes the request and ends.
";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn times(text: &str) -> Times {
        Times::parse(text).unwrap()
    }

    fn report() -> Report {
        let measured = Measured {
            ours: times("30000 20000 26000"),
            webhook: times("50000"),
            unread: times("40000"),
            floor: times("3000"),
            empty: times("13000"),
            parse: times("20000"),
        };
        Report { rows: vec![measured.row(1, 0.5)], compile_ms: 120.5, load_cached_ms: 0.5 }
    }

    #[test]
    fn a_report_is_one_object_of_rows_and_two_times() {
        let row = json!({
            "children": 1, "ours_p50_us": 26.0, "ours_p99_us": 30.0, "webhook_p50_us": 50.0, "webhook_p99_us": 50.0,
            "unread_p50_us": 40.0, "floor_p50_us": 3.0, "empty_p50_us": 13.0, "parse_p50_us": 20.0,
            "ratio": 0.52, "goal": 0.5, "goal_met": false, "parse_ratio": 1.3, "parse_goal_met": false,
        });
        assert_eq!(
            serde_json::to_value(report()).unwrap(),
            json!({ "rows": [row], "compile_ms": 120.5, "load_cached_ms": 0.5 })
        );
    }

    #[test]
    fn a_table_says_of_each_row_whether_its_goals_are_met() {
        let table = report().table();
        let row = table.lines().nth(1).unwrap();
        assert!(row.ends_with("0.520  goal 0.5 missed; 1.30 of parse, goal 1.3 missed"), "{row}");
        let met = Measured {
            ours: times("25000"),
            webhook: times("50000"),
            parse: times("20000"),
            ..Measured::default()
        };
        let table = Report { rows: vec![met.row(1, 0.5)], ..report() }.table();
        assert!(
            table.lines().nth(1).unwrap().ends_with("goal 0.5 met; 1.25 of parse, goal 1.3 met"),
            "{table}"
        );
    }
}
