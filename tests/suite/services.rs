//! Hooks in Pods behind Services, as users of Metacontroller write and deploy them; the server runs as Metacontroller's Pod did.

use acceptance::control_plane::ControlPlane;
use acceptance::fixture::Fixture;
use acceptance::kubectl::Kubectl;
use acceptance::node::{Image, services};
use acceptance::oci::{self, Effort, Layout};
use acceptance::paths;
use anyhow::{Context, Result};
use serde_json::json;

use crate::tutorial::{prints, types};

/// Interpreters of the hooks; their Pods see the programs of this machine.
pub(crate) const INTERPRETERS: [&str; 2] = ["/usr/bin/python3", "/usr/bin/node"];

pub(crate) async fn hooks_of_metacontrollers_users_run_unchanged_behind_services(
    test: &mut Fixture,
) -> Result<()> {
    let parts = test.plane().parts().context("this test needs a node")?.clone();
    let folder = tempfile::tempdir()?;
    Layout::of_server(&paths::server()?, Effort::Little)?.write(folder.path())?;
    let image = Image::layout(oci::NAME, folder.path());
    let mut plane = ControlPlane::start_with_node(&parts, &[image], async |_| Ok(())).await?;
    let kubectl = plane.kubectl();

    types(&kubectl, "create namespace hooks").await?;
    types(&kubectl, "-n hooks create configmap hooks --from-file=tests/suite/hooks").await?;
    install(&kubectl).await?;
    types(&kubectl, "apply -f guests/hello/crd.yaml -f tests/suite/hooks/hooks.yaml").await?;
    services::route(&mut plane, "hooks").await?;

    types(&kubectl, "create namespace hello").await?;
    types(&kubectl, "-n hello apply -f guests/hello/hello.yaml").await?;
    prints(&kubectl, "-n hello logs your-name", |log| log == "Hello, Your Name!").await?;
    let pods = "-n hello get helloworld your-name -o=jsonpath={.status.pods}";
    prints(&kubectl, pods, |pods| pods == "1").await?;

    let echo = json!({
        "apiVersion": "example.com/v1",
        "kind": "Echo",
        "metadata": { "name": "cave", "namespace": "hello" },
        "spec": { "says": "hello" },
    });
    let file = plane.scratch().join("echo.json");
    std::fs::write(&file, echo.to_string())?;
    types(&kubectl, &format!("apply -f {}", file.display())).await?;
    let status = "-n hello get echo cave -o=jsonpath={.status.echo}";
    prints(&kubectl, status, |echo| echo == "hello").await?;
    let patch = r#"--patch={"spec":{"says":"goodbye"}}"#;
    kubectl.run(&["-n", "hello", "patch", "echo", "cave", "--type=merge", patch]).await?;
    prints(&kubectl, status, |echo| echo == "goodbye").await?;
    Ok(())
}

/// With the command, the arguments and the rights that Metacontroller has.
async fn install(kubectl: &Kubectl) -> Result<()> {
    types(kubectl, "apply --server-side -k manifests").await?;
    let grant = "create clusterrolebinding all --clusterrole=cluster-admin --serviceaccount=metacontroller:metacontroller";
    types(kubectl, grant).await?;
    let container = "/spec/template/spec/containers/0";
    let patch = json!([
        { "op": "replace", "path": format!("{container}/command"), "value": ["/usr/bin/metacontroller"] },
        { "op": "replace", "path": format!("{container}/args"), "value": ["--zap-log-level=4", "--discovery-interval=20s"] },
    ]);
    let patch = format!("--patch={patch}");
    let line = ["-n", "metacontroller", "patch", "statefulset", "metacontroller", "--type=json", &patch];
    kubectl.run(&line).await?;
    types(kubectl, "-n metacontroller rollout status statefulset/metacontroller --timeout=180s").await?;
    Ok(())
}
