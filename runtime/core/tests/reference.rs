//! The reference pages name all reasons of Events and conditions, and all metrics, with their meaning.
//! `BLESS=1 cargo test -p metahook-core --test reference` writes the generated parts of the pages anew.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test: a broken page ends it")]

use std::fs;
use std::path::Path;

use metahook_core::api::reason::{ConditionReason, EventReason, Subject};
use metahook_core::controller_metrics::{Metric, MetricKind, ReconcileResult};

/// Compares the part of a page between its markers, or writes it.
fn compare(page: &str, part: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- generated: {part} -->\n\n");
    let end = "\n<!-- end generated -->";
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} has no {begin}"));
    let (found, after) = rest.split_once(end).unwrap();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, [before, &begin, expected, end, after].concat()).unwrap();
    } else {
        assert!(found == expected, "{page} is not up to date: run this test with BLESS=1\n{expected}");
    }
}

fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let cell = |text: &String| if text.is_empty() { " ".to_owned() } else { format!(" {text} ") };
    let line = |cells: &[String]| format!("|{}|\n", cells.iter().map(cell).collect::<Vec<_>>().join("|"));
    let head: Vec<_> = columns.iter().map(|column| (*column).to_owned()).collect();
    let rows = rows.into_iter().map(|row| line(&row));
    line(&head) + &"|---".repeat(columns.len()) + "|\n" + &rows.collect::<String>()
}

#[test]
fn the_page_of_events_is_up_to_date() {
    let of = |subject| {
        let reasons = EventReason::ALL.iter().filter(move |reason| reason.subject() == subject);
        let row = |reason: &EventReason| {
            let word = format!("`{}`", reason.as_str());
            vec![word, reason.kind().as_str().into(), reason.meaning().into(), reason.remedy().into()]
        };
        table(&["reason", "type", "when", "what to do"], reasons.map(row))
    };
    let page = format!(
        "## On controllers\n\n{}\n## On parents\n\n{}",
        of(Subject::Controllers),
        of(Subject::Parents)
    );
    compare("events.md", "events", &page);
}

#[test]
fn the_page_of_conditions_is_up_to_date() {
    let mut last = None;
    let row = |reason: &ConditionReason| {
        let condition = reason.condition();
        let name = if last == Some(condition) { String::new() } else { format!("`{}`", condition.as_str()) };
        last = Some(condition);
        let status = if reason.is_true() { "True" } else { "False" };
        vec![name, status.into(), format!("`{}`", reason.as_str()), reason.meaning().into()]
    };
    let page = table(&["condition", "status", "reason", "meaning"], ConditionReason::ALL.iter().map(row));
    compare("conditions.md", "conditions", &page);
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    let row = |metric: &Metric| {
        let suffix = if metric.kind() == MetricKind::Counter { "_total" } else { "" };
        let label = metric.label();
        let label = if label.is_empty() { String::new() } else { format!("`{label}`") };
        vec![
            format!("`{}{suffix}`", metric.name()),
            format!("{:?}", metric.kind()).to_lowercase(),
            label,
            metric.meaning().into(),
        ]
    };
    let metrics = table(&["metric", "type", "labels", "meaning"], Metric::ALL.iter().map(row));
    let row = |result: &ReconcileResult| vec![format!("`{}`", result.as_str()), result.meaning().into()];
    let results = table(&["`result`", "meaning"], ReconcileResult::ALL.iter().map(row));
    compare("metrics.md", "metrics", &format!("{metrics}\n## Results of reconciles\n\n{results}"));
}
