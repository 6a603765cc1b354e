//! Kubernetes binaries: found, or built once per machine from `tests/cluster`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::go;
use crate::paths;

/// A binary, and where `go build` has it from.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    package: &'static str,
    /// The name that `go build` gives it: the last part of its package that is no version.
    built_as: &'static str,
}

const CONTROL_PLANE: [Tool; 4] = [
    Tool { name: "etcd", package: "go.etcd.io/etcd/server/v3", built_as: "server" },
    Tool {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        built_as: "kube-apiserver",
    },
    Tool {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        built_as: "kube-controller-manager",
    },
    Tool { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", built_as: "kubectl" },
];

/// A folder that holds every binary of a control plane.
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// `KUBEBUILDER_ASSETS` if it is set, else the cache, which is filled first if need be.
    pub fn find_or_build() -> Result<Self> {
        match env::var_os("KUBEBUILDER_ASSETS") {
            Some(folder) if !folder.is_empty() => Self::given(PathBuf::from(folder)),
            _ => Self::cached(),
        }
    }

    /// Time that `find_or_build` takes as a rule, in words.
    pub fn usual_time() -> Result<String> {
        let given = env::var_os("KUBEBUILDER_ASSETS").is_some_and(|folder| !folder.is_empty());
        let there = given || missing(&Kubernetes::read()?.folder()?).next().is_none();
        Ok(if there { "there already" } else { "some eight minutes, once per machine" }.to_owned())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn etcd(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    pub fn apiserver(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }

    pub fn controller_manager(&self) -> PathBuf {
        self.folder.join("kube-controller-manager")
    }

    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }

    fn given(folder: PathBuf) -> Result<Self> {
        let lacks: Vec<&str> = missing(&folder).collect();
        ensure!(
            lacks.is_empty(),
            "KUBEBUILDER_ASSETS={} lacks {}: put it there, or unset the variable to have everything built",
            folder.display(),
            lacks.join(", "),
        );
        Ok(Self { folder })
    }

    fn cached() -> Result<Self> {
        let kubernetes = Kubernetes::read()?;
        let folder = kubernetes.folder()?;
        let names: Vec<&str> = CONTROL_PLANE.iter().map(|tool| tool.name).collect();
        let what = format!(
            "{} of Kubernetes {} (some eight minutes on two cores)",
            names.join(", "),
            kubernetes.version
        );
        go::once(
            &folder,
            &what,
            |folder| missing(folder).next().is_none(),
            |into| {
                let packages: Vec<&str> = CONTROL_PLANE.iter().map(|tool| tool.package).collect();
                kubernetes.build(&packages, into)?;
                CONTROL_PLANE.iter().try_for_each(|tool| tool.rename(into))
            },
        )?;
        Ok(Self { folder })
    }
}

impl Tool {
    fn rename(&self, folder: &Path) -> Result<()> {
        let built = folder.join(self.built_as);
        fs::rename(&built, folder.join(self.name))
            .with_context(|| format!("go build made no {}", built.display()))
    }
}

/// The Go module in `tests/cluster`.
#[derive(Debug)]
pub(crate) struct Kubernetes {
    module: PathBuf,
    pub(crate) version: String,
    /// Name of the version and the sources: `k8s-v1.36.3-0123abcd`.
    pub(crate) name: String,
}

impl Kubernetes {
    pub(crate) fn read() -> Result<Self> {
        let module = paths::workspace().join("tests/cluster");
        let version = kubernetes_version(&go::read(&module.join("go.mod"))?)?;
        let fingerprint = go::fingerprint(&[module.join("go.sum"), module.join("go.mod")])?;
        Ok(Self { module, name: format!("k8s-{version}-{fingerprint}"), version })
    }

    fn folder(&self) -> Result<PathBuf> {
        Ok(go::cache_folder()?.join(&self.name))
    }

    pub(crate) fn build(&self, packages: &[&str], into: &Path) -> Result<()> {
        let variable = "k8s.io/component-base/version";
        let version = &self.version;
        let mut numbers = version.trim_start_matches('v').split('.');
        let major = numbers.next().unwrap_or_default();
        let minor = numbers.next().unwrap_or_default();
        // Without its version in it `kubectl version` cannot parse the server's answer.
        let flags = format!(
            "-s -w -X {variable}.gitVersion={version} -X {variable}.gitMajor={major} -X {variable}.gitMinor={minor}"
        );
        let build = go::Build { module: &self.module, cgo: false, flags: &["-ldflags", &flags], packages };
        build.run(into)
    }
}

fn missing(folder: &Path) -> impl Iterator<Item = &'static str> {
    CONTROL_PLANE.iter().map(|tool| tool.name).filter(|name| !folder.join(name).is_file())
}

fn kubernetes_version(go_mod: &str) -> Result<String> {
    let line = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let version = line.and_then(|rest| rest.split(' ').next());
    Ok(version.context("tests/cluster/go.mod names no version of k8s.io/kubernetes")?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_given_folder_that_lacks_a_binary_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["etcd", "kube-apiserver", "kubectl"] {
            File::create(folder.path().join(name)).unwrap();
        }
        let refused = Binaries::given(folder.path().to_owned()).unwrap_err().to_string();
        assert!(refused.contains(" lacks kube-controller-manager: "), "{refused}");
    }

    #[test]
    fn the_version_is_that_of_the_module() {
        let go_mod =
            "require (\n\tk8s.io/kubelet v0.36.3 // indirect\n\tk8s.io/kubernetes v1.36.3 // indirect\n)";
        assert_eq!(kubernetes_version(go_mod).unwrap(), "v1.36.3");
    }
}
