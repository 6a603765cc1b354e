//! `metahook record`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_author::progress::Progress;
use metahook_author::record::reconciles::{Recorder, RecorderError};
use metahook_author::record::{RecordError, Recording};
use metahook_core::counted;
use metahook_server::telemetry::escape;

use crate::cluster_flags::{InspectFlags, InspectorError};
use crate::live_flags::{LiveError, LiveFlags};
use crate::until_signal::{SignalError, until_signal};

/// End of `--help`.
const EXAMPLES: &str = "Example:
  metahook record hello demo/your-name -o recorded
  metahook test recorded/tests --bless                  writes what the hook wants now
  metahook test recorded/tests --module new.wasm        compares what another one wants
  metahook record hello --reconciles 20 -o hello.recording
  metahook replay hello.recording --module new.wasm     compares what another one answers";

/// Help of the arguments.
const ARGUMENTS: &str = "The controller, unless --controller or -f names it; then parents, [NAMESPACE/]PARENT, when absent all that the controller selects";

#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("file", |file| file.required_unless_present("parents")),
    mut_arg("parents", |parents| parents
        .value_name("CONTROLLER|PARENT")
        .required_unless_present_any(["file", "controller"])
        .help(ARGUMENTS)),
)]
pub struct Record {
    #[command(flatten)]
    pub live: LiveFlags,
    /// Folder of the controller. The cases are written into `tests` below it; beside that the controller, its definitions and its hooks, where the folder has none. With --reconciles a new file.
    #[arg(short = 'o', long, value_name = "FOLDER|FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub output: PathBuf,
    /// Write the values of Secrets, which are replaced otherwise.
    #[arg(long)]
    pub with_secrets: bool,
    /// Record this many of the reconciles that the server does from now on, with the calls of their hooks, for `metahook replay`; of one parent, where one is named, else of all parents of the controller in all namespaces. Ctrl-C ends the recording earlier.
    #[arg(long, visible_alias = "count", value_name = "N", conflicts_with_all = ["file", "module", "mount", "runners", "mount_secret_namespaces"], value_parser = clap::value_parser!(u32).range(1..))]
    pub reconciles: Option<u32>,
    /// With --reconciles: address of the server's --inspection-address; when absent a port of its Pod is forwarded, by kubectl.
    #[arg(long, value_name = "ADDRESS", requires = "reconciles")]
    pub server: Option<String>,
    /// With --reconciles: file with the token of a user who may update the controller. When absent, the command uses the token of the kubeconfig, or else makes one for the server's ServiceAccount.
    #[arg(long, value_name = "FILE", requires = "reconciles")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordCommandError {
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Inspector(#[from] InspectorError),
    #[error(transparent)]
    Recorder(#[from] RecorderError),
    #[error("--reconciles records one parent, or all of the controller: name one or none")]
    SeveralParents,
    #[error("-o {}: it is there already: name a new file", path.display())]
    Exists { path: PathBuf },
    #[error("-o {}: it cannot be made", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Signal(#[from] SignalError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl Record {
    /// Writes a case for each parent, and names the files.
    ///
    /// # Errors
    /// A hook is not called, or a file cannot be written.
    pub async fn run(mut self, mut out: impl Write, mut say: impl Write) -> Result<(), RecordCommandError> {
        if self.live.file.is_empty() && self.live.controller.is_none() && !self.live.parents.is_empty() {
            self.live.controller = Some(self.live.parents.remove(0));
        }
        if let Some(max) = self.reconciles {
            return self.reconciles(max, out, say).await;
        }
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

    /// Records what the server does, into a file.
    async fn reconciles(
        &self,
        max: u32,
        mut out: impl Write,
        mut say: impl Write,
    ) -> Result<(), RecordCommandError> {
        let LiveFlags { controller, parents, namespace, server_namespace, reach, .. } = &self.live;
        let inspect = InspectFlags {
            server: self.server.clone(),
            server_namespace: server_namespace.clone(),
            token_file: self.token_file.clone(),
            reach: reach.clone(),
        };
        let inspector = inspect.inspector().await?;
        let namespace = namespace.clone().unwrap_or_else(|| inspector.api.default_namespace().to_owned());
        let parent = match &**parents {
            [] => None,
            [one] => Some((&**one, &*namespace)),
            _ => return Err(RecordCommandError::SeveralParents),
        };
        let name = controller.as_deref().unwrap_or_default();
        let mut recorder = Recorder::of(inspector, name, parent, self.with_secrets).await?;
        let path = &self.output;
        if path.exists() {
            return Err(RecordCommandError::Exists { path: path.clone() });
        }
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        // Where the server does not let this user record, no file is left.
        let mut first = Vec::new();
        let mut remarks = recorder.begin(&mut first).await?;
        recorder.fetch(max, &mut first).await?;
        let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = open.map_err(|source| RecordCommandError::File { path: path.clone(), source })?;
        file.write_all(&first)?;
        let step = Progress::of_stderr().step(format!("recording {max} reconciles; Ctrl-C ends it earlier"));
        let fetching = async {
            while recorder.fetch(max, &mut file).await? < max {}
            Ok::<_, RecordCommandError>(())
        };
        let fetched = until_signal(fetching).await;
        drop(step);
        // What is there can be replayed, whatever ended it.
        let (ending, last) = recorder.end(&mut file).await?;
        remarks.extend(last);
        for remark in remarks {
            writeln!(say, "{}", escape(&remark))?;
        }
        let (calls, reconciles) =
            (counted(ending.calls, "call", "calls"), counted(ending.reconciles, "reconcile", "reconciles"));
        writeln!(out, "wrote {}: {reconciles}, {calls} of hooks", escape(&path.display().to_string()))?;
        fetched
    }
}
