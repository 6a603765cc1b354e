//! `metahook pause` and `metahook resume`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use crate::cluster_flags::ReachFlags;
use crate::values::pause as duration;
use metahook_author::pause::{Changed, PauseError, Pauser, Shown};
use metahook_server::cluster::api_client::ConnectError;

#[derive(Debug, Args)]
pub struct PauseFlags {
    /// `controller`, for a whole controller; or the kind of an object that controllers reconcile: its plural, singular or full name, such as `hellos.example.com`.
    pub kind: String,
    /// Name of the object; `NAMESPACE/NAME` for one of another namespace.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    /// Namespace of an object whose name has none; that of the kubeconfig when absent.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How long is waited until a server shows that it knows; 0 does not wait.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
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
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl PauseFlags {
    /// Pauses the object, or resumes it, and says so.
    pub async fn run(&self, paused: bool, mut out: impl Write) -> Result<(), PauseCommandError> {
        let api = self.reach.reached().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| api.client.default_namespace().to_owned());
        let cluster = Pauser { api, namespace, timeout: self.timeout };
        let Changed { id, shown } = cluster.set(&self.kind, &self.name, paused).await?;
        Ok(writeln!(out, "{id} {}", said(paused, shown, self.timeout))?)
    }
}

fn said(paused: bool, shown: Shown, timeout: Duration) -> String {
    let unknown = match shown {
        Shown::Yes | Shown::NotAwaited => String::new(),
        Shown::NotYet => format!(
            ", but no server has answered within {} s: see by `metahook status` whether one runs, and that its controller selects the object",
            timeout.as_secs_f64()
        ),
    };
    match (paused, shown) {
        (true, Shown::Yes) => "is paused: no hook is called for it, and nothing is written".to_owned(),
        (true, _) => format!(
            "is marked as paused{unknown}; once a server sees that, no hook is called for it, and nothing is written"
        ),
        (false, Shown::Yes) => "is resumed".to_owned(),
        (false, _) => {
            format!("is no longer marked as paused{unknown}; it is resumed once a server sees that")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_no_server_has_shown_is_not_said_to_be_one() {
        let said = |paused, shown| said(paused, shown, Duration::from_secs(10));
        assert!(said(true, Shown::Yes).starts_with("is paused: "));
        assert_eq!(said(false, Shown::Yes), "is resumed");
        for shown in [Shown::NotYet, Shown::NotAwaited] {
            assert!(said(true, shown).starts_with("is marked as paused"));
            assert!(said(false, shown).starts_with("is no longer marked as paused"));
        }
        assert!(said(true, Shown::NotYet).contains("no server has answered within 10 s"));
    }
}
