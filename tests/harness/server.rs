//! Our server as a child process: start it, stop it, kill it, read its log.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::memory_limit::MemoryLimit;
use crate::process::{Process, Signal, tail};
use crate::wait::{PATIENCE, until};

/// A drained server is gone well before.
const STOP: Duration = Duration::from_secs(30);

/// The shell becomes `env`, and `env` the server: in the cgroup of the first argument, if there is one.
const LIMITED: &str = r#"[ -z "$1" ] || echo $$ >"$1" || exit 1; shift; exec env "$@""#;

/// `metahook serve`, as it is started and started again.
#[derive(Debug)]
#[must_use]
pub struct Server {
    /// `NAME=value`, besides those that there are.
    variables: Vec<String>,
    program: PathBuf,
    flags: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
    /// After the process, which is in it.
    limit: Option<MemoryLimit>,
}

impl Server {
    pub fn new(program: PathBuf, kubeconfig: &Path, log: PathBuf) -> Self {
        let flags = vec!["serve".to_owned(), "--kubeconfig".to_owned(), kubeconfig.display().to_string()];
        // As the image has it.
        let variables = ["MALLOC_ARENA_MAX=2", "MALLOC_MMAP_THRESHOLD_=131072"].map(str::to_owned).to_vec();
        Self { variables, program, flags, log, process: None, limit: None }
    }

    /// One with the same flags and a log of its own, not started.
    pub fn another(&self, log: &Path) -> Self {
        Self {
            variables: self.variables.clone(),
            program: self.program.clone(),
            flags: self.flags.clone(),
            log: log.to_owned(),
            process: None,
            limit: None,
        }
    }

    /// Hosts only the controllers with this label (`key=value`).
    pub fn only(mut self, selector: &str) -> Self {
        self.flags.extend(["--target-label-selector".to_owned(), selector.to_owned()]);
        self
    }

    /// Writes a log line for each reconcile.
    pub fn logging_each_reconcile(mut self) -> Self {
        self.flags.push("--log-level=info,metahook=debug".to_owned());
        self
    }

    /// One more flag from the next start on.
    pub fn flag(&mut self, flag: &str) {
        self.flags.push(flag.to_owned());
    }

    /// One more environment variable from the next start on.
    pub fn variable(&mut self, name: &str, value: &str) {
        self.variables.push(format!("{name}={value}"));
    }

    /// Limits its memory from the next start on, as a container does; `None` where the machine has no limits.
    pub fn limit_memory(&mut self, name: &str, bytes: u64) -> Option<()> {
        self.limit = Some(MemoryLimit::of(name, bytes)?);
        Some(())
    }

    /// Its memory limit, if it has one.
    pub fn memory_limit(&self) -> Option<&MemoryLimit> {
        self.limit.as_ref()
    }

    /// Starts it, after an end also again; the log goes on.
    pub fn start(&mut self) -> Result<()> {
        self.process = None;
        let processes = self.limit.as_ref().map_or_else(PathBuf::new, MemoryLimit::processes);
        let begin = [LIMITED, "metahook", &processes.display().to_string()].map(str::to_owned);
        let program = self.program.display().to_string();
        let line = [&["-c".to_owned()], &begin[..], &self.variables, &[program], &self.flags].concat();
        self.process = Some(Process::start("metahook", Path::new("/bin/sh"), &line, &self.log)?);
        Ok(())
    }

    /// SIGTERM, then waits for the end.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.end(Signal::Term).await
    }

    /// kill -9.
    pub async fn kill(&mut self) -> Result<ExitStatus> {
        self.end(Signal::Kill).await
    }

    /// Sends it a signal, and waits for nothing.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_mut().context("the server does not run")?.signal(signal);
        Ok(())
    }

    /// Waits until it has ended by itself.
    pub async fn until_ended(&mut self) -> Result<ExitStatus> {
        let mut process = self.process.take().context("the server does not run")?;
        process.wait(PATIENCE).await.with_context(|| process.tail(30))
    }

    async fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        let mut process = self.process.take().context("the server does not run")?;
        process.signal(signal);
        process.wait(STOP).await.with_context(|| process.tail(30))
    }

    /// An error with the log's end if it has ended unasked.
    pub fn runs(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        match process.ended()? {
            None => Ok(()),
            Some(status) => Err(anyhow::anyhow!("the server ended unasked ({status})")),
        }
    }

    /// The number of its process.
    pub fn pid(&self) -> Result<u32> {
        self.process.as_ref().context("the server does not run")?.pid()
    }

    /// The most memory that its process ever had, in bytes.
    pub fn most_memory(&self) -> Result<u64> {
        self.memory_of("VmHWM:")
    }

    /// The memory that it has now, in bytes.
    pub fn memory(&self) -> Result<u64> {
        self.memory_of("VmRSS:")
    }

    /// The memory of its files that lie in memory, which counts for its container and not for its process.
    pub fn memory_of_files(&self) -> Result<u64> {
        let mut bytes = 0;
        for file in fs::read_dir(format!("/proc/{}/fd", self.pid()?))? {
            let path = file?.path();
            // It may have been closed meanwhile.
            let in_memory =
                fs::read_link(&path).is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:"));
            bytes += fs::metadata(&path).ok().filter(|_| in_memory).map_or(0, |file| file.blocks() * 512);
        }
        Ok(bytes)
    }

    fn memory_of(&self, what: &str) -> Result<u64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid()?)).context("no memory to read")?;
        let found = status.lines().find_map(|line| line.strip_prefix(what));
        let kib = found
            .and_then(|found| found.trim().strip_suffix(" kB"))
            .with_context(|| format!("the kernel tells no {what}"))?;
        Ok(kib.parse::<u64>()? << 10)
    }

    /// Waits until its log is as it should be; gives back the log.
    pub async fn until_log(&self, what: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        until(what, PATIENCE, async || {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            if is(&log) { Ok(Ok(log)) } else { Ok(Err(self.tail(20))) }
        })
        .await
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    pub fn tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// Reaches the API server by another kubeconfig from the next start on.
    pub fn reach_by(&mut self, kubeconfig: &Path) {
        if let Some(file) = self.flags.get_mut(2) {
            *file = kubeconfig.display().to_string();
        }
    }

    /// Runs another command of the same program to its end: what it prints on stdout and on stderr.
    pub async fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Result<(String, String)> {
        let output = self.output(args).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "it failed: {}", text(&output.stderr));
        Ok((text(&output.stdout), text(&output.stderr)))
    }

    /// Runs another command of the same program to its end, whatever it ends with.
    pub async fn output<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Result<Output> {
        let output = tokio::process::Command::new(&self.program).args(args).output().await;
        output.with_context(|| format!("cannot run {}", self.program.display()))
    }

    /// The command as a person would type it.
    pub fn command(&self) -> String {
        format!("metahook {}", self.flags.join(" "))
    }
}
