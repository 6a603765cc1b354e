//! `metahook explain`.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use metahook_author::explain::follow::{Followed, Follower};
use metahook_author::explain::{ExplainError, Explainer, Unremembered, print, print_following, print_gaps};
use metahook_core::trace::{ReconcileTrace, TracedObject};
use metahook_server::telemetry::{error_chain, escape};

use crate::cluster_flags::{InspectFlags, InspectorError};
use crate::until_signal::{SignalError, until_signal};

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
    #[command(flatten)]
    pub inspect: InspectFlags,
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
    #[error(transparent)]
    Inspector(#[from] InspectorError),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error(transparent)]
    Signal(#[from] SignalError),
    #[error("{0}")]
    Missing(String),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl ExplainFlags {
    pub async fn run(self, mut out: impl Write, say: impl Write) -> Result<(), ExplainCommandError> {
        let inspector = self.inspect.inspector().await?;
        let namespace = self.namespace.unwrap_or_else(|| inspector.api.default_namespace().to_owned());
        let asking = Explainer { inspector, namespace };
        let max = usize::try_from(self.count).unwrap_or(usize::MAX);
        if self.follow {
            let following = follow(asking, [&self.kind, &self.name], (max, self.output), (out, say));
            return until_signal(following).await;
        }
        let (id, mut explained) = asking.explain(&self.kind, &self.name).await?;
        let says_nothing = explained.says_nothing();
        explained.reconciles.truncate(max);
        let value = || serde_json::to_value(&explained).unwrap_or_default();
        match self.output {
            Output::Text if says_nothing => {}
            Output::Text => print(&mut out, &TracedObject::new(&id.resource, &id.key), &explained, max)?,
            Output::Yaml => write!(out, "{}", metahook_author::yaml::print(&value()))?,
            Output::Json => writeln!(out, "{:#}", value())?,
        }
        if !says_nothing {
            return Ok(());
        }
        match asking.unremembered(&id).await {
            Ok(missing @ Unremembered::Missing { .. }) => {
                Err(ExplainCommandError::Missing(escape(&missing.to_string()).into_owned()))
            }
            // Programs read the empty answer.
            _ if self.output != Output::Text => Ok(()),
            why => Ok(writeln!(out, "{}", escape(&why?.to_string()))?),
        }
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
    if output == Output::Text && explained.says_nothing() {
        writeln!(out, "{}", escape(&follower.unremembered().await?.to_string()))?;
    } else if output == Output::Text {
        print_gaps(&mut out, &explained)?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake_cluster;

    /// Takes what is printed before the first poll, and is closed then.
    #[derive(Default)]
    struct Start(Vec<u8>);

    impl Write for Start {
        fn write(&mut self, some: &[u8]) -> io::Result<usize> {
            self.0.write(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[tokio::test]
    async fn one_who_follows_an_object_is_told_too_why_nothing_is_remembered_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = json!({ "version": "1", "reconciles": [] });
        let inspector = fake_cluster::inspector(&dir.path().join("token"), &nothing, "").await;
        let (asking, mut out) = (Explainer { inspector, namespace: "demo".to_owned() }, Start::default());
        let ended = follow(asking, ["pods", "a"], (5, Output::Text), (&mut out, io::sink())).await;
        let said = String::from_utf8(out.0).unwrap();
        assert!(matches!(ended, Err(ExplainCommandError::Print(_))), "{ended:?}");
        assert!(
            said.starts_with("Pod demo/a: it is there, ") && said.contains("so it is no child"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
