//! The Helm chart: what is rendered of its values, and releases on a real control plane and node.

pub(crate) mod chart_metrics;
pub(crate) mod chart_node;
pub(crate) mod chart_releases;
pub(crate) mod chart_values;

use acceptance::fixture::Fixture;
use acceptance::helm::Helm;
use anyhow::{Context, Result};
use serde_json::Value;

use crate::runner::{Test, tests};

/// Skipped where Helm cannot be built.
pub(crate) fn all() -> Vec<Test> {
    let on_a_node = tests![
        chart_node::{
            the_chart_is_installed_hosts_controllers_and_leaves_nothing_behind,
            the_chart_takes_over_from_metacontroller_with_its_definitions,
            a_controller_moves_from_metacontroller_to_a_release_beside_it,
        },
    ];
    let tests = tests![
        chart_metrics::{
            metrics_and_alerts_are_those_of_the_manifests,
        },
        chart_values::{
            value_sets_become_what_the_api_server_accepts_under_the_same_names,
            least_rights_are_those_of_the_manifests,
            wrong_values_are_refused_with_their_names,
        },
        chart_releases::{
            a_release_of_metacontroller_is_upgraded_in_place_and_rolled_back,
        },
    ];
    on_a_node.into_iter().map(Test::on_a_node).chain(tests).map(Test::with_helm).collect()
}

/// In the checkout's folder.
const CHART: &str = "manifests/helm";

/// A release of Metacontroller's shapes.
const METACONTROLLER: &str = "tests/suite/chart/metacontroller";

/// The first part of the names of what a release makes, where its values say nothing else.
fn full_name(release: &str) -> String {
    format!("{release}-metacontroller-helm")
}

async fn helm(test: &Fixture) -> Result<Helm> {
    let plane = test.plane();
    Helm::new(plane.kubeconfig(), &plane.scratch().join(format!("helm-{}", test.name()))).await
}

/// Objects by kind and name.
struct Rendered(Vec<Value>);

impl Rendered {
    fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }

    fn get(&self, kind: &str, name: &str) -> Result<&Value> {
        self.find(kind, name).with_context(|| format!("no {kind} {name}, but {:?}", self.names()))
    }

    fn names(&self) -> Vec<String> {
        let name =
            |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', "");
        let mut names: Vec<String> = self.0.iter().map(name).collect();
        names.sort();
        names
    }
}
