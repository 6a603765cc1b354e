//! `metahook explain`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use metahook_author::explain::follow::{Followed, Follower};
use metahook_author::explain::{ExplainError, Explainer, print, print_following, print_gaps};
use metahook_core::trace::{ReconcileTrace, TracedObject};
use metahook_server::cluster::api_client::ConnectError;
use metahook_server::telemetry::{error_chain, escape};
use tokio::signal::unix::{SignalKind, signal};

use crate::cluster_flags::ReachFlags;

/// End of `--help`.
const EXAMPLES: &str = "Examples:\n  metahook explain hello demo/your-name\n  metahook explain pod demo/your-name     why it was made, changed or deleted, also after it is gone\n  metahook explain -f hello demo/your-name  each reconcile as it comes";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainFlags {
    /// Kind of an object that controllers reconcile or make: its plural, singular or full name, such as `hellos.example.com`.
    pub kind: String,
    /// Name of the object; `NAMESPACE/NAME` for one of another namespace.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    /// Namespace of an object whose name has none; that of the kubeconfig when absent.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Reconciles that are printed, the latest ones.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Print each new reconcile as it comes, after the latest ones, until Ctrl-C: the oldest first.
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Format of what is printed.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Address of the server's --inspection-address; when absent a port of its Pod is forwarded, by kubectl.
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    /// Namespace of the server.
    #[arg(long, value_name = "NAMESPACE", default_value = "metacontroller")]
    pub server_namespace: String,
    /// File with the token of a user who may get the object. When absent that of the kubeconfig, else one that is made for the server's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// What the server answers; with --follow one reconcile a line.
    Json,
    Yaml,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainCommandError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error("--token-file: {0} cannot be read")]
    TokenFile(String, #[source] io::Error),
    #[error("no signals can be waited for")]
    Signal(#[source] io::Error),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl ExplainFlags {
    pub async fn run(self, mut out: impl Write, say: impl Write) -> Result<(), ExplainCommandError> {
        let api = self.reach.reached().await?;
        let read = |file: PathBuf| {
            let token = std::fs::read_to_string(&file);
            token.map_err(|error| ExplainCommandError::TokenFile(file.display().to_string(), error))
        };
        let token = self.token_file.map(read).transpose()?.map(|token| token.trim().to_owned());
        let namespace = self.namespace.unwrap_or_else(|| api.default_namespace().to_owned());
        let asking = Explainer {
            api,
            kubeconfig: self.reach.kubeconfig,
            context: self.reach.context,
            namespace,
            address: self.server,
            server_namespace: self.server_namespace,
            token,
        };
        let max = usize::try_from(self.count).unwrap_or(usize::MAX);
        if self.follow {
            let following = follow(asking, [&self.kind, &self.name], (max, self.output), (out, say));
            return until_signal(following).await;
        }
        let (id, mut explained) = asking.explain(&self.kind, &self.name).await?;
        if self.output == Output::Text {
            return Ok(print(out, &TracedObject::new(&id.resource, &id.key), &explained, max)?);
        }
        explained.reconciles.truncate(max);
        let value = serde_json::to_value(&explained).unwrap_or_default();
        match self.output {
            Output::Yaml => write!(out, "{}", metahook_author::yaml::print(&value))?,
            Output::Text | Output::Json => writeln!(out, "{value:#}")?,
        }
        Ok(())
    }
}

/// Runs until Ctrl-C, which is no failure: what was started for it, as a `kubectl` that forwards a port, ends too.
async fn until_signal(
    following: impl Future<Output = Result<(), ExplainCommandError>>,
) -> Result<(), ExplainCommandError> {
    let (term, int) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (mut term, mut int) =
        (term.map_err(ExplainCommandError::Signal)?, int.map_err(ExplainCommandError::Signal)?);
    tokio::select! {
        ended = following => ended,
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
    }
}

/// Prints the latest reconciles, and each new one as it comes.
async fn follow(
    asking: Explainer,
    [kind, name]: [&str; 2],
    (max, output): (usize, Output),
    (mut out, mut say): (impl Write, impl Write),
) -> Result<(), ExplainCommandError> {
    let (mut follower, mut explained) = Follower::start(asking, kind, name).await?;
    if output == Output::Text {
        print_gaps(&mut out, follower.object(), &explained)?;
    }
    explained.reconciles.truncate(max);
    let mut reconciles = explained.reconciles;
    reconciles.reverse();
    loop {
        match output {
            Output::Text => print_following(&mut out, follower.object(), &reconciles)?,
            Output::Json | Output::Yaml => print_values(&mut out, output, &reconciles)?,
        }
        out.flush()?;
        let Followed { reconciles: new, failed } = follower.poll().await?;
        reconciles = new;
        if let Some(error) = failed {
            // A closed stderr ends nothing.
            drop(writeln!(say, "metahook: {}; the command goes on asking", escape(&error_chain(&error))));
        }
    }
}

/// One JSON object a line, or one YAML document each.
fn print_values(
    out: &mut impl Write,
    output: Output,
    reconciles: &[ReconcileTrace],
) -> Result<(), io::Error> {
    for trace in reconciles {
        let value = serde_json::to_value(trace).unwrap_or_default();
        match output {
            Output::Yaml => write!(out, "---\n{}", metahook_author::yaml::print(&value))?,
            Output::Text | Output::Json => writeln!(out, "{value}")?,
        }
    }
    Ok(())
}
