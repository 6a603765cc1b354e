//! The guests that run Pods to their end, on a node: each with its own controller and example.

use acceptance::api::{Kind, NODE, Objects};
use acceptance::fixture::Fixture;
use acceptance::node::NAME;
use acceptance::objects::{Composite, text, uid};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::gallery_scripts::{OF_TEST, end, has_status, names, parent, store_script};
use crate::scripts::until_loaded;
use crate::tutorial::{prints, types};

/// The guest's own controller, for parents of the test alone.
async fn hosted(test: &mut Fixture, guest: &str, file: &str) -> Result<()> {
    store_script(test, guest, file).await?;
    let line = format!("create --dry-run=client -o json -f guests/{guest}/controller.yaml");
    let mut controller: Value = serde_json::from_str(&types(&test.plane().kubectl(), &line).await?)?;
    let (label, name) = (test.label(), test.name());
    let (key, value) = label.split_once('=').context("a label")?;
    controller["metadata"] = json!({ "name": name, "labels": { key: value } });
    controller["spec"]["parentResource"]["labelSelector"] = json!({ "matchLabels": { OF_TEST: name } });
    for (_, hook) in controller["spec"]["hooks"].as_object_mut().context("no hooks")? {
        hook["script"]["configMap"] = json!({ "namespace": name, "name": "hook" });
    }
    test.serve()?;
    test.host(Composite::of(controller)).await?;
    until_loaded(test, test.name()).await
}

/// As the guest's README has it.
async fn apply_example(test: &Fixture, guest: &str, parent: &str) -> Result<()> {
    let (kubectl, own) = (test.plane().kubectl(), test.name());
    types(&kubectl, &format!("-n {own} apply -f guests/{guest}/example.yaml")).await?;
    types(&kubectl, &format!("-n {own} label {parent} {OF_TEST}={own}")).await.map(drop)
}

async fn logs(test: &Fixture, pod: &str, wanted: &str) -> Result<()> {
    let line = format!("-n {} logs {pod}", test.name());
    prints(&test.plane().kubectl(), &line, |log| log == wanted).await.map(drop)
}

/// A template whose Pods have the test's folder of the node at `/tried`.
fn shell(test: &Fixture, script: &str) -> Value {
    let folder = json!({ "path": folder(test), "type": "DirectoryOrCreate" });
    json!({ "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "c", "image": "busybox", "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "tried", "mountPath": "/tried" }],
        }],
        "volumes": [{ "name": "tried", "hostPath": folder }],
    } })
}

fn folder(test: &Fixture) -> String {
    format!("/var/lib/{}", test.name())
}

fn indexed_job() -> Kind {
    Kind::new("example.com", "v1", "IndexedJob", "indexedjobs")
}

pub(crate) async fn indexed_job_runs_its_numbers_to_their_end_on_the_node(test: &mut Fixture) -> Result<()> {
    hosted(test, "indexed-job", "hook.py").await?;
    let jobs = test.within(&indexed_job());
    apply_example(test, "indexed-job", "indexedjob/squares").await?;
    let complete = json!({
        "phase": "Complete", "active": 0, "succeeded": 5, "failed": 0, "completedIndexes": [0, 1, 2, 3, 4],
    });
    jobs.until("squares", "complete", has_status(complete)).await?;
    let all = test.pods().list().await?;
    ensure!(names(&all) == ["squares-0", "squares-1", "squares-2", "squares-3", "squares-4"], "{all:#?}");
    for (number, square) in ["0", "1", "4", "9", "16"].into_iter().enumerate() {
        logs(test, &format!("squares-{number}"), square).await?;
    }
    // At most two at a time: each has one less before it that had not ended.
    for (number, pod) in all.iter().enumerate() {
        let made = text(pod, "/metadata/creationTimestamp");
        let had_ended = all.iter().filter(|one| !ended(one).is_empty() && ended(one) <= made).count();
        ensure!(had_ended + 2 > number, "{had_ended} had ended when {number} was made: {all:#?}");
    }
    a_pod_that_a_user_deletes_is_no_failure(test, &jobs).await?;
    a_number_that_fails_is_tried_again(test, &jobs).await?;
    one_failure_too_many_ends_all(test, &jobs).await
}

/// When its container ended.
fn ended(pod: &Value) -> &str {
    text(pod, "/status/containerStatuses/0/state/terminated/finishedAt")
}

/// Its kubelet kills the container, so the Pod fails before it goes.
async fn a_pod_that_a_user_deletes_is_no_failure(test: &Fixture, jobs: &Objects) -> Result<()> {
    let pods = test.pods();
    let runs = |script: &str| {
        let container = json!({ "name": "square", "image": "busybox", "command": ["sh", "-c", script] });
        json!({ "template": { "spec": { "containers": [container] } } })
    };
    let mut one_more = runs("sleep 600");
    one_more["completions"] = json!(6);
    jobs.merge("squares", &json!({ "spec": one_more })).await?;
    let is_running = |pod: &Value| text(pod, "/status/phase") == "Running";
    let first = pods.until("squares-5", "Running", is_running).await?;
    jobs.until("squares", "one that is active", has_status(json!({ "active": 1 }))).await?;

    // Its finalizer keeps it until the hook has seen it fail: it is not active then.
    let holds = |by: Value| json!({ "metadata": { "finalizers": by } });
    pods.merge("squares-5", &holds(json!(["example.com/holds"]))).await?;
    jobs.merge("squares", &json!({ "spec": runs("echo \"number $JOB_INDEX\"") })).await?;
    pods.delete("squares-5").await?;
    let killed = |pod: &Value| {
        text(pod, "/status/phase") == "Failed" && !pod["metadata"]["deletionTimestamp"].is_null()
    };
    let held = pods.until("squares-5", "killed", killed).await?;
    ensure!(uid(&held) == uid(&first), "a Pod that runs was made anew for its template");
    let none = json!({ "phase": "Running", "active": 0, "succeeded": 5, "failed": 0 });
    jobs.until("squares", "none that is active", has_status(none)).await?;
    pods.merge("squares-5", &holds(Value::Null)).await?;
    let complete = json!({ "phase": "Complete", "active": 0, "succeeded": 6, "failed": 0 });
    jobs.until("squares", "complete again", has_status(complete)).await?;
    logs(test, "squares-5", "number 5").await
}

/// Each number notes on the node's disk that it runs.
async fn a_number_that_fails_is_tried_again(test: &mut Fixture, jobs: &Objects) -> Result<()> {
    let tries = r#"echo "number $JOB_INDEX" | tee -a /tried/$JOB_INDEX; [ $JOB_INDEX != 1 ] || [ $(wc -l </tried/1) = 2 ]"#;
    let spec =
        json!({ "completions": 3, "parallelism": 2, "backoffLimit": 1, "template": shell(test, tries) });
    test.make(jobs, parent(test, &indexed_job(), "tries", spec)).await?;
    let complete = json!({
        "phase": "Complete", "active": 0, "succeeded": 3, "failed": 1, "completedIndexes": [0, 1, 2],
        "countedPods": [],
    });
    jobs.until("tries", "complete", has_status(complete)).await?;
    for (number, runs) in [1, 2, 1].into_iter().enumerate() {
        let line = format!("number {number}");
        let noted = test.plane().on_node(&["cat", &format!("{}/{number}", folder(test))]).await?;
        ensure!(noted == vec![&*line; runs].join("\n"), "{number} ran otherwise: {noted}");
        logs(test, &format!("tries-{number}"), &line).await?;
    }
    Ok(())
}

/// The one that runs then is killed, which is no failure, too.
async fn one_failure_too_many_ends_all(test: &mut Fixture, jobs: &Objects) -> Result<()> {
    let waits = "[ $JOB_INDEX = 0 ] || { touch /tried/runs; sleep 600; }; until [ -e /tried/runs ]; do sleep 0.1; done; false";
    let spec =
        json!({ "completions": 2, "parallelism": 2, "backoffLimit": 0, "template": shell(test, waits) });
    test.make(jobs, parent(test, &indexed_job(), "stops", spec)).await?;
    let failed = json!({ "phase": "Failed", "active": 0, "succeeded": 0, "failed": 1 });
    jobs.until("stops", "failed", has_status(failed.clone())).await?;
    let left = |all: &[Value]| {
        let names = names(all);
        names.contains(&"stops-0") && !names.contains(&"stops-1")
    };
    test.pods().until_all("the one that failed", left).await?;
    let job = jobs.get("stops").await?;
    ensure!(has_status(failed)(&job), "{job:#}");

    // A higher limit goes on.
    let goes_on = json!({ "backoffLimit": 1, "template": shell(test, "echo \"number $JOB_INDEX\"") });
    jobs.merge("stops", &json!({ "spec": goes_on })).await?;
    let complete = json!({ "phase": "Complete", "active": 0, "succeeded": 2, "failed": 1 });
    jobs.until("stops", "complete", has_status(complete)).await?;
    logs(test, "stops-0", "number 0").await
}

/// A node without a kubelet; Pods of other tests do not bear its taint.
fn another_node(name: &str) -> Value {
    let room = json!({ "cpu": "1", "memory": "1Gi", "pods": "10" });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "spec": { "taints": [{ "key": "example.com/no-kubelet", "effect": "NoSchedule" }] },
        "status": { "capacity": room, "allocatable": room },
    })
}

pub(crate) async fn daemon_job_runs_to_its_end_on_each_node(test: &mut Fixture) -> Result<()> {
    hosted(test, "daemon-job", "hook.js").await?;
    let kind = Kind::new("example.com", "v1", "DaemonJob", "daemonjobs");
    let (jobs, pods, nodes) = (test.within(&kind), test.pods(), test.everywhere(&NODE));
    let is = |phase: &str, counts: [u32; 3]| {
        let [nodes, completed, failed] = counts;
        has_status(json!({ "phase": phase, "nodes": nodes, "completed": completed, "failed": failed }))
    };
    apply_example(test, "daemon-job", "daemonjob/pull").await?;
    jobs.until("pull", "complete", is("Complete", [1, 1, 0])).await?;
    let here = format!("pull-{NAME}");
    let first = pods.get(&here).await?;
    ensure!(text(&first, "/spec/nodeName") == NAME, "{first:#}");
    logs(test, &here, "the image is here").await?;

    // Another node has no kubelet: the scheduler puts a Pod there, and the test says how it ends.
    let other = test.name().to_owned();
    let there = format!("pull-{other}");
    test.make(&nodes, another_node(&other)).await?;
    let is_there = |pod: &Value| text(pod, "/spec/nodeName") == other;
    pods.until(&there, "on the other node", is_there).await?;
    jobs.until("pull", "one at work", is("Running", [2, 1, 0])).await?;
    end(&pods, &there, "Failed").await?;
    jobs.until("pull", "two that ended", is("Complete", [2, 1, 1])).await?;
    ensure!(uid(&pods.get(&here).await?) == uid(&first), "it runs a second time");

    // Another template runs on all nodes again.
    let container = json!({ "name": "pull", "image": "busybox", "command": ["echo", "once more"] });
    jobs.merge("pull", &json!({ "spec": { "template": { "spec": { "containers": [container] } } } })).await?;
    logs(test, &here, "once more").await?;
    pods.until(&there, "on the other node again", is_there).await?;
    jobs.until("pull", "one at work again", is("Running", [2, 1, 0])).await?;
    end(&pods, &there, "Succeeded").await?;
    jobs.until("pull", "two that completed", is("Complete", [2, 2, 0])).await?;
    nodes.delete(&other).await?;
    pods.until_all("the node's own", |all| names(all) == [&*here]).await?;
    let second = &pods.list().await?[0];
    jobs.until("pull", "complete on one node", is("Complete", [1, 1, 0])).await?;

    // A Pod that a user deletes runs once more.
    pods.delete(&here).await?;
    let third = pods.until(&here, "another", |pod| uid(pod) != uid(second)).await?;
    jobs.until("pull", "complete again", is("Complete", [1, 1, 0])).await?;

    // So does that of a node that loses the labels and gets them.
    let labels = |value: Value| json!({ "metadata": { "labels": { test.name(): value } } });
    jobs.merge("pull", &json!({ "spec": { "nodeSelector": { test.name(): "yes" } } })).await?;
    jobs.until("pull", "no node", is("NoNodes", [0, 0, 0])).await?;
    pods.until_all("none", <[Value]>::is_empty).await?;
    nodes.merge(NAME, &labels(json!("yes"))).await?;
    jobs.until("pull", "complete where it matches", is("Complete", [1, 1, 0])).await?;
    let fourth = pods.get(&here).await?;
    ensure!(uid(&fourth) != uid(&third), "it is the same Pod");
    logs(test, &here, "once more").await?;
    nodes.merge(NAME, &labels(Value::Null)).await.map(drop)
}
