//! `metahook replay`.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use metahook_author::hook_modules::HookFile;
use metahook_author::progress::Progress;
use metahook_author::replay::as_case::{AsCaseError, CallCases};
use metahook_author::replay::{Recorded, ReplayError, ReplaySummary, Replayer, print_one, print_summary};
use metahook_author::sandbox::{LoadError, Sandbox};
use metahook_core::counted;
use metahook_server::telemetry::escape;
use serde_json::json;

use crate::author_flags::{MountError, MountFlag, RunnerFlags, mount};
use crate::diff::Compared;

/// End of `--help`.
const EXAMPLES: &str = "Examples:
  metahook record hello --reconciles 20 -o hello.recording
  metahook replay hello.recording                        the same answers, bit for bit
  metahook replay hello.recording --module new.wasm      what another module answers
  metahook replay hello.recording --as-case night        writes a case of each call
  metahook test night                                    runs them";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Replay {
    /// The recording.
    #[arg(value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub recording: PathBuf,
    /// The file of a module or a script that is called in place of the recorded ones.
    #[arg(long, value_name = "MODULE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub module: Option<PathBuf>,
    /// A folder that the hook may read, for example `/etc/greeting=./greeting`; several times for several.
    #[arg(long, value_name = "PATH=FOLDER", value_parser = mount)]
    pub mount: Vec<MountFlag>,
    /// Make no call, but write each answered call as a case of `metahook test` into this folder: its request, answer, clock and random numbers. Beside the cases the command writes the controller, its definitions and its hooks, unless a controller.yaml lies beside the folder. It overwrites no file.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["module", "mount", "output"], value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub as_case: Option<PathBuf>,
    #[command(flatten)]
    pub runners: RunnerFlags,
    /// Format of what is printed.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Calls that do not answer the same, and the numbers of all.
    Text,
    /// All calls and their numbers, as one object.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayCommandError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    AsCase(#[from] AsCaseError),
    #[error("no call can be made again: {0}")]
    NotMade(String),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Replay {
    /// Calls that answer something else go to `out`, remarks to `say`.
    ///
    /// # Errors
    /// The recording cannot be read, or none of its calls can be made again; or it cannot be written as cases.
    pub async fn run(
        &self,
        mut out: impl Write,
        mut say: impl Write,
        colours: bool,
    ) -> Result<Compared, ReplayCommandError> {
        let path = &self.recording;
        let file = File::open(path).map_err(|source| ReplayError::Read { path: path.clone(), source })?;
        let recorded = Recorded::read(path, BufReader::new(file))?;
        if let Some(folder) = &self.as_case {
            write_cases(&recorded, folder, out, say)?;
            return Ok(Compared::Same);
        }
        for remark in &recorded.remarks {
            writeln!(say, "{}", escape(remark))?;
        }
        let mounts = self.mount.iter().map(MountFlag::read).collect::<Result<Vec<_>, _>>()?;
        let sandbox = Sandbox::new(self.runners.module_settings())?;
        let step = Progress::of_stderr().step("compiling the hooks");
        let instead = match &self.module {
            Some(module) => Some(sandbox.load(&HookFile::named(module.clone(), &[])).await?),
            None => None,
        };
        let replayer = Replayer::of(&sandbox, &recorded, instead, mounts).await?;
        drop(step);
        let step = Progress::of_stderr().step(format!("calling {} times", recorded.calls.len()));
        let (mut summary, mut all, mut not_made) = (ReplaySummary::default(), Vec::new(), None);
        for call in &recorded.calls {
            let one = replayer.replay(call).await;
            summary.add(&one);
            not_made = not_made.or_else(|| one.not_made().map(str::to_owned));
            match self.output {
                Output::Text => print_one(&mut out, &one, colours)?,
                Output::Json => all.push(one),
            }
        }
        drop(step);
        match self.output {
            Output::Text => print_summary(&mut out, &summary)?,
            Output::Json => writeln!(out, "{:#}", json!({ "calls": all, "summary": summary }))?,
        }
        match not_made {
            Some(why) if summary.not_made == summary.calls => Err(ReplayCommandError::NotMade(why)),
            _ if summary.different + summary.not_made > 0 => Ok(Compared::Differ),
            _ => Ok(Compared::Same),
        }
    }
}

fn write_cases(
    recorded: &Recorded,
    folder: &Path,
    mut out: impl Write,
    mut say: impl Write,
) -> Result<(), ReplayCommandError> {
    let cases = CallCases::of(recorded, folder)?;
    cases.write(folder)?;
    for remark in recorded.remarks.iter().chain(&cases.remarks) {
        writeln!(say, "{}", escape(remark))?;
    }
    let folder = folder.display().to_string();
    let number = counted(cases.number(), "case", "cases");
    let all: Vec<_> = std::iter::once(&*number).chain(cases.shared()).collect();
    writeln!(out, "wrote {}: {}", escape(&folder), escape(&all.join(", ")))?;
    writeln!(say, "`metahook test {}` runs them", escape(&folder))?;
    Ok(())
}
