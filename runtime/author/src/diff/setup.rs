//! Setup of a comparison: the controller of a file or of the cluster, its hooks, and its parents in the cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::hook::{HookName, HookTarget};
use metahook_core::api::policy::HookPolicy;
use metahook_core::api::{CheckedSpec, ControllerKind};
use metahook_core::bundle::{ModulePlace, parents_of};
use metahook_core::children::desired::{Applying, ChildKind};
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, ObjectId, Resource};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::kinds::{DecoratedKinds, Discovered, Kinds, StatusError};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::DiscoveryError;
use metahook_server::cluster::dry_run_client::DryRunClient;
use metahook_server::cluster::objects::RequestError;

use serde_json::Value;

use super::live::Live;
use super::{Differ, LiveParent};
use crate::controllers::{FindError, KINDS, find, plain, resource as controller_kind, status};
use crate::deploy::{FIELD_MANAGER, written_by_authors};
use crate::documents::Document;
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
    /// The only parents that are compared; all where none is named.
    pub parents: Vec<String>,
    /// The only namespace whose parents are compared.
    pub namespace: Option<String>,
    /// Namespace of parents whose names have none.
    pub default_namespace: String,
    /// Namespace of the server, which keeps revisions of parents without a namespace there.
    pub server_namespace: String,
    /// The server's rules for modules.
    pub policy: HookPolicy,
    /// Whether the controller is that of a file.
    pub is_file: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("spec")]
    Kind(#[from] DiscoveryError),
    #[error("spec: {0}")]
    NotServed(String),
    #[error(transparent)]
    Stored(#[from] StoredHookError),
    #[error(
        "spec.hooks.{hook}: sha256 pins {pinned}, and the hook has {found}: a server would refuse it. Write the new digest into the spec"
    )]
    Pinned { hook: HookName, pinned: String, found: String },
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
    #[error("{name}: --namespace is {namespace}, and the name has another one: leave one of them out")]
    OtherNamespace { name: String, namespace: String },
    #[error("{0:?} is no name of an object: write NAME or NAMESPACE/NAME")]
    NoName(String),
    #[error("spec.parentResource: {0}")]
    Status(StatusError),
}

impl Differ {
    /// The only controller among the documents, with the hooks that the files and the cluster have for it.
    ///
    /// # Errors
    /// A server would refuse the controller or a hook, or the cluster lacks what they need.
    pub async fn of(api: ApiClient, documents: &[Document], options: Options) -> Result<Self, DiffError> {
        let mut live = Live::new(DryRunClient::new(api));
        let (kind, document) = controller(documents)?;
        let (document, before) = with_live(&live, kind, document.clone(), options.is_file).await?;
        let documents = slice::from_ref(&document);
        let checked = Controller::under(documents, &options.policy)?;
        let spec = &checked.spec;
        let stored = options.files.modules.unknown(documents);
        let files = complete(&live, &stored, spec, options.files).await?;
        pins_hold(spec, &files)?;
        let name = checked.object.key.name.to_string();
        let hooks = HookSet::new(&name, &spec.common().hooks, files)?.by_real_time();
        let applying = Applying { strategy: options.apply_strategy, manager: options.field_manager.into() };
        let kinds = kinds(&live, spec, &applying).await?;
        let mut remarks = Vec::new();
        if spec.common().paused {
            remarks.push("the controller is paused: this would change once it is resumed".to_owned());
        }
        let config = |(resource, config): (_, ControllerConfig)| {
            // The comparison shows the changes that wait for the end of a pause.
            (resource, Arc::new(ControllerConfig { paused: false, ..config }))
        };
        let configs: Vec<_> =
            checked.configs(&kinds, &options.server_namespace).into_iter().map(config).collect();
        let named = options.namespace.as_deref();
        let parents = if options.parents.is_empty() {
            all_parents(&live, &configs, named).await?
        } else {
            named_parents(&live, &configs, &options.parents, (named, &options.default_namespace)).await?
        };
        let everything = options.parents.is_empty() && named.is_none();
        let children = kinds.rules.iter().map(|rule| Arc::clone(&rule.resource)).chain(kinds.revisions);
        live.list_children(&children.collect::<Vec<_>>(), &namespaces_of(&parents, everything)).await?;
        let controllers = controllers(&live, &configs, (kind, &name), &mut remarks).await;
        Ok(Self { controller: name, hooks, live, parents, controllers, before, remarks, document, stored })
    }
}

/// The controller as the cluster would have it, and the instructions that its sync hook took there.
async fn with_live(
    live: &Live,
    kind: ControllerKind,
    mut document: Document,
    is_file: bool,
) -> Result<(Document, Option<u64>), DiffError> {
    let name = document.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let api = live.client.api();
    let (id, there) = match find(api, &format!("{}/{name}", kind.as_str())).await {
        Ok(found) => found,
        Err(FindError::NotFound(_)) => return Ok((document, None)),
        Err(error) => return Err(error.into()),
    };
    if is_file {
        // Fields that `metahook apply` leaves as they are, such as `spec.paused`, come from the cluster.
        let applied = api.apply(&id, &written_by_authors(&document.value), FIELD_MANAGER).await?;
        document.value = applied;
    }
    let sync = status(&there).hooks.remove("sync");
    let instructions = sync.and_then(|sync| u64::try_from(sync.instructions_p50?).ok());
    Ok((document, instructions))
}

/// Checks that each module or script has the digest that is pinned for its hook, if any.
fn pins_hold(spec: &CheckedSpec, files: &HookFiles) -> Result<(), DiffError> {
    for (hook, enabled) in spec.common().hooks.iter() {
        let HookTarget::Wasm(wasm) = &enabled.target else { continue };
        let module = files.modules.of_place(&(&wasm.module).into());
        let Some((pinned, module)) = wasm.module.sha256.as_ref().zip(module) else { continue };
        let (pinned, found) = (plain(pinned), module.digest.hex());
        if pinned != found {
            return Err(DiffError::Pinned { hook, pinned, found });
        }
    }
    Ok(())
}

/// The controllers of the cluster. Where the user may not list them, the comparison treats their children as free. Adds remarks on
/// decorators of the same kinds.
async fn controllers(
    live: &Live,
    configs: &Configs,
    (own, name): (ControllerKind, &str),
    remarks: &mut Vec<String>,
) -> BTreeSet<(ControllerKind, String)> {
    let mut all = BTreeSet::new();
    for kind in KINDS {
        let Ok(resource) = controller_kind(&live.discovery, kind).await else { continue };
        let Ok(found) = live.client.api().list_objects(&resource).await else { continue };
        for one in found {
            all.insert((kind, one.key.name.to_string()));
            let is_other = kind == own && kind == ControllerKind::Decorator && &*one.key.name != name;
            let parents = one.value().map(|value| parents_of(&value)).unwrap_or_default();
            if is_other && parents.iter().any(|gvr| configs.iter().any(|(kind, _)| kind.gvr() == *gvr)) {
                remarks.push(format!(
                    "DecoratorController {} decorates objects of the same kind: fields that both write are shown here, and a server leaves them to the older one",
                    one.key.name
                ));
            }
        }
    }
    all
}

/// The files, and for all that no file is named for what the cluster stores.
async fn complete(
    live: &Live,
    stored: &BTreeSet<ModulePlace>,
    spec: &CheckedSpec,
    mut files: HookFiles,
) -> Result<HookFiles, DiffError> {
    let api = live.client.api();
    for place in stored {
        let stored = stored_bytes(api, place).await?;
        let map = || format!("{}/{}", place.namespace, place.name);
        let loaded = files.sandbox.load_stored(Path::new(&place.key), place.language, stored).await;
        let module = loaded.map_err(|source| DiffError::Load { map: map(), source })?;
        files.modules.add(place.clone(), module);
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
async fn kinds(live: &Live, spec: &CheckedSpec, applying: &Applying) -> Result<Kinds, DiffError> {
    let mut discovered = Vec::new();
    for target in spec.targets() {
        discovered.push(match live.resolve(&target.resource).await {
            Err(error) if error.is_not_served() && matches!(spec, CheckedSpec::Decorator(_)) => {
                Discovered::NotServed(error)
            }
            found => Discovered::Served(found?),
        });
    }
    let parents = match DecoratedKinds::of(discovered, &[]) {
        Ok(DecoratedKinds { parents, .. }) => parents,
        Err(missing) => {
            let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
            return Err(DiffError::NotServed(missing.join("; ")));
        }
    };
    if let (CheckedSpec::Composite(_), Some(Some(one))) = (spec, parents.first())
        && !one.has_status
    {
        return Err(DiffError::Status(StatusError::of(one, live.discovery.is_custom(one).await?)));
    }
    let mut rules = Vec::new();
    for child in &spec.common().children {
        let resource = live.resolve(&child.resource).await?;
        let lists = live.discovery.lists(&resource.gvk).await;
        let (method, apply) = (child.method, applying.of(child.apply));
        rules.push(ChildKind { resource, method, apply, lists });
    }
    for grant in &spec.common().deletions {
        live.resolve(&grant.resource).await?;
    }
    let is_rolling = rules.iter().any(|rule| rule.method.is_rolling());
    let revisions = if is_rolling { Some(live.resolve(&revisions()).await?) } else { None };
    Ok(Kinds { parents, rules, revisions })
}

/// The kind of revisions.
pub(super) fn revisions() -> Gvr {
    Gvr::new("metacontroller.k8s.io/v1alpha1", "controllerrevisions")
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
        let mut found = live.client.api().list_objects_in(resource, namespace).await?;
        found.retain(|parent| config.selection.includes(parent));
        found.sort_by(|one, other| one.key.cmp(&other.key));
        all.extend(found.into_iter().map(|parent| LiveParent::new(resource, parent, config)));
    }
    Ok(all)
}

/// `only`, `default`: that of the flag, and that of names that have none.
async fn named_parents(
    live: &Live,
    configs: &Configs,
    names: &[String],
    (only, default): (Option<&str>, &str),
) -> Result<Vec<LiveParent>, DiffError> {
    let mut all: Vec<LiveParent> = Vec::new();
    for name in names {
        if name.split('/').any(str::is_empty) || name.matches('/').count() > 1 {
            return Err(DiffError::NoName(name.clone()));
        }
        if let (Some(namespace), Some((given, _))) = (only, name.split_once('/'))
            && given != namespace
        {
            return Err(DiffError::OtherNamespace { name: name.clone(), namespace: namespace.to_owned() });
        }
        let (mut found, mut not_selected, mut misnamed) = (Vec::new(), None, None);
        for (resource, config) in configs {
            let id = match object_id(Arc::clone(resource), name, default) {
                Ok(id) => id,
                Err(error) => {
                    misnamed = Some(error);
                    continue;
                }
            };
            match live.client.read(&id).await? {
                Some(parent) if config.selection.includes(&parent) => {
                    found.push(LiveParent::new(resource, parent, config));
                }
                Some(_) => not_selected = Some(id),
                None => {}
            }
        }
        if let Some(id) = not_selected.filter(|_| found.is_empty()) {
            return Err(DiffError::NotSelected(id));
        }
        if let Some(error) = misnamed.filter(|_| found.is_empty()) {
            return Err(error.into());
        }
        if found.is_empty() {
            let kinds: Vec<_> = configs.iter().map(|(resource, _)| resource.gvk.kind.to_string()).collect();
            return Err(DiffError::NoParent(name.clone(), kinds.join(" or ")));
        }
        found.retain(|one| all.iter().all(|other| other.id != one.id));
        all.extend(found);
    }
    Ok(all)
}

/// The namespaces that may hold children of the parents; the empty name stands for all.
fn namespaces_of(parents: &[LiveParent], everything: bool) -> BTreeSet<String> {
    let all: BTreeSet<_> = parents.iter().map(|one| one.id.key.namespace.to_string()).collect();
    if everything && !all.is_empty() || all.contains("") { [String::new()].into() } else { all }
}

impl LiveParent {
    fn new(resource: &Arc<Resource>, parent: Object, config: &Arc<ControllerConfig>) -> Self {
        let id = ObjectId { resource: Arc::clone(resource), key: parent.key.clone() };
        Self { id, parent: Arc::new(parent), config: Arc::clone(config) }
    }
}
