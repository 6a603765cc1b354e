//! Cluster of the demo: a control plane of its own, or the one of a kubectl context.

use std::env;
use std::path::PathBuf;
use std::time::Instant;

use acceptance::control_plane::ControlPlane;
use acceptance::folder::Folder;
use acceptance::kubectl::Kubectl;
use acceptance::node::{Image, Parts};
use anyhow::{Context, Result, bail, ensure};
use binaries::cluster::Binaries;
use binaries::elapsed::elapsed;

/// CRDs of ours, as `manifests/crds` has them.
pub(crate) const DEFINITIONS: [&str; 3] =
    ["compositecontrollers", "controllerrevisions", "decoratorcontrollers"];

pub(crate) fn definition(plural: &str) -> String {
    format!("{plural}.metacontroller.k8s.io")
}

const LOG: &str = "metahook.log";

/// A cluster that the demo runs on.
pub(crate) enum Cluster {
    /// Ours, gone afterwards.
    Own(Box<ControlPlane>),
    /// The user's: the demo changes and removes nothing that was there.
    Existing(Existing),
}

pub(crate) struct Existing {
    pub(crate) context: String,
    kubectl: Kubectl,
    folder: Folder,
    /// A server that runs there and is to be used.
    pub(crate) server: Option<String>,
}

impl Cluster {
    /// With a node where there can be one, which has these images of containers that run until they are ended.
    pub(crate) async fn own(install: bool, images: &[&str]) -> Result<Self> {
        let parts = Parts::find_or_build(install)?;
        let binaries = Binaries::find_or_build()?;
        let start = Instant::now();
        println!("\nstarting etcd, kube-apiserver and kube-controller-manager");
        let plane = match &parts {
            Ok(parts) => {
                println!("and a node of their own: kube-scheduler, kubelet, containerd");
                let pause = parts.program("pause");
                let images: Vec<Image> =
                    images.iter().map(|name| Image::program(name, &pause, &["/pause"])).collect();
                ControlPlane::start_with_node(parts, &images, async |_| Ok(())).await?
            }
            Err(missing) => {
                println!(
                    "no node, so Pods are made but do not run, and have no logs: {}",
                    missing.with_hint()
                );
                ControlPlane::start(&binaries).await?
            }
        };
        println!("  ready after {}", elapsed(start));
        let own = Self::Own(Box::new(plane));
        println!("$ {}", own.export());
        Ok(own)
    }

    /// # Errors
    /// If our CRDs or another server are there and are not to be used, or cannot be: what the controller to be shown needs
    /// is the plural of its kind, and fields that this CRD must know.
    pub(crate) async fn of_context(name: &str, use_existing: bool, needs: (&str, &[&str])) -> Result<Self> {
        let program = find_kubectl()?;
        let folder = Folder::new()?;
        let kubectl = Kubectl::new(program, export_context(name, &folder).await?);
        let mut existing = Existing { context: name.to_owned(), kubectl, folder, server: None };
        let server = existing.running_server().await?;
        let definitions = existing.our_definitions(needs).await?;
        if !use_existing {
            let found: Vec<String> = definitions.into_iter().chain(server.clone()).collect();
            let found = found.join(", ");
            ensure!(found.is_empty(), "already there: {found}; --use-existing uses what is there");
        }
        existing.server = server;
        Ok(Self::Existing(existing))
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        match self {
            Self::Own(plane) => plane.kubectl(),
            Self::Existing(existing) => existing.kubectl.clone(),
        }
    }

    pub(crate) fn context(&self) -> Option<String> {
        match self {
            Self::Own(_) => None,
            Self::Existing(existing) => Some(existing.context.clone()),
        }
    }

    /// Whether Pods run, as far as we know.
    pub(crate) fn has_node(&self) -> bool {
        match self {
            Self::Own(plane) => plane.parts().is_some(),
            Self::Existing(_) => false, // what nodes there are may not pull busybox
        }
    }

    /// The last line of a demo that came to its end.
    pub(crate) fn closing(&self) -> &'static str {
        if self.has_node() {
            "All of it was seen."
        } else {
            "All of it was seen, but for Pods that run and what they print."
        }
    }

    /// Where the server's log goes.
    pub(crate) fn server_log(&self) -> PathBuf {
        match self {
            Self::Own(plane) => plane.logs().join(LOG),
            Self::Existing(existing) => existing.folder.path().join(LOG),
        }
    }

    /// The line to type so that kubectl reaches this cluster.
    pub(crate) fn export(&self) -> String {
        let kubeconfig = format!("export KUBECONFIG={}", self.kubectl().kubeconfig().display());
        match self {
            Self::Own(plane) => format!("{kubeconfig} PATH={}:$PATH", plane.binaries().folder().display()),
            Self::Existing(_) => kubeconfig,
        }
    }

    pub(crate) fn keep_logs(&mut self) {
        match self {
            Self::Own(plane) => plane.keep_logs(),
            Self::Existing(existing) => {
                let log = existing.folder.path().join(LOG);
                if log.is_file() {
                    existing.folder.keep(LOG); // not the kubeconfig, which holds credentials
                    println!("the server's log is kept: {}", log.display());
                }
            }
        }
    }
}

impl Existing {
    async fn our_definitions(&self, (plural, fields): (&str, &[&str])) -> Result<Vec<String>> {
        let mut line = vec!["get", "crd", "--ignore-not-found", "-o", "name"];
        let names = DEFINITIONS.map(definition);
        line.extend(names.iter().map(String::as_str));
        let found = self.ask(&line).await?;
        let found: Vec<String> = found.lines().map(str::to_owned).collect();
        let crd = definition(plural);
        if found.iter().any(|name| name.ends_with(&format!("/{crd}"))) {
            self.knows(&crd, fields).await?;
        }
        Ok(found)
    }

    /// The peer's CRDs have the names of ours but know less, and so may older ones: the API server would drop the rest.
    async fn knows(&self, crd: &str, fields: &[&str]) -> Result<()> {
        let text = self.ask(&["get", "crd", crd, "-o", "json"]).await?;
        let unknown: Vec<_> =
            fields.iter().copied().filter(|field| !text.contains(&format!("\"{field}\""))).collect();
        let missing = unknown.join(", ");
        ensure!(
            missing.is_empty(),
            "{crd} is there, but of another product or an older version: it does not know {missing}"
        );
        Ok(())
    }

    /// A workload of Metacontroller's label, or a lease of its name.
    async fn running_server(&self) -> Result<Option<String>> {
        let label = "app.kubernetes.io/name=metacontroller";
        let name = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        let workloads = self.ask(&["get", "statefulsets,deployments", "-A", "-l", label, "-o", name]).await?;
        let field = "metadata.name=metacontroller";
        let leases = self.ask(&["get", "leases", "-A", "--field-selector", field, "-o", name]).await?;
        Ok(workloads.lines().chain(leases.lines()).next().map(|found| format!("a server ({found})")))
    }

    async fn ask(&self, line: &[&str]) -> Result<String> {
        let context = ["--context", &self.context];
        self.kubectl.run(&[&context, line].concat()).await
    }
}

/// The one on the PATH, which suits the cluster; else ours.
fn find_kubectl() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|program| program.is_file());
    found.map_or_else(|| Ok(Binaries::find_or_build()?.kubectl()), Ok)
}

/// A kubeconfig of that context alone: the server uses the current one of its file.
async fn export_context(name: &str, folder: &Folder) -> Result<PathBuf> {
    let output = tokio::process::Command::new(find_kubectl()?)
        .args(["config", "view", "--raw", "--minify", "--flatten", "--context", name])
        .output()
        .await
        .context("cannot run kubectl")?;
    if !output.status.success() {
        bail!("no context {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, output.stdout).context("cannot write a kubeconfig")?; // in a folder of mode 0700
    Ok(file)
}
