//! Desired children: those of a hook's answer, named, placed, labelled and checked before anything is written.

mod error;
#[cfg(test)]
mod tests;
mod unmanaged;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::ControllerKind;
use crate::api::common::{ApplyStrategy, UpdateMethod};
use crate::api::shown_secrets::ShownSecrets;
use crate::children::claims::ATTACHED_BY;
use crate::json::lists::Lists;
use crate::json::{object_in, type_of};
use crate::object::Object;
use crate::object::id::{Gvk, Key, ObjectId, Resource, is_api_version, is_dns_label};
use crate::object::selector::{Selector, UID_LABEL};
pub use error::DesiredError;
use error::undeclared;
pub use unmanaged::{HeldChildren, UnmanagedChild, UnmanagedPolicy};

/// Desired children by resource and name.
pub type Desired = BTreeMap<Arc<Resource>, BTreeMap<Key, Value>>;

/// A declared kind of children as the API server serves it.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildKind {
    pub resource: Arc<Resource>,
    pub method: UpdateMethod,
    pub apply: Apply,
    /// The published schema of the kind's lists.
    pub lists: Arc<Lists>,
}

/// How children are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Apply {
    /// The controller merges, with a record of what was applied last.
    Dynamic,
    /// The API server merges, as this field manager.
    ServerSide(Arc<str>),
}

/// The default apply strategy of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applying {
    pub strategy: ApplyStrategy,
    /// Server-side apply's field manager.
    pub manager: Arc<str>,
}

impl Applying {
    pub fn of(&self, asked: Option<ApplyStrategy>) -> Apply {
        match asked.unwrap_or(self.strategy) {
            ApplyStrategy::DynamicApply => Apply::Dynamic,
            ApplyStrategy::ServerSideApply => Apply::ServerSide(Arc::clone(&self.manager)),
        }
    }
}

impl ChildKind {
    /// Written by dynamic apply, with lists merged by convention.
    pub fn new(resource: Arc<Resource>, method: UpdateMethod) -> Self {
        Self { resource, method, apply: Apply::Dynamic, lists: Arc::default() }
    }
}

/// Children that a controller lets its hook ask for.
#[derive(Debug, Clone, Copy)]
pub struct DesiredOptions<'a> {
    pub child_kinds: &'a [ChildKind],
    pub secrets: &'a ShownSecrets,
    /// `None`: the parent's own is not valid, and any labels will do.
    pub selector: Option<&'a Selector>,
    pub mark: OwnerMark<'a>,
    /// Treatment of children that no controller can keep: those of a webhook are tried all the same, as its authors
    /// know it.
    pub unmanaged: UnmanagedPolicy,
}

/// The namespace of a child, and its kind; in place of the kind why it is not managed.
type ChildPlace = (String, Result<Arc<Resource>, DesiredError>);

impl DesiredOptions<'_> {
    /// The child's place, where hooks may be shown what becomes of it there.
    fn shown(
        &self,
        kind: &ChildKind,
        at: AnswerPosition,
        namespace: String,
        of_type: Option<&str>,
    ) -> Result<ChildPlace, DesiredError> {
        let resource = &kind.resource;
        if self.secrets.allows_child(resource, &namespace, of_type) {
            return Ok((namespace, Ok(Arc::clone(resource))));
        }
        Err(DesiredError::Secret { at, namespace, from: self.secrets.from() })
    }
}

/// Mark that the server puts on every child, so that it finds it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerMark<'a> {
    /// Nothing: the parent's own selector finds it.
    Own,
    /// The label of a selector that is made from the parent's uid.
    Uid,
    /// The annotation with this DecoratorController's name.
    Attached(&'a str),
}

impl OwnerMark<'_> {
    fn kind(self) -> ControllerKind {
        match self {
            Self::Own | Self::Uid => ControllerKind::Composite,
            Self::Attached(_) => ControllerKind::Decorator,
        }
    }
}

/// Where a child stands in an answer: `children[3]`, `attachments[0]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerPosition {
    kind: ControllerKind,
    nth: usize,
}

impl fmt::Display for AnswerPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.kind.children(), self.nth)
    }
}

/// Children that a hook asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Wanted {
    pub desired: Desired,
    /// The desired children in the order of the answer.
    pub sequence: Vec<ObjectId>,
    pub unmanaged: Vec<UnmanagedChild>,
    pub held: HeldChildren,
    /// The children that cannot be written, where the others are written all the same.
    pub failed: Vec<DesiredError>,
    /// The first child that goes without the annotations of the answer, and the number of all.
    pub without_annotations: Option<(DesiredError, usize)>,
}

/// # Errors
/// One child that is not in order refuses the whole answer: nothing has been written yet, and nothing will be.
pub fn desired(
    parent: &Object,
    bounds: DesiredOptions<'_>,
    children: Vec<Map<String, Value>>,
) -> Result<Wanted, DesiredError> {
    let mut wanted = Wanted::default();
    for (nth, child) in children.into_iter().enumerate() {
        let at = AnswerPosition { kind: bounds.mark.kind(), nth };
        add(&mut wanted, parent, bounds, at, child)?;
    }
    Ok(wanted)
}

/// Bytes of a name, a kind or an apiVersion, which messages repeat. Nearly all kinds have names of at most 253 bytes; those of RBAC
/// have no bound in Kubernetes.
const MAX_NAME: usize = 1024;

/// The text of a name; the error is what it has to be.
fn name_of(value: Option<&Value>) -> Result<String, &'static str> {
    match value.and_then(Value::as_str).unwrap_or_default() {
        "" => Err("a string that is not empty"),
        text if text.len() > MAX_NAME => Err("a string of at most 1024 bytes"),
        text => Ok(text.to_owned()),
    }
}

fn add(
    wanted: &mut Wanted,
    parent: &Object,
    bounds: DesiredOptions<'_>,
    at: AnswerPosition,
    mut child: Map<String, Value>,
) -> Result<(), DesiredError> {
    let text = |field, value: Option<&Value>| {
        name_of(value).map_err(|expected| DesiredError::Field { at, field, expected })
    };
    let api_version = text("apiVersion", child.get("apiVersion"))?;
    if !is_api_version(&api_version) {
        return Err(DesiredError::Field { at, field: "apiVersion", expected: "like v1 or apps/v1" });
    }
    let gvk = Gvk::new(&api_version, &text("kind", child.get("kind"))?);
    let of_type = child.get("type").and_then(Value::as_str).map(str::to_owned);
    let Some(Value::Object(metadata)) = child.get_mut("metadata") else {
        return Err(DesiredError::Field { at, field: "metadata", expected: "an object" });
    };
    let name = text("metadata.name", metadata.get("name"))?;
    check_name(at, &name)?;
    let given = given_namespace(at, metadata)?;
    let placed = match bounds.child_kinds.iter().find(|kind| kind.resource.gvk == gvk) {
        Some(kind) => namespace(parent, &kind.resource, at, &given)
            .and_then(|place| bounds.shown(kind, at, place, of_type.as_deref())),
        None => Err(undeclared(bounds.child_kinds, at, &gvk)),
    };
    let (namespace, resource) = match (placed, bounds.unmanaged) {
        (Ok(placed), _) => placed,
        (Err(why), UnmanagedPolicy::Created) if why.is_unmanaged() => {
            let home = &parent.key.namespace;
            let namespace = if given.is_empty() { home.to_string() } else { given };
            if let DesiredError::OtherVersion { .. } = why {
                wanted.held.hold(&gvk, Key::new(&namespace, &name));
            }
            (namespace, Err(why))
        }
        (Err(why @ DesiredError::NoNamespace { .. }), UnmanagedPolicy::Created) => {
            wanted.held.hold(&gvk, Key::new("", &name));
            wanted.failed.push(why);
            return Ok(());
        }
        (Err(error), _) => return Err(error),
    };
    let key = Key::new(&namespace, &name);
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    wanted.check_annotations(at, metadata, bounds.unmanaged)?;
    mark(metadata, parent, bounds.mark);
    let labels = strings(at, "metadata.labels", metadata.get("labels"))?;
    if let Some(mismatch) = bounds.selector.and_then(|selector| selector.mismatch(&labels)) {
        return Err(DesiredError::Labels { gvk, key, mismatch, generated: bounds.mark == OwnerMark::Uid });
    }
    let body = Value::Object(child);
    match resource {
        Ok(resource) => {
            wanted.sequence.push(ObjectId { resource: Arc::clone(&resource), key: key.clone() });
            let twice = wanted.desired.entry(resource).or_default().insert(key.clone(), body);
            if twice.is_some() && bounds.unmanaged == UnmanagedPolicy::Refused {
                return Err(DesiredError::Twice { at, gvk, key });
            }
        }
        Err(why) => wanted.unmanaged.push(UnmanagedChild { gvk, key, body, why }),
    }
    Ok(())
}

impl Wanted {
    /// Annotations that are none refuse the answer, or are left out.
    fn check_annotations(
        &mut self,
        at: AnswerPosition,
        metadata: &mut Map<String, Value>,
        policy: UnmanagedPolicy,
    ) -> Result<(), DesiredError> {
        let Err(why) = annotations(at, metadata.get("annotations")) else { return Ok(()) };
        if policy == UnmanagedPolicy::Refused {
            return Err(why);
        }
        metadata.remove("annotations");
        self.without_annotations.get_or_insert((why, 0)).1 += 1;
        Ok(())
    }
}

fn check_name(at: AnswerPosition, name: &str) -> Result<(), DesiredError> {
    if matches!(name, "." | "..") || name.contains(['/', '%', '?', '#']) {
        let expected = "a name without any of / % ? #";
        return Err(DesiredError::Field { at, field: "metadata.name", expected });
    }
    Ok(())
}

fn mark(metadata: &mut Map<String, Value>, parent: &Object, mark: OwnerMark<'_>) {
    // Anything but an object is refused later.
    match mark {
        OwnerMark::Own => {}
        OwnerMark::Uid => {
            if let Some(labels) = object_in(metadata, "labels") {
                labels.entry(UID_LABEL).or_insert_with(|| json!(parent.uid.as_str()));
            }
        }
        OwnerMark::Attached(by) => {
            if let Some(annotations) = object_in(metadata, "annotations") {
                annotations.insert(ATTACHED_BY.to_owned(), json!(by));
            }
        }
    }
}

fn given_namespace(at: AnswerPosition, metadata: &Map<String, Value>) -> Result<String, DesiredError> {
    match metadata.get("namespace") {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(namespace))
            if namespace.is_empty() || namespace.len() <= 63 && is_dns_label(namespace) =>
        {
            Ok(namespace.clone())
        }
        Some(Value::String(_)) => {
            let expected = "a namespace: lower case letters, digits and dashes";
            Err(DesiredError::Field { at, field: "metadata.namespace", expected })
        }
        Some(_) => Err(DesiredError::Field { at, field: "metadata.namespace", expected: "a string" }),
    }
}

/// Where a child goes; what cannot be owned across scopes is refused.
/// See <https://github.com/metacontroller/metacontroller/issues/236>.
fn namespace(
    parent: &Object,
    resource: &Resource,
    at: AnswerPosition,
    given: &str,
) -> Result<String, DesiredError> {
    match (&*parent.key.namespace, resource.namespaced, given) {
        ("", false, _) => Ok(String::new()),
        ("", true, "") => Err(DesiredError::NoNamespace { at }),
        ("", true, given) => Ok(given.to_owned()),
        (_, false, _) => Err(DesiredError::ClusterScoped { at, gvk: resource.gvk.clone() }),
        (home, true, given) if given.is_empty() || given == home => Ok(home.to_owned()),
        (home, true, given) => {
            Err(DesiredError::OtherNamespace { at, found: given.to_owned(), parent: home.to_owned() })
        }
    }
}

/// The values themselves stay out of messages.
fn annotations(at: AnswerPosition, annotations: Option<&Value>) -> Result<(), DesiredError> {
    let wrong = |key: Option<&String>, found| {
        Err(DesiredError::Annotations { at, key: key.cloned(), found: type_of(found) })
    };
    match annotations {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(all)) => match all.iter().find(|(_, value)| !value.is_string()) {
            Some((key, value)) => wrong(Some(key), value),
            None => Ok(()),
        },
        Some(other) => wrong(None, other),
    }
}

fn strings(
    at: AnswerPosition,
    field: &'static str,
    value: Option<&Value>,
) -> Result<BTreeMap<String, String>, DesiredError> {
    let texts = Option::deserialize(value.unwrap_or(&Value::Null));
    let wrong = |_| DesiredError::Field { at, field, expected: "an object of strings" };
    texts.map(Option::unwrap_or_default).map_err(wrong)
}
