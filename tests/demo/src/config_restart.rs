//! Pods that are restarted when the `ConfigMap` that they read changes.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::steps::{Demo, title};

const MAP: [&str; 2] = ["configmap", "frontend-config"];

const DEPLOYMENT: [&str; 2] = ["deployment", "frontend"];

const PODS: [&str; 6] = ["get", "pods", "-l", "app=frontend", "-o", "name"];

/// Which `ConfigMap`s of the cluster want a restart.
const ANNOTATED: [&str; 4] = [
    "get",
    "configmaps",
    "-A",
    r"-o=jsonpath={range .items[?(@.metadata.annotations.magalix\.com/podDeleteMatch)]}{.metadata.namespace}/{.metadata.name} {end}",
];

pub(crate) async fn show(demo: &mut Demo<'_>) -> Result<()> {
    demo.begin(&[MAP, DEPLOYMENT]).await?;
    let others = demo.run_quietly(&ANNOTATED).await?;
    ensure!(others.is_empty(), "the demo's controller would look after what is there already: {others}");
    demo.make_namespace().await?;
    demo.control("decoratorcontroller").await?;

    title("Make a ConfigMap, and a Deployment whose Pods read it");
    demo.make_example(&[MAP, DEPLOYMENT]).await?;
    let first = started(demo, &BTreeSet::new()).await?;
    read(demo, "MSG=\"Welcome to Kubernetes!\"").await?;
    let before = notes(demo, "the data was seen", |notes| notes.contains('/')).await?;

    title("Change its data: the Pods are deleted, and the Deployment makes others");
    let patch = r#"{"data":{"config.cfg":"MSG=\"Welcome to metahook!\"\n"}}"#;
    demo.types(&["patch", MAP[0], MAP[1], "--type=merge", "-p", patch]).await?;
    started(demo, &first).await?;
    read(demo, "MSG=\"Welcome to metahook!\"").await?;
    let about = format!("--field-selector=involvedObject.name={}", MAP[1]);
    let named_by = |events: &str| first.iter().all(|pod| events.contains(pod.as_str()));
    demo.waits(&["get", "events", &about], "the Event that names them", named_by).await?;
    let over = |notes: &str| notes != before && notes.split(' ').nth(1).is_none_or(str::is_empty);
    notes(demo, "other data was seen, and no Pod is left to go", over).await?;

    title("Take the annotation away: it is an ordinary ConfigMap again");
    demo.types(&["annotate", MAP[0], MAP[1], "magalix.com/podDeleteMatch-"]).await?;
    notes(demo, "nothing is noted", |notes| notes.trim().is_empty()).await.map(drop)
}

/// Waits until two Pods have replaced those before, and run if they can. Gives them back.
async fn started(demo: &mut Demo<'_>, before: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let named = |pods: &str| {
        pods.lines().map(|pod| pod.trim_start_matches("pod/").to_owned()).collect::<BTreeSet<_>>()
    };
    let others = |pods: &str| named(pods).len() == 2 && named(pods).is_disjoint(before);
    let pods = demo.waits(&PODS, "two other Pods", others).await?;
    let run = demo.has_node();
    let running = |table: &str| !run || table.matches("Running").count() == 2 && table.lines().count() == 3;
    demo.waits(&["get", "pods"], "two Pods that are Running", running).await?;
    Ok(named(&pods))
}

/// Waits until both Pods have printed what they read. Without a node they print nothing.
async fn read(demo: &mut Demo<'_>, text: &str) -> Result<()> {
    if demo.has_node() {
        let both = |printed: &str| printed.lines().eq([text, text]);
        demo.waits(&["logs", "-l", "app=frontend"], text, both).await?;
    }
    Ok(())
}

/// Notes of our hook: which data it saw last, and which Pods are still to go.
const NOTES: &str = r"-o=jsonpath={.metadata.annotations.metahook\.dev/config-seen} {.metadata.annotations.metahook\.dev/pods-to-delete}";

async fn notes(demo: &mut Demo<'_>, what: &str, is: impl Fn(&str) -> bool) -> Result<String> {
    demo.waits(&["get", MAP[0], MAP[1], NOTES], what, is).await
}
