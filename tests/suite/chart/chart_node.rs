//! The chart on a node, where its job runs: CustomResourceDefinitions are made and upgraded, controllers survive a
//! take-over, and nothing is left of a release that is uninstalled as documented.

use std::fs;
use std::path::Path;

use acceptance::control_plane::ControlPlane;
use acceptance::fixture::Fixture;
use acceptance::helm::Helm;
use acceptance::kubectl::Kubectl;
use acceptance::node::Image;
use acceptance::oci::{self, Effort, Layout};
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::chart::{METACONTROLLER, full_name};
use crate::in_cluster::tutorial;
use crate::pages::{Desk, all_blocks};
use crate::tutorial::{prints, types};

/// Pages whose commands are typed here.
pub(crate) const PAGE: &str = "helm.md";
pub(crate) const MIGRATION: &str = "migration.md";

const RELEASE: &str = "metacontroller";

/// Longer than all waits of a release that works.
const TIMEOUT: &str = "--timeout=300s";

const FINALIZERS: &str = "-n hello get helloworld your-name -o=jsonpath={.metadata.finalizers}";

/// A control plane with a node that can pull the server's image, and where the commands of the book are typed.
async fn node(test: &Fixture) -> Result<(ControlPlane, Helm, Desk)> {
    let parts = test.plane().parts().context("this test needs a node")?.clone();
    let folder = tempfile::tempdir()?;
    Layout::of_server(&paths::server()?, Effort::Little)?.write(folder.path())?;
    let image = Image::layout(oci::NAME, folder.path());
    let plane = ControlPlane::start_with_node(&parts, &[image], async |_| Ok(())).await?;
    let helm = Helm::new(plane.kubeconfig(), &plane.scratch().join("helm")).await?;
    let mut desk = Desk::new(&plane, &[])?.with_helm()?;
    let (repository, _) = oci::NAME.split_once(':').context("an image has a tag")?;
    desk.words.push(("REGISTRY/metahook", repository.to_owned()));
    Ok((plane, helm, desk))
}

pub(crate) async fn the_chart_is_installed_hosts_controllers_and_leaves_nothing_behind(
    test: &mut Fixture,
) -> Result<()> {
    let (plane, _, mut desk) = node(test).await?;
    let [install, _, _, uninstall, remove] = all_blocks::<5>(PAGE)?;
    let kubectl = plane.kubectl();
    // Server and job have to fit into the strictest of namespaces.
    types(&kubectl, "create namespace metacontroller").await?;
    types(&kubectl, "label namespace metacontroller pod-security.kubernetes.io/enforce=restricted").await?;
    desk.types(&install).await?;
    types(&kubectl, "create namespace hello").await?;
    tutorial(&kubectl).await?;
    let finalize = r#"--patch={"spec":{"hooks":{"finalize":{"wasm":{"configMap":{"namespace":"hello","name":"hello-hook"}}}}}}"#;
    kubectl.run(&["patch", "cc", "hello-controller", "--type=merge", finalize]).await?;
    prints(&kubectl, FINALIZERS, |all| all.contains("compositecontroller-hello-controller")).await?;

    desk.types(&uninstall).await?;
    ensure!(!types(&kubectl, FINALIZERS).await?.contains("metacontroller.io"), "a finalizer is left");
    for kinds in [
        "clusterrole,clusterrolebinding",
        "-n metacontroller statefulset,job,pod,role,rolebinding,serviceaccount",
    ] {
        let line = format!("get {kinds} -l app.kubernetes.io/instance={RELEASE} -o name");
        let left =
            prints(&kubectl, &line, |left| left.is_empty() || left.starts_with("No resources found")).await;
        left.context("the release is uninstalled")?;
    }
    types(&kubectl, "-n hello delete helloworld your-name --timeout=120s").await?;
    let crds = "get crd -o name";
    let left = types(&kubectl, crds).await?;
    ensure!(left.contains("compositecontrollers.metacontroller.k8s.io"), "controllers would be gone: {left}");

    // What the release left behind is no obstacle to the next one.
    for block in [&install, &uninstall, &remove] {
        desk.types(block).await?;
    }
    let left = types(&kubectl, "get crd -o name").await?;
    ensure!(!left.contains("metacontroller.k8s.io"), "{left}");
    Ok(())
}

pub(crate) async fn the_chart_takes_over_from_metacontroller_with_its_definitions(
    test: &mut Fixture,
) -> Result<()> {
    let (plane, helm, mut desk) = node(test).await?;
    let [_, upgrade, rollback, _, _] = all_blocks::<5>(PAGE)?;
    let (kubectl, name) = (plane.kubectl(), full_name(RELEASE));
    install_metacontroller(&plane, &helm).await?;
    let before = controllers(&kubectl).await?;
    let uids = format!(
        "-n metacontroller get statefulset/{name} crd/compositecontrollers.metacontroller.k8s.io crd/decoratorcontrollers.metacontroller.k8s.io crd/controllerrevisions.metacontroller.k8s.io -o=jsonpath={{.items[*].metadata.uid}}"
    );
    let (before_uids, wasm) = (
        types(&kubectl, &uids).await?,
        "get crd compositecontrollers.metacontroller.k8s.io -o=jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.hooks.properties.sync.properties.wasm.type}",
    );
    ensure!(types(&kubectl, wasm).await?.is_empty(), "the definitions are not those of Metacontroller");

    desk.types(&upgrade).await?;
    ensure!(types(&kubectl, &uids).await? == before_uids, "something was made anew");
    ensure!(types(&kubectl, wasm).await? == "object", "the definitions are not ours");
    ensure!(controllers(&kubectl).await? == before, "a controller or a parent is not as it was");
    let jobs = types(&kubectl, "-n metacontroller get jobs -o name").await?;
    ensure!(jobs.is_empty() || jobs.starts_with("No resources found"), "{jobs}");

    // The controller that Metacontroller had takes a module now.
    store_hook(&kubectl).await?;
    types(&kubectl, "replace -f guests/hello/controller.yaml").await?;
    types(&kubectl, "wait --for=condition=Ready --timeout=180s cc/hello-controller").await?;
    prints(&kubectl, "-n hello logs your-name", |log| log == "Hello, Your Name!").await?;

    desk.types(&rollback).await?;
    ensure!(types(&kubectl, &uids).await? == before_uids, "something was made anew");
    ensure!(types(&kubectl, wasm).await? == "object", "the definitions do not stay ours");
    Ok(())
}

pub(crate) async fn a_controller_moves_from_metacontroller_to_a_release_beside_it(
    test: &mut Fixture,
) -> Result<()> {
    let (plane, helm, mut desk) = node(test).await?;
    let [install, move_one] = all_blocks::<2>(MIGRATION)?;
    let (kubectl, name) = (plane.kubectl(), full_name(RELEASE));
    install_metacontroller(&plane, &helm).await?;
    let others = r#"--patch=[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--target-label-selector=example.com/server!=metahook"}]"#;
    let set = format!("statefulset/{name}");
    kubectl.run(&["-n", "metacontroller", "patch", &set, "--type=json", others]).await?;
    controllers(&kubectl).await?;

    desk.types(&install).await?;
    desk.words.extend([
        ("statefulset metacontroller", format!("statefulset {name}")),
        ("NAME", "hello-controller".to_owned()),
    ]);
    desk.types(&move_one).await?;
    let hosts = "-n metahook logs statefulset/metahook";
    prints(&kubectl, hosts, |log| log.contains("hello-controller")).await?;
    store_hook(&kubectl).await?;
    let hooks = r#"--patch={"spec":{"hooks":{"sync":{"version":"v2","webhook":null,"wasm":{"configMap":{"namespace":"hello","name":"hello-hook"}}}}}}"#;
    kubectl.run(&["patch", "cc", "hello-controller", "--type=merge", hooks]).await?;
    prints(&kubectl, "-n hello logs your-name", |log| log == "Hello, Your Name!").await?;
    Ok(())
}

/// A release of Metacontroller's shapes, with the server's image.
async fn install_metacontroller(plane: &ControlPlane, helm: &Helm) -> Result<()> {
    let chart = plane.scratch().join("metacontroller");
    write_chart(&plane.kubectl(), &chart).await?;
    let chart = chart.display().to_string();
    let (repository, tag) = oci::NAME.split_once(':').context("an image has a tag")?;
    let image = format!("image.repository={repository},image.tag={tag}");
    let install = ["install", RELEASE, &chart, "-n", "metacontroller", "--create-namespace"];
    helm.run(&[&install[..], &["--set", &image, "--wait", TIMEOUT]].concat()).await.map(drop)
}

async fn store_hook(kubectl: &Kubectl) -> Result<()> {
    let module = format!("--from-file=hook.wasm={}", paths::guest("hello")?.display());
    kubectl.run(&["-n", "hello", "create", "configmap", "hello-hook", &module]).await.map(drop)
}

/// A controller with a parent; their identities. The webhook is nowhere.
async fn controllers(kubectl: &Kubectl) -> Result<String> {
    let crd = types(kubectl, "get crd helloworlds.example.com --ignore-not-found -o name").await?;
    if crd.is_empty() {
        types(kubectl, "create namespace hello").await?;
        types(kubectl, "apply -f guests/hello/crd.yaml").await?;
        types(kubectl, "wait --for=condition=Established --timeout=120s crd/helloworlds.example.com").await?;
        types(kubectl, "-n hello apply -f guests/hello/hello.yaml").await?;
        types(kubectl, "apply -f tests/suite/chart/controller.yaml").await?;
    }
    let controller = types(kubectl, "get cc hello-controller -o=jsonpath={.metadata.uid}{.spec}").await?;
    let parent =
        types(kubectl, "-n hello get helloworld your-name -o=jsonpath={.metadata.uid}{.spec}").await?;
    Ok(format!("{controller} {parent}"))
}

/// The chart of Metacontroller's shapes, with definitions as they are without ours: in `crds/`, so they belong to no release.
async fn write_chart(kubectl: &Kubectl, into: &Path) -> Result<()> {
    let from = paths::workspace().join(METACONTROLLER);
    for folder in ["templates", "crds"] {
        fs::create_dir_all(into.join(folder))?;
    }
    for file in ["Chart.yaml", "values.yaml", "templates/release.yaml"] {
        fs::copy(from.join(file), into.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    let printed = types(kubectl, "create --dry-run=client -o json -f manifests/crds").await?;
    // One object after the other.
    for definition in serde_json::Deserializer::from_str(&printed).into_iter::<Value>() {
        let mut definition = definition?;
        let version = &mut definition["spec"]["versions"][0];
        if let Some(version) = version.as_object_mut() {
            version.remove("additionalPrinterColumns");
        }
        let fields = &mut version["schema"]["openAPIV3Schema"];
        strip(fields);
        if fields["properties"]["status"].is_object() {
            fields["properties"]["status"] = json!({ "type": "object" });
        }
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        fs::write(into.join("crds").join(format!("{name}.yaml")), definition.to_string())?;
    }
    Ok(())
}

/// Takes out what only our definitions have.
fn strip(schema: &mut Value) {
    const OURS: [&str; 6] =
        ["wasm", "serviceAccountRef", "applyStrategy", "deletionBrake", "relatedDeletion", "relatedKinds"];
    let Value::Object(members) = schema else { return };
    members.remove("x-kubernetes-validations");
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.retain(|name, _| !OURS.contains(&name.as_str()));
    }
    each(members);
}

fn each(members: &mut Map<String, Value>) {
    for (name, member) in members {
        match member {
            Value::Object(all) if name == "properties" => all.values_mut().for_each(strip),
            other => strip(other),
        }
    }
}
