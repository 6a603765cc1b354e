//! `metahook diff`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use metahook_author::diff::{DiffError, Differ, Options, Summary, of_name, word};
use metahook_author::documents::{self, DocumentError};
use metahook_author::hook_modules::HookFileError;
use metahook_author::line_diff;
use metahook_author::progress::Progress;
use metahook_author::render::Reconciled;
use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::policy::HookPolicy;
use metahook_server::cluster::api_client::ConnectError;
use metahook_server::telemetry::{error_chain, escape};
use serde_json::{Value, json};

use crate::apply_strategy;
use crate::author_flags::{FIELD_MANAGER, HookFileFlags, HookFilesError};
use crate::changes::{one_as_json, shown};
use crate::cluster_flags::ReachFlags;

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
    /// A file with a controller, YAML or JSON, or a folder with such a file; `-` is stdin. Other objects are passed over.
    #[arg(short = 'f', long = "file", value_name = "FILE", required_unless_present = "controller", conflicts_with = "controller", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// A controller as the cluster has it; `compositecontroller/NAME` where there is a DecoratorController of that name, too.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub controller: Option<String>,
    /// Parents, when absent all that the controller selects.
    #[arg(value_name = "[NAMESPACE/]PARENT")]
    pub parents: Vec<String>,
    #[command(flatten)]
    pub hooks: HookFileFlags,
    /// Namespace of the parents. When absent, those of all namespaces; for names without one, that of the kubeconfig.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Format of stdout: for people, or JSON with all objects before and after.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Namespaces whose Secrets the hooks may be shown, as the server's flag has them.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub mount_secret_namespaces: Vec<String>,
    /// Field manager of the server's server-side apply.
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    pub apply_strategy_ssa_field_manager: String,
    /// Namespace of the server.
    #[arg(long, value_name = "NAMESPACE", default_value = "metacontroller")]
    pub server_namespace: String,
    /// The server's --apply-strategy, for controllers that name none.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply", value_parser = apply_strategy)]
    pub apply_strategy: ApplyStrategy,
    #[command(flatten)]
    pub reach: ReachFlags,
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
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error("-f")]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Files(#[from] HookFilesError),
    #[error(transparent)]
    Diff(#[from] DiffError),
    #[error("{0} cannot be compared: the error is printed with the parent")]
    Failed(String),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl From<HookFileError> for DiffCommandError {
    fn from(error: HookFileError) -> Self {
        Self::Files(error.into())
    }
}

impl Diff {
    /// Differences go to `out`, with `colours` or without; remarks go to `say`.
    ///
    /// # Errors
    /// It is not known of each parent what would change.
    pub async fn run(
        &self,
        out: impl Write,
        mut say: impl Write,
        colours: bool,
    ) -> Result<Compared, DiffCommandError> {
        let api = self.reach.reached().await?;
        let documents = match &self.controller {
            Some(name) => vec![of_name(&api, name).await?],
            None => documents::read_all(&self.file)?,
        };
        let files = self.hooks.files(&self.hooks.modules(&documents, &self.file)?).await?;
        let default_namespace = || api.default_namespace().to_owned();
        let options = Options {
            files,
            apply_strategy: self.apply_strategy,
            field_manager: self.apply_strategy_ssa_field_manager.clone(),
            parents: self.parents.clone(),
            namespace: self.namespace.clone(),
            default_namespace: self.namespace.clone().unwrap_or_else(default_namespace),
            server_namespace: self.server_namespace.clone(),
            policy: HookPolicy {
                mount_secret_namespaces: self.mount_secret_namespaces.iter().cloned().collect(),
                ..HookPolicy::default()
            },
            is_file: self.controller.is_none(),
        };
        let step = Progress::of_stderr().step("reading the cluster");
        let differ = Differ::of(api, &documents, options).await?;
        drop(step);
        for remark in differ.remarks() {
            writeln!(say, "{}", escape(remark))?;
        }
        let _step = Progress::of_stderr().step(format!("comparing {} parents", differ.parents()));
        let mut failed = Vec::new();
        let mut printer = Printer { output: self.output, colours, out, say, printed: 0 };
        let summary = differ.run(|one| {
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
            let (before, after) = (shown(step.effect.shown_before()), shown(step.effect.shown_after()));
            let text = line_diff::print(&before, &after, self.colours);
            let is_hidden = text.is_empty() && !before.is_empty();
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
