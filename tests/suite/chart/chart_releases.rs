//! Releases on a control plane: Metacontroller's is taken over in place, given back, and uninstalled.

use acceptance::fixture::Fixture;
use acceptance::objects::uid;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::chart::{CHART, METACONTROLLER, full_name, helm};
use crate::tutorial::types;

/// Kinds of the objects that both releases have.
const KINDS: [&str; 4] = ["statefulset", "serviceaccount", "clusterrole", "clusterrolebinding"];

pub(crate) async fn a_release_of_metacontroller_is_upgraded_in_place_and_rolled_back(
    test: &mut Fixture,
) -> Result<()> {
    let (helm, name) = (helm(test).await?, full_name(test.name()));
    let release = test.name().to_owned();
    // As a StatefulSet has it cannot be changed, whatever the chart says.
    for service in ["", "governing"] {
        let set = format!("serviceName={service}");
        helm.run(&["install", &release, METACONTROLLER, "-n", &release, "--set", &set]).await?;
        let before = objects(test, &name).await?;
        let reused = helm.run(&["upgrade", &release, CHART, "-n", &release, "--reuse-values"]).await.err();
        let why = format!("{:#}", reused.context("values of another chart were taken")?);
        ensure!(why.contains("--reset-then-reuse-values"), "{why}");

        // No node is here, so the job would not end.
        helm.run(&["upgrade", &release, CHART, "-n", &release, "--no-hooks"]).await?;
        let after = objects(test, &name).await?;
        for (kind, (one, other)) in KINDS.iter().zip(before.iter().zip(&after)) {
            ensure!(uid(one) == uid(other), "{kind} was made anew");
        }
        let spec = &after[0]["spec"];
        ensure!(spec["serviceName"].as_str().unwrap_or_default() == service, "{spec}");
        ensure!(spec["template"]["spec"]["containers"][0]["image"] == acceptance::oci::NAME, "{spec}");
        let role = format!("get clusterrole {name}-aggregate-edit --ignore-not-found");
        let left = types(&test.plane().kubectl(), &role).await?;
        ensure!(left.is_empty(), "`edit` may still write ControllerRevisions");

        helm.run(&["rollback", &release, "1", "-n", &release, "--no-hooks"]).await?;
        let back = objects(test, &name).await?;
        ensure!(uid(&back[0]) == uid(&before[0]), "the StatefulSet was made anew");
        let spec = &back[0]["spec"];
        ensure!(spec["template"] == before[0]["spec"]["template"], "{spec}");
        helm.run(&["uninstall", &release, "-n", &release, "--wait", "--timeout=180s"]).await?;
    }
    let crds =
        types(&test.plane().kubectl(), "get crd compositecontrollers.metacontroller.k8s.io -o name").await?;
    ensure!(crds.starts_with("customresourcedefinition"), "{crds}");
    Ok(())
}

async fn objects(test: &Fixture, name: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for kind in KINDS {
        let line = format!("-n {} get {kind} {name} -o json", test.name());
        objects.push(serde_json::from_str(&types(&test.plane().kubectl(), &line).await?)?);
    }
    Ok(objects)
}
