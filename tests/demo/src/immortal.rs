//! A container that always comes back: its Pod is deleted, ends, gets another image.

use anyhow::Result;

use crate::steps::{Demo, title};

/// They run until they are ended. On a node of ours each is a program of ours that does the same.
pub(crate) const IMAGES: [&str; 2] = [BEFORE, AFTER];

const BEFORE: &str = "pause:3.10";

const AFTER: &str = "pause:3.9";

const CONTAINER: [&str; 2] = ["immortalcontainer", "example"];

const POD: &str = "example-immortalpod";

/// The Pod as it is in the cluster: its uid and its image.
const SEEN: [&str; 4] = ["get", "pod", POD, "-o=jsonpath={.metadata.uid} {.spec.containers[0].image}"];

pub(crate) async fn show(demo: &mut Demo<'_>) -> Result<()> {
    demo.begin(&[CONTAINER, ["pod", POD]]).await?;
    demo.define("ImmortalContainer", "immortalcontainers.example.com").await?;
    demo.control("compositecontroller").await?;

    title("Make an ImmortalContainer");
    demo.make_example(&[CONTAINER]).await?;
    let first = started(demo, 1, BEFORE, "").await?;

    title("Delete its Pod: there is another one");
    demo.types(&["delete", "pod", POD]).await?;
    let second = started(demo, 2, BEFORE, &first).await?;

    end_its_pod(demo).await?;
    let third = started(demo, 3, BEFORE, &second).await?;

    title("Change the image: the Pod is deleted and made anew");
    let patch = format!(r#"{{"spec":{{"image":"registry.k8s.io/{AFTER}"}}}}"#);
    demo.types(&["patch", "immortalcontainer", "example", "--type=merge", "-p", &patch]).await?;
    started(demo, 4, AFTER, &third).await?;

    title("Delete it: the Pod is collected (a new kind is known to the garbage collector within 30 s)");
    demo.delete_example(CONTAINER).await?;
    demo.waits(&["get", "pods"], "no Pod", |pods| !pods.contains(POD)).await.map(drop)
}

async fn end_its_pod(demo: &Demo<'_>) -> Result<()> {
    if demo.has_node() {
        title("Let its Pod run out of time, so that it ends: there is another one");
        let patch = r#"{"spec":{"activeDeadlineSeconds":1}}"#;
        demo.types(&["patch", "pod", POD, "--type=merge", "-p", patch]).await?;
    } else {
        title("Say that its Pod has failed, as a node would: there is another one");
        let patch = r#"{"status":{"phase":"Failed"}}"#;
        demo.types(&["patch", "pod", POD, "--subresource=status", "--type=merge", "-p", patch]).await?;
    }
    Ok(())
}

/// Waits until a Pod of this image has replaced the one before, runs if it can, and was counted. Gives back
/// the Pod.
async fn started(demo: &mut Demo<'_>, times: u32, image: &str, before: &str) -> Result<String> {
    let another = |pod: &str| pod.ends_with(&format!("/{image}")) && pod != before;
    let pod = demo.waits(&SEEN, "another Pod", another).await?;
    let runs = if demo.has_node() { "Running" } else { POD };
    demo.waits(&["get", "pods"], "a Pod that is Running", |pods| pods.contains(runs)).await?;
    let counted = |table: &str| {
        let started = table.lines().nth(1).and_then(|row| row.split_whitespace().nth(3));
        started.is_some_and(|started| started == times.to_string())
    };
    demo.waits(&["get", "immortalcontainer", "example"], "so many STARTED", counted).await?;
    Ok(pod)
}
