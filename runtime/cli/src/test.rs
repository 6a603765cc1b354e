//! `metahook test`: an author's cases, run without a cluster, compared, and written where they are blessed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::common::ApplyStrategy;

use crate::author_flags::{FIELD_MANAGER, HookFileFlags, HookFilesError};
use crate::test_lines::LineBudget;
use crate::values::apply_strategy;
use metahook_author::cases::report::{Ran, github, json, junit};
use metahook_author::cases::run::{Compared, Outcome, run};
use metahook_author::cases::{FindError, find, home, shared_files};
use metahook_author::documents::{self, Document, DocumentError};
use metahook_author::folders::files;
use metahook_author::hook_modules::{HookFile, HookFileError, HookModules};
use metahook_author::progress::Progress;
use metahook_author::render::setup::Options;
use metahook_server::telemetry::escape;

/// The file of recorded instructions, in the folder of all cases.
const BASELINE: &str = "instructions.json";

/// How often files are looked at under `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_millis(300);

/// Files that are watched.
const MAX_WATCHED: usize = 50_000;

#[derive(Debug, Args)]
pub struct Test {
    /// The folder of the cases.
    #[arg(default_value = "tests", value_name = "DIR", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub dir: PathBuf,
    /// A file that all cases share, with the controller or CustomResourceDefinitions, or a folder with such files; several times for several. When absent controller.yaml and crd.yaml beside DIR, or else in DIR.
    #[arg(short = 'f', long = "file", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    #[command(flatten)]
    pub hooks: HookFileFlags,
    /// Namespace of objects that name none.
    #[arg(short = 'n', long, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// The server's --apply-strategy, for controllers that name none.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply", value_parser = apply_strategy)]
    pub apply_strategy: ApplyStrategy,
    /// Write what comes out to the files that it is compared with.
    #[arg(long)]
    pub bless: bool,
    /// Instructions that a case may take: a number, or a share above what --bless recorded, for example +5%.
    #[arg(long, value_name = "BOUND", value_parser = bound)]
    pub max_instructions: Option<Bound>,
    /// Write the results as XML in the form of `JUnit`.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub junit: Option<PathBuf>,
    /// Format of stdout: text, text with lines that GitHub shows at the file, or JSON.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Run again whenever a case, a shared file or the module changes, until Ctrl-C.
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Text,
    Github,
    Json,
}

/// A bound on the instructions of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Number(u64),
    /// Percent above what was recorded.
    Above(u64),
}

fn bound(text: &str) -> Result<Bound, String> {
    let percent = text.strip_prefix('+').and_then(|text| text.strip_suffix('%'));
    // A sign would be taken for a part of the number.
    let number = |text: &str| text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    let bound = match percent {
        Some(percent) => number(percent).filter(|percent| *percent <= 1000).map(Bound::Above),
        None => number(text).map(Bound::Number),
    };
    bound.ok_or_else(|| "write a number, or a share from +0% to +1000%".to_owned())
}

#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error("-f")]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Files(#[from] HookFilesError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{}: the recorded instructions are no object of numbers: remove the file, and --bless records them anew", file.display())]
    Baseline { file: PathBuf, source: serde_json::Error },
    #[error("{} cannot be written", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("{failed} of {all} cases failed")]
    Failed { failed: usize, all: usize },
    #[error(
        "{newly} of {all} blessed cases end in an error, and did not before: mend the hook, or bless again where the errors are meant"
    )]
    EndInErrors { newly: usize, all: usize },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl TestError {
    /// 1: a case failed or was blessed with a new error, or the server would not take the module. 2: the files or the flags.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } | Self::EndInErrors { .. } => 1,
            Self::Files(error) if error.is_refusal() => 1,
            _ => 2,
        }
    }
}

impl Test {
    /// Results go to `out`, with `colours` or without; the log lines of failed cases go to `say`.
    pub async fn run(
        mut self,
        mut out: impl Write,
        mut say: impl Write,
        colours: bool,
    ) -> Result<(), TestError> {
        self.add_defaults();
        if !self.watch {
            return self.once(&mut out, &mut say, colours).await;
        }
        loop {
            let seen = self.seen();
            if let Err(error) = self.once(&mut out, &mut say, colours).await {
                writeln!(say, "metahook: {}", metahook_server::telemetry::error_chain(&error))?;
            }
            writeln!(say, "waiting for changes; Ctrl-C ends this")?;
            while self.seen() == seen {
                tokio::time::sleep(WATCH_INTERVAL).await;
            }
        }
    }

    /// The files of a scaffold, where no flags name others.
    fn add_defaults(&mut self) {
        if self.file.is_empty() {
            self.file = shared_files(&self.dir);
        }
    }

    /// The files of the hooks of these controllers, which lie where the cases' controller does or beside the controllers.
    fn modules(&self, shared: &[Document]) -> Result<HookModules<HookFile>, HookFileError> {
        let mut beside = vec![home(&self.dir)];
        beside.extend(self.file.iter().cloned());
        self.hooks.modules(shared, &beside)
    }

    async fn once(&self, out: &mut impl Write, say: &mut impl Write, colours: bool) -> Result<(), TestError> {
        let cases = find(&self.dir)?;
        let shared = documents::read_all(&self.file)?;
        let options = Options {
            namespace: self.namespace.clone(),
            apply_strategy: self.apply_strategy,
            field_manager: FIELD_MANAGER.to_owned(),
            files: self.hooks.files(&self.modules(&shared).map_err(HookFilesError::from)?).await?,
        };
        let mut baseline = self.baseline()?;
        let (mut all, mut newly, mut lines) = (Vec::new(), 0, LineBudget::default());
        for case in cases {
            let step = Progress::of_stderr().step(format!("running {}", case.name));
            let outcome = run(&case, &shared, &options).await;
            drop(step);
            newly += usize::from(self.bless && outcome.compared.iter().any(Compared::is_new_error));
            let name = case.name.clone();
            let ran = self.judge(name, &case.folder, outcome, &mut baseline, colours)?;
            if self.output != Output::Json {
                self.print(&ran, &mut lines, out, say)?;
            }
            all.push(ran);
        }
        if self.bless && self.max_instructions.is_some() {
            let file = self.dir.join(BASELINE);
            let text = serde_json::to_string_pretty(&baseline).unwrap_or_default() + "\n";
            write_file(&file, &text)?;
        }
        if let Some(file) = &self.junit {
            write_file(file, &junit(&all))?;
        }
        lines.end(out)?;
        self.summarize(&all, newly, out)
    }

    /// `newly`: blessed cases that end in an error, and did not before.
    fn summarize(&self, all: &[Ran], newly: usize, out: &mut impl Write) -> Result<(), TestError> {
        let failed = all.iter().filter(|one| !one.failures.is_empty()).count();
        let errors = all.iter().filter(|one| one.error.is_some()).count();
        if self.output == Output::Json {
            writeln!(out, "{:#}", json(all))?;
        } else {
            let errors = if errors > 0 { format!(", {errors} end in an error") } else { String::new() };
            writeln!(out, "{} passed, {failed} failed{errors}", all.len() - failed)?;
        }
        match (failed, newly) {
            (0, 0) => Ok(()),
            (0, newly) => Err(TestError::EndInErrors { newly, all: all.len() }),
            (failed, _) => Err(TestError::Failed { failed, all: all.len() }),
        }
    }

    fn print(
        &self,
        ran: &Ran,
        lines: &mut LineBudget,
        out: &mut impl Write,
        say: &mut impl Write,
    ) -> io::Result<()> {
        let has_passed = ran.failures.is_empty();
        for file in &ran.wrote {
            lines.head(has_passed, &format!("wrote {}", file.display()), out)?;
        }
        let word = if has_passed { "ok  " } else { "FAIL" };
        let ends = ran.error.as_ref().map(|why| format!("ends in an error: {}; ", escape(why)));
        let ends = ends.unwrap_or_default();
        let head = format!("{word} {} ({ends}{} instructions)", escape(&ran.name), ran.instructions);
        lines.head(has_passed, &head, out)?;
        if self.output == Output::Github {
            write!(out, "{}", github(ran))?;
        } else {
            for (file, message) in &ran.failures {
                let shown = lines.detail(&format!("{}: {message}", file.display()));
                shown.lines().try_for_each(|line| writeln!(out, "  {line}"))?;
            }
        }
        if has_passed {
            return Ok(());
        }
        let log = lines.detail(&ran.log.join("\n"));
        log.lines().try_for_each(|line| writeln!(say, "  | {}", escape(line)))
    }

    fn baseline(&self) -> Result<BTreeMap<String, u64>, TestError> {
        let file = self.dir.join(BASELINE);
        let Ok(text) = std::fs::read_to_string(&file) else { return Ok(BTreeMap::new()) };
        serde_json::from_str(&text).map_err(|source| TestError::Baseline { file, source })
    }

    /// Compares, and writes what is blessed.
    fn judge(
        &self,
        name: String,
        folder: &Path,
        outcome: Outcome,
        baseline: &mut BTreeMap<String, u64>,
        colours: bool,
    ) -> Result<Ran, TestError> {
        let mut wrote = Vec::new();
        let mut failures: Vec<_> =
            outcome.errors.iter().map(|why| (folder.to_owned(), escape(why).into_owned())).collect();
        for one in outcome.compared.iter().filter(|one| !one.is_same()) {
            if self.bless {
                write_file(&one.file, &one.content())?;
                wrote.push(one.file.clone());
            } else {
                failures.push((one.file.clone(), differs(one, colours && self.output == Output::Text)));
            }
        }
        let used = outcome.instructions;
        if self.bless && outcome.errors.is_empty() {
            baseline.insert(name.clone(), used);
        }
        let max = match self.max_instructions {
            None => None,
            Some(Bound::Number(max)) => Some(max),
            Some(Bound::Above(percent)) => {
                let recorded = baseline.get(&name);
                if recorded.is_none() {
                    let why =
                        "there are no recorded instructions: run once with --bless and --max-instructions";
                    failures.push((self.dir.join(BASELINE), why.to_owned()));
                }
                recorded.map(|recorded| recorded.saturating_add(recorded.saturating_mul(percent) / 100))
            }
        };
        if let Some(max) = max.filter(|max| used > *max) {
            let why = format!("{used} instructions are more than {max} (--max-instructions)");
            failures.push((folder.to_owned(), why));
        }
        let error = outcome.compared.iter().find_map(Compared::error).map(str::to_owned);
        Ok(Ran { name, took: outcome.took, instructions: used, log: outcome.log, wrote, error, failures })
    }

    /// All files that a run reads, with their sizes and times.
    fn seen(&self) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
        let mut left: Vec<PathBuf> = vec![self.dir.clone()];
        left.extend(
            self.file.iter().flat_map(|path| files(path).unwrap_or_else(|_error| vec![path.clone()])),
        );
        // What is wrong with the files is reported when they are read for the cases.
        let shared = documents::read_all(&self.file).unwrap_or_default();
        let modules = self.modules(&shared).ok();
        left.extend(modules.iter().flat_map(HookModules::all).map(|file| file.path.clone()));
        left.extend(self.hooks.mount.iter().map(|mount| mount.folder.clone()));
        let mut all = Vec::new();
        while let Some(path) = left.pop() {
            let Ok(found) = path.symlink_metadata() else {
                all.push((path, 0, None));
                continue;
            };
            if found.is_dir() && all.len() < MAX_WATCHED {
                left.extend(
                    std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()),
                );
            } else if self.junit.as_ref() != Some(&path) {
                all.push((path, found.len(), found.modified().ok()));
            }
        }
        all.sort();
        all
    }
}

fn differs(one: &Compared, colours: bool) -> String {
    if let Some(why) = one.only_error() {
        return format!("differs: there is no plan, but an error: {}", escape(why));
    }
    let what = if one.is_missing() { "is missing, and --bless writes it" } else { "differs" };
    format!("{what}\n{}", one.diff(colours))
}

fn write_file(file: &Path, text: &str) -> Result<(), TestError> {
    std::fs::write(file, text).map_err(|source| TestError::Write { file: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_number_or_a_share() {
        assert_eq!(bound("100"), Ok(Bound::Number(100)));
        assert_eq!((bound("+0%"), bound("+1000%")), (Ok(Bound::Above(0)), Ok(Bound::Above(1000))));
        for wrong in ["+1001%", "++5%", "5%", "-5%", "+5", "", "many"] {
            assert!(bound(wrong).is_err(), "{wrong}");
        }
    }
}
