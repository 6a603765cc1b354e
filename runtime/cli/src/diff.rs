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
  2  it could not be found out, of at least one parent";

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
    /// Only parents of this namespace; that of parents whose names have none, too, else that of the kubeconfig.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Format of stdout: for people, or JSON with all objects before and after.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
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
    #[error("the reconcile of {0} fails: its error stands above")]
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
        mut out: impl Write,
        mut say: impl Write,
        colours: bool,
    ) -> Result<Compared, DiffCommandError> {
        let api = self.reach.reached().await?;
        let documents = match &self.controller {
            Some(name) => vec![of_name(&api, name).await?],
            None => documents::read_all(&self.file)?,
        };
        let files = self.hooks.files(&self.hooks.modules(&documents, &self.file)?).await?;
        let default_namespace = || api.client.default_namespace().to_owned();
        let options = Options {
            files,
            apply_strategy: self.apply_strategy,
            field_manager: FIELD_MANAGER.to_owned(),
            parents: self.parents.clone(),
            namespace: self.namespace.clone(),
            default_namespace: self.namespace.clone().unwrap_or_else(default_namespace),
        };
        let step = Progress::of_stderr().step("reading the cluster");
        let differ = Differ::of(api, &documents, options).await?;
        drop(step);
        let _step = Progress::of_stderr().step(format!("comparing {} parents", differ.parents()));
        let mut failed = Vec::new();
        let mut all = Vec::new();
        let summary = differ
            .run(|one| {
                failed.extend(one.error.as_ref().map(|_| one.parent.to_string()));
                match self.output {
                    Output::Json => {
                        all.push(one_as_json(one));
                        Ok(())
                    }
                    Output::Text => print(one, colours, &mut out, &mut say),
                }
            })
            .await?;
        match self.output {
            Output::Json => writeln!(out, "{:#}", as_json(&all, &summary))?,
            Output::Text => writeln!(out, "{}", summary.print())?,
        }
        match failed.first() {
            None if summary.differ == 0 => Ok(Compared::Same),
            None => Ok(Compared::Differ),
            Some(one) if failed.len() == 1 => Err(DiffCommandError::Failed(one.clone())),
            Some(one) => Err(DiffCommandError::Failed(format!("{one} and {} more", failed.len() - 1))),
        }
    }
}

/// What would change for one parent; nothing where nothing would.
fn print(one: &Reconciled, colours: bool, out: &mut impl Write, say: &mut impl Write) -> io::Result<()> {
    for step in &one.steps {
        writeln!(out, "# {}: {} {}", one.parent, word(step), step.effect.id)?;
        let (before, after) = (shown(step.effect.shown_before()), shown(step.effect.shown_after()));
        let text = line_diff::print(&before, &after, colours);
        let hidden = "  only values of a Secret differ, which are not shown\n";
        out.write_all(if text.is_empty() { hidden } else { &text }.as_bytes())?;
    }
    if one.steps.is_empty() && one.error.is_none() {
        return Ok(());
    }
    for note in &one.notes {
        writeln!(say, "{}: {}", one.parent, escape(note))?;
    }
    match &one.error {
        Some(error) => writeln!(say, "{}: error: {}", one.parent, escape(&error_chain(error))),
        None => Ok(()),
    }
}

fn as_json(all: &[Value], summary: &Summary) -> Value {
    let (before, now) = summary.instructions.unzip();
    json!({
        "parents": all,
        "summary": {
            "parents": summary.parents,
            "same": summary.same(),
            "differ": summary.differ,
            "failed": summary.failed,
            "changes": summary.changes,
            "instructionsBefore": before,
            "instructions": now,
        },
    })
}
