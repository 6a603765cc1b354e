//! The table of hooks and web servers, and the goals of scripts.

use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

use crate::stats::ratio;
use crate::verdict;

/// Web servers on this machine.
pub(super) const GO_SERVER: &str = "Go, net/http";
pub(super) const NODE_SERVER: &str = "JavaScript, Node's http";
pub(super) const PYTHON_SERVER: &str = "Python, http.server";

/// A script's name, the most instructions of a call with 1 child, and the most that it may take of a web server's time.
const GOALS: [(&str, u64, &str, f64); 2] =
    [("Python", 1_500_000, PYTHON_SERVER, 3.0), ("JavaScript", 300_000, NODE_SERVER, 2.0)];

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Report {
    /// Cores and processor.
    machine: String,
    rows: Vec<Row>,
    goals: Vec<Goal>,
    /// Hooks and servers that this machine cannot build or run.
    left_out: Vec<&'static str>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Row {
    name: &'static str,
    /// Of a call with 1 child and with 100.
    p50_us: [f64; 2],
    /// A web server has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<Figures>,
}

/// What only a hook in the sandbox has; pairs are of calls with 1 child and with 100.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Figures {
    /// The file as its compiler, or its author, wrote it.
    pub(super) stored_bytes: usize,
    /// In the ConfigMaps of `metahook pack`.
    pub(super) packed_bytes: usize,
    pub(super) compile_ms: f64,
    /// The first call after loading.
    pub(super) first_call_ms: f64,
    pub(super) instructions: [u64; 2],
    pub(super) memory_bytes: [u64; 2],
    pub(super) is_pure: bool,
}

#[derive(Debug, Serialize, PartialEq)]
struct Goal {
    what: String,
    found: f64,
    most: f64,
    is_met: bool,
}

impl Row {
    pub(super) fn of_hook(name: &'static str, p50_us: [f64; 2], figures: Figures) -> Self {
        Self { name, p50_us, hook: Some(figures) }
    }

    pub(super) fn of_server(name: &'static str, p50_us: [f64; 2]) -> Self {
        Self { name, p50_us, hook: None }
    }

    fn line(&self) -> String {
        let [small, large] = self.p50_us;
        let Some(hook) = &self.hook else {
            return format!("| {}, over loopback | | | | | {small:.0} µs | {large:.0} µs | | | |", self.name);
        };
        let [stored, packed] = [hook.stored_bytes, hook.packed_bytes].map(kilobytes);
        let [few, many] = hook.instructions.map(grouped);
        let [before, after] = hook.memory_bytes.map(|bytes| bytes >> 10);
        format!(
            "| {} | {stored} | {packed} | {:.1} ms | {:.2} ms | {small:.0} µs | {large:.0} µs | {few} / {many} | {before} / {after} KiB | {} |",
            self.name,
            hook.compile_ms,
            hook.first_call_ms,
            if hook.is_pure { "yes" } else { "no" },
        )
    }
}

impl Goal {
    fn line(&self) -> String {
        let Self { what, found, most, is_met } = self;
        format!("- {what}: {found}, goal {most}: {}", verdict(*is_met))
    }
}

impl Report {
    pub(super) fn new(machine: String, rows: Vec<Row>, left_out: Vec<&'static str>) -> Self {
        let goals = goals(&rows);
        Self { machine, rows, goals, left_out }
    }

    pub(super) fn table(&self) -> String {
        let mut lines = vec![
            "| hook | stored | packed | compile | cold start | 1 child | 100 children | instructions | memory | pure |"
                .to_owned(),
            "|---|---|---|---|---|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(self.rows.iter().map(Row::line));
        lines.extend([String::new(), self.machine.clone(), String::new()]);
        lines.extend(self.goals.iter().map(Goal::line));
        lines.extend(
            self.left_out.iter().map(|name| format!("- {name}: left out, it is not on this machine")),
        );
        lines.join("\n") + "\n"
    }
}

fn goals(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (name, instructions, server, times) in GOALS {
        let find = |name| rows.iter().find(|row| row.name == name);
        let Some((script, figures)) = find(name).and_then(|row| Some((row, row.hook.as_ref()?))) else {
            continue;
        };
        let [found, most] = [figures.instructions[0], instructions].map(millions);
        let what = format!("{name}, millions of instructions with 1 child");
        goals.push(Goal { what, found, most, is_met: found <= most });
        if let Some(server) = find(server) {
            let found = ratio(script.p50_us[0], server.p50_us[0]);
            let what = format!("{name}, times of {} with 1 child", server.name);
            goals.push(Goal { what, found, most: times, is_met: found <= times });
        }
    }
    goals
}

/// To three digits.
#[expect(clippy::cast_precision_loss, reason = "what is lost is less than an instruction")]
fn millions(number: u64) -> f64 {
    ratio(number as f64, 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "what is lost is less than a byte")]
fn kilobytes(bytes: usize) -> String {
    format!("{:.1} KB", bytes as f64 / 1e3)
}

/// With a comma before each group of three digits.
fn grouped(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1000),
    }
}

/// As in "2 cores, Some Processor".
pub(super) fn machine() -> String {
    let cores = available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or(format!("{cores} cores"), |(_, model)| format!("{cores} cores, {model}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn python(p50: f64, instructions: u64) -> Row {
        let figures = Figures {
            stored_bytes: 850,
            packed_bytes: 850,
            compile_ms: 12.34,
            first_call_ms: 1.5,
            instructions: [instructions, 9_000_000],
            memory_bytes: [2048, 4096],
            is_pure: true,
        };
        Row::of_hook("Python", [p50, 900.0], figures)
    }

    fn report(rows: Vec<Row>) -> Report {
        Report::new("2 cores".to_owned(), rows, vec!["C, module"])
    }

    #[test]
    fn a_table_has_a_line_for_each_hook_and_server() {
        let table =
            report(vec![python(300.0, 1_400_007), Row::of_server(PYTHON_SERVER, [100.0, 300.0])]).table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[2],
            "| Python | 0.8 KB | 0.8 KB | 12.3 ms | 1.50 ms | 300 µs | 900 µs | 1,400,007 / 9,000,000 | 2 / 4 KiB | yes |"
        );
        assert_eq!(lines[3], "| Python, http.server, over loopback | | | | | 100 µs | 300 µs | | | |");
        assert_eq!(
            lines[4..],
            [
                "",
                "2 cores",
                "",
                "- Python, millions of instructions with 1 child: 1.4, goal 1.5: met",
                "- Python, times of Python, http.server with 1 child: 3, goal 3: met",
                "- C, module: left out, it is not on this machine",
            ]
        );
    }

    #[test]
    fn a_goal_is_missed_by_more_than_its_bound() {
        let goals = goals(&[python(301.0, 1_501_000), Row::of_server(PYTHON_SERVER, [100.0, 300.0])]);
        assert_eq!(goals.iter().map(|goal| goal.is_met).collect::<Vec<_>>(), [false, false]);
        assert!(goals[1].line().ends_with("3.01, goal 3: missed"), "{}", goals[1].line());
    }

    #[test]
    fn a_script_has_no_goal_beside_a_server_that_is_not_here() {
        assert_eq!(goals(&[python(1.0, 1)]).len(), 1);
        assert_eq!(goals(&[Row::of_server(PYTHON_SERVER, [1.0, 1.0])]), []);
    }

    #[test]
    fn a_report_is_one_object() {
        let report = report(vec![python(300.0, 1_400_000), Row::of_server(NODE_SERVER, [100.0, 300.0])]);
        let expected = json!({
            "machine": "2 cores",
            "rows": [
                { "name": "Python", "p50_us": [300.0, 900.0], "hook": {
                    "stored_bytes": 850, "packed_bytes": 850, "compile_ms": 12.34, "first_call_ms": 1.5,
                    "instructions": [1_400_000, 9_000_000], "memory_bytes": [2048, 4096], "is_pure": true,
                } },
                { "name": "JavaScript, Node's http", "p50_us": [100.0, 300.0] },
            ],
            "goals": [
                { "what": "Python, millions of instructions with 1 child", "found": 1.4, "most": 1.5, "is_met": true },
            ],
            "left_out": ["C, module"],
        });
        assert_eq!(serde_json::to_value(report).unwrap(), expected);
    }

    #[test]
    fn large_numbers_have_commas() {
        assert_eq!([0, 999, 1000, 1_234_005].map(grouped), ["0", "999", "1,000", "1,234,005"]);
    }
}
