//! The files and flags of what runs on a node, and why they are as they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use binaries::node::{BUSYBOX, Parts};

use super::services::{DNS, DOMAIN};
use super::{ADDRESS, Image, NAME};
use crate::pki::Authority;

/// The users of a node, as lines of the API server's file of tokens.
pub(crate) fn tokens(authority: &Authority) -> String {
    let [kubelet, scheduler] = [KUBELET, SCHEDULER].map(|user| authority.token(user));
    format!("{kubelet},{KUBELET},{NAME},\"system:nodes\"\n{scheduler},{SCHEDULER},scheduler\n")
}

const KUBELET: &str = "system:node:node1";
const SCHEDULER: &str = "system:kube-scheduler";

/// Files that a node reads, below the folder of its control plane.
#[derive(Debug)]
pub(crate) struct Config {
    folder: PathBuf,
}

impl Config {
    /// `kubeconfig` makes the content of a kubeconfig file of a token.
    pub(crate) fn write(
        folder: &Path,
        parts: &Parts,
        authority: &Authority,
        kubeconfig: impl Fn(&str) -> String,
    ) -> Result<Self> {
        let config = Self { folder: folder.to_owned() };
        fs::create_dir_all(folder.join("certs.d/_default")).context("cannot make folders")?;
        fs::create_dir_all(folder.join("cni")).context("cannot make folders")?;
        let kubelet = authority.server(NAME, &[ADDRESS, NAME])?;
        let apiserver = authority.client("kube-apiserver-kubelet-client", "system:masters")?;
        config.put("ca.crt", authority.certificate())?;
        config.put("kubelet.crt", &kubelet.certificate)?;
        config.put("kubelet.key", &kubelet.key)?;
        config.put("apiserver.crt", &apiserver.certificate)?;
        config.put("apiserver.key", &apiserver.key)?;
        config.put("kubelet.kubeconfig", &kubeconfig(&authority.token(KUBELET)))?;
        config.put("scheduler.kubeconfig", &kubeconfig(&authority.token(SCHEDULER)))?;
        config.put("resolv.conf", "")?; // no names: else Pods would get the host's
        config.put("kubelet.yaml", &config.kubelet())?;
        config.put("containerd.toml", &config.containerd(parts))?;
        config.put("certs.d/_default/hosts.toml", REGISTRY)?;
        config.put("cni/10-node.conflist", NETWORK)?;
        Ok(config)
    }

    fn put(&self, name: &str, content: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn kubelet(&self) -> String {
        format!(
            r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {ADDRESS}
readOnlyPort: 0
tlsCertFile: "{certificate}"
tlsPrivateKeyFile: "{key}"
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: "{ca}"}}}}
authorization: {{mode: Webhook}}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs # there is no systemd inside
failCgroupV1: false # else it ends at once where cgroups are of version 1
failSwapOn: false
protectKernelDefaults: true # it refuses settings that inside.sh has forgotten, where else it would change the host's
makeIPTablesUtilChains: false
resolvConf: "{resolv}"
clusterDNS: ["{DNS}"] # only where a test routes Services does it answer
clusterDomain: {DOMAIN}
volumePluginDir: "{plugins}" # else a folder is made in the host's /usr
oomScoreAdj: 0 # a lower one needs CAP_SYS_RESOURCE
# However full the host's disk is, nothing is evicted and no image is removed.
evictionHard: {{memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}}
imageGCHighThresholdPercent: 100
"#,
            certificate = self.path("kubelet.crt"),
            key = self.path("kubelet.key"),
            ca = self.path("ca.crt"),
            resolv = self.path("resolv.conf"),
            plugins = self.path("volume-plugins"),
        )
    }

    fn containerd(&self, parts: &Parts) -> String {
        format!(
            r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
imports = [] # not the host's
# They would write elsewhere, or warn.
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
pinned_images = {{ sandbox = "local.test/pause:1" }}
registry = {{ config_path = "{registries}" }}

[plugins."io.containerd.cri.v1.runtime"]
disable_apparmor = true
restrict_oom_score_adj = true # else every sandbox asks for one that needs CAP_SYS_RESOURCE

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options = {{ BinaryName = "{runc}", SystemdCgroup = false }}

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "{networks}"
use_internal_loopback = true
"#,
            registries = self.path("certs.d"),
            networks = self.path("cni"),
            runc = parts.program("runc").display(),
            plugins = parts.runtime().display(),
        )
    }

    /// Flags that let kubelet in to the API server, and let the API server ask it for logs.
    pub(crate) fn apiserver_flags(&self) -> Vec<String> {
        vec![
            "--bind-address=0.0.0.0".to_owned(), // of its network namespace: Pods reach it
            format!("--advertise-address={ADDRESS}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--kubelet-certificate-authority={}", self.path("ca.crt")),
            format!("--kubelet-client-certificate={}", self.path("apiserver.crt")),
            format!("--kubelet-client-key={}", self.path("apiserver.key")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ]
    }

    pub(crate) fn scheduler_flags(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.path("scheduler.kubeconfig")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ]
    }

    pub(crate) fn kubelet_flags(&self) -> Vec<String> {
        vec![
            format!("--config={}", self.path("kubelet.yaml")),
            format!("--kubeconfig={}", self.path("kubelet.kubeconfig")),
            format!("--hostname-override={NAME}"),
            format!("--node-ip={ADDRESS}"), // else it looks for a default route, and there is none
        ]
    }

    pub(crate) fn containerd_flags(&self) -> Vec<String> {
        vec![format!("--config={}", self.path("containerd.toml"))]
    }
}

pub(crate) fn registry_flags(parts: &Parts, images: &[Image]) -> Vec<String> {
    let pause = Image::program("pause:1", &parts.program("pause"), &["/pause"]);
    let mut flags = vec![format!("-busybox={}", BUSYBOX)];
    flags.extend([&pause].into_iter().chain(images).map(Image::flag));
    flags
}

/// Whatever an image's name says, it comes from the registry beside containerd: `busybox` is pulled as everywhere, and
/// one that is not there fails as everywhere.
const REGISTRY: &str = r#"server = "http://127.0.0.1:5000"

[host."http://127.0.0.1:5000"]
capabilities = ["pull", "resolve"]
"#;

const NETWORK: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "node",
  "plugins": [{
    "type": "bridge",
    "bridge": "node0",
    "isGateway": true,
    "ipMasq": false,
    "ipam": {
      "type": "host-local",
      "ranges": [[{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.10", "gateway": "10.88.0.1"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
"#;
