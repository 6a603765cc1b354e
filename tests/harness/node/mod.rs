//! A machine of its own inside this one: namespaces and cgroups in which a control plane and a real kubelet run.
//!
//! One kill ends it all, and nothing of it is left on the host: no process, mount, cgroup, network or file.

pub(crate) mod config;
pub mod services;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use binaries::node::{Missing, Parts};

use crate::process::{Process, log_to, tail};
use crate::wait::until;

/// The node's name, as Kubernetes knows it.
pub const NAME: &str = "node1";

/// The node's address on the bridge that its Pods are tied to.
pub const ADDRESS: &str = "10.88.0.1";

/// Where the API server listens inside; with its port Pods reach it at its Service's address without kube-proxy.
pub(crate) const SECURE_PORT: u16 = 443;

const OUTSIDE: &str = include_str!("outside.sh");
const INSIDE: &str = include_str!("inside.sh");
const ENTER: &str = include_str!("enter.sh");

/// Namespaces are made at once.
const START: Duration = Duration::from_secs(20);

/// An image that the node can pull, besides `busybox`.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    /// A static program, and the paths it has inside; the first is run.
    Program(PathBuf, Vec<String>),
    /// The folder of an OCI layout.
    Layout(PathBuf),
}

impl Image {
    /// An image of one static program alone. The name is as the registry gets to see it, with a tag:
    /// `metahook/metahook:0.1.0`.
    pub fn program(name: &str, program: &Path, paths: &[&str]) -> Self {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Self { name: name.to_owned(), content: Content::Program(program.to_owned(), paths) }
    }

    /// The one image of an OCI layout.
    pub fn layout(name: &str, folder: &Path) -> Self {
        Self { name: name.to_owned(), content: Content::Layout(folder.to_owned()) }
    }

    fn flag(&self) -> String {
        let name = &self.name;
        match &self.content {
            Content::Program(program, paths) => {
                format!("-binary={name}={}={}", program.display(), paths.join(","))
            }
            Content::Layout(folder) => format!("-layout={name}={}", folder.display()),
        }
    }
}

/// The namespaces. Ends everything in them when dropped, or when its owner ends, however it does.
#[derive(Debug)]
pub(crate) struct Namespaces {
    supervisor: Child,
    owner: Option<ChildStdin>,
    folder: PathBuf,
    log: PathBuf,
}

impl Namespaces {
    /// `folder` is made, and removed in the end; `name` is that of the cgroups.
    pub(crate) async fn make(folder: &Path, name: &str, parts: &Parts, log: &Path) -> Result<Self> {
        fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (file, script) in [("outside.sh", OUTSIDE), ("inside.sh", INSIDE), ("enter.sh", ENTER)] {
            fs::write(folder.join(file), script).with_context(|| format!("cannot write {file}"))?;
        }
        let out = log_to(log)?;
        let mut supervisor = Command::new("/bin/sh")
            .arg(folder.join("outside.sh"))
            .args([folder, Path::new(name), &parts.program("pause")])
            .stdin(Stdio::piped())
            .stdout(out.try_clone().context("cannot share a log")?)
            .stderr(out)
            .process_group(0) // Ctrl-C in a terminal reaches the owner alone
            .spawn()
            .context("cannot start the node's supervisor")?;
        let mut made = Self {
            owner: supervisor.stdin.take(),
            supervisor,
            folder: folder.to_owned(),
            log: log.to_owned(),
        };
        made.wait().await?;
        Ok(made)
    }

    async fn wait(&mut self) -> Result<()> {
        let (supervisor, folder, log) = (&mut self.supervisor, &self.folder, &self.log);
        until("the node's namespaces", START, || {
            let ended = supervisor.try_wait();
            async move {
                if let Some(status) = ended.context("cannot wait for the node's supervisor")? {
                    bail!("the node's namespaces ended early ({status})\n{}", tail(log, 20));
                }
                let up = ["up", "settled"].iter().all(|name| folder.join(name).exists());
                Ok(if up { Ok(()) } else { Err(tail(log, 5)) })
            }
        })
        .await
    }

    /// Runs a program in them.
    pub(crate) fn run(&self, name: &str, program: &Path, flags: &[String], log: &Path) -> Result<Process> {
        let [enter, folder] = self.enter().map(|path| path.display().to_string());
        let program = program.display().to_string();
        let line: Vec<String> = [enter, folder, program].into_iter().chain(flags.iter().cloned()).collect();
        Process::start(name, Path::new("/bin/sh"), &line, log)
    }

    /// Runs a command in them to its end; what it prints.
    pub(crate) async fn print(&self, line: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new("/bin/sh")
            .args(self.enter())
            .args(line)
            .stdin(Stdio::null())
            .output()
            .await
            .context("cannot enter the node")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} failed on the node: {}", line.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Lets the host reach an address inside: by a port of its loopback, as long as the forwarder lives.
    pub(crate) fn forward_apiserver(
        &self,
        parts: &Parts,
        address: &str,
        log: &Path,
    ) -> Result<(ApiServerForwarder, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        let out = log_to(log)?;
        let child = Command::new("/bin/sh")
            .args(self.enter())
            .arg(parts.program("apiserver-forwarder"))
            .arg(address)
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(out)
            .process_group(0)
            .spawn()
            .context("cannot start the forwarder")?;
        Ok((ApiServerForwarder(child), port))
    }

    fn enter(&self) -> [PathBuf; 2] {
        [self.folder.join("enter.sh"), self.folder.clone()]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        if let Some(mut owner) = self.owner.take() {
            drop(owner.write_all(b"end\n")); // else the supervisor takes us for killed, and removes more
        }
        drop(self.supervisor.wait());
    }
}

/// Ends with the namespaces that it leads into, however they end.
#[derive(Debug)]
pub(crate) struct ApiServerForwarder(Child);

impl Drop for ApiServerForwarder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
