//! Measuring program as a child process: one line asks, one line of nanoseconds answers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::stats::Times;

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
        // Its exit code says nothing more.
        drop(self.child.wait());
    }
}
