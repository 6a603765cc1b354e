//! Objects of the Prometheus Operator and the dashboard in the chart: off by default, and those of `manifests/observability` where they are on.

use std::fs;

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::chart::{Rendered, full_name, helm};

const RELEASE: &str = "hooks";

/// The definitions that the objects need, without their schemas.
fn definitions() -> Vec<Value> {
    let definition = |kind: &str, plural: &str| {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version =
            json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced", "versions": [version],
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            },
        })
    };
    vec![definition("ServiceMonitor", "servicemonitors"), definition("PrometheusRule", "prometheusrules")]
}

/// The object of a file as the API server accepts it.
async fn of_manifests(test: &Fixture, file: &str) -> Result<Value> {
    let path = format!("manifests/observability/{file}");
    let line = ["apply", "--dry-run=server", "-o", "json", "-f", &path];
    Ok(serde_json::from_str(&test.plane().kubectl().run(&line).await?)?)
}

/// The ConfigMap with the dashboard that kustomize makes of the component, as the API server accepts it.
async fn of_component(test: &Fixture) -> Result<Value> {
    let folder = test.plane().scratch().join(format!("{}-component", test.name()));
    fs::create_dir(&folder)?;
    // Kustomize takes relative paths alone.
    let up = "../".repeat(folder.canonicalize()?.components().count() - 1);
    let manifests = format!("{up}{}/manifests", paths::workspace().strip_prefix("/")?.display());
    fs::write(folder.join("kustomization.yaml"), format!("components: [{manifests}/observability]\n"))?;
    let line = ["apply", "--dry-run=server", "-o", "json", "-k", &folder.display().to_string()];
    let mut made: Value = serde_json::from_str(&test.plane().kubectl().run(&line).await?)?;
    let objects = made["items"].as_array_mut().context("no list")?;
    let dashboard =
        objects.iter().position(|object| object["metadata"]["name"] == "metacontroller-dashboard");
    dashboard.map(|at| objects.swap_remove(at)).context("no dashboard")
}

/// Whether Grafana's sidecar takes the dashboard of the manifests from a ConfigMap.
fn shows_dashboard(config_map: &Value) -> Result<bool> {
    let source = fs::read_to_string(paths::workspace().join("manifests/observability/dashboard.json"))?;
    let shown = config_map["data"]["metahook.json"].as_str().context("no dashboard")?;
    Ok(config_map["metadata"]["labels"]["grafana_dashboard"] == "1" && shown.trim_end() == source.trim_end())
}

pub(crate) async fn metrics_and_alerts_are_those_of_the_manifests(test: &mut Fixture) -> Result<()> {
    let helm = helm(test).await?;
    let off = Rendered::accepted(test, &helm, "off", &json!({ "metrics": null })).await?;
    ensure!(off.find("Service", &format!("{}-metrics", full_name(RELEASE))).is_none(), "{:?}", off.names());
    let dashboard = format!("{}-dashboard", full_name(RELEASE));
    ensure!(off.find("ConfigMap", &dashboard).is_none(), "{:?}", off.names());
    let kubectl = test.plane().kubectl();
    let file = test.plane().scratch().join(format!("{}-definitions.json", test.name()));
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": definitions() }).to_string())?;
    let file = file.display().to_string();
    kubectl.run(&["apply", "-f", &file]).await?;
    kubectl.run(&["wait", "--for=condition=established", "--timeout=180s", "-f", &file]).await?;

    let on = |labels: Value| json!({ "enabled": true, "labels": labels });
    let values = json!({ "metrics": {
        "serviceMonitor": on(json!({ "release": "prometheus" })), "rules": on(Value::Null), "dashboard": { "enabled": true },
    } });
    let made = Rendered::accepted(test, &helm, "on", &values).await?;
    let full = full_name(RELEASE);
    let rules = made.get("PrometheusRule", &full)?;
    let source = of_manifests(test, "rules.yaml").await?;
    ensure!(rules["spec"] == source["spec"] && source["spec"]["groups"].is_array(), "{rules}\n{source}");
    let (service, monitor) =
        (made.get("Service", &format!("{full}-metrics"))?, made.get("ServiceMonitor", &full)?);
    ensure!(monitor["metadata"]["labels"]["release"] == "prometheus", "{monitor}");
    let source = of_manifests(test, "servicemonitor.yaml").await?;
    ensure!(monitor["spec"]["endpoints"] == source["spec"]["endpoints"], "{monitor}\n{source}");
    let source = of_manifests(test, "service.yaml").await?;
    ensure!(service["spec"]["ports"] == source["spec"]["ports"], "{service}\n{source}");
    ensure!(service["spec"]["clusterIP"] == "None", "{service}");
    // The monitor finds this Service, and this the Pods.
    let wanted =
        monitor["spec"]["selector"]["matchLabels"].as_object().context("the monitor selects nothing")?;
    ensure!(
        wanted.iter().all(|(key, value)| service["metadata"]["labels"][key] == *value),
        "{monitor}\n{service}"
    );
    let pods = &made.get("StatefulSet", &full)?["spec"]["selector"]["matchLabels"];
    ensure!(service["spec"]["selector"] == *pods, "{service}");
    let made = made.get("ConfigMap", &dashboard)?;
    ensure!(shows_dashboard(made)? && shows_dashboard(&of_component(test).await?)?, "{made}");
    kubectl.run(&["delete", "-f", &file]).await.map(drop)
}
