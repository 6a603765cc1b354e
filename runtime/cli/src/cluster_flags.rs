//! Flags of commands that speak to a cluster, or may ask one.

use std::io;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use metahook_author::documents::{self, Document};
use metahook_author::inspected_server::Inspector;
use metahook_author::progress::Progress;
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::dry_run::DefinitionsError;
use metahook_server::cluster::transport::READ_TIMEOUT;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster for definitions of kinds; the command changes nothing in it")]
pub struct ClusterFlags {
    /// Ask the cluster of this kubeconfig; else, where --context is given, of $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE", requires = "file", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
    /// Ask the cluster of this context of the kubeconfig; its current one when absent.
    #[arg(long, value_name = "CONTEXT", requires = "file")]
    pub context: Option<String>,
}

/// The cluster that a command works on.
#[derive(Debug, Clone, Default, Args)]
pub struct ReachFlags {
    /// Kubeconfig of the API server; else $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; its current one when absent.
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
}

impl ReachFlags {
    /// A client of the cluster. Nothing has been asked of it yet.
    pub(super) async fn connect(&self) -> Result<ApiClient, ConnectError> {
        let reach = (self.kubeconfig.as_deref(), self.context.as_deref());
        ApiClient::connect_to(reach, None, READ_TIMEOUT).await
    }

    /// A client of the cluster, whose API server answers.
    pub(super) async fn reached(&self) -> Result<ApiClient, ConnectError> {
        let api = self.connect().await?;
        api.is_reachable().await?;
        Ok(api)
    }
}

/// The server that a command looks into.
#[derive(Debug, Args)]
pub struct InspectFlags {
    /// Address of the server's --inspection-address; when absent a port of its Pod is forwarded, by kubectl.
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    /// Namespace of the server.
    #[arg(long, value_name = "NAMESPACE", default_value = "metacontroller")]
    pub server_namespace: String,
    /// File with the token of a user who may get the object or the controller. When absent, the command uses the token of the kubeconfig, or else makes one for the server's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub reach: ReachFlags,
}

/// Flags of [`InspectFlags`] for a command that reads the cluster alone: the same command line serves it and its siblings.
#[derive(Debug, Clone, Default, Args)]
pub struct UnaskedServerFlags {
    /// Has no effect here; accepted because `metahook status` has it.
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    /// Has no effect here; accepted because `metahook status` has it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum InspectorError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error("--token-file: {0} cannot be read")]
    TokenFile(String, #[source] io::Error),
}

impl InspectFlags {
    pub(super) async fn inspector(self) -> Result<Inspector, InspectorError> {
        let api = self.reach.reached().await?;
        if let Some(file) = &self.token_file {
            std::fs::read_to_string(file)
                .map_err(|error| InspectorError::TokenFile(file.display().to_string(), error))?;
        }
        Ok(Inspector {
            api,
            kubeconfig: self.reach.kubeconfig,
            context: self.reach.context,
            kubectl: PathBuf::from("kubectl"),
            address: self.server,
            server_namespace: self.server_namespace,
            token_file: self.token_file,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Definitions(#[from] DefinitionsError),
}

/// A cluster that is asked.
pub(super) struct Cluster {
    pub(super) api: ApiClient,
    /// Its CustomResourceDefinitions.
    pub(super) definitions: Vec<Document>,
}

impl ClusterFlags {
    /// `None`: no cluster is asked.
    pub(super) async fn cluster(&self) -> Result<Option<Cluster>, ClusterError> {
        if self.kubeconfig.is_none() && self.context.is_none() {
            return Ok(None);
        }
        let _step = Progress::of_stderr().step("asking the cluster for its kinds");
        let reach = (self.kubeconfig.as_deref(), self.context.as_deref());
        let api = ApiClient::connect_to(reach, None, READ_TIMEOUT).await?;
        let definitions = documents::of_cluster(api.definitions().await?);
        Ok(Some(Cluster { api, definitions }))
    }
}
