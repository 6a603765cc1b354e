//! What is tried, and with what: the controller of a file or of the cluster, its hooks, and its parents in the cluster.

use std::path::Path;
use std::sync::Arc;

use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::hook::{HookName, HookTarget};
use metahook_core::api::{CheckedSpec, ControllerKind};
use metahook_core::children::desired::{Applying, ChildKind};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, ObjectId, Resource};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::kinds::Kinds;
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::DiscoveryError;
use metahook_server::cluster::objects::RequestError;
use metahook_server::cluster::trial::Trial;
use serde_json::{Value, json};

use super::live::Live;
use super::{Differ, LiveParent};
use crate::controllers::{FindError, find, status};
use crate::documents::{Document, of_cluster};
use crate::object_names::{NameError, object_id};
use crate::render::hooks::{HookFiles, HookSet, HookSetError};
use crate::render::setup::{Controller, SetupError, controller};
use crate::sandbox::LoadError;
use crate::stored_hooks::{StoredHookError, mounted, stored_bytes};

/// Settings of a comparison.
pub struct Options {
    /// The hooks that files are named for; all others are what the cluster stores.
    pub files: HookFiles,
    pub apply_strategy: ApplyStrategy,
    pub field_manager: String,
    /// The only parents that are looked at; all where none is named.
    pub parents: Vec<String>,
    /// The only namespace whose parents are looked at.
    pub namespace: Option<String>,
    /// Namespace of parents whose names have none, and of revisions of parents without a namespace.
    pub default_namespace: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("spec")]
    Kind(#[from] DiscoveryError),
    #[error(transparent)]
    Stored(#[from] StoredHookError),
    #[error("the hook that the cluster stores in the ConfigMap {map}")]
    Load { map: String, source: LoadError },
    #[error(transparent)]
    Hooks(#[from] HookSetError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{0}: the cluster has no such object among those that the controller reconciles, {1}")]
    NoParent(String, String),
    #[error("{0}: the controller does not select this object")]
    NotSelected(ObjectId),
}

/// The controller of this name as a document.
///
/// # Errors
/// There is none, or there are two.
pub async fn of_name(api: &ApiClient, name: &str) -> Result<Document, DiffError> {
    let (id, mut value) = find(api, name).await?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(id.resource.gvk.api_version()));
        fields.insert("kind".to_owned(), json!(&*id.resource.gvk.kind));
    }
    let mut documents = of_cluster(vec![value]);
    documents.pop().ok_or_else(|| FindError::NotFound(name.to_owned()).into())
}

impl Differ {
    /// The only controller among the documents, with the hooks that the files and the cluster have for it.
    ///
    /// # Errors
    /// A server would refuse the controller or a hook, or the cluster lacks what they need.
    pub async fn of(api: ApiClient, documents: &[Document], options: Options) -> Result<Self, DiffError> {
        let mut live = Live::new(Trial::new(api));
        let (kind, document) = controller(documents)?;
        let (document, before) = with_live(&live, kind, document.clone()).await?;
        let documents = [document];
        let checked = Controller::of(&documents)?;
        let files = complete(&live, &documents, &checked.spec, options.files).await?;
        let name = checked.object.key.name.to_string();
        let hooks = HookSet::new(&name, &checked.spec.common().hooks, files)?;
        let applying = Applying { strategy: options.apply_strategy, manager: options.field_manager.into() };
        let kinds = kinds(&live, &checked.spec, &applying).await?;
        let configs: Vec<_> = checked
            .configs(&kinds, &options.default_namespace)
            .into_iter()
            .map(|(resource, config)| (resource, Arc::new(config)))
            .collect();
        let parents = if options.parents.is_empty() {
            all_parents(&live, &configs, options.namespace.as_deref()).await?
        } else {
            named_parents(&live, &configs, &options.parents, &options.default_namespace).await?
        };
        live.namespace = only_namespace(&parents);
        let children = kinds.rules.iter().map(|rule| Arc::clone(&rule.resource)).chain(kinds.revisions);
        live.list_children(&children.collect::<Vec<_>>()).await?;
        Ok(Self { controller: name, hooks, live, parents, before })
    }
}

/// The controller with what the cluster knows of it, and the instructions that its sync hook took there.
async fn with_live(
    live: &Live,
    kind: ControllerKind,
    mut document: Document,
) -> Result<(Document, Option<u64>), DiffError> {
    let name = document.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let found = find(live.trial.api(), &format!("{}/{name}", kind.as_str())).await;
    let there = match found {
        Ok((_, there)) => there,
        Err(FindError::NotFound(_)) => return Ok((document, None)),
        Err(error) => return Err(error.into()),
    };
    let sync = status(&there).hooks.remove("sync");
    let metadata = document.value.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(metadata), Some(known)) = (metadata, there.get("metadata")) {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
            if let Some(value) = known.get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
    }
    let instructions = sync.and_then(|sync| u64::try_from(sync.instructions_p50?).ok());
    Ok((document, instructions))
}

/// The files, and for all that no file is named for what the cluster stores.
async fn complete(
    live: &Live,
    documents: &[Document],
    spec: &CheckedSpec,
    mut files: HookFiles,
) -> Result<HookFiles, DiffError> {
    let api = live.trial.api();
    for place in files.modules.unknown(documents) {
        let stored = stored_bytes(api, &place).await?;
        let map = || format!("{}/{}", place.namespace, place.name);
        let loaded = files.sandbox.load_stored(Path::new(&place.key), place.language, stored).await;
        let module = loaded.map_err(|source| DiffError::Load { map: map(), source })?;
        files.modules.add(place, module);
    }
    let hooks = &spec.common().hooks;
    let all = [HookName::Sync, HookName::Finalize, HookName::Customize].map(|name| hooks.get(name));
    for hook in all.into_iter().flatten() {
        let HookTarget::Wasm(hook) = &hook.target else { continue };
        for mount in &hook.mounts {
            if !files.mounts.iter().any(|given| given.path == mount.path) {
                files.mounts.push(mounted(api, mount).await?);
            }
        }
    }
    Ok(files)
}

/// The kinds of a spec. Of a decorator's targets one that is served is enough.
async fn kinds(live: &Live, spec: &CheckedSpec, applying: &Applying) -> Result<Kinds, DiscoveryError> {
    let mut parents = Vec::new();
    for target in spec.targets() {
        match live.resolve(&target.resource).await {
            Err(error) if error.is_not_served() && spec.targets().len() > 1 => parents.push(None),
            found => parents.push(Some(found?)),
        }
    }
    let mut rules = Vec::new();
    for child in &spec.common().children {
        let resource = live.resolve(&child.resource).await?;
        let lists = live.discovery.lists(&resource.gvk).await;
        let (method, apply) = (child.method, applying.of(child.apply));
        rules.push(ChildKind { resource, method, apply, lists });
    }
    let is_rolling = rules.iter().any(|rule| rule.method.is_rolling());
    let revisions = Gvr::new("metacontroller.k8s.io/v1alpha1", "controllerrevisions");
    let revisions = if is_rolling { Some(live.resolve(&revisions).await?) } else { None };
    Ok(Kinds { parents, rules, revisions })
}

type Configs = [(Arc<Resource>, Arc<ControllerConfig>)];

async fn all_parents(
    live: &Live,
    configs: &Configs,
    namespace: Option<&str>,
) -> Result<Vec<LiveParent>, DiffError> {
    let mut all = Vec::new();
    for (resource, config) in configs {
        let namespace = namespace.filter(|_| resource.namespaced).unwrap_or_default();
        let mut found = live.trial.api().list_objects_in(resource, namespace).await?;
        found.retain(|parent| config.selection.includes(parent));
        found.sort_by(|one, other| one.key.cmp(&other.key));
        all.extend(found.into_iter().map(|parent| LiveParent::new(resource, parent, config)));
    }
    Ok(all)
}

async fn named_parents(
    live: &Live,
    configs: &Configs,
    names: &[String],
    namespace: &str,
) -> Result<Vec<LiveParent>, DiffError> {
    let mut all = Vec::new();
    for name in names {
        let mut found = Vec::new();
        for (resource, config) in configs {
            let id = object_id(Arc::clone(resource), name, namespace)?;
            let Some(parent) = live.trial.read(&id).await? else { continue };
            if !config.selection.includes(&parent) {
                return Err(DiffError::NotSelected(id));
            }
            found.push(LiveParent::new(resource, parent, config));
        }
        if found.is_empty() {
            let kinds: Vec<_> = configs.iter().map(|(resource, _)| resource.gvk.kind.to_string()).collect();
            return Err(DiffError::NoParent(name.clone(), kinds.join(" or ")));
        }
        all.extend(found);
    }
    Ok(all)
}

/// The namespace of the parents, where they have one and the same.
fn only_namespace(parents: &[LiveParent]) -> Option<String> {
    let first = &parents.first()?.id.key.namespace;
    let is_only = !first.is_empty() && parents.iter().all(|one| one.id.key.namespace == *first);
    is_only.then(|| first.to_string())
}

impl LiveParent {
    fn new(resource: &Arc<Resource>, parent: Object, config: &Arc<ControllerConfig>) -> Self {
        let id = ObjectId { resource: Arc::clone(resource), key: parent.key.clone() };
        Self { id, parent: Arc::new(parent), config: Arc::clone(config) }
    }
}
