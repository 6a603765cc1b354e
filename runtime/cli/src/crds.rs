//! `metahook crds`: the CustomResourceDefinitions of controllers, printed or applied.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use serde_json::Value;

use metahook_author::progress::Progress;
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::definitions::{Applied, DefinitionError, apply_definition};
use metahook_server::cluster::transport::READ_TIMEOUT;

/// As `kubectl apply -f manifests/crds` has them: server and definitions of one version go together.
const DEFINITIONS: [&str; 3] = [
    include_str!("../../../manifests/crds/compositecontrollers.yaml"),
    include_str!("../../../manifests/crds/controllerrevisions.yaml"),
    include_str!("../../../manifests/crds/decoratorcontrollers.yaml"),
];

#[derive(Debug, Args)]
pub struct Crds {
    /// Write them to the cluster instead of stdout, in place of older ones, and wait until the API server serves them.
    #[arg(long)]
    pub apply: bool,
    /// Kubeconfig of the API server for --apply; else $KUBECONFIG, the Pod's service account, or ~/.kube/config.
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    #[error("cannot print")]
    Print(#[from] io::Error),
    #[error("a definition of this program is no YAML: {0}")]
    Parse(String),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

impl Crds {
    /// Definitions go to `out`, remarks about them to `say`.
    pub async fn run(&self, mut out: impl Write, mut say: impl Write) -> Result<(), CrdsError> {
        if !self.apply {
            return Ok(out.write_all(DEFINITIONS.join("---\n").as_bytes())?);
        }
        let api = ApiClient::connect(self.kubeconfig.as_deref(), None, READ_TIMEOUT).await?;
        let _step = Progress::of_stderr().step("waiting for the API server");
        api.wait_until_reachable().await?;
        for (name, definition) in definitions()? {
            let applied = match apply_definition(&api, &name, &definition).await? {
                Applied::Created => "created",
                Applied::Replaced => "replaced",
            };
            writeln!(say, "{applied} CustomResourceDefinition {name}")?;
        }
        Ok(())
    }
}

/// By name.
pub(super) fn definitions() -> Result<Vec<(String, Value)>, CrdsError> {
    let parse = |text: &&str| {
        let definition: Value =
            serde_saphyr::from_str(text).map_err(|error| CrdsError::Parse(error.to_string()))?;
        let name =
            definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok((name, definition))
    };
    DEFINITIONS.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_printed_is_what_is_applied() {
        let crds = Crds { apply: false, kubeconfig: None };
        let (mut out, mut say) = (Vec::new(), Vec::new());
        crds.run(&mut out, &mut say).await.unwrap();
        let printed: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(out).unwrap()).unwrap();
        let applied = definitions().unwrap();
        let names: Vec<&str> = applied.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "compositecontrollers.metacontroller.k8s.io",
                "controllerrevisions.metacontroller.k8s.io",
                "decoratorcontrollers.metacontroller.k8s.io",
            ]
        );
        assert_eq!(printed, applied.into_iter().map(|(_, definition)| definition).collect::<Vec<_>>());
        assert!(say.is_empty());
    }

    /// The API server knows the difference of a number and a text.
    #[test]
    fn numbers_and_texts_of_a_definition_stay_what_they_are() {
        let (_, definition) = definitions().unwrap().remove(0);
        let version = &definition["spec"]["versions"][0];
        assert_eq!(version["served"], true);
        assert_eq!(version["schema"]["openAPIV3Schema"]["properties"]["apiVersion"]["type"], "string");
        assert_eq!(version["additionalPrinterColumns"][0]["priority"], 0);
    }
}
