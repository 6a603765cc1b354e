//! A real etcd, kube-apiserver and kube-controller-manager on loopback, with everything they need in one temporary folder;
//! with a node also scheduler, kubelet and containerd, all of them in namespaces of their own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;

use crate::api::{NODE, Objects, SERVICE_ACCOUNT};
use crate::cluster::Binaries;
use crate::folder::Folder;
use crate::kubectl::Kubectl;
use crate::node::config::{Config as NodeConfig, registry_flags, tokens};
use crate::node::{self, ApiServerForwarder, Image, Namespaces, Parts};
use crate::objects::is_true;
use crate::pki::{Authority, Certified};
use crate::process::Process;
use crate::wait::{Seen, until};

/// How long a start may take; three to five seconds are usual.
const START: Duration = Duration::from_secs(90);

/// Between being found free and being bound, another process can take a port.
const ATTEMPTS: usize = 4;

/// Runs until it is dropped; leaves nothing behind but kept logs.
#[derive(Debug)]
pub struct ControlPlane {
    node: Option<Node>,      // before the processes: with it they all end at once
    processes: Vec<Process>, // before the folder: they end before it goes
    folder: Folder,
    kubeconfig: PathBuf,
    binaries: Binaries,
    /// An admission plugin besides those that are on by default.
    admission: Option<&'static str>,
}

/// Parts of a control plane where Pods run.
#[derive(Debug)]
struct Node {
    namespaces: Namespaces,
    _forwarder: ApiServerForwarder,
    port: u16,
    parts: Parts,
    images: Vec<Image>,
}

impl ControlPlane {
    /// Starts one and waits until it answers and its controllers work.
    pub async fn start(binaries: &Binaries) -> Result<Self> {
        Self::start_with(binaries, async |_| Ok(())).await
    }

    /// Starts a control plane, with something done before the controllers start. Kinds defined then are known to the
    /// garbage collector at once; for new ones it looks every 30 seconds only.
    pub async fn start_with(binaries: &Binaries, prepare: impl AsyncFn(&Self) -> Result<()>) -> Result<Self> {
        Self::start_admitting(binaries, None, prepare).await
    }

    /// Starts a control plane with one more admission plugin.
    pub async fn start_admitting(
        binaries: &Binaries,
        plugin: Option<&'static str>,
        prepare: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<Self> {
        let prepared = || {
            let mut plane = Self::prepare(binaries)?;
            plane.admission = plugin;
            Ok(plane)
        };
        for _ in 1..ATTEMPTS {
            match Self::attempt(prepared(), &prepare).await {
                Err(Failed::PortTaken) => {}
                Err(Failed::Else(why)) => return Err(why),
                Ok(started) => return Ok(started),
            }
        }
        Self::attempt(prepared(), &prepare).await.map_err(|failed| match failed {
            Failed::PortTaken => anyhow!("free ports were taken by others {ATTEMPTS} times in a row"),
            Failed::Else(why) => why,
        })
    }

    /// Starts one with a node, in namespaces of their own, and waits until Pods can be made. The node can pull
    /// `busybox` and these images.
    pub async fn start_with_node(
        parts: &Parts,
        images: &[Image],
        prepare: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<Self> {
        let plane = Self::prepare_with_node(parts, images).await;
        Self::attempt(plane, &prepare).await.map_err(|failed| match failed {
            Failed::PortTaken => anyhow!("a port is taken in a network that is new"),
            Failed::Else(why) => why,
        })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Parts of the node, to start another control plane like this one.
    pub fn parts(&self) -> Option<&Parts> {
        self.node.as_ref().map(|node| &node.parts)
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Where logs go, also those of servers that run against this control plane.
    pub fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// A place for files that live no longer than the control plane.
    pub fn scratch(&self) -> &Path {
        self.folder.path()
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.binaries.kubectl(), self.kubeconfig.clone())
    }

    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// Keeps the logs for people to read; says where they are.
    pub fn keep_logs(&mut self) {
        self.folder.keep("logs");
        eprintln!("logs are kept in {}", self.logs().display());
    }

    /// Runs a command on the node, among its processes, cgroups and networks; what it prints.
    pub async fn on_node(&self, line: &[&str]) -> Result<String> {
        let node = self.node.as_ref().context("there is no node")?;
        node.namespaces.print(line).await
    }

    async fn attempt(
        prepared: Result<Self>,
        prepare: &impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<Self, Failed> {
        let mut plane = prepared.map_err(Failed::Else)?;
        let Err(why) = plane.start_processes(prepare).await else {
            return Ok(plane);
        };
        if plane.processes.iter().any(|process| process.tail(50).contains("address already in use")) {
            return Err(Failed::PortTaken);
        }
        plane.keep_logs();
        Err(Failed::Else(why))
    }

    fn prepare(binaries: &Binaries) -> Result<Self> {
        let folder = Folder::new()?;
        fs::create_dir(folder.path().join("logs")).context("cannot make a folder for logs")?;
        let kubeconfig = folder.path().join("kubeconfig");
        Ok(Self {
            node: None,
            processes: Vec::new(),
            folder,
            kubeconfig,
            binaries: binaries.clone(),
            admission: None,
        })
    }

    async fn prepare_with_node(parts: &Parts, images: &[Image]) -> Result<Self> {
        let mut plane = Self::prepare(parts.binaries())?;
        let name = plane.folder.path().file_name().unwrap_or_default();
        let name = name.to_string_lossy(); // unique, and says whose the cgroups are
        let folder = plane.folder.path().join("node");
        let namespaces = Namespaces::make(&folder, &name, parts, &plane.log("node")).await?;
        let api = format!("127.0.0.1:{}", node::SECURE_PORT);
        let (forwarder, port) =
            namespaces.forward_apiserver(parts, &api, &plane.log("apiserver-forwarder"))?;
        plane.node = Some(Node {
            namespaces,
            _forwarder: forwarder,
            port,
            parts: parts.clone(),
            images: images.to_vec(),
        });
        Ok(plane)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    async fn start_processes(&mut self, prepare: &impl AsyncFn(&Self) -> Result<()>) -> Result<()> {
        let ports = match &self.node {
            None => Ports::free()?,
            Some(node) => Ports::inside(node.port),
        };
        let authority = Authority::new()?;
        let files = Files::write(self.folder.path(), &ports, &authority)?;
        let etcd = format!("http://127.0.0.1:{}", ports.client);
        let peer = format!("http://127.0.0.1:{}", ports.peer);
        self.run("etcd", &self.binaries.etcd(), &etcd_flags(&files, &etcd, &peer))?;
        let node = self.run_containers(&files, &ports, &authority)?;
        let mut flags = apiserver_flags(&files, &etcd, ports.secure);
        flags.extend(node.as_ref().map_or_else(alone, NodeConfig::apiserver_flags));
        flags.extend(self.admission.iter().map(|plugin| format!("--enable-admission-plugins={plugin}")));
        self.run("kube-apiserver", &self.binaries.apiserver(), &flags)?;
        let client = self.client().await?;
        self.ready("kube-apiserver ready", || answers(&client)).await?;
        prepare(self).await.context("cannot prepare the control plane")?;
        let flags = controller_manager_flags(&files);
        self.run("kube-controller-manager", &self.binaries.controller_manager(), &flags)?;
        if let Some(node) = node {
            self.run_node(&node, &client).await?;
        }
        let accounts = Objects::within(&client, &SERVICE_ACCOUNT, "default");
        self.ready("kube-controller-manager at work (ServiceAccount default/default)", || exists(&accounts))
            .await
    }

    /// With a node: its files, and what does not wait for the API server.
    fn run_containers(
        &mut self,
        files: &Files,
        ports: &Ports,
        authority: &Authority,
    ) -> Result<Option<NodeConfig>> {
        let Some(node) = &self.node else {
            return Ok(None);
        };
        let built = node.parts.clone();
        let flags = registry_flags(&built, &node.images);
        let config = NodeConfig::write(&self.folder.path().join("node/etc"), &built, authority, |token| {
            kubeconfig(ports.secure, &files.ca, token)
        })?;
        self.run("registry", &built.program("registry"), &flags)?;
        self.run("containerd", &built.program("containerd"), &config.containerd_flags())?;
        Ok(Some(config))
    }

    async fn run_node(&mut self, config: &NodeConfig, client: &Client) -> Result<()> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        let parts = node.parts.clone();
        self.run("kube-scheduler", &parts.scheduler(), &config.scheduler_flags())?;
        self.run("kubelet", &parts.kubelet(), &config.kubelet_flags())?;
        let nodes = Objects::cluster_wide(client, &NODE);
        self.ready("the node Ready", || is_ready(&nodes)).await
    }

    /// Runs a program as long as the control plane: on the node, if there is one.
    pub(crate) fn run(&mut self, name: &str, program: &Path, flags: &[String]) -> Result<()> {
        let log = self.log(name);
        let process = match &self.node {
            None => Process::start(name, program, flags, &log)?,
            Some(node) => node.namespaces.run(name, program, flags, &log)?,
        };
        self.processes.push(process);
        Ok(())
    }

    /// Waits for a condition, but not on a process that has ended.
    async fn ready<L>(&mut self, what: &str, look: impl Fn() -> L) -> Result<()>
    where
        L: Future<Output = Seen<()>>,
    {
        let processes = &mut self.processes;
        until(what, START, || {
            let ended = processes.iter_mut().find_map(|process| match process.ended() {
                Ok(Some(status)) => {
                    Some(anyhow!("{} ended early ({status})\n{}", process.name(), process.tail(20)))
                }
                Ok(None) => None,
                Err(why) => Some(why),
            });
            let seen = look();
            async move { ended.map_or(Ok(seen.await), Err) }
        })
        .await
    }
}

enum Failed {
    PortTaken,
    Else(anyhow::Error),
}

/// A client for the current context of a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig);
    let file = file.with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false; // who waits here waits by himself
    Ok(Client::try_from(config)?)
}

async fn answers(client: &Client) -> Seen<()> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(|why| why.to_string())?;
    match client.request_text(request).await {
        Ok(text) if text == "ok" => Ok(()),
        Ok(text) => Err(text),
        Err(why) => Err(format!("{:#}", anyhow!(why))),
    }
}

async fn exists(accounts: &Objects) -> Seen<()> {
    match accounts.find("default").await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("no such ServiceAccount".to_owned()),
        Err(why) => Err(format!("{why:#}")),
    }
}

async fn is_ready(nodes: &Objects) -> Seen<()> {
    match nodes.find(node::NAME).await {
        Ok(Some(node)) if is_true(&node, "Ready") => Ok(()),
        Ok(Some(node)) => Err(node["status"]["conditions"].to_string()),
        Ok(None) => Err("no such node".to_owned()),
        Err(why) => Err(format!("{why:#}")),
    }
}

/// Where etcd and the API server listen on their loopback, and where we reach the latter on ours.
struct Ports {
    client: u16,
    peer: u16,
    secure: u16,
    ours: u16,
}

impl Ports {
    /// All at once, so that no two are the same.
    fn free() -> Result<Self> {
        let free = || TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1");
        let port = |taken: &TcpListener| Ok::<_, anyhow::Error>(taken.local_addr()?.port());
        let [client, peer, secure] = &[free()?, free()?, free()?];
        Ok(Self { client: port(client)?, peer: port(peer)?, secure: port(secure)?, ours: port(secure)? })
    }

    /// Ports of a network namespace of its own, where no other process can have them.
    fn inside(forwarder: u16) -> Self {
        Self { client: 2379, peer: 2380, secure: node::SECURE_PORT, ours: forwarder }
    }
}

/// Files that the processes read from disk.
struct Files {
    etcd_data: String,
    ca: String,
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
    fn write(folder: &Path, ports: &Ports, authority: &Authority) -> Result<Self> {
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

fn kubeconfig(port: u16, ca: &str, token: &str) -> String {
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

fn etcd_flags(files: &Files, client: &str, peer: &str) -> Vec<String> {
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

fn apiserver_flags(files: &Files, etcd: &str, port: u16) -> Vec<String> {
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
fn alone() -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // No Pod mounts tokens, so none needs to wait for its ServiceAccount.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]
}

fn controller_manager_flags(files: &Files) -> Vec<String> {
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
    ]
}
