//! Operators as people write them by hand, at the same work with the same rights.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use acceptance::paths;
use acceptance::process::{Process, Signal};
use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::api::{Api, Kind};
use crate::bodies;
use crate::cluster::Cluster;
use crate::observer::Observer;
use crate::usage;
use crate::work::{self, Changed, Made, Worker};

/// One that is measured: its name, and what starts it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    program: PathBuf,
    /// Besides the kubeconfig.
    arguments: Vec<String>,
}

/// What is measured of each.
#[derive(Debug)]
pub(crate) struct Theirs {
    pub(crate) made: Made,
    pub(crate) changed: Changed,
}

/// An operator that runs.
pub(crate) struct Operator {
    process: Process,
    pid: u32,
}

impl Peer {
    /// The program of `tests/bench/operator`, with as many workers as the server's flags give it.
    pub(crate) fn go(program: PathBuf, flags: &[String]) -> Self {
        let workers = flags.iter().rev().find(|flag| flag.starts_with("--workers="));
        Self { name: "go", program, arguments: workers.cloned().into_iter().collect() }
    }

    /// `peers/hello_kopf.py`, with the Python of this virtual environment.
    pub(crate) fn kopf(environment: &Path) -> Self {
        let script = paths::workspace().join("tests/bench/peers/hello_kopf.py");
        let run = ["-m", "kopf", "run", "--quiet", "--standalone", "--all-namespaces"];
        let arguments = run.iter().map(ToString::to_string).chain([script.display().to_string()]).collect();
        Self { name: "kopf", program: environment.join("bin/python"), arguments }
    }

    /// Leaves nothing behind but a namespace.
    pub(crate) async fn measure(&self, cluster: &Cluster, namespace: &str, parents: usize) -> Result<Theirs> {
        let api = cluster.namespace(namespace).await?;
        let operator = self.start(cluster, &api).await?;
        let made = work::make(&api, &operator, parents).await?;
        let changed = work::change(&api, &operator, parents).await?;
        operator.stop().await?;
        cluster.empty(&api).await?;
        Ok(Theirs { made, changed })
    }

    /// Megabytes of so many operators that have nothing to do.
    pub(crate) async fn memory_of_many(&self, cluster: &Cluster, operators: usize) -> Result<f64> {
        let mut all = Vec::new();
        for _ in 0..operators {
            all.push(self.process(cluster)?);
            // Together they would wait for each other.
            sleep(Duration::from_millis(100)).await;
        }
        usage::quiet().await?;
        let memory: Result<Vec<_>> =
            all.iter().map(|process| usage::proportional_mb(process.pid()?)).collect();
        Ok(memory?.iter().sum())
    }

    fn process(&self, cluster: &Cluster) -> Result<Process> {
        let log = cluster.logs().join(format!("{}.log", self.name));
        // `env` becomes the operator: one process.
        let line: Vec<String> = [format!("KUBECONFIG={}", cluster.kubeconfig().display())]
            .into_iter()
            .chain([self.program.display().to_string()])
            .chain(self.arguments.iter().cloned())
            .collect();
        Process::start(self.name, Path::new("/usr/bin/env"), &line, &log)
    }

    /// It is ready when it has done the work of one parent, which goes again.
    async fn start(&self, cluster: &Cluster, api: &Api) -> Result<Operator> {
        let process = self.process(cluster)?;
        let mut parents = Observer::of(api, Kind::Parent).await?;
        let body = bodies::parent(&api.namespace, "first", "World");
        api.create(Kind::Parent, &body).await?;
        if let Err(why) = parents.until(1, |parent| parent.has_converged(1)).await {
            return Err(why.context(process.tail(20)));
        }
        cluster.empty(api).await?;
        Ok(Operator { pid: process.pid()?, process })
    }
}

impl Worker for Operator {
    fn pid(&self) -> u32 {
        self.pid
    }

    /// It tells no number of settled parents: it is at rest when it takes no time of the processors.
    async fn until_settled(&self, _parents: usize) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(500);
        const REST: f64 = 0.015; // one tick of the kernel
        let start = Instant::now();
        loop {
            let before = usage::cpu_seconds(self.pid)?;
            sleep(LOOK).await;
            if usage::cpu_seconds(self.pid)? - before < REST {
                return Ok(());
            }
            ensure!(
                start.elapsed() < Duration::from_mins(2),
                "{} does not come to rest",
                self.process.name()
            );
        }
    }
}

impl Operator {
    async fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::Term);
        let ended = self.process.wait(Duration::from_secs(30)).await;
        ended.map_err(|why| why.context(self.process.tail(20))).map(drop)
    }
}
