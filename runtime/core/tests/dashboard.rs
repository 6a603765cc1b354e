//! The dashboard in `manifests/observability`: each panel says what it means, each alert has one that turns red with it, and the
//! expressions are of `PromQL`. The last needs `promtool`, which comes with Prometheus; where it is not installed, that test says so and
//! ends. That servers serve the metrics is tested in `runtime/src/telemetry/dashboard_tests.rs`.
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

const PAGE: &str = "runtime/docs/src/alerts.md#";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(in_repository(path)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("manifests/observability/dashboard.json")).unwrap()
}

/// All panels but the titles of rows.
fn panels() -> Vec<Value> {
    let mut panels = dashboard()["panels"].as_array().unwrap().clone();
    panels.retain(|panel| panel["type"] != "row");
    panels
}

/// The sections of the page on alerts that a panel names.
fn sections(panel: &Value) -> Vec<&str> {
    let description = panel["description"].as_str().unwrap();
    description.split(PAGE).skip(1).map(|rest| rest.trim_end_matches('.')).collect()
}

#[test]
fn each_panel_has_a_description_and_the_chosen_data_source() {
    for panel in panels() {
        let description = panel["description"].as_str().unwrap_or_default();
        assert!(description.len() > 40 && description.ends_with('.'), "{panel}");
        for part in std::iter::once(&panel).chain(panel["targets"].as_array().unwrap()) {
            assert_eq!(
                part["datasource"],
                json!({ "type": "prometheus", "uid": "${datasource}" }),
                "{panel}"
            );
        }
    }
}

#[test]
fn panels_have_ids_and_places_of_their_own() {
    let panels = dashboard()["panels"].as_array().unwrap().clone();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in &panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "another panel lies there: {panel}");
        }
    }
}

/// A text that is not empty.
fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[test]
fn grafana_can_import_it() {
    let dashboard = dashboard();
    // From this version on data sources are named by type and uid, as here; Grafana would rewrite an older one.
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    // The id of a Grafana's database would replace another dashboard there.
    assert!(dashboard.get("id").is_none_or(Value::is_null), "{}", dashboard["id"]);
    let uid = dashboard["uid"].as_str().unwrap();
    assert!(!uid.is_empty() && uid.len() <= 40, "{uid}");
    assert!(has_text(&dashboard["title"]));
    // What an export for other people has: then the import asks for it, and a folder of dashboards does not work.
    assert!(dashboard.get("__inputs").is_none());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(has_text(&panel["type"]) && has_text(&panel["title"]), "{panel}");
        // A row that is open has its panels beside it.
        let inner = panel["panels"].as_array();
        assert!(inner.is_none_or(Vec::is_empty), "{panel}");
        assert_eq!(panel["type"] == "row", panel["targets"].is_null(), "{panel}");
    }
}

#[test]
fn each_target_has_an_expression_and_a_name_of_its_own() {
    for panel in panels() {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        let mut names = BTreeSet::new();
        for target in targets {
            assert!(has_text(&target["expr"]), "{target}");
            assert!(has_text(&target["refId"]) && names.insert(target["refId"].as_str()), "{panel}");
            assert!(
                ["time_series", "table", "heatmap"].map(Value::from).contains(&target["format"]),
                "{target}"
            );
        }
    }
}

#[test]
fn each_variable_that_is_used_is_there() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let known: BTreeSet<_> = variables.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(known.len(), variables.len());
    let source = variables.iter().find(|it| it["name"] == "datasource").unwrap();
    assert_eq!((&source["type"], &source["query"]), (&json!("datasource"), &json!("prometheus")));
    let text = dashboard.to_string();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = text.split('$').skip(1).map(|rest| rest.trim_start_matches('{').split(|c| !is_name(c)));
    let named: BTreeSet<_> = named.filter_map(|mut words| Some(words.next()?.to_owned())).collect();
    // `$` ends a regular expression, too.
    let is_own = |name: &String| !name.is_empty() && !name.starts_with("__");
    let used: BTreeSet<_> = named.into_iter().filter(is_own).collect();
    assert_eq!(used, known);
}

#[test]
fn each_alert_has_a_panel_that_turns_red_with_it() {
    let rules: Value = serde_saphyr::from_str(&read("manifests/observability/rules.yaml")).unwrap();
    let rules = rules["spec"]["groups"][0]["rules"].as_array().unwrap().clone();
    let alerts: BTreeSet<_> =
        rules.iter().map(|rule| rule["alert"].as_str().unwrap().to_lowercase()).collect();
    let panels = panels();
    let named: BTreeSet<_> = panels.iter().flat_map(sections).map(str::to_owned).collect();
    assert_eq!(named, alerts);
    let is_red = |panel: &&Value| {
        let steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array();
        steps.is_some_and(|steps| steps.iter().any(|step| step["color"] == "red"))
    };
    let red: BTreeSet<_> = panels.iter().filter(is_red).flat_map(sections).map(str::to_owned).collect();
    assert_eq!(red, alerts);
}

#[test]
fn each_expression_is_promql() {
    let panels = panels();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let rules = targets.enumerate().map(|(at, target)| {
        // What Grafana puts in. Its other variables are within quotes.
        let expr = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
        json!({ "record": format!("dashboard:{at}"), "expr": expr })
    });
    let rules = json!({ "groups": [{ "name": "dashboard", "rules": rules.collect::<Vec<_>>() }] });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    // JSON is YAML.
    fs::write(&file, rules.to_string()).unwrap();
    let Ok(output) = Command::new("promtool").args(["check", "rules"]).arg(&file).output() else {
        eprintln!("skipped: promtool, which comes with Prometheus, is not installed");
        return;
    };
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{out}{err}");
}
