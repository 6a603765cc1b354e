//! `metahook diff`.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use metahook_author::diff::{Summary, word};
use metahook_author::line_diff;
use metahook_author::progress::Progress;
use metahook_author::render::Reconciled;
use metahook_server::telemetry::{error_chain, escape};
use serde_json::{Value, json};

use crate::changes::one_as_json;
use crate::live_flags::{LiveError, LiveFlags};

/// End of `--help`.
const HELP: &str = "Examples:
  metahook diff -f controller.yaml                       what `metahook apply` of this file would change
  metahook diff --controller hello --module new.wasm     what a new module would change
  metahook diff --controller hello demo/your-name        what the server is about to change for one parent

Exit codes:
  0  nothing would change
  1  something would change
  2  the API server cannot say for at least one parent; the error names the reason";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Diff {
    #[command(flatten)]
    pub live: LiveFlags,
    /// Format of stdout: for people, or JSON with all objects before and after.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// Result of a comparison, for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    Same,
    Differ,
}

#[derive(Debug, thiserror::Error)]
pub enum DiffCommandError {
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("{0} cannot be compared: the error is printed with the parent")]
    Failed(String),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Diff {
    /// Differences go to `out`, with `colours` or without; remarks go to `say`.
    ///
    /// # Errors
    /// The API server cannot say for each parent.
    pub async fn run(
        &self,
        out: impl Write,
        mut say: impl Write,
        colours: bool,
    ) -> Result<Compared, DiffCommandError> {
        let differ = self.live.differ().await?;
        for remark in differ.remarks() {
            writeln!(say, "{}", escape(remark))?;
        }
        let progress = Progress::of_stderr();
        let _step = progress.step(format!("comparing {} parents", differ.parents()));
        let mut done = progress.done_items(differ.parents());
        let mut failed = Vec::new();
        let mut printer = Printer { output: self.output, colours, out, say, printed: 0 };
        let summary = differ.run(|one| {
            done.add("parents compared");
            failed.extend(one.error.as_ref().map(|_| one.parent.to_string()));
            printer.reconciled(one)
        });
        let summary = summary.await?;
        printer.end(&summary)?;
        match failed.first() {
            None if summary.differ == 0 => Ok(Compared::Same),
            None => Ok(Compared::Differ),
            Some(one) if failed.len() == 1 => Err(DiffCommandError::Failed(one.clone())),
            Some(one) => Err(DiffCommandError::Failed(format!("{one} and {} more", failed.len() - 1))),
        }
    }
}

/// Prints parents one by one.
struct Printer<O, S> {
    output: Output,
    colours: bool,
    out: O,
    say: S,
    printed: usize,
}

impl<O: Write, S: Write> Printer<O, S> {
    fn reconciled(&mut self, one: &Reconciled) -> io::Result<()> {
        match self.output {
            Output::Text => {
                self.differences(one)?;
                for note in &one.notes {
                    writeln!(self.say, "{}: {}", one.parent, escape(note))?;
                }
            }
            Output::Json => {
                let begin = if self.printed == 0 { "{ \"parents\": [" } else { "," };
                write!(self.out, "{begin}\n{:#}", one_as_json(one, word))?;
            }
        }
        self.printed += 1;
        match &one.error {
            Some(error) => writeln!(self.say, "{}: error: {}", one.parent, escape(&error_chain(error))),
            None => Ok(()),
        }
    }

    fn differences(&mut self, one: &Reconciled) -> io::Result<()> {
        for step in &one.steps {
            writeln!(self.out, "# {}: {} {}", one.parent, word(step), step.effect.id)?;
            let (before, after) = (step.effect.shown_before(), step.effect.shown_after());
            let text = line_diff::print_objects(before.as_ref(), after.as_ref(), self.colours);
            let is_hidden = text.is_empty() && before.is_some();
            let text = if is_hidden { "  only values differ that are not shown\n" } else { &text };
            self.out.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        match self.output {
            Output::Text => writeln!(self.out, "{}", summary.print()),
            Output::Json => {
                let begin = if self.printed == 0 { "{ \"parents\": [" } else { "" };
                writeln!(self.out, "{begin}\n], \"summary\": {:#} }}", as_json(summary))
            }
        }
    }
}

fn as_json(summary: &Summary) -> Value {
    let (before, now) = summary.instructions.unzip();
    json!({
        "parents": summary.parents,
        "same": summary.same(),
        "differ": summary.differ,
        "paused": summary.paused,
        "failed": summary.failed,
        "changes": summary.changes,
        "instructionsBefore": before,
        "instructions": now,
    })
}
