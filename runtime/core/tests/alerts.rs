//! The alerts in `manifests/observability`: each has its section in the book, asks for metrics that there are, and fires for a fault.
//! The last needs `promtool`, which comes with Prometheus; where it is not installed, that test says so and ends.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test: a broken file ends it"
)]
#![allow(clippy::print_stderr, reason = "a part that is skipped says so")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const PAGE: &str = "runtime/docs/src/alerts.md";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(in_repository(path)).unwrap()
}

/// The rules as Prometheus reads them.
fn spec() -> Value {
    let rules: Value = serde_saphyr::from_str(&read("manifests/observability/rules.yaml")).unwrap();
    rules["spec"].clone()
}

fn alerts() -> Vec<Value> {
    let groups = spec()["groups"].as_array().unwrap().clone();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap()
}

#[test]
fn each_alert_has_a_section_and_each_section_an_alert() {
    let (page, alerts) = (read(PAGE), alerts());
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, alerts.iter().map(name).collect());
    for section in page.split("\n## ").skip(1) {
        for part in ["**What it means.**", "**What to do.**", "```sh"] {
            assert!(section.contains(part), "{part} is missing in {section}");
        }
    }
}

#[test]
fn each_alert_has_severity_texts_and_its_section() {
    for alert in alerts() {
        let severity = &alert["labels"]["severity"];
        assert!(severity == "critical" || severity == "warning", "{alert}");
        for text in ["summary", "description"] {
            assert!(
                alert["annotations"][text].as_str().is_some_and(|text| text.len() > 10),
                "{text}: {alert}"
            );
        }
        let section = format!("{PAGE}#{}", name(&alert).to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], section.as_str());
    }
}

#[test]
fn each_metric_of_an_alert_is_in_the_reference() {
    let page = read("runtime/docs/src/reference/metrics.md");
    for alert in alerts() {
        let texts = [&alert["expr"], &alert["annotations"]["description"]].map(|text| text.as_str().unwrap());
        let words =
            texts.iter().flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        let metrics: BTreeSet<_> =
            words.filter(|word| word.starts_with("metahook_") || word.ends_with("_status")).collect();
        assert!(!metrics.is_empty(), "{alert}");
        for metric in metrics {
            assert!(page.contains(&format!("| `{metric}` |")), "{metric} is not in the reference: {alert}");
        }
    }
}

/// Helm reads no files outside of the chart.
#[test]
fn the_chart_has_the_same_files() {
    for name in ["rules.yaml", "service.yaml", "servicemonitor.yaml", "dashboard.json"] {
        let (source, copy) = (
            read(&format!("manifests/observability/{name}")),
            format!("manifests/helm/observability/{name}"),
        );
        if std::env::var_os("BLESS").is_some() {
            fs::write(in_repository(&copy), &source).unwrap();
        }
        assert_eq!(read(&copy), source, "{copy} is another one: BLESS=1 copies it");
    }
}

/// A series with its values, one a minute.
type Series<'a> = (&'a str, &'a str);

/// An alert, series that show its fault, and series that look alike and are sound.
type Case<'a> = (&'a str, &'a [Series<'a>], &'a [Series<'a>]);

const CASES: [Case<'static>; 9] = [
    (
        "MetahookControllerNotReady",
        // The reason changes: not ready all the same.
        &[
            (r#"metahook_controller_ready{controller_name="c",reason="InvalidSpec"}"#, "0x8 stale"),
            (r#"metahook_controller_ready{controller_name="c",reason="ModuleNotLoaded"}"#, "_x8 0x30"),
        ],
        &[
            (r#"metahook_controller_ready{controller_name="c",reason="NotYetKnown"}"#, "0x3 stale"),
            (r#"metahook_controller_ready{controller_name="c",reason="Running"}"#, "_x3 1x30"),
        ],
    ),
    (
        "MetahookParentsFailing",
        &[(r#"metahook_parents_failing{controller_name="c"}"#, "2x30")],
        &[(r#"metahook_parents_failing{controller_name="c"}"#, "2x8 0x30")],
    ),
    (
        "MetahookDeletionsHeld",
        &[(r#"metahook_parents_held{controller_name="c"}"#, "0x10 3x30")],
        &[(r#"metahook_parents_held{controller_name="c"}"#, "0x30")],
    ),
    (
        "MetahookLastGoodInUse",
        &[(r#"metahook_last_good_in_use{controller_name="c"}"#, "1x30")],
        // It was refused, and replaced.
        &[(r#"metahook_last_good_in_use{controller_name="c"}"#, "1x3 0x30")],
    ),
    (
        "MetahookMemoryShort",
        &[("metahook_memory_reserved_bytes", "95x30"), ("metahook_memory_budget_bytes", "100x30")],
        &[
            ("metahook_memory_reserved_bytes", "95x3 10x30"),
            ("metahook_memory_budget_bytes", "100x30"),
            (r#"metahook_cache_bytes{kind="Pod"}"#, "800x30"),
            ("metahook_cache_budget_bytes", "1000x30"),
            ("metahook_memory_refusals_total", "7x30"),
        ],
    ),
    (
        "MetahookNoLeader",
        &[
            (r#"leader_election_master_status{name="l",pod="a",instance="a"}"#, "1x5 0x30"),
            (r#"leader_election_master_status{name="l",pod="b",instance="b"}"#, "0x30"),
            (r#"metahook_watches{pod="a",instance="a"}"#, "3x30"),
            (r#"metahook_watches{pod="b",instance="b"}"#, "3x30"),
        ],
        &[
            (r#"leader_election_master_status{name="l",pod="a",instance="a"}"#, "0x30"),
            (r#"leader_election_master_status{name="l",pod="b",instance="b"}"#, "1x30"),
            (r#"metahook_watches{pod="a",instance="a"}"#, "3x30"),
            (r#"metahook_watches{pod="b",instance="b"}"#, "3x30"),
            // Another program stands by.
            (r#"leader_election_master_status{name="other",pod="c",instance="c"}"#, "0x30"),
        ],
    ),
    (
        "MetahookWatchesBroken",
        &[("metahook_watches_broken", "1x30")],
        &[("metahook_watches_broken", "0x5 1x3 0x30")],
    ),
    (
        "MetahookParentsThrottled",
        &[(r#"metahook_parents_throttled{controller_name="c"}"#, "1x30")],
        &[(r#"metahook_parents_throttled{controller_name="c"}"#, "1x5 0x30")],
    ),
    ("MetahookNoServer", &[("up", "0x30")], &[("metahook_watches", "0x30")]),
];

/// More faults of the alert that has several.
const MORE_FAULTS: [(&str, &[Series<'static>]); 2] = [
    (
        "MetahookMemoryShort",
        &[
            (r#"metahook_cache_bytes{kind="Pod"}"#, "800x30"),
            (r#"metahook_cache_bytes{kind="Secret"}"#, "150x30"),
            ("metahook_cache_budget_bytes", "1000x30"),
        ],
    ),
    ("MetahookMemoryShort", &[("metahook_memory_refusals_total", "0+1x30")]),
];

/// One test of `promtool`: whether the alert fires after 20 minutes of these series.
fn unit(alert: &str, series: &[Series<'_>], fires: bool) -> Value {
    let input: Vec<_> =
        series.iter().map(|(series, values)| json!({ "series": series, "values": values })).collect();
    let expr = format!(r#"count(ALERTS{{alertname="{alert}",alertstate="firing"}})"#);
    let samples = if fires { json!([{ "labels": "{}", "value": 1 }]) } else { json!([]) };
    json!({
        "name": format!("{alert}, {}", if fires { "a fault" } else { "sound" }),
        "interval": "1m",
        "input_series": input,
        "promql_expr_test": [{ "expr": expr, "eval_time": "20m", "exp_samples": samples }],
    })
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "promtool {arguments:?}: {out}{err}");
}

#[test]
fn each_alert_fires_for_its_fault_and_not_for_a_sound_server() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("skipped: promtool, which comes with Prometheus, is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // JSON is YAML.
    let rules = folder.path().join("rules.yaml");
    fs::write(&rules, spec().to_string()).unwrap();
    promtool(&["check", "rules"], &rules);
    let tried: BTreeSet<_> = CASES.iter().map(|(alert, ..)| (*alert).to_owned()).collect();
    assert_eq!(tried, alerts().iter().map(|alert| name(alert).to_owned()).collect());
    let units =
        CASES.iter().flat_map(|(alert, fault, sound)| [unit(alert, fault, true), unit(alert, sound, false)]);
    let more = MORE_FAULTS.iter().map(|(alert, fault)| unit(alert, fault, true));
    let tests = json!({
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": units.chain(more).collect::<Vec<_>>(),
    });
    let file = folder.path().join("tests.yaml");
    fs::write(&file, tests.to_string()).unwrap();
    promtool(&["test", "rules"], &file);
}
