//! The server as a Pod: installed by the manifests, with in-cluster configuration, on a node.

use std::collections::BTreeMap;
use std::ops::Range;

use acceptance::api::{Objects, POD};
use acceptance::control_plane::ControlPlane;
use acceptance::fixture::Fixture;
use acceptance::kubectl::Kubectl;
use acceptance::node::Image;
use acceptance::objects::{text, uid};
use acceptance::oci::{self, Effort, Layout};
use acceptance::paths;
use anyhow::{Context, Result, ensure};

use crate::pages::node_pages::the_commands_about_the_servers_pod;
use crate::tutorial::{prints, types};

/// Parents of which the server knows the first half when it is killed.
const PARENTS: usize = 20;

/// Each process of the server on the node, whatever Pod it is in.
const SERVERS: &str = r#"for p in /proc/[0-9]*; do
    case "$(tr '\0' ' ' 2> /dev/null < $p/cmdline)" in '/usr/bin/metahook serve '*) echo ${p#/proc/} ;; esac
done"#;

pub(crate) async fn the_server_runs_as_a_pod_and_comes_back_after_kill_9(test: &mut Fixture) -> Result<()> {
    let parts = test.plane().parts().context("this test needs a node")?.clone();
    let folder = tempfile::tempdir()?;
    Layout::of_server(&paths::server()?, Effort::Little)?.write(folder.path())?;
    let image = Image::layout(oci::NAME, folder.path());
    let plane = ControlPlane::start_with_node(&parts, &[image], async |_| Ok(())).await?;
    let kubectl = plane.kubectl();
    match installed(test, &plane, &kubectl).await {
        Ok(()) => Ok(()),
        Err(why) => Err(why.context(evidence(&kubectl).await)),
    }
}

/// Text that helps to understand a failure: the plane has no log of its Pods when it is gone.
async fn evidence(kubectl: &Kubectl) -> String {
    let mut all = Vec::new();
    for line in ["get pods -A -o wide", "get events -A", "-n metacontroller logs metacontroller-0 --tail=30"]
    {
        let printed = types(kubectl, line).await.unwrap_or_else(|why| format!("{why:#}"));
        all.push(format!("kubectl {line}\n{printed}"));
    }
    all.join("\n")
}

/// The server is installed, hosts the tutorial, is killed, and shares its work with a second one.
async fn installed(test: &mut Fixture, plane: &ControlPlane, kubectl: &Kubectl) -> Result<()> {
    // The server's Pod has to fit into the strictest of namespaces.
    types(kubectl, "create namespace metacontroller").await?;
    types(kubectl, "label namespace metacontroller pod-security.kubernetes.io/enforce=restricted").await?;
    for _ in ["install", "upgrade"] {
        types(kubectl, "apply --server-side -k manifests").await?;
    }
    types(kubectl, "-n metacontroller rollout status statefulset/metacontroller --timeout=180s").await?;
    grant(test, kubectl).await?;
    tutorial(kubectl).await?;
    commands(plane).await?;
    println!("memory of the server in its Pod, while it hosts the tutorial: {}", memory(plane).await?);
    killed(plane, kubectl).await?;
    replicated(plane, kubectl).await
}

/// `metahook explain` finds the server's Pod, and has a port forwarded to it.
async fn commands(plane: &ControlPlane) -> Result<()> {
    let explained = the_commands_about_the_servers_pod(plane).await?;
    for said in [
        "CompositeController hello-controller: HelloWorld hello/your-name, ",
        "create      Pod hello/your-name",
    ] {
        ensure!(explained.iter().any(|printed| printed.contains(said)), "{explained:?}");
    }
    Ok(())
}

/// With the manifests' component for leader election there are two Pods: when the leader's goes, the other one goes on.
async fn replicated(plane: &ControlPlane, kubectl: &Kubectl) -> Result<()> {
    let folder = plane.scratch().join("two-replicas");
    std::fs::create_dir(&folder)?;
    // Kustomize takes relative paths alone.
    let up = "../".repeat(folder.canonicalize()?.components().count() - 1);
    let manifests = format!("{up}{}/manifests", paths::workspace().strip_prefix("/")?.display());
    let kustomization = format!("resources: [{manifests}]\ncomponents: [{manifests}/leader-election]\n");
    std::fs::write(folder.join("kustomization.yaml"), kustomization)?;
    types(kubectl, &format!("apply --server-side -k {}", folder.display())).await?;
    types(kubectl, "-n metacontroller rollout status statefulset/metacontroller --timeout=300s").await?;
    let holder = "-n metacontroller get lease metacontroller -o=jsonpath={.spec.holderIdentity}";
    let leader = prints(kubectl, holder, |holder| holder.starts_with("metacontroller-")).await?;
    let pod = leader.split('_').next().unwrap_or_default();
    types(kubectl, &format!("-n metacontroller delete pod {pod} --wait=false")).await?;
    prints(kubectl, holder, |holder| holder.starts_with("metacontroller-") && holder != leader).await?;
    let patch = r#"--patch={"spec":{"who":"The Other"}}"#;
    kubectl.run(&["-n", "hello", "patch", "helloworld", "your-name", "--type=merge", patch]).await?;
    prints(kubectl, "-n hello logs your-name", |log| log == "Hello, The Other!").await?;
    Ok(())
}

/// The manifests grant nothing of the tutorial.
async fn grant(test: &mut Fixture, kubectl: &Kubectl) -> Result<()> {
    types(kubectl, "create namespace hello").await?;
    let controller = paths::workspace().join("guests/hello/controller.yaml");
    let (roles, _) = test.server().run(&["rbac".as_ref(), controller.as_os_str()]).await?;
    let file = test.plane().scratch().join("roles.yaml");
    std::fs::write(&file, roles)?;
    types(kubectl, &format!("apply --server-side -f {}", file.display())).await.map(drop)
}

pub(crate) async fn tutorial(kubectl: &Kubectl) -> Result<()> {
    let module = format!("--from-file=hook.wasm={}", paths::guest("hello")?.display());
    kubectl.run(&["-n", "hello", "create", "configmap", "hello-hook", &module]).await?;
    types(kubectl, "apply -f guests/hello/crd.yaml -f guests/hello/controller.yaml").await?;
    types(kubectl, "wait --for=condition=Ready --timeout=180s cc/hello-controller").await?;
    types(kubectl, "-n hello apply -f guests/hello/hello.yaml").await?;
    prints(kubectl, "-n hello logs your-name", |log| log == "Hello, Your Name!").await?;
    let patch = r#"--patch={"spec":{"who":"My Name"}}"#;
    kubectl.run(&["-n", "hello", "patch", "helloworld", "your-name", "--type=merge", patch]).await?;
    prints(kubectl, "-n hello logs your-name", |log| log == "Hello, My Name!").await?;
    Ok(())
}

/// Killed in the middle of its work: no Pod is lost, and none that was there before the end is made a second time.
///
/// The second half of the parents is created while the server is down, so that however fast it is, it was not done. A
/// second kill would meet the kubelet's back-off.
async fn killed(plane: &ControlPlane, kubectl: &Kubectl) -> Result<()> {
    let count =
        "-n metacontroller get pod metacontroller-0 -o=jsonpath={.status.containerStatuses[0].restartCount}";
    let restarts = |printed: &str| printed.parse::<u32>().ok();
    // A slow machine may have restarted it already, whose probe was not answered in time.
    let before_kill = restarts(&types(kubectl, count).await?).context("no count of restarts")?;
    let pods = Objects::within(&plane.client().await?, &POD, "hello");
    let there = pods.list().await?.len();
    create_parents(plane, kubectl, 0..PARENTS / 2).await?;
    pods.until_all("some Pods", |pods| pods.len() > there + 2).await?;
    let before = uids(&pods.list().await?);
    plane.on_node(&["sh", "-c", &format!("kill -9 $({SERVERS})")]).await?;
    create_parents(plane, kubectl, PARENTS / 2..PARENTS).await?;
    prints(kubectl, count, |printed| restarts(printed).is_some_and(|now| now > before_kill)).await?;
    let all = pods.until_all("a Pod for each parent", |pods| pods.len() == there + PARENTS).await?;
    let after = uids(&all);
    for (name, uid) in &before {
        ensure!(after.get(name) == Some(uid), "Pod {name} was made a second time");
    }
    let log = kubectl.run(&["-n", "metacontroller", "logs", "metacontroller-0"]).await?;
    ensure!(log.contains(r#""cached":true"#), "the module was compiled again: {log}");
    Ok(())
}

async fn create_parents(plane: &ControlPlane, kubectl: &Kubectl, numbers: Range<usize>) -> Result<()> {
    let parents: Vec<String> = numbers
        .map(|i| {
            format!(
                r#"{{"apiVersion":"example.com/v1","kind":"HelloWorld","metadata":{{"name":"h{i}","namespace":"hello"}}}}"#
            )
        })
        .collect();
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#, parents.join(","));
    let file = plane.scratch().join("parents.json");
    std::fs::write(&file, list)?;
    kubectl.run(&["create", "-f", &file.display().to_string()]).await.map(drop)
}

fn uids(pods: &[serde_json::Value]) -> BTreeMap<String, String> {
    pods.iter().map(|pod| (text(pod, "/metadata/name").to_owned(), uid(pod).to_owned())).collect()
}

async fn memory(plane: &ControlPlane) -> Result<String> {
    let script = format!("for p in $({SERVERS}); do grep VmRSS /proc/$p/status; done");
    let printed = plane.on_node(&["sh", "-c", &script]).await?;
    ensure!(!printed.is_empty(), "the server has no process on the node");
    Ok(printed.trim_start_matches("VmRSS:").trim().to_owned())
}
