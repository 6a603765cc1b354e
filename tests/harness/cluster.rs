//! Finds the Kubernetes binaries, or builds them once per machine from `tests/cluster`.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::paths;
use crate::wait::elapsed;

/// A binary, and where `go build` has it from.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    package: &'static str,
    /// What `go build` calls it: the last part of its package that is no version.
    built_as: &'static str,
}

const CONTROL_PLANE: [Tool; 4] = [
    Tool {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        built_as: "server",
    },
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
    Tool {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        built_as: "kubectl",
    },
];

/// How often a build that goes on says so.
const NEWS: Duration = Duration::from_secs(15);

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
        let module = paths::workspace().join("tests/cluster");
        let version = kubernetes_version(&read(&module.join("go.mod"))?)?;
        let cache = cache_folder()?;
        let folder = cache.join(format!("k8s-{version}-{}", fingerprint(&module)?));
        if missing(&folder).next().is_none() {
            return Ok(Self { folder });
        }
        fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let _lock = lock(&beside(&folder, "lock"))?;
        if missing(&folder).next().is_some() {
            build_into(&module, &version, &folder)?;
        }
        Ok(Self { folder })
    }
}

fn missing(folder: &Path) -> impl Iterator<Item = &'static str> {
    CONTROL_PLANE
        .iter()
        .map(|tool| tool.name)
        .filter(|name| !folder.join(name).is_file())
}

/// `k8s-v1.36.3-0123abcd.lock` beside `k8s-v1.36.3-0123abcd`.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = folder.to_owned().into_os_string();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn cache_folder() -> Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => env::home_dir()
            .context("there is no home folder to cache in: set XDG_CACHE_HOME")?
            .join(".cache"),
    };
    Ok(cache.join("metahook"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn kubernetes_version(go_mod: &str) -> Result<String> {
    let line = go_mod
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let version = line.and_then(|rest| rest.split(' ').next());
    Ok(version
        .context("tests/cluster/go.mod names no version of k8s.io/kubernetes")?
        .to_owned())
}

/// Another set of sources is another folder.
fn fingerprint(module: &Path) -> Result<String> {
    let sources = read(&module.join("go.sum"))? + &read(&module.join("go.mod"))?;
    let digest = Sha256::digest(sources.as_bytes());
    Ok(digest
        .iter()
        .take(4)
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

/// Held until dropped, so that two commands at once do not build twice.
fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!(
            "another command is building Kubernetes: waiting for it ({})",
            path.display()
        );
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Builds under another name and renames at the end: a build that was cut off is never taken for a whole one.
fn build_into(module: &Path, version: &str, folder: &Path) -> Result<()> {
    let start = Instant::now();
    let partial = beside(folder, "partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    let names: Vec<&str> = CONTROL_PLANE.iter().map(|tool| tool.name).collect();
    eprintln!("building {} of Kubernetes {version}", names.join(", "));
    eprintln!(
        "once per machine, some eight minutes on two cores, into {}",
        folder.display()
    );
    go_build(module, version, &partial, start)?;
    for tool in &CONTROL_PLANE {
        let built = partial.join(tool.built_as);
        fs::rename(&built, partial.join(tool.name))
            .with_context(|| format!("go build made no {}", built.display()))?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::rename(&partial, folder).with_context(|| format!("cannot make {}", folder.display()))?;
    eprintln!("built Kubernetes {version} in {}", elapsed(start));
    Ok(())
}

fn go_build(module: &Path, version: &str, into: &Path, start: Instant) -> Result<()> {
    let variable = "k8s.io/component-base/version";
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    // Without its version in it `kubectl version` cannot parse what the server says.
    let flags = format!(
        "-s -w -X {variable}.gitVersion={version} -X {variable}.gitMajor={major} -X {variable}.gitMinor={minor}"
    );
    let mut go = Command::new("go")
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .args(["build", "-v", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(into.join("")) // with a slash at the end: a folder
        .args(CONTROL_PLANE.iter().map(|tool| tool.package))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `go`: install Go (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder with the binaries")?;
    let said = go
        .stderr
        .take()
        .map(|stderr| follow(stderr, start))
        .unwrap_or_default();
    let status = go.wait().context("cannot wait for go build")?;
    if !status.success() {
        bail!("go build failed ({status}); it said last:\n{}", said.join("\n"));
    }
    Ok(())
}

/// Says every now and then how far `go build -v` is; gives back its last lines.
fn follow(stderr: ChildStderr, start: Instant) -> Vec<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(stderr)
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| send.send(line))
    });
    let (mut compiled, mut said, mut news) = (0_u32, Vec::<String>::new(), Instant::now());
    loop {
        match lines.recv_timeout(NEWS) {
            Ok(line) => {
                compiled += u32::from(!line.contains(' ')); // a package's path alone; else a download or an error
                said.push(line);
                said.drain(..said.len().saturating_sub(20));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return said,
        }
        if news.elapsed() >= NEWS {
            let last = said.last().map_or("nothing: it reads or links", String::as_str);
            eprintln!("  {}: {compiled} packages compiled, last {last}", elapsed(start));
            news = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
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
