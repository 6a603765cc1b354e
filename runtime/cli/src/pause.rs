//! `metahook pause` and `metahook resume`.

use std::io::{self, Write};

use clap::Args;

use crate::cluster_flags::ReachFlags;
use metahook_author::pause::{PauseError, Pauser};
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
        let id = Pauser { api, namespace }.set(&self.kind, &self.name, paused).await?;
        let what =
            if paused { "paused: no hook is called for it, and nothing is written" } else { "resumed" };
        Ok(writeln!(out, "{id} is {what}")?)
    }
}
