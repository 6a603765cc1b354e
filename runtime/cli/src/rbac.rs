//! `metahook rbac`: manifests or names of controllers to the roles that they need, printed.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use metahook_author::controllers::{self, FindError};
use metahook_author::documents::Document;
use metahook_author::yaml;
use metahook_core::api::SpecError;
use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::rbac::{RequiredRights, SERVER};
use metahook_server::cluster::api_client::ConnectError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster_flags::ReachFlags;
use crate::values::apply_strategy;

/// End of `--help`.
const EXAMPLES: &str = "Examples:
  metahook rbac controller.yaml | kubectl apply -f -      the rights of the controllers of a file
  metahook rbac --controller hello | kubectl apply -f -   those of a controller of the cluster";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Rbac {
    /// Manifests of controllers, YAML or JSON; `-` is stdin. Other objects are ignored.
    #[arg(value_name = "FILE", conflicts_with_all = ["controller", "kubeconfig", "context"], value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Option<PathBuf>,
    /// A controller as the cluster has it; `compositecontroller/NAME` where there is a DecoratorController of that name, too.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub controller: Option<String>,
    /// Namespace of the ServiceAccount that the server runs as.
    #[arg(long, value_name = "NAMESPACE", default_value = SERVER)]
    pub server_namespace: String,
    /// Name of the ServiceAccount that the server runs as.
    #[arg(long, value_name = "NAME", default_value = SERVER)]
    pub server_account: String,
    /// The server's --apply-strategy, for controllers that name none.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply", value_parser = apply_strategy)]
    pub apply_strategy: ApplyStrategy,
    /// Format of the roles: one List in either.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Yaml)]
    pub output: Output,
    #[command(flatten)]
    pub reach: ReachFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Yaml,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum RbacError {
    #[error(
        "whose rights? Give FILE, the manifests of controllers, or --controller NAME, one that the cluster has"
    )]
    Neither,
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is neither YAML nor JSON: {why}", path.display())]
    Parse { path: PathBuf, why: String },
    #[error("{} holds no CompositeController and no DecoratorController", path.display())]
    NoController { path: PathBuf },
    #[error("{kind} {name}")]
    Spec { kind: String, name: String, source: serde_json::Error },
    #[error("no cluster")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Account(#[from] SpecError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

#[derive(Deserialize)]
struct Head {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

impl Rbac {
    /// Roles go to `out`, remarks about them to `say`.
    pub async fn run(&self, mut out: impl Write, mut say: impl Write) -> Result<(), RbacError> {
        let server =
            ServiceAccountRef { namespace: self.server_namespace.clone(), name: self.server_account.clone() };
        server.check("--server-account")?;
        let apply = self.apply_strategy;
        let mut roles = Vec::new();
        for Head { kind, metadata: Metadata { name }, spec } in self.controllers().await? {
            let needs =
                match kind.as_str() {
                    "CompositeController" => serde_json::from_value(spec)
                        .map(|spec| RequiredRights::of_composite(&name, &spec, apply)),
                    _ => serde_json::from_value(spec)
                        .map(|spec| RequiredRights::of_decorator(&name, &spec, apply)),
                };
            let needs =
                needs.map_err(|source| RbacError::Spec { kind: kind.clone(), name: name.clone(), source })?;
            if needs.customizes {
                writeln!(
                    say,
                    "{kind} {name}: only its customize hook knows which related objects there are: add get, list and watch of them to the role {}",
                    needs.related()
                )?;
            }
            roles.extend(needs.roles(&server));
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": roles });
        match self.output {
            Output::Yaml => out.write_all(yaml::print(&list).as_bytes())?,
            Output::Json => writeln!(out, "{list:#}")?,
        }
        Ok(())
    }

    async fn controllers(&self) -> Result<Vec<Head>, RbacError> {
        if let Some(name) = &self.controller {
            let api = self.reach.reached().await?;
            return Ok(vec![of_cluster(name, &controllers::of_name(&api, name).await?)?]);
        }
        of_file(self.file.as_deref().ok_or(RbacError::Neither)?)
    }
}

/// The controller as the cluster has it.
fn of_cluster(name: &str, document: &Document) -> Result<Head, RbacError> {
    let kind = document.value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    Head::deserialize(&document.value).map_err(|source| RbacError::Spec {
        kind,
        name: name.to_owned(),
        source,
    })
}

fn of_file(path: &Path) -> Result<Vec<Head>, RbacError> {
    let parse = |why: String| RbacError::Parse { path: path.to_owned(), why };
    let text = read(path).map_err(|source| RbacError::Read { path: path.to_owned(), source })?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|error| parse(error.to_string()))?;
    let items = documents.into_iter().flat_map(|document| match document.get("items") {
        Some(Value::Array(items)) => items.clone(),
        _ => vec![document],
    });
    let ours = |item: &Value| {
        let text = |field| item.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        text("apiVersion").starts_with("metacontroller.k8s.io/")
            && matches!(text("kind").as_str(), "CompositeController" | "DecoratorController")
    };
    let found: Vec<_> = items.filter(ours).map(serde_json::from_value).collect();
    if found.is_empty() {
        return Err(RbacError::NoController { path: path.to_owned() });
    }
    found.into_iter().map(|one| one.map_err(|error: serde_json::Error| parse(error.to_string()))).collect()
}

fn read(path: &Path) -> io::Result<String> {
    if path.as_os_str() != "-" {
        return std::fs::read_to_string(path);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rbac(file: PathBuf, output: Output) -> Rbac {
        Rbac {
            file: Some(file),
            controller: None,
            reach: ReachFlags::default(),
            server_namespace: "s".to_owned(),
            server_account: "server".to_owned(),
            apply_strategy: ApplyStrategy::default(),
            output,
        }
    }

    fn run_to_end(rbac: &Rbac, out: impl Write, say: impl Write) -> Result<(), RbacError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(rbac.run(out, say))
    }

    #[test]
    fn neither_a_file_nor_a_controller_is_an_error_that_names_both() {
        let neither = Rbac { file: None, ..rbac(PathBuf::new(), Output::Yaml) };
        let said = run_to_end(&neither, Vec::new(), Vec::new()).unwrap_err().to_string();
        assert!(said.contains("Give FILE") && said.contains("--controller NAME"), "{said}");
    }

    fn run(manifest: &str) -> (Result<Value, String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controller.yaml");
        std::fs::write(&file, manifest).unwrap();
        let printed = |output| {
            let (mut out, mut say) = (Vec::new(), Vec::new());
            let ran = run_to_end(&rbac(file.clone(), output), &mut out, &mut say);
            let ran = ran.map_err(|error| metahook_server::telemetry::error_chain(&error));
            (ran.map(|()| String::from_utf8(out).unwrap()), String::from_utf8(say).unwrap())
        };
        let ((yaml, said), (json, _)) = (printed(Output::Yaml), printed(Output::Json));
        let json: Result<Value, _> = json.map(|json| serde_json::from_str(&json).unwrap());
        let yaml = yaml.map(|yaml| {
            assert!(yaml.starts_with("apiVersion: v1\n"), "{yaml}");
            serde_saphyr::from_str(&yaml).unwrap()
        });
        assert_eq!(yaml, json, "both formats say the same");
        (json, said)
    }

    #[test]
    fn controllers_are_picked_from_what_a_file_holds() {
        let (roles, said) = run(r"
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: c}
spec:
  parentResource: {apiVersion: e/v1, resource: things}
  hooks:
    customize: {webhook: {url: http://x}}
---
apiVersion: v1
kind: List
items:
- apiVersion: metacontroller.k8s.io/v1alpha1
  kind: DecoratorController
  metadata: {name: d}
  spec:
    resources: [{apiVersion: v1, resource: pods}]
");
        let roles = roles.unwrap();
        let names: Vec<_> = roles["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|role| role["metadata"]["name"].as_str().unwrap())
            .collect();
        for name in ["metahook-composite-c-writes", "metahook-decorator-d-reads"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(said.contains("CompositeController c: only its customize hook knows"), "{said}");
    }

    #[test]
    fn what_is_no_controller_says_so() {
        for (manifest, says) in [
            ("kind: ConfigMap", "holds no CompositeController"),
            ("a: [", "is neither YAML nor JSON"),
            (
                "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: c}, spec: {}}",
                "CompositeController c: missing field `parentResource`",
            ),
        ] {
            let error = run(manifest).0.unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let absent = rbac("/nowhere".into(), Output::Yaml);
        assert!(
            run_to_end(&absent, Vec::new(), Vec::new())
                .unwrap_err()
                .to_string()
                .contains("/nowhere cannot be read")
        );
    }
}
