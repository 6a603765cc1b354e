//! The guest `immortal`: a container whose Pod comes back whatever becomes of it, and whose starts are counted.

use acceptance::api::{Kind, NAMESPACE, Objects, POD};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Parent, text, uid, version};
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::tutorial::{prints, types};

/// The Pod of the container `a`.
const ITS_POD: &str = "a-immortalpod";

const IMAGE: &str = "/spec/containers/0/image";

/// A controller of the test's own kind that looks at its containers each second, and the container `a`.
async fn runs(test: &mut Fixture, image: &str) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("immortal")?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&POD, "Recreate").resyncing_each_second().synced_by(hook)).await?;
    test.create(test.parent("a").with(json!({ "image": image }))).await?;
    Ok(())
}

/// Waits until so many Pods were counted; gives back the last one, which is there.
async fn started(test: &Fixture, times: u64) -> Result<Value> {
    started_in(&test.parents(), &test.pods(), times).await
}

async fn started_in(parents: &Objects, pods: &Objects, times: u64) -> Result<Value> {
    let counted = |parent: &Value| parent["status"]["startTimes"] == times;
    let parent = parents.until("a", &format!("{times} Pods counted"), counted).await?;
    ensure!(parent["status"]["currentPod"] == ITS_POD, "{parent}");
    let pod = pods.get(ITS_POD).await?;
    ensure!(parent["status"]["lastPodUid"] == uid(&pod), "{parent} does not count {pod}");
    Ok(pod)
}

async fn set_image(test: &Fixture, image: Value) -> Result<()> {
    test.parents().merge("a", &json!({ "spec": { "image": image } })).await.map(drop)
}

/// As kubelet tells it.
async fn end(test: &Fixture, phase: &str) -> Result<()> {
    test.pods().merge_status(ITS_POD, &json!({ "status": { "phase": phase } })).await.map(drop)
}

/// As long as it is held, a Pod that is deleted stays; as one does that takes its time to end.
async fn hold(test: &Fixture, finalizers: Value) -> Result<()> {
    let pods = test.pods();
    pods.merge(ITS_POD, &json!({ "metadata": { "finalizers": finalizers } })).await.map(drop)
}

fn count(log: &str, word: &str) -> usize {
    log.lines().filter(|line| line.contains(word)).count()
}

/// Looks at parent and Pod find nothing to do: no call, no write. An event may still be on its way when a look finds the
/// parent at rest, but not for ever.
async fn rests(test: &mut Fixture) -> Result<()> {
    let mut last = stays(test).await;
    for _ in 0..4 {
        if last.is_ok() {
            break;
        }
        last = stays(test).await;
    }
    last
}

/// Nothing happens from one look that finds the parent at rest to the third one after it.
async fn stays(test: &mut Fixture) -> Result<()> {
    let looks = |log: &str| count(log, "\"settled\"");
    let now = test.server().until_log("a log", |_| true).await?;
    let before = test.server().until_log("settled", |log| looks(log) > looks(&now)).await?;
    let objects = (test.parents().get("a").await?, test.pods().get(ITS_POD).await?);
    let after = test.server().until_log("settled", |log| looks(log) >= looks(&before) + 3).await?;
    for word in ["\"synced\"", "\"op\":\""] {
        ensure!(count(&after, word) == count(&before, word), "it goes on: {word}\n{after}");
    }
    let still = (test.parents().get("a").await?, test.pods().get(ITS_POD).await?);
    ensure!(version(&objects.0) == version(&still.0), "{} was written: {}", objects.0, still.0);
    ensure!(version(&objects.1) == version(&still.1), "{} was written: {}", objects.1, still.1);
    Ok(())
}

pub(crate) async fn whatever_becomes_of_its_pod_there_is_another_one_which_is_counted(
    test: &mut Fixture,
) -> Result<()> {
    runs(test, "one").await?;
    let mut uids = vec![uid(&started(test, 1).await?).to_owned()];
    rests(test).await?;

    test.pods().delete(ITS_POD).await?;
    uids.push(uid(&started(test, 2).await?).to_owned());
    rests(test).await?;

    end(test, "Failed").await?;
    uids.push(uid(&started(test, 3).await?).to_owned());
    end(test, "Succeeded").await?;
    uids.push(uid(&started(test, 4).await?).to_owned());

    set_image(test, json!("two")).await?;
    let pod = started(test, 5).await?;
    ensure!(text(&pod, IMAGE) == "two", "{pod}");
    ensure!(text(&pod, "/spec/restartPolicy") == "Never", "{pod}");
    uids.push(uid(&pod).to_owned());
    rests(test).await?;
    uids.sort();
    uids.dedup();
    ensure!(uids.len() == 5, "a Pod was counted twice: {uids:?}");

    // A container that names no image keeps what it has, and says what is missing.
    for image in [json!(""), json!(null)] {
        set_image(test, image).await?;
        let says = |event: &Value| text(event, "/message").contains("spec.image is missing or empty");
        test.until_event("a", "SyncError", says).await?;
        ensure!(uid(&test.pods().get(ITS_POD).await?) == uid(&pod), "its Pod is another one");
    }
    set_image(test, json!("two")).await?;
    rests(test).await?;
    ensure!(uid(&started(test, 5).await?) == uid(&pod), "its Pod is another one");
    Ok(())
}

pub(crate) async fn a_pod_that_takes_its_time_to_go_is_waited_for(test: &mut Fixture) -> Result<()> {
    runs(test, "one").await?;
    let held = json!(["example.com/held"]);
    let goes = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    for times in 1..=3 {
        let pod = started(test, times).await?;
        hold(test, held.clone()).await?;
        match times {
            1 => test.pods().delete(ITS_POD).await?,
            2 => end(test, "Failed").await?,
            _ => set_image(test, json!("two")).await?,
        }
        test.pods().until(ITS_POD, "being deleted", goes).await?;
        rests(test).await?;
        ensure!(uid(&started(test, times).await?) == uid(&pod), "it did not wait");
        hold(test, json!(null)).await?;
    }
    let pod = started(test, 4).await?;
    ensure!(text(&pod, IMAGE) == "two", "{pod}");
    rests(test).await
}

pub(crate) async fn a_server_killed_between_deletion_and_creation_makes_and_counts_its_pod(
    test: &mut Fixture,
) -> Result<()> {
    runs(test, "one").await?;
    started(test, 1).await?;

    // A user deletes it.
    test.server().kill().await?;
    test.pods().delete(ITS_POD).await?;
    test.pods().until_gone(ITS_POD).await?;
    test.server().start()?;
    started(test, 2).await?;

    // The server itself has deleted it.
    hold(test, json!(["example.com/held"])).await?;
    end(test, "Succeeded").await?;
    let goes = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    test.pods().until(ITS_POD, "deleted by the server", goes).await?;
    test.server().kill().await?;
    hold(test, json!(null)).await?;
    test.pods().until_gone(ITS_POD).await?;
    test.server().start()?;
    let pod = started(test, 3).await?;

    // It has made it and had no time to count it; by now it has ended.
    test.server().kill().await?;
    let before = json!({ "status": { "startTimes": 2, "lastPodUid": "the second" } });
    test.parents().merge_status("a", &before).await?;
    end(test, "Failed").await?;
    test.server().start()?;
    let next = started(test, 4).await?;
    ensure!(uid(&next) != uid(&pod), "a Pod that has ended is still there");
    rests(test).await
}

pub(crate) async fn two_containers_of_one_name_in_two_namespaces_have_a_pod_each(
    test: &mut Fixture,
) -> Result<()> {
    runs(test, "one").await?;
    let other = format!("{}-other", test.name());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": other } });
    let namespaces = test.everywhere(&NAMESPACE);
    test.make(&namespaces, namespace).await?;
    let parents = test.within_other(test.kind(), &other);
    let pods = test.within_other(&POD, &other);
    test.make(&parents, test.parent("a").with(json!({ "image": "other" })).json()).await?;

    let first = started(test, 1).await?;
    let second = started_in(&parents, &pods, 1).await?;
    ensure!((text(&first, IMAGE), text(&second, IMAGE)) == ("one", "other"), "{first} {second}");
    test.pods().delete(ITS_POD).await?;
    started(test, 2).await?;
    ensure!(uid(&started_in(&parents, &pods, 1).await?) == uid(&second), "the other one is not the same");
    rests(test).await
}

/// With a real kubelet, whose Pods run, end, and take their time to go.
pub(crate) async fn a_container_that_ends_on_its_node_is_started_again_and_again(
    test: &mut Fixture,
) -> Result<()> {
    let is_running = |pod: &Value| text(pod, "/status/phase") == "Running";
    runs(test, "local.test/pause:1").await?;
    test.pods().until(ITS_POD, "Running", is_running).await?;
    let first = started(test, 1).await?;
    test.pods().delete(ITS_POD).await?;
    let another = |pod: &Value| is_running(pod) && uid(pod) != uid(&first);
    test.pods().until(ITS_POD, "Running again", another).await?;
    started(test, 2).await?;
    test.pods().merge(ITS_POD, &json!({ "spec": { "activeDeadlineSeconds": 1 } })).await?;
    started(test, 3).await?;
    test.pods().until(ITS_POD, "Running again", is_running).await?;

    // A shell with nothing to read ends at once.
    set_image(test, json!("busybox")).await?;
    let often = |parent: &Value| parent["status"]["startTimes"].as_u64() > Some(6);
    test.parents().until("a", "started again and again", often).await?;
    set_image(test, json!("local.test/pause:1")).await?;
    let rests = |pod: &Value| is_running(pod) && text(pod, IMAGE) == "local.test/pause:1";
    test.pods().until(ITS_POD, "Running", rests).await?;
    Ok(())
}

const STATUS: &str =
    "-n immortal get immortalcontainer example -o=jsonpath={.status.currentPod}/{.status.startTimes}";

const ITS_IMAGE: &str =
    "-n immortal get pod example-immortalpod -o=jsonpath={.metadata.uid}/{.spec.containers[0].image}";

pub(crate) async fn the_files_of_the_guest_work_as_they_are_and_pods_go_with_their_container(
    test: &mut Fixture,
) -> Result<()> {
    let kubectl = test.plane().kubectl();
    let module = format!("--from-file=hook.wasm={}", paths::guest("immortal")?.display());
    types(&kubectl, "create namespace immortal").await?;
    kubectl.run(&["-n", "immortal", "create", "configmap", "immortal-hook", &module]).await?;
    types(&kubectl, "apply -f guests/immortal/crd.yaml -f guests/immortal/controller.yaml").await?;
    let label = format!("label cc immortal-controller {}", test.label());
    types(&kubectl, &label).await?; // so that this test's server hosts it
    test.serve()?;
    types(&kubectl, "-n immortal apply -f guests/immortal/immortal.yaml").await?;
    prints(&kubectl, STATUS, |status| status == "example-immortalpod/1").await?;
    let first = prints(&kubectl, ITS_IMAGE, |pod| pod.ends_with("/registry.k8s.io/pause:3.10")).await?;

    types(&kubectl, "-n immortal delete pod example-immortalpod").await?;
    prints(&kubectl, STATUS, |status| status == "example-immortalpod/2").await?;
    let patch = r#"{"spec":{"image":"registry.k8s.io/pause:3.9"}}"#;
    let line = ["-n", "immortal", "patch", "immortalcontainer", "example", "--type=merge", "-p", patch];
    kubectl.run(&line).await?;
    prints(&kubectl, STATUS, |status| status == "example-immortalpod/3").await?;
    let third = prints(&kubectl, ITS_IMAGE, |pod| pod.ends_with("/registry.k8s.io/pause:3.9")).await?;
    let uid = |pod: &str| pod.split('/').next().map(str::to_owned);
    ensure!(uid(&first) != uid(&third), "the Pod was not made anew");

    let kind = Kind::new("example.com", "v1", "ImmortalContainer", "immortalcontainers");
    let containers = test.within_other(&kind, "immortal");
    for spec in [json!({}), json!({ "image": "" }), json!({ "image": 7 })] {
        let container = Parent::named(&kind, "refused").with(spec.clone()).json();
        let why = format!("{:#}", containers.create(container).await.err().context("it was taken")?);
        ensure!(why.contains("spec.image"), "{spec}: {why}");
    }

    let none = |pods: &str| pods.starts_with("No resources found");
    types(&kubectl, "-n immortal delete immortalcontainer example").await?;
    prints(&kubectl, "-n immortal get pods", none).await?;
    types(&kubectl, "-n immortal apply -f guests/immortal/immortal.yaml").await?;
    prints(&kubectl, STATUS, |status| status == "example-immortalpod/1").await?;
    // A container that waits for its Pod to go makes no other.
    types(&kubectl, "-n immortal delete immortalcontainer example --cascade=foreground").await?;
    types(&kubectl, "-n immortal get pods").await.and_then(|pods| {
        ensure!(none(&pods), "{pods}");
        Ok(())
    })?;
    for what in ["cc/immortal-controller", "namespace/immortal --wait=false"] {
        types(&kubectl, &format!("delete {what}")).await?;
    }
    Ok(())
}
