//! Values of the chart: the sets that users of Metacontroller's chart have are rendered to what the API server accepts,
//! under its names; wrong values are refused.

use std::fs;

use acceptance::fixture::Fixture;
use acceptance::helm::Helm;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::chart::{CHART, Rendered, full_name, helm};

const RELEASE: &str = "hooks";

/// Sets of values by name.
const VALUES: &str = include_str!("values.json");

/// Check of the objects that a set of values has to become.
type Check = fn(&Rendered, &Names) -> Result<()>;

const CHECKS: [(&str, Check); 10] = [
    ("defaults", defaults),
    ("flags", flags_are_passed),
    ("two", two_replicas),
    ("aggregated", rules_of_other_roles),
    ("rules", explicit_rules),
    ("secure", contexts_as_they_are),
    ("service", a_service),
    ("placed", everything_else),
    ("named", names_and_least_rights),
    ("norbac", no_rights),
];

struct Names {
    full: String,
    namespace: String,
}

impl Rendered {
    /// The rendered objects as the API server accepts them in a dry run.
    pub(super) async fn accepted(test: &Fixture, helm: &Helm, name: &str, values: &Value) -> Result<Self> {
        let folder = test.plane().scratch();
        let file =
            |suffix: &str| folder.join(format!("{}-{name}.{suffix}", test.name())).display().to_string();
        let (values_file, manifests) = (file("values.json"), file("yaml"));
        fs::write(&values_file, values.to_string())?;
        let namespace = test.name();
        helm.run(&["lint", "--strict", CHART, "-n", namespace, "-f", &values_file]).await?;
        let rendered = helm.run(&["template", RELEASE, CHART, "-n", namespace, "-f", &values_file]).await?;
        fs::write(&manifests, rendered)?;
        let line = ["apply", "--dry-run=server", "-o", "json", "-f", &manifests];
        let printed: Value = serde_json::from_str(&test.plane().kubectl().run(&line).await?)?;
        // One object alone is no list.
        Ok(Self(printed["items"].as_array().cloned().unwrap_or_else(|| vec![printed])))
    }
}

pub(crate) async fn value_sets_become_what_the_api_server_accepts_under_the_same_names(
    test: &mut Fixture,
) -> Result<()> {
    let helm = helm(test).await?;
    let names = Names { full: full_name(RELEASE), namespace: test.name().to_owned() };
    let sets: Value = serde_json::from_str(VALUES)?;
    ensure!(sets.as_object().is_some_and(|sets| sets.len() == CHECKS.len()), "a set is not checked");
    for (name, is) in CHECKS {
        let made = Rendered::accepted(test, &helm, name, &sets[name]).await;
        made.and_then(|made| is(&made, &names)).with_context(|| format!("values {name:?}"))?;
    }
    Ok(())
}

fn pod<'a>(made: &'a Rendered, name: &str) -> Result<&'a Value> {
    Ok(&made.get("StatefulSet", name)?["spec"]["template"]["spec"])
}

fn defaults(made: &Rendered, names: &Names) -> Result<()> {
    let Names { full, namespace } = names;
    let mut wanted: Vec<String> = [
        ("ClusterRole", ""),
        ("ClusterRole", "-aggregate-view"),
        ("ClusterRole", "-crds"),
        ("ClusterRoleBinding", ""),
        ("ClusterRoleBinding", "-crds"),
        ("Job", "-crds"),
        ("Role", "-seed"),
        ("RoleBinding", "-seed"),
        ("ServiceAccount", ""),
        ("ServiceAccount", "-crds"),
        ("StatefulSet", ""),
    ]
    .into_iter()
    .map(|(kind, suffix)| format!("{kind} {full}{suffix}"))
    .collect();
    wanted.sort();
    ensure!(made.names() == wanted, "{:?}", made.names());
    for object in &made.0 {
        let labels = &object["metadata"]["labels"];
        let version = env!("CARGO_PKG_VERSION");
        let common = json!([
            format!("metacontroller-helm-{version}"),
            "metacontroller-helm",
            RELEASE,
            version,
            "Helm"
        ]);
        let found = json!([
            labels["helm.sh/chart"],
            labels["app.kubernetes.io/name"],
            labels["app.kubernetes.io/instance"],
            labels["app.kubernetes.io/version"],
            labels["app.kubernetes.io/managed-by"],
        ]);
        ensure!(found == common, "{}: {labels}", object["metadata"]["name"]);
    }
    server(made, full, namespace)?;
    job(made, full)?;
    let everything = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    ensure!(made.get("ClusterRole", full)?["rules"] == everything, "rules");
    let bound = made.get("ClusterRoleBinding", full)?;
    ensure!(bound["roleRef"]["name"] == *full && bound["subjects"][0]["name"] == *full, "{bound}");
    Ok(())
}

fn server(made: &Rendered, full: &str, namespace: &str) -> Result<()> {
    let set = made.get("StatefulSet", full)?;
    let selector =
        json!({ "app.kubernetes.io/name": "metacontroller-helm", "app.kubernetes.io/instance": RELEASE });
    ensure!(set["spec"]["selector"]["matchLabels"] == selector, "{set}");
    ensure!(set["spec"]["template"]["metadata"]["labels"] == selector, "{set}");
    ensure!(
        set["spec"]["serviceName"].as_str().unwrap_or_default().is_empty() && set["spec"]["replicas"] == 1,
        "{set}"
    );
    ensure!(set["metadata"]["namespace"] == namespace, "{set}");
    let pod = &set["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == full && pod["securityContext"]["runAsUser"] == 65532, "{pod}");
    let container = &pod["containers"][0];
    ensure!(
        container["name"] == "metacontroller-helm"
            && container["command"] == json!(["/usr/bin/metacontroller"]),
        "{container}"
    );
    ensure!(container["image"] == acceptance::oci::NAME, "{container}");
    ensure!(
        container["args"]
            == json!([
                "--zap-log-level=4",
                "--discovery-interval=20s",
                "--cache-flush-interval=30m",
                "--health-probe-bind-address=:8081",
                "--module-cache-dir=/var/cache/metahook/modules",
                "--inspection-address=127.0.0.1:9797",
            ]),
        "{container}"
    );
    ensure!(
        container["resources"]
            == json!({ "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "2Gi" } }),
        "{container}"
    );
    ensure!(container["securityContext"]["readOnlyRootFilesystem"] == true, "{container}");
    ensure!(container["ports"] == ports(8081, 9999), "{container}");
    Ok(())
}

/// A Service of the release must not lead to it.
fn job(made: &Rendered, full: &str) -> Result<()> {
    let job = made.get("Job", &format!("{full}-crds"))?;
    ensure!(
        job["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == "metacontroller-helm-crds",
        "{job}"
    );
    ensure!(
        job["spec"]["template"]["spec"]["containers"][0]["command"]
            == json!(["/usr/bin/metahook", "crds", "--apply"]),
        "{job}"
    );
    Ok(())
}

fn no_rights(made: &Rendered, names: &Names) -> Result<()> {
    let wanted = [format!("StatefulSet {}", names.full)];
    ensure!(made.names() == wanted, "{:?}", made.names());
    let pod = pod(made, &names.full)?;
    ensure!(pod["serviceAccountName"] == "default", "{pod}");
    Ok(())
}

fn ports(probes: u32, metrics: u32) -> Value {
    json!([
        { "name": "probes", "containerPort": probes, "protocol": "TCP" },
        { "name": "metrics", "containerPort": metrics, "protocol": "TCP" },
    ])
}

fn flags_are_passed(made: &Rendered, names: &Names) -> Result<()> {
    let container = &pod(made, &names.full)?["containers"][0];
    let args = container["args"].as_array().context("no arguments")?;
    ensure!(
        args.len() == 15 && args[12] == "--pprof-address=:6060" && args[10] == "--events-qps=0.0033",
        "{args:?}"
    );
    ensure!(container["ports"] == ports(8081, 9998), "{container}");
    Ok(())
}

fn two_replicas(made: &Rendered, names: &Names) -> Result<()> {
    ensure!(made.get("StatefulSet", &names.full)?["spec"]["replicas"] == 2, "replicas");
    let budget = made.get("PodDisruptionBudget", &names.full)?;
    ensure!(budget["spec"]["minAvailable"] == 1 && budget["spec"]["maxUnavailable"].is_null(), "{budget}");
    ensure!(budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == RELEASE, "{budget}");
    let rules = made.get("Role", &format!("{}-seed", names.full))?["rules"].clone();
    let leases = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"] });
    ensure!(rules.as_array().is_some_and(|rules| rules.contains(&leases)), "{rules}");
    Ok(())
}

fn rules_of_other_roles(made: &Rendered, names: &Names) -> Result<()> {
    let role = made.get("ClusterRole", &names.full)?;
    let labels = &role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
    ensure!(
        labels["rbac.authorization.k8s.io/aggregate-to-edit"] == "true" && role["rules"].is_null(),
        "{role}"
    );
    Ok(())
}

fn explicit_rules(made: &Rendered, names: &Names) -> Result<()> {
    let sets: Value = serde_json::from_str(VALUES)?;
    let role = made.get("ClusterRole", &names.full)?;
    ensure!(
        role["rules"] == sets["rules"]["clusterRole"]["rules"] && role["aggregationRule"].is_null(),
        "{role}"
    );
    Ok(())
}

/// Nothing of ours is mixed into what a user sets.
fn contexts_as_they_are(made: &Rendered, names: &Names) -> Result<()> {
    let pod = pod(made, &names.full)?;
    ensure!(pod["securityContext"] == json!({ "fsGroup": 65532 }), "{pod}");
    let context = json!({
        "capabilities": { "drop": ["ALL"] }, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
    });
    ensure!(pod["containers"][0]["securityContext"] == context, "{pod}");
    Ok(())
}

/// `nameOverride` that the release's name does not contain is its last part.
fn a_service(made: &Rendered, _: &Names) -> Result<()> {
    let name = format!("{RELEASE}-metacontroller");
    let service = made.get("Service", &name)?;
    let selector =
        json!({ "app.kubernetes.io/name": "metacontroller", "app.kubernetes.io/instance": RELEASE });
    ensure!(service["spec"]["selector"] == selector, "{service}");
    ensure!(
        service["spec"]["ports"][0]["port"] == 9999 && service["spec"]["ports"][0]["targetPort"] == "metrics",
        "{service}"
    );
    let set = made.get("StatefulSet", &name)?;
    ensure!(set["spec"]["selector"]["matchLabels"] == selector, "{set}");
    ensure!(set["spec"]["template"]["spec"]["containers"][0]["name"] == "metacontroller-helm", "{set}");
    Ok(())
}

fn everything_else(made: &Rendered, Names { full, .. }: &Names) -> Result<()> {
    let set = made.get("StatefulSet", full)?;
    ensure!(
        set["spec"]["replicas"] == 0
            && set["spec"]["template"]["metadata"]["annotations"] == json!({ "c": "d" }),
        "{set}"
    );
    let pod = pod(made, full)?;
    ensure!(
        pod["serviceAccountName"] == "other" && pod["imagePullSecrets"] == json!([{ "name": "pull" }]),
        "{pod}"
    );
    ensure!(made.get("ServiceAccount", "other")?["metadata"]["annotations"]["a"] == "b", "annotations");
    ensure!(pod["nodeSelector"] == json!({ "disk": "ssd" }) && pod["tolerations"][0]["key"] == "k", "{pod}");
    ensure!(pod["affinity"]["nodeAffinity"].is_object() && pod["volumes"].is_null(), "{pod}");
    let container = &pod["containers"][0];
    ensure!(
        container["image"] == "registry.example.com/metahook:1" && container["imagePullPolicy"] == "Always",
        "{container}"
    );
    ensure!(container["resources"] == json!({ "requests": { "memory": "4Gi" } }), "{container}");
    ensure!(
        container["env"][0]["name"] == "HTTPS_PROXY" && container["ports"] == ports(65535, 9999),
        "{container}"
    );
    ensure!(container["args"].as_array().is_some_and(|args| args.len() == 5), "{container}");
    let job = made.get("Job", &format!("{full}-crds"))?;
    ensure!(job["spec"]["template"]["spec"]["serviceAccountName"] == "crds", "{job}");
    ensure!(made.find("ClusterRole", &format!("{full}-crds")).is_none(), "{:?}", made.names());
    Ok(())
}

fn names_and_least_rights(made: &Rendered, _: &Names) -> Result<()> {
    let role = made.get("ClusterRole", "controllers")?;
    let label = "metahook.dev/aggregate-to-metacontroller";
    ensure!(role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"][label] == "true", "{role}");
    let server = made.get("ClusterRole", "controllers-server")?;
    ensure!(server["metadata"]["labels"][label] == "true", "{server}");
    ensure!(!server["rules"].to_string().contains('*'), "{server}");
    ensure!(
        made.get("StatefulSet", "controllers").is_ok() && made.find("Job", "controllers-crds").is_none(),
        "{:?}",
        made.names()
    );
    Ok(())
}

/// The rights are written twice, as Helm reads no files outside the chart.
pub(crate) async fn least_rights_are_those_of_the_manifests(test: &mut Fixture) -> Result<()> {
    let helm = helm(test).await?;
    let sets: Value = serde_json::from_str(VALUES)?;
    let made = Rendered::accepted(test, &helm, "least", &sets["named"]).await?;
    for (kind, suffix, of_manifests) in [
        ("ClusterRole", "server", &["clusterrole", "metacontroller-server"][..]),
        ("Role", "seed", &["role", "metacontroller-seed", "-n", "metacontroller"]),
    ] {
        let line = [&["get", "-o", "json"][..], of_manifests].concat();
        let manifests: Value = serde_json::from_str(&test.plane().kubectl().run(&line).await?)?;
        let chart = made.get(kind, &format!("controllers-{suffix}"))?;
        ensure!(
            chart["rules"] == manifests["rules"] && chart["rules"].is_array(),
            "manifests/helm grants {}, manifests/rbac.yaml {}",
            chart["rules"],
            manifests["rules"]
        );
    }
    Ok(())
}

pub(crate) async fn wrong_values_are_refused_with_their_names(test: &mut Fixture) -> Result<()> {
    let helm = helm(test).await?;
    let file = test.plane().scratch().join(format!("{}.json", test.name()));
    for (values, said) in [
        (json!({ "replicas": "two" }), &["replicas", "integer"][..]),
        (json!({ "replicas": -1 }), &["replicas", "minimum"]),
        (json!({ "probes": { "port": 65536 } }), &["probes", "port", "maximum"]),
        (json!({ "commandArgs": "--workers=5" }), &["commandArgs", "array"]),
        (json!({ "crds": { "enable": false } }), &["crds", "enable"]),
        (json!({ "image": { "pullPolicy": "Sometimes" } }), &["pullPolicy", "IfNotPresent"]),
        (json!({ "service": { "enabled": true } }), &["service", "ports"]),
        (json!({ "metrics": { "rules": { "on": true } } }), &["metrics", "rules", "on"]),
        (
            json!({ "metrics": { "serviceMonitor": { "enabled": true } }, "commandArgs": ["--metrics-address=0"] }),
            &["metrics.serviceMonitor.enabled", "--metrics-address"],
        ),
        (json!({ "moduleCache": { "sizeLimit": "much" } }), &["moduleCache", "sizeLimit"]),
        (json!({ "rbac": { "create": false } }), &["crds.serviceAccountName", "crds.enabled"]),
        (
            json!({ "image": { "repository": "ghcr.io/metacontroller/metacontroller" } }),
            &["image.repository", "--reset-then-reuse-values"],
        ),
        (json!({ "crds": null }), &["crds", "--reset-then-reuse-values"]),
    ] {
        fs::write(&file, values.to_string())?;
        let file = file.display().to_string();
        let refused = helm.run(&["template", "release", CHART, "-f", &file]).await.err();
        let why = format!("{:#}", refused.with_context(|| format!("{values} was taken"))?);
        ensure!(said.iter().all(|word| why.contains(word)), "{values}: {why}");
    }
    Ok(())
}
