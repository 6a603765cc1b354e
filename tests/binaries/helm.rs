//! Helm: found in the cache, or built once per machine from `tests/helm`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::go;
use crate::paths;

const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";

/// `helm`, which is built first if need be.
pub fn find_or_build() -> Result<PathBuf> {
    let module = Module::read()?;
    let folder = module.folder()?;
    let what = format!("helm {} (some four minutes on two cores)", module.version);
    go::once(&folder, &what, is_built, |into| module.build(into))?;
    Ok(program(&folder))
}

/// Time that `find_or_build` takes as a rule, in words.
pub fn usual_time() -> Result<String> {
    let there = is_built(&Module::read()?.folder()?);
    Ok(if there { "there already" } else { "some four minutes, once per machine" }.to_owned())
}

/// The Go module in `tests/helm`.
#[derive(Debug)]
struct Module {
    path: PathBuf,
    version: String,
    /// The minor version of the Kubernetes that Helm takes for the cluster's where it asks none.
    kubernetes: String,
    fingerprint: String,
}

impl Module {
    fn read() -> Result<Self> {
        let path = paths::workspace().join("tests/helm");
        let go_mod = go::read(&path.join("go.mod"))?;
        let version = version(&go_mod, "helm.sh/helm/v3")?;
        let kubernetes = version_of_kubernetes(&go_mod)?;
        let fingerprint = go::fingerprint(&[path.join("go.sum"), path.join("go.mod")])?;
        Ok(Self { path, version, kubernetes, fingerprint })
    }

    fn folder(&self) -> Result<PathBuf> {
        Ok(go::cache_folder()?.join(format!("helm-{}-{}", self.version, self.fingerprint)))
    }

    fn build(&self, into: &Path) -> Result<()> {
        let helm = "helm.sh/helm/v3";
        let flags = format!(
            "-s -w -X {helm}/internal/version.version={} -X {helm}/pkg/chartutil.k8sVersionMajor=1 -X {helm}/pkg/chartutil.k8sVersionMinor={}",
            self.version, self.kubernetes
        );
        let flags = ["-ldflags", &flags];
        go::Build { module: &self.path, cgo: false, flags: &flags, packages: &[PACKAGE] }.run(into)
    }
}

fn program(folder: &Path) -> PathBuf {
    folder.join("helm")
}

fn is_built(folder: &Path) -> bool {
    program(folder).is_file()
}

fn version(go_mod: &str, module: &str) -> Result<String> {
    let mut words = go_mod.lines().map(|line| line.trim().trim_start_matches("require ").split(' '));
    let version = words.find_map(|mut words| words.next().filter(|word| *word == module).and(words.next()));
    Ok(version.with_context(|| format!("tests/helm/go.mod names no version of {module}"))?.to_owned())
}

/// Its libraries are version 0.36 where it is 1.36.
fn version_of_kubernetes(go_mod: &str) -> Result<String> {
    let libraries = version(go_mod, "k8s.io/client-go")?;
    Ok(libraries.split('.').nth(1).context("a version of k8s.io/client-go without a minor one")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        let go_mod = "tool helm.sh/helm/v3/cmd/helm\nrequire (\n\ta.b/c v1.0.0\n\thelm.sh/helm/v3 v3.22.0 // indirect\n\tk8s.io/client-go v0.36.1 // indirect\n)";
        assert_eq!(version(go_mod, "helm.sh/helm/v3").unwrap(), "v3.22.0");
        assert_eq!(version("require helm.sh/helm/v3 v3.1.0", "helm.sh/helm/v3").unwrap(), "v3.1.0");
        assert_eq!(version_of_kubernetes(go_mod).unwrap(), "36");
        assert!(Module::read().unwrap().version.starts_with("v3."));
    }
}
