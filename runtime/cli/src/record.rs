//! `metahook record`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_author::progress::Progress;
use metahook_author::record::{RecordError, Recording};
use metahook_server::telemetry::escape;

use crate::live_flags::{LiveError, LiveFlags};

/// End of `--help`.
const EXAMPLES: &str = "Example:
  metahook record --controller hello demo/your-name -o recorded
  metahook test recorded/tests --bless                  writes what the hook wants now
  metahook test recorded/tests --module new.wasm        compares what another one wants";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Record {
    #[command(flatten)]
    pub live: LiveFlags,
    /// Folder of the controller. The cases are written into `tests` below it; beside that the controller, its definitions and its hooks, where the folder has none.
    #[arg(short = 'o', long, value_name = "FOLDER", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub output: PathBuf,
    /// Write the values of Secrets, which are replaced otherwise.
    #[arg(long)]
    pub with_secrets: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordCommandError {
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Record {
    /// Writes a case for each parent, and names the files.
    ///
    /// # Errors
    /// A hook is not called, or a file cannot be written.
    pub async fn run(&self, mut out: impl Write, mut say: impl Write) -> Result<(), RecordCommandError> {
        let differ = self.live.differ().await?;
        for remark in differ.remarks() {
            writeln!(say, "{}", escape(remark))?;
        }
        let step = Progress::of_stderr().step(format!("recording {} parents", differ.parents()));
        let recording = Recording { differ: &differ, folder: &self.output, with_secrets: self.with_secrets };
        let mut wrote = Vec::new();
        let written = recording.write(&mut wrote).await;
        drop(step);
        for file in wrote {
            writeln!(out, "wrote {}", escape(&file.display().to_string()))?;
        }
        for remark in written? {
            writeln!(say, "{}", escape(&remark))?;
        }
        let tests = self.output.join("tests").display().to_string();
        writeln!(say, "`metahook test {} --bless` writes what the hook wants", escape(&tests))?;
        Ok(())
    }
}
