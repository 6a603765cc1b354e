//! `metahook explain`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use metahook_author::explain::{ExplainError, Explainer, print};
use metahook_core::trace::TracedObject;
use metahook_server::cluster::api_client::ConnectError;

use crate::cluster_flags::ReachFlags;

/// End of `--help`.
const EXAMPLES: &str = "Examples:\n  metahook explain hello demo/your-name\n  metahook explain pod demo/your-name     why it was made, changed or deleted, also after it is gone";

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
    /// What the server answers.
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
    #[error("cannot print")]
    Print(#[from] io::Error),
}

impl ExplainFlags {
    pub async fn run(self, mut out: impl Write) -> Result<(), ExplainCommandError> {
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
        let (id, mut explained) = asking.explain(&self.kind, &self.name).await?;
        let max = usize::try_from(self.count).unwrap_or(usize::MAX);
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
