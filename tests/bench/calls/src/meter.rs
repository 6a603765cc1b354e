//! Measuring program as a child process: one line asks, one line of nanoseconds answers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::stats::Times;

/// A program ends by itself within this time after the end of its standard input, or it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const END_INTERVAL: Duration = Duration::from_millis(10);

/// Ends when it is dropped: its standard input does.
pub(crate) struct Meter {
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Meter {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot run {name}"))?;
        let ask = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("its output is not there")?);
        Ok(Self { child, ask, answers })
    }

    /// The next line that the program prints.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("cannot read what the meter prints")?;
        ensure!(line.ends_with('\n'), "the meter ended; its last lines are above");
        Ok(line.trim_end().to_owned())
    }

    /// Asks for one more measurement.
    pub(crate) fn ask(&mut self, question: &str) -> Result<Times> {
        let ask = self.ask.as_mut().context("the meter's input is closed")?;
        writeln!(ask, "{question}").context("the meter takes no questions")?;
        let answer = self.line()?;
        Times::parse(&answer).with_context(|| format!("the meter was asked {question:?}"))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        drop(self.ask.take());
        let end = Instant::now() + END_TIMEOUT;
        // Its exit code says nothing more.
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= end {
                drop(self.child.kill());
                drop(self.child.wait());
                return;
            }
            thread::sleep(END_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the program still runs after its meter was dropped.
    fn runs_on(script: &str) -> bool {
        let mut meter = Meter::start(Command::new("sh").args(["-c", script])).unwrap();
        let process = format!("/proc/{}", meter.line().unwrap());
        drop(meter);
        std::path::Path::new(&process).exists()
    }

    #[test]
    fn a_program_ends_with_its_input() {
        let start = Instant::now();
        assert!(!runs_on("echo $$; exec cat"));
        assert!(start.elapsed() < END_TIMEOUT);
    }

    #[test]
    fn a_program_that_ignores_the_end_of_its_input_is_killed() {
        assert!(!runs_on("echo $$; exec sleep 60"));
    }
}
