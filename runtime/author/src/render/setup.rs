//! Simulation out of documents: the controller among them, the kinds that they define, the objects that there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::api::common::ApplyStrategy;
use metahook_core::api::hook::{HookName, HookTarget};
use metahook_core::api::policy::{BrakeLimits, HookPolicy, Limits};
use metahook_core::api::status::{ControllerStatus, DeletionStatus};
use metahook_core::api::{CheckedSpec, ControllerKind, UnusableSpec};
use metahook_core::bundle;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::desired::{Applying, ChildKind};
use metahook_core::hash::Fingerprint;
use metahook_core::hook::DEFAULT_WEBHOOK_ANSWER;
use metahook_core::object::id::{Gvk, Gvr, Key, ObjectId, Resource};
use metahook_core::object::{Object, ObjectError};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::kinds::{ConfigParts, Kinds, StatusError};
use metahook_core::reconcile::shown::ObservedBounds;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Simulation;
use super::hooks::{HookFiles, HookSet, HookSetError};
use super::rounds::census;
use super::world::{Refusal, World};
use crate::call::MAX_CHILDREN;
use crate::documents::Document;
use crate::kinds::{KindError, KnownKinds};
use crate::schemas::hooks::HookKinds;

/// Objects of all files.
const MAX_OBJECTS: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("the files hold no CompositeController and no DecoratorController: give one with -f")]
    NoController,
    #[error("{first} and {second} are controllers, and one is tried at a time: give one of them")]
    Controllers { first: String, second: String },
    #[error("{place}")]
    Controller { place: String, source: UnusableSpec },
    #[error("{place}")]
    Object { place: String, source: ObjectError },
    #[error(
        "{place}: {field} is the boolean {value}, and a text is expected: {}", in_quotes(*value)
    )]
    Boolean { place: String, field: String, value: bool },
    #[error("{place}: {}", in_quotes(*value))]
    BooleanInSpec { place: String, value: bool, source: UnusableSpec },
    #[error("{place}")]
    Kind { place: String, source: KindError },
    #[error("{place}: spec")]
    Spec { place: String, source: KindError },
    #[error("{place}: spec.parentResource: {source}")]
    Status { place: String, source: StatusError },
    #[error("{place} is the same object as one before it: {id}")]
    Twice { place: String, id: String },
    #[error("{place}: {id} has no namespaces, and names the namespace {namespace:?}: leave it out")]
    NoNamespace { place: String, id: String, namespace: String },
    #[error("the files hold {found} objects, and {MAX_OBJECTS} are allowed: give fewer")]
    TooMany { found: usize },
    #[error("the files hold no object that the controller selects, which would be {0}: give one with -f")]
    NoParent(String),
    #[error(transparent)]
    Owners(#[from] Refusal),
    #[error(transparent)]
    Hooks(#[from] HookSetError),
}

/// Advice to an author where YAML has made a boolean of a text.
fn in_quotes(value: bool) -> &'static str {
    if value {
        "y, yes and on are booleans in YAML: write such a text in quotes, \"y\""
    } else {
        "n, no and off are booleans in YAML: write such a text in quotes, \"n\""
    }
}

/// Settings that are not in the documents.
#[derive(Clone)]
pub struct Options {
    /// Namespace of objects that name none.
    pub namespace: String,
    pub apply_strategy: ApplyStrategy,
    pub field_manager: String,
    pub files: HookFiles,
}

impl SetupError {
    pub fn kinds(source: KindError) -> Self {
        Self::Kind { place: "the files".to_owned(), source }
    }

    fn spec(place: String, source: UnusableSpec) -> Self {
        let text = source.to_string();
        let of = |value: &bool| text.contains(&format!("invalid type: boolean `{value}`, expected a string"));
        match [true, false].into_iter().find(of) {
            Some(value) => Self::BooleanInSpec { place, value, source },
            None => Self::Controller { place, source },
        }
    }
}

/// The controller among the documents.
pub(crate) struct Controller<'a> {
    pub(crate) kind: ControllerKind,
    document: &'a Document,
    pub(crate) object: Object,
    pub(crate) spec: CheckedSpec,
    snapshot: String,
}

impl<'a> Controller<'a> {
    fn of(documents: &'a [Document]) -> Result<Self, SetupError> {
        // Secrets of files are the author's own.
        Self::under(documents, &HookPolicy::default().by_account())
    }

    /// The controller, as a server with this policy takes it.
    pub(crate) fn under(documents: &'a [Document], policy: &HookPolicy) -> Result<Self, SetupError> {
        let (kind, document) = controller(documents)?;
        let object = parsed(document, kind)?;
        let (spec, snapshot) = CheckedSpec::of(kind, &object, policy)
            .map_err(|source| SetupError::spec(document.place.to_string(), source))?;
        Ok(Self { kind, document, object, spec, snapshot })
    }

    /// The configuration for each kind of parents that is served. `home`: where revisions of parents without a namespace are.
    pub(crate) fn configs(&self, served: &Kinds, home: &str) -> Vec<(Arc<Resource>, ControllerConfig)> {
        let parts = ConfigParts {
            name: &self.object.key.name,
            snapshot: &self.snapshot,
            home,
            max_children: MAX_CHILDREN,
            observed: ObservedBounds::default(),
            max_webhook_answer: DEFAULT_WEBHOOK_ANSWER,
        };
        let targets = self.spec.targets().iter().zip(&served.parents);
        let config = |(target, parents): (_, &Option<Arc<Resource>>)| {
            let parents = parents.as_ref()?;
            Some((Arc::clone(parents), served.config(&self.spec, (target, parents), parts)))
        };
        targets.filter_map(config).collect()
    }
}

/// The kinds of the controller among the documents, with their schemas.
pub fn hook_kinds<'a>(documents: &[Document], kinds: &'a KnownKinds) -> Result<HookKinds<'a>, SetupError> {
    let Controller { kind, document, spec, .. } = Controller::of(documents)?;
    let applying = Applying { strategy: ApplyStrategy::default(), manager: "".into() };
    let served = served(&spec, kinds, &applying)
        .map_err(|source| SetupError::Spec { place: document.place.to_string(), source })?;
    let known = |resource: &Resource| (resource.gvk.clone(), kinds.schema(&resource.gvk));
    Ok(HookKinds {
        controller: kind,
        parents: served.parents.iter().flatten().map(|resource| known(resource)).collect(),
        children: served.rules.iter().map(|rule| known(&rule.resource)).collect(),
    })
}

/// Whether the controller among the documents has a hook; `None` where there is none that a server takes.
pub(crate) fn has_hook(documents: &[Document], hook: HookName) -> Option<bool> {
    Controller::of(documents).ok().map(|controller| controller.spec.common().hooks.get(hook).is_some())
}

/// The limits of a hook's calls in the spec of the controller among the documents, if that is a module's or a script's. `None`
/// where there is no controller, too: one that a server would refuse is an error.
pub fn spec_limits(documents: &[Document], hook: HookName) -> Result<Option<Limits>, SetupError> {
    let spec = match Controller::of(documents) {
        Err(SetupError::NoController) => return Ok(None),
        controller => controller?.spec,
    };
    let hooks = &spec.common().hooks;
    // As the server does, sync is called where there is no finalize.
    Ok(match &hooks.get(hook).unwrap_or(&hooks.sync).target {
        HookTarget::Wasm(hook) => Some(hook.limits),
        HookTarget::Webhook(_) => None,
    })
}

impl Simulation {
    pub fn of(documents: &[Document], options: Options) -> Result<Self, SetupError> {
        let Options { namespace, apply_strategy: strategy, field_manager, files } = options;
        let applying = Applying { strategy, manager: field_manager.into() };
        Self::with(documents, &namespace, &applying, |controller| {
            let (is_accepted, deletions) = accepted(&controller.document.value, &controller.spec, &files);
            let hooks = HookSet::new(&controller.object.key.name, &controller.spec.common().hooks, files)?;
            Ok((hooks, is_accepted, deletions))
        })
    }

    /// The controller with one parent. Each of its hooks gives the same answer and is not called.
    pub(crate) fn answering(
        documents: &[Document],
        parent: &Key,
        answer: Vec<u8>,
    ) -> Result<Self, SetupError> {
        let applying = Applying { strategy: ApplyStrategy::default(), manager: "".into() };
        let none = DeletionStatus::default();
        let with =
            Self::with(documents, "default", &applying, |_| Ok((HookSet::answering(answer), true, none)))?;
        Ok(Self { only_parent: Some(parent.clone()), ..with })
    }

    /// `hooks`: those of the controller, whether they are the accepted ones, and the deletions that its status shows.
    fn with(
        documents: &[Document],
        namespace: &str,
        applying: &Applying,
        hooks: impl FnOnce(&Controller<'_>) -> Result<(HookSet, bool, DeletionStatus), SetupError>,
    ) -> Result<Self, SetupError> {
        if documents.len() > MAX_OBJECTS {
            return Err(SetupError::TooMany { found: documents.len() });
        }
        let kinds = KnownKinds::of(documents).map_err(SetupError::kinds)?;
        let controller = Controller::of(documents)?;
        let served = served(&controller.spec, &kinds, applying)
            .map_err(|source| SetupError::Spec { place: controller.document.place.to_string(), source })?;
        let configs = controller.configs(&served, namespace);
        let (hooks, is_accepted, deletions) = hooks(&controller)?;
        let Controller { kind, document, object, spec, .. } = controller;
        for (parents, _) in &configs {
            if kind == ControllerKind::Composite && !parents.has_status {
                let source = StatusError::of(parents, kinds.is_custom(parents));
                return Err(SetupError::Status { place: document.place.to_string(), source });
            }
        }
        let name = object.key.name.to_string();
        let world = world(documents, &kinds, namespace)?;
        // Only whether it is the accepted one makes a difference.
        let version = Fingerprint::of(b"version");
        let from = deletions.accepted.map(|from| if is_accepted { version.to_string() } else { from });
        let deleted = deletions.deleted.and_then(|deleted| usize::try_from(deleted).ok()).unwrap_or_default();
        let brake = DeletionBrake::new(BrakeLimits::default(), from, deleted);
        let remembered = BTreeMap::new();
        let only_parent = None;
        let mut this =
            Self { controller: name, configs, kinds, hooks, world, version, brake, remembered, only_parent };
        let parents = this.parents();
        this.brake.version_changed(version, Duration::ZERO, |limits| census(&this.world, &parents, limits));
        if parents.is_empty() {
            let kinds = spec.targets().iter().map(|target| target.resource.to_string());
            return Err(SetupError::NoParent(kinds.collect::<Vec<_>>().join(" or ")));
        }
        Ok(this)
    }
}

/// Whether the given hooks are those that a server ran when it wrote the controller's status, and the deletions that the
/// status tells of. Hooks whose version the status does not have, as webhooks, are taken to be the same.
fn accepted(controller: &Value, spec: &CheckedSpec, files: &HookFiles) -> (bool, DeletionStatus) {
    let status = controller.get("status").and_then(|status| ControllerStatus::deserialize(status).ok());
    let status = status.unwrap_or_default();
    let is_same = spec.common().hooks.iter().all(|(name, hook)| {
        let given = hook.module().and_then(|named| files.modules.of_place(&named.into()));
        let given = given.map(|module| module.digest.to_string());
        let ran = status.hooks.get(name.as_str()).and_then(|hook| hook.digest.as_ref());
        ran.zip(given.as_ref()).is_none_or(|(ran, given)| ran == given)
    });
    (is_same, status.deletions)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Kind of the controller that a document holds, where it holds one.
pub fn controller_kind(document: &Document) -> Option<ControllerKind> {
    bundle::controller_kind(&document.value)
}

pub(crate) fn controller(documents: &[Document]) -> Result<(ControllerKind, &Document), SetupError> {
    let mut all = documents.iter().filter_map(|document| Some((controller_kind(document)?, document)));
    let first = all.next().ok_or(SetupError::NoController)?;
    match all.next() {
        None => Ok(first),
        Some((_, second)) => Err(SetupError::Controllers {
            first: first.1.place.to_string(),
            second: second.place.to_string(),
        }),
    }
}

/// Looks for a text of the metadata that YAML takes for a boolean.
fn has_texts(Document { place, value }: &Document) -> Result<(), SetupError> {
    let Some(metadata) = value.get("metadata").and_then(Value::as_object) else { return Ok(()) };
    let is_text = |field: String, value: &Value| match value.as_bool() {
        Some(value) => Err(SetupError::Boolean { place: place.to_string(), field, value }),
        None => Ok(()),
    };
    for (name, value) in metadata {
        match (&**name, value) {
            ("name" | "namespace", value) => is_text(format!("metadata.{name}"), value)?,
            ("labels" | "annotations", Value::Object(all)) => {
                all.iter().try_for_each(|(key, value)| is_text(format!("metadata.{name}.{key}"), value))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The controller as the API server would have stored it.
fn parsed(document: &Document, kind: ControllerKind) -> Result<Object, SetupError> {
    has_texts(document)?;
    let mut value = document.value.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("uid").or_insert(json!("00000000-0000-4000-8000-000000000000"));
        metadata.entry("resourceVersion").or_insert(json!("1"));
        metadata.entry("generation").or_insert(json!(1));
    }
    let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", kind.as_str());
    Object::parse(&value.to_string(), Some(&gvk))
        .map_err(|source| SetupError::Object { place: document.place.to_string(), source })
}

/// The kinds of a spec. Of a decorator's targets one that is known is enough.
fn served(spec: &CheckedSpec, known: &KnownKinds, applying: &Applying) -> Result<Kinds, KindError> {
    let mut parents = Vec::new();
    for target in spec.targets() {
        match known.resolve(&target.resource) {
            Err(_) if matches!(spec, CheckedSpec::Decorator(_)) && spec.targets().len() > 1 => {
                parents.push(None);
            }
            found => parents.push(Some(Arc::clone(found?))),
        }
    }
    let mut rules = Vec::new();
    for child in &spec.common().children {
        let resource = Arc::clone(known.resolve(&child.resource)?);
        let (method, apply) = (child.method, applying.of(child.apply));
        rules.push(ChildKind { resource, method, apply, lists: Arc::default() });
    }
    for grant in &spec.common().deletions {
        known.resolve(&grant.resource)?;
    }
    let is_rolling = rules.iter().any(|rule| rule.method.is_rolling());
    let revisions = Gvr::new("metacontroller.k8s.io/v1alpha1", "controllerrevisions");
    let revisions = if is_rolling { Some(Arc::clone(known.resolve(&revisions)?)) } else { None };
    Ok(Kinds { parents, rules, revisions })
}

fn world(documents: &[Document], kinds: &KnownKinds, namespace: &str) -> Result<World, SetupError> {
    let mut world = World::default();
    let objects = documents.iter().filter(|document| {
        controller_kind(document).is_none() && text(&document.value, "kind") != "CustomResourceDefinition"
    });
    for document in objects {
        has_texts(document)?;
        let Document { place, value } = document;
        let place = || place.to_string();
        let gvk = Gvk::new(text(value, "apiVersion"), text(value, "kind"));
        if gvk.kind.is_empty() || gvk.version.is_empty() {
            return Err(SetupError::Object { place: place(), source: ObjectError::NoKind });
        }
        let resource =
            kinds.resolve_kind(&gvk).map_err(|source| SetupError::Kind { place: place(), source })?;
        let value = placed(resource, value.clone(), namespace)
            .map_err(|(id, namespace)| SetupError::NoNamespace { place: place(), id, namespace })?;
        let parsed = Object::parse(&value.to_string(), None);
        let key = parsed.map_err(|source| SetupError::Object { place: place(), source })?.key.clone();
        let id = ObjectId { resource: Arc::clone(resource), key };
        if world.get(&id).is_some() {
            return Err(SetupError::Twice { place: place(), id: id.to_string() });
        }
        world.add(resource, value).map_err(|source| SetupError::Object { place: place(), source })?;
    }
    world.find_owners()?;
    Ok(world)
}

/// The object in a namespace, where its kind has them. The error names the object and its namespace.
fn placed(resource: &Resource, mut value: Value, default: &str) -> Result<Value, (String, String)> {
    let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        // What is no text is left to the reader of objects, which refuses it.
        let given = metadata.get("namespace").filter(|given| !given.is_null());
        let given = given.map_or(Some(""), Value::as_str).map(str::to_owned);
        match (resource.namespaced, given.as_deref()) {
            (true, Some("")) => drop(metadata.insert("namespace".to_owned(), json!(default))),
            (false, Some("")) => drop(metadata.remove("namespace")),
            (false, Some(given)) => {
                return Err((format!("{} {name}", resource.gvk.kind), given.to_owned()));
            }
            (true, Some(_)) | (_, None) => {}
        }
        // Filled in once all objects are known.
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.entry("uid").or_insert(json!(""));
        }
    }
    Ok(value)
}
