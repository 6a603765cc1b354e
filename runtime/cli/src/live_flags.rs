//! Flags of the commands that call hooks about live parents.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use metahook_author::controllers::{FindError, of_name};
use metahook_author::diff::{DiffError, Differ, Options};
use metahook_author::documents::{self, DocumentError};
use metahook_author::hook_modules::HookFileError;
use metahook_author::progress::Progress;
use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::policy::HookPolicy;
use metahook_server::cluster::api_client::ConnectError;

use crate::author_flags::{FIELD_MANAGER, HookFileFlags, HookFilesError};
use crate::cluster_flags::ReachFlags;
use crate::values::apply_strategy;

#[derive(Debug, Args)]
pub struct LiveFlags {
    /// A file with a controller, YAML or JSON, or a folder with such a file; `-` is stdin. Other objects are passed over.
    #[arg(short = 'f', long = "file", value_name = "FILE", required_unless_present = "controller", conflicts_with = "controller", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// A controller as the cluster has it; `compositecontroller/NAME` where there is a DecoratorController of that name, too.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub controller: Option<String>,
    /// Parents, when absent all that the controller selects.
    #[arg(value_name = "[NAMESPACE/]PARENT")]
    pub parents: Vec<String>,
    #[command(flatten)]
    pub hooks: HookFileFlags,
    /// Namespace of the parents. When absent, those of all namespaces; for names without one, that of the kubeconfig.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Namespaces whose Secrets the hooks may be shown, as the server's flag has them.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub mount_secret_namespaces: Vec<String>,
    /// Field manager of the server's server-side apply.
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    pub apply_strategy_ssa_field_manager: String,
    /// Namespace of the server.
    #[arg(long, value_name = "NAMESPACE", default_value = "metacontroller")]
    pub server_namespace: String,
    /// The server's --apply-strategy, for controllers that name none.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply", value_parser = apply_strategy)]
    pub apply_strategy: ApplyStrategy,
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error("-f")]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Files(#[from] HookFilesError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Diff(#[from] DiffError),
}

impl From<HookFileError> for LiveError {
    fn from(error: HookFileError) -> Self {
        Self::Files(error.into())
    }
}

impl LiveFlags {
    /// The controller with its hooks and its parents in the cluster.
    pub(super) async fn differ(&self) -> Result<Differ, LiveError> {
        let api = self.reach.reached().await?;
        let documents = match &self.controller {
            Some(name) => vec![of_name(&api, name).await?],
            None => documents::read_all(&self.file)?,
        };
        let files = self.hooks.files(&self.hooks.modules(&documents, &self.file)?).await?;
        let options = Options {
            files,
            apply_strategy: self.apply_strategy,
            field_manager: self.apply_strategy_ssa_field_manager.clone(),
            parents: self.parents.clone(),
            namespace: self.namespace.clone(),
            default_namespace: self.namespace.clone().unwrap_or_else(|| api.default_namespace().to_owned()),
            server_namespace: self.server_namespace.clone(),
            policy: HookPolicy {
                mount_secret_namespaces: self.mount_secret_namespaces.iter().cloned().collect(),
                ..HookPolicy::default()
            },
            is_file: self.controller.is_none(),
        };
        let _step = Progress::of_stderr().step("reading the cluster");
        Ok(Differ::of(api, &documents, options).await?)
    }
}
