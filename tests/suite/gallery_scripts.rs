//! The gallery of guests that are scripts: each on the real control plane, and with the cases of its folder.

use acceptance::api::{Kind, NODE, Objects, POD};
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, Parent, config_map, text, uid};
use acceptance::paths;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::scripts::until_loaded;

/// The guests in Python.
const PYTHON: [&str; 3] = ["config-propagation", "indexed-job", "secret-propagation"];

/// The guests in JavaScript.
const JAVASCRIPT: [&str; 2] = ["daemon-job", "global-config"];

/// What the test's parents and no others have as a label.
pub(crate) const OF_TEST: &str = "of-test";

pub(crate) async fn cases_and_properties_of_each_guest_in_python_hold(_: &mut Fixture) -> Result<()> {
    hold(&PYTHON, "hook.py").await
}

pub(crate) async fn cases_and_properties_of_each_guest_in_javascript_hold(_: &mut Fixture) -> Result<()> {
    hold(&JAVASCRIPT, "hook.js").await
}

/// `metahook test` finds the script beside the controller.
async fn hold(guests: &[&str], script: &str) -> Result<()> {
    for name in guests {
        let folder = paths::workspace().join("guests").join(name);
        let metahook = |command: &str| {
            let mut metahook = Command::new(paths::server()?);
            metahook.arg(command).arg("--runners").arg(paths::runners()?);
            anyhow::Ok(metahook)
        };
        let cases = metahook("test")?.arg(folder.join("tests")).output().await?;
        let printed = String::from_utf8_lossy(&cases.stdout);
        ensure!(cases.status.success() && printed.ends_with(" passed, 0 failed\n"), "{name}: {printed}");
        let check = metahook("check")?.arg(folder.join(script)).arg("-f").arg(&folder).output().await?;
        ensure!(check.status.success(), "{name}: {}", String::from_utf8_lossy(&check.stdout));
    }
    Ok(())
}

/// The guest's script in a `ConfigMap` of the test, and a hook that calls it.
pub(crate) async fn script(test: &mut Fixture, language: &str, guest: &str, file: &str) -> Result<Hook> {
    store_script(test, guest, file).await?;
    Ok(Hook::script(language, test.name(), "hook", file).version("v2"))
}

pub(crate) async fn store_script(test: &mut Fixture, guest: &str, file: &str) -> Result<()> {
    let path = paths::workspace().join("guests").join(guest).join(file);
    let source = std::fs::read_to_string(path)?;
    let map = config_map("hook", json!({}), json!({ file: source }));
    test.make(&test.config_maps(), map).await.map(drop)
}

/// A controller of the guest's own kind, for the test's parents alone.
pub(crate) fn controller(test: &Fixture, parents: &Kind) -> Composite {
    test.controller().over(parents).of_parents_with(OF_TEST, test.name())
}

pub(crate) fn parent(test: &Fixture, kind: &Kind, name: &str, spec: Value) -> Value {
    Parent::named(kind, name).labelled(OF_TEST, test.name()).with(spec).json()
}

pub(crate) fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|one| text(one, "/metadata/name")).collect()
}

fn template() -> Value {
    json!({ "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "c", "image": "busybox" }],
    } })
}

/// As a kubelet reports it.
pub(crate) async fn end(pods: &Objects, pod: &str, phase: &str) -> Result<()> {
    pods.merge_status(pod, &json!({ "status": { "phase": phase } })).await.map(drop)
}

pub(crate) fn has_status(wanted: Value) -> impl Fn(&Value) -> bool {
    move |parent: &Value| {
        let fields = wanted.as_object().into_iter().flatten();
        fields.into_iter().all(|(field, value)| parent["status"][field] == *value)
    }
}

pub(crate) async fn indexed_job_makes_failed_pods_anew_until_all_succeeded(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "IndexedJob", "indexedjobs");
    let hook = script(test, "python", "indexed-job", "hook.py").await?;
    test.serve()?;
    test.host(controller(test, &kind).making(&POD, "OnDelete").synced_by(hook)).await?;
    until_loaded(test, test.name()).await?;
    let (jobs, pods) = (test.within(&kind), test.pods());
    let spec = json!({ "completions": 3, "parallelism": 2, "backoffLimit": 1, "template": template() });
    test.make(&jobs, parent(test, &kind, "job", spec)).await?;

    let first = pods.until_all("two of three", |all| names(all) == ["job-0", "job-1"]).await?;
    let index = &first[1]["spec"]["containers"][0]["env"][0];
    ensure!(*index == json!({ "name": "JOB_INDEX", "value": "1" }), "{index}");
    jobs.until("job", "at work", has_status(json!({ "phase": "Running", "active": 2 }))).await?;

    // The one that fails makes room for the third, and comes back when there is room again.
    end(&pods, "job-0", "Failed").await?;
    pods.until_all("the third", |all| names(all) == ["job-1", "job-2"]).await?;
    jobs.until("job", "one failure", has_status(json!({ "failed": 1, "active": 2 }))).await?;
    end(&pods, "job-1", "Succeeded").await?;
    let all = pods.until_all("the first again", |all| names(all) == ["job-0", "job-1", "job-2"]).await?;
    ensure!(uid(&all[0]) != uid(&first[0]), "the Pod that failed is there");
    // One that succeeded does not come back.
    let one = has_status(json!({ "failed": 1, "succeeded": 1, "active": 2 }));
    jobs.until("job", "one success", one).await?;
    pods.delete("job-1").await?;
    end(&pods, "job-0", "Succeeded").await?;
    let two = has_status(json!({ "failed": 1, "succeeded": 2, "active": 1, "completedIndexes": [0, 1] }));
    jobs.until("job", "two successes", two).await?;
    ensure!(names(&pods.list().await?) == ["job-0", "job-2"], "a number that is done runs again");

    // The second failure is one too many, until the limit is raised.
    end(&pods, "job-2", "Failed").await?;
    jobs.until("job", "failed", has_status(json!({ "phase": "Failed", "failed": 2 }))).await?;
    ensure!(names(&pods.list().await?) == ["job-0", "job-2"], "Pods that ended do not stay");
    jobs.merge("job", &json!({ "spec": { "backoffLimit": 2 } })).await?;
    jobs.until("job", "at work again", has_status(json!({ "phase": "Running", "active": 1 }))).await?;
    end(&pods, "job-2", "Succeeded").await?;
    let complete = has_status(json!({ "phase": "Complete", "succeeded": 3, "active": 0, "failed": 2 }));
    jobs.until("job", "complete", complete).await?;
    Ok(())
}

pub(crate) async fn daemon_job_runs_once_on_each_node_that_matches(test: &mut Fixture) -> Result<()> {
    let kind = Kind::new("example.com", "v1", "DaemonJob", "daemonjobs");
    let hook = script(test, "javascript", "daemon-job", "hook.js").await?;
    test.serve()?;
    let controller = controller(test, &kind).making(&POD, "Recreate");
    let controller = controller.with("relatedKinds", json!([{ "apiVersion": "v1", "resource": "nodes" }]));
    test.host(controller.synced_by(hook.clone()).customized_by(hook)).await?;
    let own = test.name().to_owned();
    let (jobs, pods, nodes) = (test.within(&kind), test.pods(), test.everywhere(&NODE));
    let name = |node: &str| format!("{own}-{node}");
    let node = |end: &str, pool: &str| {
        let metadata = json!({ "name": name(end), "labels": { "pool": pool } });
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })
    };
    for (end, pool) in [("a", &*own), ("b", &*own), ("c", "another")] {
        test.make(&nodes, node(end, pool)).await?;
    }
    let spec = json!({ "nodeSelector": { "pool": own }, "template": template() });
    test.make(&jobs, parent(test, &kind, "job", spec)).await?;
    let pod = |node: &str| format!("job-{own}-{node}");
    let are = |ends: &[&str]| {
        let expected: Vec<String> = ends.iter().map(|end| pod(end)).collect();
        move |all: &[Value]| names(all) == expected
    };
    let all = pods.until_all("one on each", are(&["a", "b"])).await?;
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let term =
        json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name("a")] }] }]);
    ensure!(all[0].pointer(terms) == Some(&term), "{:#}", all[0]);

    end(&pods, &pod("a"), "Succeeded").await?;
    end(&pods, &pod("b"), "Failed").await?;
    let ended = json!({ "phase": "Complete", "nodes": 2, "completed": 1, "failed": 1 });
    jobs.until("job", "all ended", has_status(ended)).await?;
    let still = pods.list().await?;
    ensure!(still.iter().map(uid).eq(all.iter().map(uid)), "a Pod that ended runs again: {still:#?}");

    // Nodes come by their labels, and as new ones; and they go.
    let label = |pool: &str| json!({ "metadata": { "labels": { "pool": pool } } });
    nodes.merge(&name("c"), &label(&own)).await?;
    pods.until_all("one on the third", are(&["a", "b", "c"])).await?;
    test.make(&nodes, node("d", &own)).await?;
    pods.until_all("one on the fourth", are(&["a", "b", "c", "d"])).await?;
    let running = json!({ "phase": "Running", "nodes": 4, "completed": 1, "failed": 1 });
    jobs.until("job", "two at work", has_status(running)).await?;
    nodes.delete(&name("d")).await?;
    nodes.merge(&name("b"), &label("another")).await?;
    pods.until_all("two are left", are(&["a", "c"])).await?;

    // A Pod that a user deletes runs again.
    pods.delete(&pod("a")).await?;
    let again = json!({ "phase": "Running", "nodes": 2, "completed": 0, "failed": 0 });
    jobs.until("job", "at work again", has_status(again)).await?;
    Ok(())
}
