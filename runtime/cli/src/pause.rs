//! `metahook pause` and `metahook resume`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use crate::cluster_flags::ReachFlags;
use crate::values::pause as duration;
use metahook_author::pause::{Changed, PauseError, Pauser, Shown};
use metahook_server::cluster::api_client::ConnectError;

/// End of `--help`.
const EXAMPLES: &str = "Examples:\n  metahook pause controller NAME\n  metahook pause shops NAMESPACE/NAME\n\n`metahook resume` takes the same words.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PauseFlags {
    /// `controller`, for a whole controller; or the kind of an object that controllers reconcile: its plural, singular or full name, such as `hellos.example.com`.
    pub kind: String,
    /// Name of the object; `NAMESPACE/NAME` for one of another namespace.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    /// Namespace of an object whose name has none; that of the kubeconfig when absent.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How long is waited until a server shows that it knows; 0 does not wait. The end of an object's pause is not waited for.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum PauseCommandError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Pause(#[from] PauseError),
    #[error(
        "no server has shown (--timeout {} s) that it knows{}: see by `metahook status` whether one runs, and whether a controller selects the object",
        .timeout.as_secs_f64(),
        .why.as_ref().map_or_else(String::new, |why| format!(", or it cannot be seen ({why})"))
    )]
    NotShown { timeout: Duration, why: Option<String> },
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl PauseFlags {
    /// Pauses the object, or resumes it, and says so.
    pub async fn run(&self, paused: bool, mut out: impl Write) -> Result<(), PauseCommandError> {
        let api = self.reach.reached().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| api.default_namespace().to_owned());
        let cluster = Pauser { api, namespace, timeout: self.timeout };
        let Changed { id, shown } = cluster.set(&self.kind, &self.name, paused).await?;
        writeln!(out, "{id} {}", said(paused, &shown))?;
        match shown {
            Shown::NotYet(why) => Err(PauseCommandError::NotShown { timeout: self.timeout, why }),
            _ => Ok(()),
        }
    }
}

fn said(paused: bool, shown: &Shown) -> String {
    let said = match (paused, shown) {
        (true, Shown::Yes) => "is paused: no hook is called for it, and nothing is written",
        (true, Shown::ButBy(others)) => {
            let others = others.join(", ");
            return format!(
                "is paused; of {others} nothing shows that: it does not select the object, or its server goes on"
            );
        }
        (true, Shown::Unchanged) => "was marked as paused already",
        (true, Shown::NotAwaited) => {
            "is marked as paused: once a server sees that, no hook is called for it, and nothing is written"
        }
        (true, Shown::NotYet(_)) => "is marked as paused, but hooks may still be called for it",
        (false, Shown::Yes) => "is resumed",
        (false, Shown::Unchanged) => "was not marked as paused",
        (false, Shown::NotAwaited) => {
            "is no longer marked as paused: a server that sees that catches up at once"
        }
        (false, Shown::NotYet(_) | Shown::ButBy(_)) => "is no longer marked as paused",
    };
    said.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_no_server_has_shown_is_not_said_to_be_one() {
        assert!(said(true, &Shown::Yes).starts_with("is paused: "));
        assert_eq!(said(false, &Shown::Yes), "is resumed");
        for shown in [Shown::NotYet(None), Shown::NotAwaited] {
            assert!(said(true, &shown).starts_with("is marked as paused"));
            assert!(said(false, &shown).starts_with("is no longer marked as paused"));
        }
        let not_shown =
            |why| PauseCommandError::NotShown { timeout: Duration::from_secs(30), why }.to_string();
        assert!(not_shown(None).starts_with("no server has shown (--timeout 30 s) that it knows: see"));
        assert!(not_shown(Some("no right".to_owned())).contains(", or it cannot be seen (no right): see"));
    }
}
