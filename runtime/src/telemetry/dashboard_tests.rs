//! The dashboard in `manifests/observability` asks for metrics and labels that a scrape has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use metahook_core::api::ControllerKind;
use metahook_core::api::hook::HookName;
use metahook_core::api::status::Finding;
use metahook_core::cache::budget::CacheFigures;
use metahook_core::controller_metrics::{Called, OK, ReconcileResult};
use serde_json::Value;

use crate::memory::MemoryBudget;
use crate::queue::QueueFigures;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::open_watches::OpenWatches;
use crate::telemetry::standard::RequestCounts;

/// Labels by metric.
type Served = BTreeMap<String, BTreeSet<String>>;

/// Labels that Prometheus adds to what it scrapes.
const OF_TARGETS: [&str; 3] = ["job", "instance", "pod"];

/// What an expression has besides metrics and labels: functions, aggregations, operators.
const WORDS: [&str; 11] = [
    "bool",
    "by",
    "count",
    "histogram_quantile",
    "increase",
    "max",
    "or",
    "rate",
    "sum",
    "vector",
    "without",
];

/// The metrics of a server that has one of everything.
fn served() -> Served {
    let requests = RequestCounts::new("host:6443");
    requests.count("GET", Some(StatusCode::OK));
    let caches = || CacheFigures { held: BTreeMap::from([("v1 Pod".to_owned(), 1)]), budget: Some(2) };
    let metrics = Metrics::new(|| 0)
        .with_server(&requests, &OpenWatches::default(), &MemoryBudget::new(1))
        .with_caches(caches)
        .with_election("metacontroller", || true);
    let (kind, name) = (ControllerKind::Composite, "c");
    let meter = metrics.meter(kind.as_str(), name);
    let (hook, version, took) = (HookName::Sync, None, Duration::ZERO);
    meter.counts().called(Called { hook, version, result: OK, took, memory: 0, instructions: 0 });
    meter.counts().reconciled(ReconcileResult::Wrote);
    meter.counts().wrote("create");
    let _hosted = metrics.hosted(kind.as_str(), name, || Some(Finding::Unknown));
    let _queue = metrics.queue(kind, name, QueueFigures::default);
    let hooks = [HookName::Sync, HookName::Finalize, HookName::Customize];
    let webhooks = hooks.map(|hook| metrics.webhook(kind.as_str(), name, hook, "http://h"));
    for webhook in &webhooks {
        webhook.answered(StatusCode::OK, Duration::ZERO);
    }
    let text = metrics.text();
    let mut served = Served::new();
    for series in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _value) = series.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.split("\",").filter_map(|label| Some(label.split_once("=\"")?.0.to_owned()));
        served.entry(name.to_owned()).or_default().extend(labels);
    }
    served
}

/// What an expression names.
#[derive(Debug, Default, PartialEq)]
struct Named {
    /// Metrics, each with the labels that it is selected by.
    metrics: Vec<(String, BTreeSet<String>)>,
    /// Labels that series are grouped by.
    grouped_by: BTreeSet<String>,
}

/// Names, numbers and signs of an expression, without what is quoted and without ranges: these name nothing.
fn words(expr: &str) -> Vec<String> {
    let unquoted: String = expr.split('"').step_by(2).collect();
    let parts = unquoted.split('[').map(|part| part.rsplit(']').next().unwrap());
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    let mut words = vec![String::new()];
    for c in parts.collect::<String>().chars() {
        let last = words.last_mut().unwrap();
        if is_name(c) && last.chars().all(is_name) {
            last.push(c);
        } else {
            words.push(c.to_string());
        }
    }
    words.retain(|word| !word.trim().is_empty());
    words
}

/// Where a word of an expression stands.
enum Place {
    /// Between `{` and `}`.
    Selector,
    /// In the list after `by` or `without`.
    Grouping,
    Other,
}

/// Finds what an expression names. Whether it is one at all is for `promtool` to say.
fn named(expr: &str) -> Named {
    let (mut named, mut place, mut last) = (Named::default(), Place::Other, String::new());
    for word in words(expr) {
        let is_name = word.starts_with(char::is_alphabetic);
        match (word.as_str(), &place) {
            ("{", _) => place = Place::Selector,
            ("(", _) if ["by", "without"].contains(&last.as_str()) => place = Place::Grouping,
            ("}" | ")", _) => place = Place::Other,
            (label, Place::Selector) if is_name => {
                named.metrics.last_mut().unwrap().1.insert(label.to_owned());
            }
            (label, Place::Grouping) if is_name => {
                named.grouped_by.insert(label.to_owned());
            }
            (metric, Place::Other) if is_name && !WORDS.contains(&metric) => {
                named.metrics.push((metric.to_owned(), BTreeSet::new()));
            }
            _ => {}
        }
        last = word;
    }
    named
}

/// What is wrong with an expression and the labels that are shown of it.
fn problems(expr: &str, shown: &BTreeSet<String>, served: &Served) -> Vec<String> {
    let Named { metrics, grouped_by } = named(expr);
    let mut found = Vec::new();
    let mut all: BTreeSet<&str> = OF_TARGETS.into();
    for (metric, selected_by) in &metrics {
        let Some(labels) = served.get(metric) else {
            found.push(format!("no server serves {metric}: {expr}"));
            continue;
        };
        all.extend(labels.iter().map(String::as_str));
        let missing = selected_by.iter().filter(|label| !labels.contains(*label));
        let missing = missing.filter(|label| !OF_TARGETS.contains(&label.as_str()));
        found.extend(missing.map(|label| format!("{metric} has no label {label}: {expr}")));
    }
    let missing = grouped_by.iter().chain(shown).filter(|label| !all.contains(label.as_str()));
    found.extend(missing.map(|label| format!("no metric has the label {label}: {expr}")));
    if metrics.is_empty() {
        found.push(format!("no metric: {expr}"));
    }
    found
}

/// The labels that a legend such as `p50 {{name}}` shows.
fn shown(legend: &str) -> BTreeSet<String> {
    let parts = legend.split("{{").skip(1);
    parts.map(|part| part.split("}}").next().unwrap().to_owned()).collect()
}

/// All expressions of the dashboard, each with the labels that are shown of it.
fn expressions() -> Vec<(String, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/observability/dashboard.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let of_panels = targets.map(|target| (text(&target["expr"]), shown(&text(&target["legendFormat"]))));
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let of_variables = variables.filter(|variable| variable["type"] == "query").map(|variable| {
        let query = text(&variable["query"]["query"]);
        let arguments = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')'));
        let (expr, label) = arguments.unwrap().rsplit_once(", ").unwrap();
        (expr.to_owned(), BTreeSet::from([label.to_owned()]))
    });
    of_panels.chain(of_variables).collect()
}

#[test]
fn the_dashboard_asks_for_what_is_served() {
    let (served, expressions) = (served(), expressions());
    assert!(expressions.len() > 40, "{}", expressions.len());
    let found: Vec<_> = expressions.iter().flat_map(|(expr, shown)| problems(expr, shown, &served)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_metrics_and_labels_of_an_expression_are_found() {
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>();
    let expr = r#"histogram_quantile(0.5, sum by (le, name) (rate(a_bucket{job=~"$x, y", name="(b)"}[$__rate_interval]))) / c > 0 or vector(0)"#;
    let metrics = vec![("a_bucket".to_owned(), labels(&["job", "name"])), ("c".to_owned(), labels(&[]))];
    assert_eq!(named(expr), Named { metrics, grouped_by: labels(&["le", "name"]) });
    assert_eq!(shown("p50 {{a}} {{b}}"), labels(&["a", "b"]));
}

#[test]
fn a_misspelt_metric_or_label_is_found() {
    let served = served();
    for (expr, legend, expected) in [
        ("sum(metahook_parents)", "", vec![]),
        ("metahook_parent", "", vec!["no server serves metahook_parent: metahook_parent"]),
        (
            r#"metahook_parents{controller="c"}"#,
            "",
            vec![r#"metahook_parents has no label controller: metahook_parents{controller="c"}"#],
        ),
        (
            "sum by (kind) (metahook_parents)",
            "{{url}}",
            vec![
                "no metric has the label kind: sum by (kind) (metahook_parents)",
                "no metric has the label url: sum by (kind) (metahook_parents)",
            ],
        ),
    ] {
        assert_eq!(problems(expr, &shown(legend), &served), expected);
    }
}
