//! `metahook render`: what the server would write for a controller and objects out of files.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::common::ApplyStrategy;
use metahook_core::json::hidden::shown_differences;
use serde_json::{Value, json};

use crate::author_flags::{FIELD_MANAGER, HookFileFlags, HookFilesError};
use crate::changes::{one_as_json, shown, value};
use crate::cluster_flags::{ClusterError, ClusterFlags};
use crate::values::apply_strategy;
use metahook_author::documents::{self, DocumentError};
use metahook_author::progress::Progress;
use metahook_author::render::Simulation;
use metahook_author::render::rounds::{RenderEnd, Rounds};
use metahook_author::render::setup::{Options, SetupError};
use metahook_author::render::{RenderedReconcile, Step};
use metahook_author::{line_diff, yaml};
use metahook_server::telemetry::{error_chain, escape};

#[derive(Debug, Args)]
pub struct Render {
    /// A file with a controller, parents, children, related objects or CustomResourceDefinitions, YAML or JSON, or a folder with such files; `-` is stdin. Several times for several.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true, value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    #[command(flatten)]
    pub hooks: HookFileFlags,
    /// Namespace of objects that name none.
    #[arg(short = 'n', long, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Reconciles of each parent at most, each with what the one before wrote; ends where nothing changes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub cycles: u16,
    /// Format of stdout: yaml, diff, table, or json with all objects before and after.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Output::Yaml)]
    pub output: Output,
    /// The server's --apply-strategy, for controllers that name none.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply", value_parser = apply_strategy)]
    pub apply_strategy: ApplyStrategy,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Yaml,
    Diff,
    Table,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("-f")]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Files(#[from] HookFilesError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("{parent}: {why}")]
    Reconcile { parent: String, why: String },
    #[error("it oscillates: after round {last} all is as after round {like}, and so it goes on. {what}")]
    Oscillates { like: usize, last: usize, what: String },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl RenderError {
    /// 1: the hook, its answer, or the cluster. 2: the files or the flags.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Reconcile { .. } | Self::Oscillates { .. } | Self::Cluster(_) => 1,
            Self::Files(error) if error.is_refusal() => 1,
            Self::Document(_) | Self::Files(_) | Self::Setup(_) | Self::Print(_) => 2,
        }
    }
}

impl Render {
    /// Writes go to `out`, with `colours` or without; remarks about them go to `say`.
    pub async fn run(
        &self,
        mut out: impl Write,
        mut say: impl Write,
        colours: bool,
    ) -> Result<(), RenderError> {
        let cluster = self.cluster.cluster().await?;
        // Files come last, as the last definition of a kind counts.
        let mut all = cluster.map(|cluster| cluster.definitions).unwrap_or_default();
        all.extend(documents::read_all(&self.file)?);
        let files =
            self.hooks.files(&self.hooks.modules(&all, &self.file).map_err(HookFilesError::from)?).await?;
        let options = Options {
            namespace: self.namespace.clone(),
            apply_strategy: self.apply_strategy,
            field_manager: FIELD_MANAGER.to_owned(),
            files,
        };
        let mut simulation = Simulation::of(&all, options)?;
        let step = Progress::of_stderr().step("calling the hooks");
        let rounds = simulation.run(self.cycles.into()).await;
        drop(step);
        for (number, round) in (1..).zip(&rounds.rounds) {
            for one in round {
                remarks(number, one, &mut say)?;
            }
        }
        match self.output {
            Output::Json => writeln!(out, "{:#}", as_json(&rounds))?,
            Output::Table => table(&rounds, &mut out)?,
            Output::Yaml | Output::Diff => {
                for (number, step) in steps(&rounds) {
                    writeln!(out, "# round {number}: {} {}", step.op, step.effect.id)?;
                    let text = match (self.output, step.effect.shown_after()) {
                        (Output::Diff, after) => {
                            let before = step.effect.shown_before();
                            line_diff::print_objects(before.as_ref(), after.as_ref(), colours)
                        }
                        (_, None) => [&name_of(step), "---\n"].concat(),
                        (_, after) => [&shown(after), "---\n"].concat(),
                    };
                    out.write_all(text.as_bytes())?;
                }
            }
        }
        end(&rounds, &mut say)
    }
}

/// How the rounds ended: in words where it is well, else as an error.
fn end(rounds: &Rounds, say: &mut impl Write) -> Result<(), RenderError> {
    let last = rounds.rounds.len();
    match rounds.end {
        RenderEnd::Settled => writeln!(say, "settled: round {last} changes nothing")?,
        RenderEnd::Enough => {
            writeln!(say, "round {last} is not the end: --cycles with a higher number shows what follows")?;
        }
        RenderEnd::Oscillates { like } => {
            return Err(RenderError::Oscillates { like, last, what: two_answers(rounds, like) });
        }
        RenderEnd::Failed => {}
    }
    let mut failed = rounds.rounds.last().into_iter().flatten();
    let failed = failed.find_map(|one| Some((one.parent.to_string(), one.error.as_ref()?)));
    match failed {
        Some((parent, error)) => {
            Err(RenderError::Reconcile { parent, why: escape(&error_chain(error)).into() })
        }
        None => Ok(()),
    }
}

/// Two of the answers that take turns, and where they differ.
fn two_answers(rounds: &Rounds, like: usize) -> String {
    let answers = |one: &RenderedReconcile| one.calls.last().and_then(|call| call.answer.clone().ok());
    let turns = rounds.rounds.get(like..).unwrap_or_default();
    let parents = turns.first().into_iter().flatten().map(|one| &one.parent);
    for parent in parents {
        let of = turns.iter().map(|round| round.iter().find(|one| one.parent == *parent).and_then(answers));
        let all: Vec<Value> =
            of.flatten().filter_map(|answer| serde_json::from_slice(&answer).ok()).collect();
        let pair = all.iter().zip(all.iter().skip(1)).zip(1..).find(|((one, next), _)| one != next);
        if let Some(((one, next), nth)) = pair {
            let (first, second) = (like + nth, like + nth + 1);
            let changes = shown_differences(next, one, true);
            return format!(
                "The answers about {parent} of rounds {first} and {second} differ: {}",
                escape(&changes)
            );
        }
    }
    "The answers are the same each time, and what they ask for undoes itself".to_owned()
}

fn steps(rounds: &Rounds) -> impl Iterator<Item = (usize, &Step)> {
    let numbered = (1..).zip(&rounds.rounds);
    numbered.flat_map(|(number, round)| {
        round.iter().flat_map(move |one| one.steps.iter().map(move |step| (number, step)))
    })
}

fn remarks(number: usize, one: &RenderedReconcile, say: &mut impl Write) -> io::Result<()> {
    let changes = match one.steps.len() {
        0 => "nothing changes".to_owned(),
        1 => "1 change".to_owned(),
        more => format!("{more} changes"),
    };
    writeln!(say, "round {number}: {}: {changes}", one.parent)?;
    for call in &one.calls {
        let milliseconds = call.took.as_secs_f64() * 1000.0;
        let used = call.instructions.map(|used| format!(", {used} instructions")).unwrap_or_default();
        let pure = if call.pure == Some(false) { ", not pure: it reads the time" } else { "" };
        writeln!(say, "  {} hook: {milliseconds:.3} ms{used}{pure}", call.hook)?;
        for line in call.log.lines() {
            writeln!(say, "  | {}", escape(line))?;
        }
    }
    for note in &one.notes {
        writeln!(say, "  {}", escape(note))?;
    }
    if let Some(error) = &one.error {
        writeln!(say, "  error: {}", escape(&error_chain(error)))?;
    }
    Ok(())
}

fn table(rounds: &Rounds, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<_> = steps(rounds)
        .map(|(number, step)| (number.to_string(), step.op, step.effect.id.to_string()))
        .collect();
    let header = [("ROUND".to_owned(), "CHANGE", "OBJECT".to_owned())];
    header
        .iter()
        .chain(&rows)
        .try_for_each(|(number, op, object)| writeln!(out, "{number:<6} {op:<10} {object}"))
}

fn as_json(rounds: &Rounds) -> Value {
    let round = |round: &Vec<RenderedReconcile>| -> Value {
        round.iter().map(|one| one_as_json(one, |step| step.op)).collect()
    };
    let end = match rounds.end {
        RenderEnd::Settled => "settled",
        RenderEnd::Enough => "unfinished",
        RenderEnd::Oscillates { .. } => "oscillates",
        RenderEnd::Failed => "failed",
    };
    json!({ "rounds": rounds.rounds.iter().map(round).collect::<Vec<_>>(), "end": end })
}

/// Fields that name an object that is deleted.
fn name_of(step: &Step) -> String {
    let whole = value(step.effect.before.as_deref());
    let text = |pointer: &str| whole.pointer(pointer).cloned().unwrap_or_default();
    let mut metadata = json!({ "name": text("/metadata/name"), "namespace": text("/metadata/namespace") });
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    yaml::print(&json!({ "apiVersion": text("/apiVersion"), "kind": text("/kind"), "metadata": metadata }))
}
