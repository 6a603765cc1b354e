//! `metahook apply` and `metahook delete`: an author's files and modules to a cluster in one go, and away again.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::bundle::{Bundle, ModulePlace};

use super::author_flags::RunnerFlags;
use super::cluster_flags::ReachFlags;
use super::values::pause;
use metahook_author::deploy::modules::{ModuleFlag, ModulesError, assign};
use metahook_author::deploy::{DeployError, Deployment};
use metahook_author::documents::{self, Document, DocumentError};
use metahook_author::hook_modules::{FoundFiles, HookFile};
use metahook_author::progress::Progress;
use metahook_author::sandbox::{LoadError, Sandbox};
use metahook_server::cluster::api_client::ConnectError;
use metahook_server::hook::wasm::compile::ModuleError;

#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    pub bundle: BundleFlags,
    /// The file of a module or script: of the ConfigMap of this name that a controller names, `hook=PATH` or `namespace/hook=PATH`; a path alone where there is one such ConfigMap. Several times for several; when absent the only module that Cargo built beside the files, or the file beside them that has the name of the key.
    #[arg(long, value_name = "NAME=PATH", value_parser = ModuleFlag::parse)]
    pub module: Vec<ModuleFlag>,
    #[command(flatten)]
    pub runners: RunnerFlags,
}

#[derive(Debug, Args)]
pub struct Delete {
    #[command(flatten)]
    pub bundle: BundleFlags,
    /// Delete the CustomResourceDefinitions of the files, too, and so all objects of their kinds.
    #[arg(long)]
    pub crds: bool,
}

#[derive(Debug, Args)]
pub struct BundleFlags {
    /// A file with objects, YAML or JSON, or a folder with such files; `-` is stdin. Several times for several.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true, value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// Namespace of objects that name none; that of the kubeconfig when absent.
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How long is waited for controllers to be ready, and for what is deleted to be gone; 0 does not wait.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = pause)]
    pub timeout: Duration,
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("-f")]
    Document(#[from] DocumentError),
    #[error("-f: the files hold no objects")]
    Empty,
    #[error(transparent)]
    Modules(#[from] ModulesError),
    #[error("{} is not applied", path.display())]
    Script { path: PathBuf, source: ModuleError },
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Deploy(#[from] DeployError),
}

impl ApplyError {
    /// 1: the cluster. 2: the files or the flags.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Connect(_) => 1,
            Self::Deploy(error) if !error.is_input() => 1,
            _ => 2,
        }
    }
}

impl Apply {
    /// Deploys the bundle, and writes each step to `say`, one line each.
    pub async fn run(&self, mut say: impl Write) -> Result<(), ApplyError> {
        let documents = self.bundle.read()?;
        let found = FoundFiles::beside(&self.bundle.file, &documents);
        let bundle = bundle(documents)?;
        let deployment = self.bundle.deployment().await?;
        let needed = bundle.modules(&deployment.namespace);
        let places: Vec<_> = needed.keys().collect();
        let files = assign(&places, &self.module, &found)?;
        self.parse_scripts(&files).await?;
        self.bundle.is_reachable(&deployment).await?;
        Ok(deployment.apply(&bundle, &files, &mut say).await?)
    }

    /// Scripts that no server would take are refused before anything is written, where their interpreters are on this machine.
    async fn parse_scripts(&self, files: &BTreeMap<ModulePlace, PathBuf>) -> Result<(), ApplyError> {
        let mut scripts = files.iter().filter(|(place, _)| place.language.is_some()).peekable();
        if scripts.peek().is_none() {
            return Ok(());
        }
        let Ok(sandbox) = Sandbox::new(self.runners.module_settings()) else { return Ok(()) };
        for (place, path) in scripts {
            let _step = Progress::of_stderr().step(format!("compiling {}", path.display()));
            let file = HookFile { path: path.clone(), language: place.language };
            // The file is read once more. Errors of this machine are no reason to stop, and packing names the bound of a ConfigMap.
            if let Err(LoadError::Module { path, source }) = sandbox.load(&file).await
                && !source.may_heal()
                && !matches!(source, ModuleError::ScriptSize { .. })
            {
                return Err(ApplyError::Script { path, source });
            }
        }
        Ok(())
    }
}

impl Delete {
    /// Deletes the bundle, and writes each step to `say`, one line each.
    pub async fn run(&self, mut say: impl Write) -> Result<(), ApplyError> {
        let bundle = bundle(self.bundle.read()?)?;
        let deployment = self.bundle.deployment().await?;
        self.bundle.is_reachable(&deployment).await?;
        Ok(deployment.delete(&bundle, self.crds, &mut say).await?)
    }
}

fn bundle(documents: Vec<Document>) -> Result<Bundle, DeployError> {
    let placed = documents.into_iter().map(|document| (document.place.to_string(), document.value));
    Bundle::of(placed).map_err(|(place, error)| DeployError::Bundle(place, error))
}

impl BundleFlags {
    fn read(&self) -> Result<Vec<Document>, ApplyError> {
        let all = documents::read_all(&self.file)?;
        if all.is_empty() { Err(ApplyError::Empty) } else { Ok(all) }
    }

    async fn deployment(&self) -> Result<Deployment, ApplyError> {
        let api = self.reach.connect().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| api.default_namespace().to_owned());
        Ok(Deployment { api, namespace, timeout: self.timeout, progress: Progress::of_stderr() })
    }

    async fn is_reachable(&self, deployment: &Deployment) -> Result<(), ApplyError> {
        let _step = deployment.progress.step("waiting for the API server");
        Ok(deployment.api.is_reachable().await?)
    }
}
