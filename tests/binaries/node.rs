//! Parts of a node: found, or built once per machine from `tests/cluster` and `tests/node`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use crate::needs::{BUSYBOX, Missing};

use crate::cluster::{Binaries, Kubernetes};
use crate::go;
use crate::needs;
use crate::paths;

const KUBERNETES: [&str; 2] = ["kubelet", "kube-scheduler"];

/// Programs of `tests/node` that are built without cgo; the last parts are their names.
const STATIC: [&str; 8] = [
    "github.com/containerd/containerd/v2/cmd/containerd",
    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    "github.com/containernetworking/plugins/plugins/ipam/host-local",
    "github.com/containernetworking/plugins/plugins/main/bridge",
    "./apiserver-forwarder",
    "./pause",
    "./registry",
    "./services",
];

const RUNC: &str = "github.com/opencontainers/runc";

/// Every program of a control plane with a node.
#[derive(Debug, Clone)]
pub struct Parts {
    binaries: Binaries,
    kubernetes: PathBuf,
    runtime: PathBuf,
}

impl Parts {
    /// Finds or builds the parts of a node. A part that this machine lacks is no error. With `install` missing Debian
    /// packages are installed.
    pub fn find_or_build(install: bool) -> Result<Result<Self, Missing>> {
        let runtime = runtime_folder()?;
        let to_build = !has_runtime(&runtime);
        match needs::missing(to_build) {
            Some(Missing::Packages(packages)) if install => {
                if let Err(why) = needs::install(&packages) {
                    eprintln!("{why:#}");
                }
            }
            _ => {}
        }
        if let Some(missing) = needs::missing(to_build) {
            return Ok(Err(missing));
        }
        let kubernetes = match kubernetes()? {
            Ok(folder) => folder,
            Err(missing) => return Ok(Err(missing)),
        };
        go::once(
            &runtime,
            "containerd, runc and CNI plugins (some two minutes on two cores)",
            has_runtime,
            build_runtime,
        )?;
        let parts = Self { binaries: Binaries::find_or_build()?, kubernetes, runtime };
        let folders = [parts.binaries.folder(), &parts.kubernetes, &parts.runtime, &env::temp_dir()];
        Ok(match needs::hidden(&folders) {
            Some(missing) => Err(missing),
            None => Ok(parts),
        })
    }

    /// Time that `find_or_build` takes as a rule, in words.
    pub fn usual_time() -> Result<String> {
        let there = has_runtime(&runtime_folder()?);
        Ok(if there { "there already" } else { "some four minutes, once per machine" }.to_owned())
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub fn kubelet(&self) -> PathBuf {
        self.kubernetes.join("kubelet")
    }

    pub fn scheduler(&self) -> PathBuf {
        self.kubernetes.join("kube-scheduler")
    }

    /// The folder of everything else, CNI plugins among it.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// A program of that folder.
    pub fn program(&self, name: &str) -> PathBuf {
        self.runtime.join(name)
    }
}

/// A node must not be newer than its API server: beside given binaries nothing is built.
fn kubernetes() -> Result<Result<PathBuf, Missing>> {
    if let Some(given) = env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
        let given = PathBuf::from(given);
        return Ok(if has(&given, &KUBERNETES) {
            Ok(given)
        } else {
            let names = KUBERNETES.join(" or ");
            Err(Missing::Machine(format!("no {names} in KUBEBUILDER_ASSETS={}", given.display())))
        });
    }
    let kubernetes = Kubernetes::read()?;
    let folder = go::cache_folder()?.join(format!("{}-node", kubernetes.name));
    let what = format!("{} of Kubernetes {}", KUBERNETES.join(", "), kubernetes.version);
    go::once(
        &folder,
        &what,
        |folder| has(folder, &KUBERNETES),
        |into| {
            let packages = KUBERNETES.map(|name| format!("k8s.io/kubernetes/cmd/{name}"));
            kubernetes.build(&packages.each_ref().map(String::as_str), into)
        },
    )?;
    Ok(Ok(folder))
}

fn runtime_folder() -> Result<PathBuf> {
    Ok(go::cache_folder()?.join(format!("node-{}", fingerprint()?)))
}

fn module() -> PathBuf {
    paths::workspace().join("tests/node")
}

fn fingerprint() -> Result<String> {
    let module = module();
    let mut files = vec![module.join("go.sum"), module.join("go.mod")];
    for program in ["apiserver-forwarder", "pause", "registry", "services"] {
        let folder = module.join(program);
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    go::fingerprint(&files)
}

fn build_runtime(into: &Path) -> Result<()> {
    let module = module();
    let build = |cgo, flags: &[&str], packages: &[&str]| {
        let module = &module;
        go::Build { module, cgo, flags, packages }.run(into)
    };
    build(false, &["-ldflags", "-s -w"], &STATIC)?;
    // containerd filters the system calls of every Pod, which runc refuses unless it is built to do it.
    let flags = ["-tags", "seccomp netgo osusergo", "-ldflags", "-s -w -extldflags -static"];
    build(true, &flags, &[RUNC])
}

fn has_runtime(folder: &Path) -> bool {
    let names = STATIC.iter().chain([&RUNC]);
    let names: Vec<&str> = names.filter_map(|package| package.rsplit('/').next()).collect();
    has(folder, &names)
}

fn has(folder: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| folder.join(name).is_file())
}
