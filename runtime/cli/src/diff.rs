//! `metahook diff`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::{Args, ValueEnum};
use metahook_author::diff::{Summary, word};
use metahook_author::line_diff;
use metahook_author::progress::Progress;
use metahook_author::render::RenderedReconcile;
use metahook_core::counted;
use metahook_server::telemetry::{error_chain, escape};
use serde_json::{Value, json};

use crate::changes::one_as_json;
use crate::live_flags::{LiveError, LiveFlags};

/// Parents that are named beside an error that they share: a hook that fails may fail for all of them.
const MAX_NAMED: usize = 3;

/// Errors that are counted. Each parent with another one is named.
const MAX_COUNTED: usize = 100;

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
        let mut printer =
            Printer { output: self.output, colours, out, say, printed: 0, errors: SharedErrors::default() };
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
    errors: SharedErrors,
}

/// How many parents have each error.
#[derive(Default)]
struct SharedErrors(BTreeMap<String, usize>);

impl SharedErrors {
    /// Counts a parent with the error. Whether the parent is named.
    fn is_named(&mut self, error: &str) -> bool {
        if let Some(parents) = self.0.get_mut(error) {
            *parents += 1;
            return *parents <= MAX_NAMED;
        }
        if self.0.len() < MAX_COUNTED {
            self.0.insert(error.to_owned(), 1);
        }
        true
    }

    /// Errors of parents that are not named, with their number.
    fn unnamed(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0
            .iter()
            .filter(|(_, parents)| **parents > MAX_NAMED)
            .map(|(error, parents)| (&**error, parents - MAX_NAMED))
    }
}

impl<O: Write, S: Write> Printer<O, S> {
    fn reconciled(&mut self, one: &RenderedReconcile) -> io::Result<()> {
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
        let Some(error) = one.error.as_ref().map(|error| error_chain(error)) else { return Ok(()) };
        if self.errors.is_named(&error) {
            writeln!(self.say, "{}: error: {}", one.parent, escape(&error))?;
        }
        Ok(())
    }

    fn differences(&mut self, one: &RenderedReconcile) -> io::Result<()> {
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
        for (error, parents) in self.errors.unnamed() {
            let parents = counted(parents, "more parent", "more parents");
            writeln!(self.say, "{parents}: error: {}", escape(error))?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_many_parents_share_names_the_first_of_them() {
        let mut errors = SharedErrors::default();
        let named = |errors: &mut SharedErrors, error: &str, parents: usize| {
            (0..parents).filter(|_| errors.is_named(error)).count()
        };
        assert_eq!(named(&mut errors, "at the bound", MAX_NAMED), MAX_NAMED);
        assert_eq!(named(&mut errors, "above it", MAX_NAMED + 2), MAX_NAMED);
        assert_eq!(errors.unnamed().collect::<Vec<_>>(), [("above it", 2)]);
        for number in 0..MAX_COUNTED {
            assert!(errors.is_named(&format!("error {number}")));
        }
        assert_eq!(errors.0.len(), MAX_COUNTED);
        assert_eq!(named(&mut errors, "one too many", MAX_NAMED + 2), MAX_NAMED + 2);
    }
}
