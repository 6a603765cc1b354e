//! `metahook check`: properties that hold for every good hook, tried on a module without a cluster.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::hook::HookName;
use metahook_core::object::id::Gvk;
use serde_json::{Value, json};

use crate::author_flags::{
    FIELD_MANAGER, HookFileFlags, HookFilesError, LimitFlags, LimitsError, MountFlag, RunnerFlags, mount,
};
use crate::cluster_flags::{ClusterError, ClusterFlags};
use crate::first_lines::first_lines;
use metahook_author::call::{ObjectError, check_request};
use metahook_author::documents::{self, Document, DocumentError};
use metahook_author::hook_modules::{FoundFiles, HookFile, HookFileError, HookModules};
use metahook_author::kinds::KnownKinds;
use metahook_author::progress::Progress;
use metahook_author::properties::reconciles::{self, ReconcileVerdict};
use metahook_author::properties::{PropertyCheck, Sample, Verdict, Violation};
use metahook_author::render::Simulation;
use metahook_author::render::hooks::{HookFiles, HookSetError};
use metahook_author::render::setup::{Options, SetupError, hook_kinds};
use metahook_author::request_kinds::{hook_of, with_kinds};
use metahook_author::yaml;
use metahook_server::cluster::api_client::Unreachable;
use metahook_server::telemetry::escape;

#[derive(Debug, Args)]
pub struct Check {
    /// The file of the module or script.
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub module: PathBuf,
    /// A file with a controller, its CustomResourceDefinitions or examples of parents and other objects, or a folder with such files; several times for several.
    #[arg(short = 'f', long = "file", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// A request to check the properties with; several times for several.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub request: Vec<PathBuf>,
    /// A folder that stands for a mount, for example `/etc/greeting=./greeting`; several times for several.
    #[arg(long, value_name = "PATH=FOLDER", value_parser = mount)]
    pub mount: Vec<MountFlag>,
    #[command(flatten)]
    pub runners: RunnerFlags,
    /// Reconciles within which nothing may be left to change.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub cycles: u16,
    /// Format of stdout: text, or JSON.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten)]
    pub limits: LimitFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("-f")]
    Document(#[source] DocumentError),
    #[error("--request")]
    Request(#[source] DocumentError),
    #[error("--request {}: {why}, or give a controller and this file with -f", file.display())]
    Object { file: PathBuf, why: ObjectError },
    #[error(transparent)]
    Files(#[from] HookFilesError),
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error("the {hook} hook of the controller is of another file: {remedy}")]
    OtherFile { hook: HookName, remedy: String },
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the API server does not answer")]
    Unreachable(#[from] Unreachable),
    #[error("properties that do not hold: {violated}")]
    Violated { violated: usize },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl CheckError {
    /// The command has no flag for the files of other hooks.
    fn setup(error: SetupError) -> Self {
        match error {
            SetupError::Hooks(HookSetError::NoScript { hook, key }) => {
                Self::OtherFile { hook, remedy: format!("put {key} beside the controller's file") }
            }
            SetupError::Hooks(HookSetError::NoModule { hook, build }) => Self::OtherFile {
                hook,
                remedy: format!("build its module beside the controller's file (`{build}`)"),
            },
            error => Self::Setup(error),
        }
    }

    /// 1: a property does not hold, the server would not take the module, or the cluster does not answer. 2: the files or the flags.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Violated { .. } | Self::Cluster(_) | Self::Unreachable(_) => 1,
            Self::Files(error) if error.is_refusal() => 1,
            _ => 2,
        }
    }
}

/// Requests and kinds of parents that come of the files.
struct OfFiles {
    /// Requests that the hooks were asked with.
    asked: Vec<Sample>,
    /// The kinds of parents that have a definition, with its schema.
    parents: Vec<(Gvk, Value)>,
}

impl Check {
    /// Results go to `out`, remarks to `say`.
    pub async fn run(&self, out: impl Write, mut say: impl Write) -> Result<(), CheckError> {
        let shared = documents::read_all(&self.file).map_err(CheckError::Document)?;
        let file = HookFile::named(self.module.clone(), &shared);
        let found = FoundFiles::beside(&self.file, &shared);
        let modules = HookModules::checked(&file, &shared, &found)
            .map_err(HookFileError::from)
            .map_err(HookFilesError::from)?;
        let of_file = |hook: &HookName| modules.of_hook(&shared, *hook) == Some(&file);
        let all = [HookName::Sync, HookName::Finalize, HookName::Customize];
        if !all.iter().any(of_file) {
            return Err(HookFilesError::File(HookFileError::no_hook(&self.module, &shared)).into());
        }
        let limits = all.map(|hook| Ok((hook, self.limits.limits(&file, &shared, hook)?)));
        let limits = limits.into_iter().collect::<Result<Vec<_>, LimitsError>>()?;
        let flags = HookFileFlags { module: None, mount: self.mount.clone(), runners: self.runners.clone() };
        let files = flags.files(&modules).await?;
        let mut results = Results { out, output: self.output, all: Vec::new(), violated: 0 };
        let kind = if file.language.is_some() { "script" } else { "module" };
        results.add(&format!("the server takes the {kind}"), Some(Ok(())))?;
        let mut samples = self.requests(&shared)?;
        let mut parents = Vec::new();
        if !self.file.is_empty() {
            let found = self.of_files(shared.clone(), files.clone(), &mut results, &mut say).await?;
            samples.extend(found.asked.into_iter().filter(|sample| of_file(&sample.hook)));
            parents = found.parents;
        }
        if samples.is_empty() {
            writeln!(
                say,
                "nothing more is tried: give a controller and an example of a parent with -f, or a request with --request"
            )?;
        }
        let step = Progress::of_stderr().step("checking the properties");
        let hook = |(name, limits)| Some((name, files.hook(files.modules.alone()?, limits)));
        let hooks = limits.into_iter().filter_map(hook).collect();
        let verdicts = PropertyCheck { sandbox: files.sandbox, hooks, parents }.run(&samples).await;
        drop(step);
        if !samples.is_empty() {
            results.properties(verdicts)?;
        }
        results.end()
    }

    /// The requests of the flags.
    fn requests(&self, shared: &[Document]) -> Result<Vec<Sample>, CheckError> {
        let read = |file: &PathBuf| {
            let (text, request) = documents::read_one_as_json(file).map_err(CheckError::Request)?;
            check_request(&request).map_err(|why| CheckError::Object { file: file.clone(), why })?;
            let hook = hook_of(shared, &request);
            let (_, request) = with_kinds(shared, hook, text, request);
            Ok(Sample { hook, request })
        };
        self.request.iter().map(read).collect()
    }

    /// Tries the reconciles of the files.
    async fn of_files<W: Write>(
        &self,
        shared: Vec<Document>,
        files: HookFiles,
        results: &mut Results<W>,
        mut say: impl Write,
    ) -> Result<OfFiles, CheckError> {
        let cluster = self.cluster.cluster().await?;
        let (api, definitions) = cluster.map(|it| (it.api, it.definitions)).unzip();
        // Files come last, as the last definition of a kind counts.
        let mut all = definitions.unwrap_or_default();
        all.extend(shared);
        let options = Options {
            namespace: "default".to_owned(),
            apply_strategy: ApplyStrategy::default(),
            field_manager: FIELD_MANAGER.to_owned(),
            files,
        };
        let (mut simulation, progress) =
            (Simulation::of(&all, options).map_err(CheckError::setup)?, Progress::of_stderr());
        let step = progress.step("calling the hooks");
        let rounds = simulation.run(self.cycles.into()).await;
        drop(step);
        if reconciles::are_idle(&rounds) {
            writeln!(
                say,
                "the hooks ask for nothing to be written for the parents of the files, which says little of them: add a parent for which they do; `metahook render` shows what a parent gets"
            )?;
        }
        results.verdict(reconciles::settles(&rounds))?;
        results.verdict(reconciles::fits_schemas(&rounds))?;
        if let Some(api) = api {
            let step = progress.step("asking the cluster what it would keep (dry run)");
            let verdict = reconciles::is_kept(&api, &rounds).await?;
            drop(step);
            results.verdict(verdict)?;
        }
        let kinds = KnownKinds::of(&all).map_err(SetupError::kinds)?;
        let parents = hook_kinds(&all, &kinds)?.parents.into_iter();
        let parents = parents.filter_map(|(gvk, schema)| Some((gvk, schema?.clone()))).collect();
        Ok(OfFiles { asked: reconciles::requests(&rounds), parents })
    }
}

/// Why a property does not hold, and a request that shows it.
type Evidence = (Vec<String>, Option<Value>);

/// Results of the properties, printed one by one, or as JSON at the end.
struct Results<W> {
    out: W,
    output: Output,
    all: Vec<Value>,
    violated: usize,
}

impl<W: Write> Results<W> {
    /// `None`: no request could be made for the property.
    fn add(&mut self, property: &str, holds: Option<Result<(), Evidence>>) -> io::Result<()> {
        self.violated += usize::from(matches!(holds, Some(Err(_))));
        if self.output == Output::Json {
            self.all.push(match holds {
                Some(Ok(())) => json!({ "property": property, "result": "holds" }),
                Some(Err((why, request))) => {
                    json!({ "property": property, "result": "violated", "why": why, "request": request })
                }
                None => json!({ "property": property, "result": "skipped" }),
            });
            return Ok(());
        }
        match holds {
            Some(Ok(())) => writeln!(self.out, "ok   {property}"),
            Some(Err((why, request))) => {
                writeln!(self.out, "FAIL {property}")?;
                why.iter().try_for_each(|why| writeln!(self.out, "  {}", escape(why)))?;
                let Some(request) = request else { return Ok(()) };
                writeln!(self.out, "  this request shows it:")?;
                let shown = first_lines(&yaml::print(&request), "--output json prints all");
                shown.lines().try_for_each(|line| writeln!(self.out, "    {line}"))
            }
            None => writeln!(self.out, "skip {property}: no request could be made for it"),
        }
    }

    /// Where the hook fails with each request, the other properties are one line.
    fn properties(&mut self, verdicts: Vec<Verdict>) -> io::Result<()> {
        let fails = verdicts.iter().any(|verdict| matches!(verdict.holds, Some(Err(_))));
        let holds = verdicts.iter().any(|verdict| matches!(verdict.holds, Some(Ok(()))));
        let in_one_line = fails && !holds && self.output == Output::Text;
        let mut left_out = 0;
        for Verdict { property, holds } in verdicts {
            if holds.is_none() && in_one_line {
                left_out += 1;
                continue;
            }
            let holds = holds.map(|it| it.map_err(|Violation { why, input }| (vec![why], Some(input))));
            self.add(property, holds)?;
        }
        if left_out > 0 {
            let why = "the hook has to answer first";
            writeln!(self.out, "skip the other {left_out} properties: {why}")?;
        }
        Ok(())
    }

    fn verdict(&mut self, verdict: ReconcileVerdict) -> io::Result<()> {
        let ReconcileVerdict { property, faults } = verdict;
        let holds = if faults.is_empty() { Ok(()) } else { Err((faults.into_iter().collect(), None)) };
        self.add(property, Some(holds))
    }

    fn end(mut self) -> Result<(), CheckError> {
        if self.output == Output::Json {
            writeln!(self.out, "{:#}", json!({ "violated": self.violated, "properties": self.all }))?;
        }
        if self.violated > 0 { Err(CheckError::Violated { violated: self.violated }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_that_a_failing_hook_leaves_out_are_one_line() {
        let text = |found: [Option<bool>; 3]| {
            let verdict = |(property, holds): (&'static str, Option<bool>)| {
                let violation = || Violation { why: "no".to_owned(), input: json!({}) };
                let holds = holds.map(|holds| if holds { Ok(()) } else { Err(violation()) });
                Verdict { property, holds }
            };
            let mut results = Results { out: Vec::new(), output: Output::Text, all: Vec::new(), violated: 0 };
            results.properties(["a", "b", "c"].into_iter().zip(found).map(verdict).collect()).unwrap();
            String::from_utf8(results.out).unwrap()
        };
        let failed = text([Some(false), None, None]);
        assert!(failed.starts_with("FAIL a\n") && !failed.contains("skip b"), "{failed}");
        assert!(failed.ends_with("skip the other 2 properties: the hook has to answer first\n"), "{failed}");
        let one = text([Some(true), None, Some(true)]);
        assert_eq!(one, "ok   a\nskip b: no request could be made for it\nok   c\n");
    }
}
