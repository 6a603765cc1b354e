//! Where Pods really run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

use acceptance::api::{Objects, POD};
use acceptance::control_plane::ControlPlane;
use acceptance::fixture::{Fixture, prepare};
use acceptance::node::Image;
use acceptance::objects::text;
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::harness::using;
use crate::pages::{Desk, all_blocks, is_hosted_here};
use crate::tutorial::prints;

const IMAGE: &str = "example/sleeper:2.0";

const ROUNDS: usize = 3;

pub(crate) const TUTORIAL: &str = "tutorial.md";

/// Parts of the tutorial's commands that are not typed, each with the reason.
const NOT_TYPED: [(&str, &str); 4] = [
    ("export ", "the program is found"),
    ("metahook serve", "the test's server runs"),
    ("rustup target add", "the target is there, and rustup would ask the network"),
    ("cargo build", "the program and the page's hook, which is that of guests/hello, are built"),
];

pub(crate) async fn the_tutorials_pods_run_to_completion_and_their_logs_can_be_read(
    test: &mut Fixture,
) -> Result<()> {
    let parts = test.plane().parts().context("this test needs a node")?.clone();
    let plane = ControlPlane::start_with_node(&parts, &[], prepare).await?;
    let client = plane.client().await?;
    let mut alone = Fixture::new(Arc::new(plane), client, test.name()).await?;
    let typed = tutorial(&mut alone).await;
    alone.end(typed).await
}

/// Types the page, from the first step to the last.
async fn tutorial(test: &mut Fixture) -> Result<()> {
    let mut desk = Desk::new(test.plane(), &NOT_TYPED)?;
    // The kubelet starts a Pod a little later.
    desk.is_patient = true;
    test.serve()?;
    let [program, server, new, define, build, load, render, host, try_it, change, delete, clean] =
        all_blocks::<12>(TUTORIAL)?;
    for block in [program, server, new] {
        desk.types(&block).await?;
    }
    desk.folder.push("hello-hook");
    let example = paths::workspace().join("guests/hello");
    for file in ["crd.yaml", "controller.yaml", "src/main.rs"] {
        let there = desk.folder.join(file);
        ensure!(there.is_file(), "{file} is no file of the scaffold");
        fs::copy(example.join(file), there)?;
    }
    fs::copy(example.join("hello.yaml"), desk.folder.join("hello.yaml"))?;
    is_hosted_here(test, &desk.folder.join("controller.yaml"))?;
    let target = desk.folder.join("target/wasm32-wasip1/release");
    fs::create_dir_all(&target)?;
    fs::copy(paths::guest("hello")?, target.join("hello-hook.wasm"))?;
    for block in [define, build, load] {
        desk.types(&block).await?;
    }
    let rendered = desk.types(&render).await?.concat();
    ensure!(rendered.contains("kind: Pod\n") && rendered.contains("Hello, Your Name!"), "{rendered}");
    for block in [host, try_it, change, delete] {
        desk.types(&block).await?;
    }
    let kubectl = test.plane().kubectl();
    prints(&kubectl, "-n hello get pods", |pods| pods.starts_with("No resources found")).await?;
    desk.types(&clean).await?;
    desk.not_here.are_all_needed()
}

pub(crate) async fn a_node_that_is_stopped_leaves_nothing_behind(test: &mut Fixture) -> Result<()> {
    let parts = test.plane().parts().context("this test needs a node")?.clone();
    let image = Image::program(IMAGE, &parts.program("pause"), &["/usr/bin/sleeper", "/usr/bin/bed"]);
    let host = before_all()?;
    for _ in 0..ROUNDS {
        let plane =
            ControlPlane::start_with_node(&parts, std::slice::from_ref(&image), async |_| Ok(())).await?;
        let folder = plane.scratch().to_owned();
        run_a_pod(&plane).await?;
        ensure!(
            traces(&folder)?.iter().any(|trace| trace.starts_with("cgroup ")),
            "a node has cgroups: {:?}",
            traces(&folder)?
        );
        drop(plane);
        ensure!(!folder.exists(), "{} is left", folder.display());
        host.is_as_it_was(&folder).await?;
    }
    Ok(())
}

pub(crate) async fn a_node_dies_with_an_owner_killed_with_9(_: &mut Fixture) -> Result<()> {
    let host = before_all()?;
    let mut owner = Command::new(std::env::current_exe()?)
        .arg("--hold-node")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(owner.stdout.take().context("no pipe")?).lines();
    let folder = lines.next_line().await?.context("the owner ended without a node")?;
    let folder = Path::new(&folder);
    ensure!(folder.join("node").is_dir(), "there is no node in {}", folder.display());
    owner.kill().await?;
    host.is_as_it_was(folder).await?;
    until("no file of the killed owner", PATIENCE, || async {
        Ok(if folder.exists() {
            Err(names(folder).into_iter().collect::<Vec<_>>().join("\n"))
        } else {
            Ok(())
        })
    })
    .await
}

/// One that goes on, of an image of ours: it has a shim, a container, mounts and cgroups when the node is stopped.
async fn run_a_pod(plane: &ControlPlane) -> Result<()> {
    let pods = Objects::within(&plane.client().await?, &POD, "default");
    let container = json!({ "name": "sleeper", "image": IMAGE, "command": ["/usr/bin/bed"] });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "sleeper" },
        "spec": { "containers": [container] },
    });
    pods.create(pod).await?;
    let runs = pods.until("sleeper", "Running", |pod| text(pod, "/status/phase") == "Running");
    runs.await?;
    let printed = plane.on_node(&["ls", "/sys/class/net"]).await?;
    ensure!(printed.lines().any(|link| link.starts_with("veth")), "the Pod has a network: {printed}");
    Ok(())
}

/// The host before the first control plane of this run was started: what every start leaves would be there afterwards.
static BEFORE: OnceLock<Host> = OnceLock::new();

pub(crate) fn look_before_all() -> Result<()> {
    let host = Host::now()?;
    BEFORE.get_or_init(|| host);
    Ok(())
}

fn before_all() -> Result<&'static Host> {
    BEFORE.get().context("the host was not looked at before all tests")
}

/// State of the host that a node could change.
#[derive(Debug)]
struct Host {
    mounts: BTreeSet<String>,
    networks: BTreeSet<String>,
    entries: BTreeSet<String>,
    settings: String,
}

impl Host {
    fn now() -> Result<Self> {
        let folders = ["/", "/etc", "/opt", "/run", "/usr/libexec", "/usr/local", "/var/lib", "/var/log"];
        let entries = folders.map(|folder| names(Path::new(folder)));
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let settings = [
            "vm/overcommit_memory",
            "vm/panic_on_oom",
            "kernel/hostname",
            "kernel/panic",
            "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys",
            "net/ipv4/ip_forward",
        ]
        .map(|name| fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default());
        Ok(Self {
            mounts: mounts.lines().map(str::to_owned).collect(),
            networks: names(Path::new("/sys/class/net")),
            entries: entries.into_iter().flatten().collect(),
            settings: settings.concat(),
        })
    }

    /// Waits a little: the last process ends after its owner has heard of it.
    async fn is_as_it_was(&self, folder: &Path) -> Result<()> {
        until("a host without traces of the node", PATIENCE, || async {
            let now = Self::now()?;
            let mut left = traces(folder)?;
            left.extend(now.mounts.difference(&self.mounts).cloned());
            left.extend(now.networks.difference(&self.networks).cloned());
            left.extend(now.entries.difference(&self.entries).cloned());
            if now.settings != self.settings {
                left.push(format!("settings {}", now.settings));
            }
            Ok(if left.is_empty() { Ok(()) } else { Err(left.join("\n")) })
        })
        .await
    }
}

/// Processes and cgroups of the control plane in that folder.
fn traces(folder: &Path) -> Result<Vec<String>> {
    let name = folder.file_name().context("a folder has a name")?;
    let lines = using(&folder.display().to_string())?.into_iter();
    let mut traces: Vec<String> = lines.map(|line| format!("process {line}")).collect();
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = names(root).into_iter().map(|name| root.join(name));
    for hierarchy in hierarchies.chain([root.to_owned()]) {
        let cgroup = hierarchy.join(name);
        if cgroup.is_dir() {
            traces.push(format!("cgroup {}", cgroup.display()));
        }
    }
    Ok(traces)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}
