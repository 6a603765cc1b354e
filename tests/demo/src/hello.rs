//! The tutorial: a Pod that prints a greeting.

use anyhow::{Result, ensure};

use crate::steps::{Demo, title};

const HELLO: [&str; 2] = ["helloworld", "your-name"];

/// The Pod as it is in the cluster: its uid and its command.
const POD: [&str; 4] =
    ["get", "pod", "your-name", "-o=jsonpath={.metadata.uid} {.spec.containers[0].command}"];

pub(crate) async fn show(demo: &mut Demo<'_>) -> Result<()> {
    demo.begin(&[HELLO, ["pod", "your-name"]]).await?;
    demo.define("HelloWorld", "helloworlds.example.com").await?;
    demo.control("compositecontroller").await?;
    let first = greet(demo).await?;
    change(demo, &first).await?;
    title("Delete it: the Pod is collected (a new kind is known to the garbage collector within 30 s)");
    demo.delete_example(HELLO).await?;
    demo.waits(&["get", "pods"], "no Pod your-name", |pods| !pods.contains("your-name")).await.map(drop)
}

/// Gives back the Pod that greets.
async fn greet(demo: &mut Demo<'_>) -> Result<String> {
    title("Make a HelloWorld");
    demo.make_example(&[HELLO]).await?;
    let pod = demo.waits(&POD, "a Pod that greets", |pod| pod.contains("Hello, Your Name!")).await?;
    read(demo, "Hello, Your Name!").await?;
    status_counts_one_pod(demo).await?;
    Ok(pod)
}

async fn change(demo: &mut Demo<'_>, first: &str) -> Result<()> {
    title("Change it: the Pod is deleted and made anew");
    let patch = r#"{"spec":{"who":"My Name"}}"#;
    demo.types(&["patch", "helloworld", "your-name", "--type=merge", "-p", patch]).await?;
    let pod = demo.waits(&POD, "another Pod", |pod| pod.contains("Hello, My Name!")).await?;
    let uid = |pod: &str| pod.split(' ').next().unwrap_or_default().to_owned();
    ensure!(uid(&pod) != uid(first), "the Pod was changed, not made anew");
    println!("  another Pod: {} was {}", uid(&pod), uid(first));
    read(demo, "Hello, My Name!").await?;
    status_counts_one_pod(demo).await
}

/// Waits until the Pod has greeted and reads its log. Without a node it stays as it is made.
async fn read(demo: &mut Demo<'_>, greeting: &str) -> Result<()> {
    let pods = ["get", "pods"];
    if !demo.has_node() {
        return demo.types(&pods).await.map(drop);
    }
    demo.waits(&pods, "a Pod that is Completed", |pods| pods.contains("Completed")).await?;
    demo.waits(&["logs", "your-name"], greeting, |printed| printed == greeting).await.map(drop)
}

async fn status_counts_one_pod(demo: &mut Demo<'_>) -> Result<()> {
    let line = ["get", "helloworld", "your-name", "-o=jsonpath=pods: {.status.pods}"];
    demo.waits(&line, "status.pods = 1", |status| status == "pods: 1").await.map(drop)
}
