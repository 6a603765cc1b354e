//! A real etcd, kube-apiserver and kube-controller-manager on loopback, with everything they need in one temporary folder.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::api::{Objects, SERVICE_ACCOUNT};
use crate::cluster::Binaries;
use crate::folder::Folder;
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::wait::{Seen, until};

/// How long a start may take; three to five seconds are usual.
const START: Duration = Duration::from_secs(90);

/// Between being found free and being bound, a port can be taken by somebody else.
const ATTEMPTS: usize = 4;

/// Runs until it is dropped; leaves nothing behind but kept logs.
#[derive(Debug)]
pub struct ControlPlane {
    processes: Vec<Process>, // before the folder: they end before it goes
    folder: Folder,
    kubeconfig: PathBuf,
    binaries: Binaries,
}

impl ControlPlane {
    /// Starts one and waits until it answers and its controllers work.
    pub async fn start(binaries: &Binaries) -> Result<Self> {
        Self::start_with(binaries, async |_| Ok(())).await
    }

    /// The same, with something done before the controllers start. Kinds defined then are known to the garbage
    /// collector at once; for new ones it looks every 30 seconds only.
    pub async fn start_with(binaries: &Binaries, prepare: impl AsyncFn(&Self) -> Result<()>) -> Result<Self> {
        for _ in 1..ATTEMPTS {
            match Self::attempt(binaries, &prepare).await {
                Err(Failed::PortTaken) => {}
                Err(Failed::Else(why)) => return Err(why),
                Ok(started) => return Ok(started),
            }
        }
        Self::attempt(binaries, &prepare)
            .await
            .map_err(|failed| match failed {
                Failed::PortTaken => anyhow!("free ports were taken by others {ATTEMPTS} times in a row"),
                Failed::Else(why) => why,
            })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
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

    async fn attempt(
        binaries: &Binaries,
        prepare: &impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<Self, Failed> {
        let mut plane = Self::prepare(binaries).map_err(Failed::Else)?;
        let Err(why) = plane.start_processes(prepare).await else {
            return Ok(plane);
        };
        if plane
            .processes
            .iter()
            .any(|process| process.tail(50).contains("address already in use"))
        {
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
            processes: Vec::new(),
            folder,
            kubeconfig,
            binaries: binaries.clone(),
        })
    }

    async fn start_processes(&mut self, prepare: &impl AsyncFn(&Self) -> Result<()>) -> Result<()> {
        let [client_port, peer_port, secure_port] = free_ports()?;
        let files = Files::write(self.folder.path(), secure_port)?;
        let etcd = format!("http://127.0.0.1:{client_port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        self.run("etcd", &self.binaries.etcd(), &etcd_flags(&files, &etcd, &peer))?;
        self.run(
            "kube-apiserver",
            &self.binaries.apiserver(),
            &apiserver_flags(&files, &etcd, secure_port),
        )?;
        let client = self.client().await?;
        self.ready("kube-apiserver ready", || answers(&client)).await?;
        prepare(self).await.context("cannot prepare the control plane")?;
        let flags = controller_manager_flags(&files, &self.kubeconfig);
        self.run(
            "kube-controller-manager",
            &self.binaries.controller_manager(),
            &flags,
        )?;
        let accounts = Objects::within(&client, &SERVICE_ACCOUNT, "default");
        self.ready(
            "kube-controller-manager at work (ServiceAccount default/default)",
            || exists(&accounts),
        )
        .await
    }

    fn run(&mut self, name: &str, program: &Path, flags: &[String]) -> Result<()> {
        let log = self.logs().join(format!("{name}.log"));
        self.processes.push(Process::start(name, program, flags, &log)?);
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
                Ok(Some(status)) => Some(anyhow!(
                    "{} ended early ({status})\n{}",
                    process.name(),
                    process.tail(20)
                )),
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
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|why| why.to_string())?;
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

/// All at once, so that no two are the same.
fn free_ports() -> Result<[u16; 3]> {
    let free = || TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1");
    let taken = [free()?, free()?, free()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&taken) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// What the processes read from disk.
struct Files {
    etcd_data: String,
    ca: String,
    certificate: String,
    key: String,
    account_key: String,
    account_public_key: String,
    tokens: String,
    certs: String,
}

impl Files {
    fn write(folder: &Path, secure_port: u16) -> Result<Self> {
        let write = |name: &str, content: &str| -> Result<String> {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            text(&path)
        };
        let (ca, certificate, key) = serving_certificate()?;
        let account_key = KeyPair::generate()?;
        let files = Self {
            etcd_data: text(&folder.join("etcd"))?,
            ca: write("ca.crt", &ca)?,
            certificate: write("apiserver.crt", &certificate)?,
            key: write("apiserver.key", &key)?,
            account_key: write("sa.key", &account_key.serialize_pem())?,
            account_public_key: write("sa.pub", &account_key.public_key_pem())?,
            tokens: write("tokens.csv", "admin-token,admin,admin,\"system:masters\"\n")?,
            certs: text(&folder.join("certs"))?,
        };
        write("kubeconfig", &kubeconfig(secure_port, &files.ca))?;
        Ok(files)
    }
}

fn text(path: &Path) -> Result<String> {
    Ok(path
        .to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))?
        .to_owned())
}

/// An authority that lives as long as the control plane, and what it says of 127.0.0.1.
fn serving_certificate() -> Result<(String, String, String)> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
        .distinguished_name
        .push(DnType::CommonName, "metahook-test-ca");
    let ca_key = KeyPair::generate()?;
    let ca = params.self_signed(&ca_key)?.pem();
    let authority = Issuer::new(params, ca_key);
    let names = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default.svc",
        "10.0.0.1",
    ];
    let mut params = CertificateParams::new(names.map(str::to_owned))?;
    params
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?.pem();
    Ok((ca, certificate, key.serialize_pem()))
}

fn kubeconfig(secure_port: u16, ca: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: metahook-test
  cluster: {{server: \"https://127.0.0.1:{secure_port}\", certificate-authority: \"{ca}\"}}
users:
- name: admin
  user: {{token: admin-token}}
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
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", files.certs),
        format!("--tls-cert-file={}", files.certificate),
        format!("--tls-private-key-file={}", files.key),
        format!("--token-auth-file={}", files.tokens),
        "--authorization-mode=RBAC".to_owned(),
        format!("--service-account-key-file={}", files.account_public_key),
        format!("--service-account-signing-key-file={}", files.account_key),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // Without a node nobody mounts tokens, and a Pod need not wait for its ServiceAccount.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged=true".to_owned(),
    ]
}

fn controller_manager_flags(files: &Files, kubeconfig: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--service-account-private-key-file={}", files.account_key),
        format!("--root-ca-file={}", files.ca),
        "--controllers=*,-bootstrapsigner".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // With the defaults (20 and 30) the first ServiceAccount comes seconds later.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}
