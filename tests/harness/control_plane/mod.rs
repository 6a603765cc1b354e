//! A real etcd, kube-apiserver and kube-controller-manager on loopback, with everything they need in one temporary folder;
//! with a node also scheduler, kubelet and containerd, all of them in namespaces of their own.

mod files;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use self::files::{
    Files, Ports, alone, apiserver_flags, controller_manager_flags, copy_folder, etcd_flags, kubeconfig,
};
use crate::api::{NODE, Objects, SERVICE_ACCOUNT};
use crate::cluster::Binaries;
use crate::folder::Folder;
use crate::kubectl::Kubectl;
use crate::node::config::{Config as NodeConfig, registry_flags};
use crate::node::{self, ApiServerForwarder, Image, Namespaces, Parts};
use crate::objects::is_true;
use crate::pki::Authority;
use crate::process::{Process, Signal};
use crate::wait::{Seen, until};

/// How long a start may take; three to five seconds are usual.
const START: Duration = Duration::from_secs(90);

/// Between being found free and being bound, another process can take a port.
const ATTEMPTS: usize = 4;

/// Runs until it is dropped; leaves nothing behind but kept logs.
#[derive(Debug)]
pub struct ControlPlane {
    node: Option<Node>,            // before the processes: with it they all end at once
    programs: Mutex<Vec<Program>>, // before the folder: they end before it goes
    folder: Folder,
    kubeconfig: PathBuf,
    binaries: Binaries,
    /// An admission plugin besides those that are on by default.
    admission: Option<&'static str>,
}

/// What a control plane runs, and how it is started again.
#[derive(Debug)]
struct Program {
    process: Process,
    path: PathBuf,
    flags: Vec<String>,
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

    /// Copies what etcd holds, as a backup does. Everything stops for it and goes on after.
    pub async fn take_snapshot(&self) -> Result<()> {
        let [data, snapshot] = ["etcd", "etcd-snapshot"].map(|name| self.folder.path().join(name));
        self.restart(|| copy_folder(&data, &snapshot)).await
    }

    /// Goes back to the snapshot, as after a disaster: versions that were given since are given a second time.
    pub async fn restore_snapshot(&self) -> Result<()> {
        let [data, snapshot] = ["etcd", "etcd-snapshot"].map(|name| self.folder.path().join(name));
        let restore = || {
            fs::remove_dir_all(&data).context("cannot remove what etcd holds")?;
            copy_folder(&snapshot, &data)
        };
        self.restart(restore).await
    }

    /// Ends all programs, the last one first, and starts them again; without a node.
    async fn restart(&self, between: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut programs = std::mem::take(&mut *self.programs());
        for program in programs.iter_mut().rev() {
            // What etcd holds is whole; all others are killed, as they wait for their connections else.
            let signal = if program.process.name() == "etcd" { Signal::Term } else { Signal::Kill };
            program.process.signal(signal);
            program.process.wait(START).await?;
        }
        between()?;
        for Program { process, path, flags } in programs {
            self.run(process.name(), &path, &flags)?;
        }
        let client = self.client().await?;
        self.ready("kube-apiserver ready again", || answers(&client)).await
    }

    async fn attempt(
        prepared: Result<Self>,
        prepare: &impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<Self, Failed> {
        let mut plane = prepared.map_err(Failed::Else)?;
        let Err(why) = plane.start_processes(prepare).await else {
            return Ok(plane);
        };
        if plane.programs().iter().any(|it| it.process.tail(50).contains("address already in use")) {
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
            programs: Mutex::default(),
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
    pub(crate) fn run(&self, name: &str, program: &Path, flags: &[String]) -> Result<()> {
        let log = self.log(name);
        let process = match &self.node {
            None => Process::start(name, program, flags, &log)?,
            Some(node) => node.namespaces.run(name, program, flags, &log)?,
        };
        self.programs().push(Program { process, path: program.to_owned(), flags: flags.to_vec() });
        Ok(())
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Program>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a condition, but not on a process that has ended.
    async fn ready<L>(&self, what: &str, look: impl Fn() -> L) -> Result<()>
    where
        L: Future<Output = Seen<()>>,
    {
        until(what, START, || {
            let ended = self.programs().iter_mut().find_map(|it| match it.process.ended() {
                Ok(Some(status)) => {
                    Some(anyhow!("{} ended early ({status})\n{}", it.process.name(), it.process.tail(20)))
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
