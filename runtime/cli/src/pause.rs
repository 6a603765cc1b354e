//! `metahook pause` and `metahook resume`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use metahook_author::pause::{PauseError, Pauser};
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::transport::READ_TIMEOUT;

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
    /// Kubeconfig of the API server; else $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one when absent.
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
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
        let reach = (self.kubeconfig.as_deref(), self.context.as_deref());
        let api = ApiClient::connect_to(reach, None, READ_TIMEOUT).await?;
        api.is_reachable().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| api.client.default_namespace().to_owned());
        let id = Pauser { api, namespace }.set(&self.kind, &self.name, paused).await?;
        let what =
            if paused { "paused: no hook is called for it, and nothing is written" } else { "resumed" };
        Ok(writeln!(out, "{id} is {what}")?)
    }
}
