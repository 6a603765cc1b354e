//! Ports, files and flags of a control plane's programs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::KeyPair;

use crate::free_port::free_port;
use crate::node;
use crate::node::config::tokens;
use crate::pki::{Authority, Certified};

/// Where etcd and the API server listen on their loopback, and where we reach the latter on ours.
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) peer: u16,
    pub(super) secure: u16,
    pub(super) ours: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self> {
        let (client, peer, secure) = (free_port()?, free_port()?, free_port()?);
        Ok(Self { client, peer, secure, ours: secure })
    }

    /// Ports of a network namespace of its own, where no other process can have them.
    pub(super) fn inside(forwarder: u16) -> Self {
        Self { client: 2379, peer: 2380, secure: node::SECURE_PORT, ours: forwarder }
    }
}

/// Files that the processes read from disk.
pub(super) struct Files {
    etcd_data: String,
    pub(super) ca: String,
    certificate: String,
    key: String,
    account_key: String,
    account_public_key: String,
    tokens: String,
    certs: String,
    /// For those that run beside the API server.
    kubeconfig: String,
}

impl Files {
    pub(super) fn write(folder: &Path, ports: &Ports, authority: &Authority) -> Result<Self> {
        let write = |name: &str, content: &str| -> Result<String> {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            text(&path)
        };
        let Certified { certificate, key } = authority.server("kube-apiserver", &NAMES)?;
        let ca = write("ca.crt", authority.certificate())?;
        let (account_key, admin) = (KeyPair::generate()?, authority.token("admin"));
        let files = Self {
            etcd_data: text(&folder.join("etcd"))?,
            certificate: write("apiserver.crt", &certificate)?,
            key: write("apiserver.key", &key)?,
            account_key: write("sa.key", &account_key.serialize_pem())?,
            account_public_key: write("sa.pub", &account_key.public_key_pem())?,
            tokens: write(
                "tokens.csv",
                &format!("{admin},admin,admin,\"system:masters\"\n{}", tokens(authority)),
            )?,
            certs: text(&folder.join("certs"))?,
            kubeconfig: write("beside.kubeconfig", &kubeconfig(ports.secure, &ca, &admin))?,
            ca,
        };
        write("kubeconfig", &kubeconfig(ports.ours, &files.ca, &admin))?;
        Ok(files)
    }
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}

/// Names that the API server is reached by, from wherever.
const NAMES: [&str; 6] =
    ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc", "10.0.0.1", node::ADDRESS];

pub(super) fn kubeconfig(port: u16, ca: &str, token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: metahook-test
  cluster: {{server: \"https://127.0.0.1:{port}\", certificate-authority: \"{ca}\"}}
users:
- name: admin
  user: {{token: {token}}}
contexts:
- name: metahook-test
  context: {{cluster: metahook-test, user: admin}}
current-context: metahook-test
"
    )
}

pub(super) fn etcd_flags(files: &Files, client: &str, peer: &str) -> Vec<String> {
    vec![
        format!("--data-dir={}", files.etcd_data),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(), // its data does not outlive it
        "--log-level=warn".to_owned(),
    ]
}

pub(super) fn apiserver_flags(files: &Files, etcd: &str, port: u16) -> Vec<String> {
    vec![
        format!("--etcd-servers={etcd}"),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", files.certs),
        format!("--tls-cert-file={}", files.certificate),
        format!("--tls-private-key-file={}", files.key),
        format!("--token-auth-file={}", files.tokens),
        format!("--service-account-key-file={}", files.account_public_key),
        format!("--service-account-signing-key-file={}", files.account_key),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--allow-privileged=true".to_owned(),
    ]
}

/// Flags that the API server needs besides where there is no node.
pub(super) fn alone() -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // No Pod mounts tokens, so none needs to wait for its ServiceAccount.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]
}

pub(super) fn controller_manager_flags(files: &Files) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", files.kubeconfig),
        format!("--service-account-private-key-file={}", files.account_key),
        format!("--root-ca-file={}", files.ca),
        "--controllers=*,-bootstrapsigner".to_owned(),
        // Else a folder is made in /usr.
        format!("--flex-volume-plugin-dir={}-volume-plugins", files.etcd_data),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // With the defaults (20 and 30) the first ServiceAccount comes seconds later.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        // Each test leaves a namespace, and each is emptied of all kinds of all tests.
        "--concurrent-namespace-syncs=40".to_owned(),
    ]
}

pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let (path, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if path.is_dir() {
            copy_folder(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}
