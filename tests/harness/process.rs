//! A child process that cannot outlive its owner, not even an owner that is killed with -9.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::wait::until;

/// Runs `"$@"` in a process group of its own. Standard input is a pipe from the owner: each line is a signal for the
/// command, and its end, which comes however the owner ends, is the end of the whole group. `PR_SET_PDEATHSIG` would
/// not do: it fires when the *thread* that started the process ends.
const SUPERVISOR: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
(while read -r signal; do kill -s "$signal" "$child"; done; kill -s KILL 0) <&3 3<&- >/dev/null 2>&1 &
reader=$!
exec 3<&- </dev/null
wait "$child"
code=$?
kill -s KILL "$reader" 2>/dev/null
exit "$code"
"#;

/// A signal that a process can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Term,
    Kill,
    /// It does nothing until it is to go on.
    Stop,
    Continue,
}

/// A running command, its log file, and the pipe whose end ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    supervisor: Child,
    control: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; what it prints is appended to `log`.
    pub fn start<S: AsRef<str>>(name: &str, program: &Path, args: &[S], log: &Path) -> Result<Self> {
        let out = log_to(log)?;
        let mut supervisor = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, name])
            .arg(program)
            .args(args.iter().map(AsRef::as_ref))
            .stdin(Stdio::piped())
            .stdout(out.try_clone().context("cannot share a log")?)
            .stderr(out)
            .process_group(0) // Ctrl-C in a terminal reaches the owner alone, who ends the rest in order
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let control = supervisor.stdin.take();
        Ok(Self { name: name.to_owned(), supervisor, control, log: log.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The number of the command's own process.
    pub fn pid(&self) -> Result<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.supervisor.id());
        let children =
            std::fs::read_to_string(&children).with_context(|| format!("cannot read {children}"))?;
        // The first one; the other is the reader of signals.
        let first = children.split_whitespace().next();
        Ok(first.with_context(|| format!("{} has ended", self.name))?.parse()?)
    }

    /// Sends a signal; a process that has ended takes none, and that is no error.
    pub fn signal(&mut self, signal: Signal) {
        let line = match signal {
            Signal::Term => "TERM\n",
            Signal::Kill => "KILL\n",
            Signal::Stop => "STOP\n",
            Signal::Continue => "CONT\n",
        };
        if let Some(control) = &mut self.control {
            drop(control.write_all(line.as_bytes()));
        }
    }

    /// How the process ended, if it has: its own exit code, 128 + n after signal n.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.supervisor.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits until the process has ended by itself or by a signal.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        until(&what, limit, || {
            let ended = self.ended();
            async { Ok(ended?.ok_or_else(|| "it still runs".to_owned())) }
        })
        .await
    }

    /// The last lines of what the process has printed.
    pub fn tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.control.take());
        drop(self.supervisor.wait());
    }
}

/// A log file to append to.
pub(crate) fn log_to(log: &Path) -> Result<File> {
    let out = OpenOptions::new().create(true).append(true).open(log);
    out.with_context(|| format!("cannot open the log {}", log.display()))
}

/// The last lines of a log file.
pub fn tail(log: &Path, lines: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let last = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
    format!("last lines of {}:\n{}", log.display(), last.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str, log: &Path) -> Process {
        Process::start("shell", Path::new("/bin/sh"), &["-c", script], log).unwrap()
    }

    /// Whether a process of this number runs (a zombie does not).
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    async fn printed(process: &Process) -> String {
        until("a line in the log", LIMIT, || async {
            let text = std::fs::read_to_string(process.log())?;
            Ok(text.lines().next().map(str::to_owned).ok_or_else(|| "nothing".to_owned()))
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn the_exit_code_of_a_process_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell("exit 7", &folder.path().join("log"));
        assert_eq!(process.wait(LIMIT).await.unwrap().code(), Some(7));
    }

    #[tokio::test]
    async fn the_number_of_a_process_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let process = shell("echo $$; while :; do sleep 0.05; done", &folder.path().join("log"));
        assert_eq!(printed(&process).await, process.pid().unwrap().to_string());
    }

    #[tokio::test]
    async fn a_signal_reaches_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'exit 0' TERM; echo here; while :; do sleep 0.05; done";
        let mut process = shell(script, &folder.path().join("log"));
        printed(&process).await;
        process.signal(Signal::Term);
        assert_eq!(process.wait(LIMIT).await.unwrap().code(), Some(0));
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let process = shell("trap '' TERM; sleep 1000 & echo $$ $!; wait", &folder.path().join("log"));
        let pids = printed(&process).await;
        assert!(pids.split(' ').all(runs), "{pids}");
        drop(process);
        until("the end of both", LIMIT, || async {
            Ok(if pids.split(' ').any(runs) { Err(pids.clone()) } else { Ok(()) })
        })
        .await
        .unwrap();
    }
}
