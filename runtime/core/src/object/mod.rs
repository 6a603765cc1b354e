//! Observed objects: the bytes of each as they came, the fields that every reconcile needs, and the names in a request.
//!
//! An [`Object`] keeps its JSON as it came, less `managedFields`. A request to a hook is these bytes one after the other. A
//! `serde_json::Value` is made only where a child has to be compared.

pub mod cached;
pub mod changed_fields;
pub mod id;
pub mod selector;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::hash::hash64;
use id::{Gvk, Key, ObjectId, Resource, Uid};

/// An object as the API server sent it, less `managedFields`.
///
/// # Guarantees
/// `json` is one valid JSON object that names its `apiVersion` and `kind`.
#[derive(Debug, Clone)]
pub struct Object {
    json: Box<str>,
    meta: ObjectMeta,
}

/// The fields of an object's metadata that every stage needs. What reads them alone takes this, and not the object.
#[derive(Debug, Clone)]
pub struct ObjectMeta {
    pub gvk: Gvk,
    pub key: Key,
    pub uid: Uid,
    pub version: Version,
    pub generation: i64,
    pub labels: BTreeMap<String, String>,
    /// The uid in the owner reference with `controller: true`, if there is one.
    pub controller: Option<Uid>,
    /// Hash of the apiVersion, kind and name in that owner reference.
    controller_named: u64,
    pub finalizers: Vec<String>,
    /// The controller that made it, as its annotation says.
    pub made_by: Option<Box<str>>,
    /// The DecoratorController whose attachment it is, as its annotation says.
    pub attached_by: Option<Box<str>>,
    /// It has the annotation of what was applied last: this server, Metacontroller, or who forged it, wrote it.
    pub applied: bool,
    /// `metadata.creationTimestamp`, which the API server sets, as a number: an earlier time is a lower one.
    pub created: u64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// A `resourceVersion`: opaque, but where both are integers the larger is the later (Kubernetes 1.35).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(Box<str>);

impl Version {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The version as an integer, where it is one.
    pub fn number(&self) -> Option<u128> {
        self.0.parse().ok()
    }

    /// Known to be older than `other`; false where the two cannot be compared.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.number().zip(other.number()).is_some_and(|(mine, theirs)| mine < theirs)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("the object is not the JSON of a Kubernetes object")]
    Json(#[source] serde_json::Error),
    #[error("the object names no apiVersion and kind")]
    NoKind,
    #[error("metadata.managedFields could not be cut out")]
    Cut,
}

impl Object {
    /// Reads an object; `assumed` stands in where it names no kind, as items of a list do not.
    pub fn parse(json: &str, assumed: Option<&Gvk>) -> Result<Self, ObjectError> {
        let head: Head<'_> = serde_json::from_str(json).map_err(ObjectError::Json)?;
        let named = head.api_version.as_ref().zip(head.kind.as_ref());
        let gvk = match (named, assumed) {
            // One copy of the words for all objects of a kind.
            (Some((version, kind)), Some(assumed)) if assumed.is_named(&version.0, &kind.0) => {
                assumed.clone()
            }
            (Some((version, kind)), _) => Gvk::new(&version.0, &kind.0),
            (None, assumed) => assumed.ok_or(ObjectError::NoKind)?.clone(),
        };
        let meta = head.metadata;
        let text = match meta.managed_fields {
            Some(fields) => Cow::Owned(cut_member(json, fields.get()).ok_or(ObjectError::Cut)?),
            None => Cow::Borrowed(json),
        };
        let text = if named.is_some() { text } else { Cow::Owned(with_kind(&text, &gvk)) };
        let annotations = meta.annotations.unwrap_or_default();
        let controller = meta.owner_references.unwrap_or_default().into_iter().find(|o| o.controller);
        let meta = ObjectMeta {
            gvk,
            key: Key::new(meta.namespace.as_ref().map_or("", |n| &n.0), &meta.name.0),
            uid: Uid::new(meta.uid.as_ref().map_or("", |u| &u.0)),
            version: Version::new(meta.resource_version.as_ref().map_or("", |v| &v.0)),
            generation: meta.generation.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            controller_named: controller.as_ref().map_or(0, OwnerReference::named),
            controller: controller.map(|owner| Uid::new(&owner.uid.0)),
            finalizers: meta.finalizers.unwrap_or_default(),
            made_by: annotations.made_by.map(|name| name.0.into()),
            attached_by: annotations.attached_by.map(|name| name.0.into()),
            applied: annotations.applied.is_some(),
            created: meta.creation_timestamp.map_or(0, |time| time_number(&time.0)),
            deleting: meta.deletion_timestamp.is_some(),
        };
        Ok(Self { json: text.into(), meta })
    }

    /// The object's JSON, to be written into a request as it is.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The annotations, read anew: few ask for them, and they may be large.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        #[derive(Deserialize)]
        struct Annotated {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            annotations: Option<BTreeMap<String, String>>,
        }
        let read: Result<Annotated, _> = serde_json::from_str(&self.json);
        read.ok().and_then(|object| object.metadata.annotations).unwrap_or_default()
    }

    /// `metadata.deletionTimestamp` as a number like that of `created`, read anew.
    pub(crate) fn deletion_asked(&self) -> Option<u64> {
        let head: Head<'_> = serde_json::from_str(&self.json).ok()?;
        head.metadata.deletion_timestamp.map(|time| time_number(&time.0))
    }

    /// The object without its status and its version, which change all the time.
    pub(crate) fn content(&self) -> Option<Value> {
        let mut value = self.value().ok()?;
        let fields = value.as_object_mut()?;
        fields.remove("status");
        fields.get_mut("metadata")?.as_object_mut()?.remove("resourceVersion");
        Some(value)
    }

    /// The whole object, parsed.
    pub fn value(&self) -> Result<Value, ObjectError> {
        serde_json::from_str(&self.json).map_err(ObjectError::Json)
    }
}

impl Deref for Object {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl DerefMut for Object {
    fn deref_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

impl ObjectMeta {
    /// Whether the owner reference of the child's controller names `parent` as it is read now. A version of the parent's kind
    /// that is no longer served makes it another name: the garbage collector no longer finds the owner then.
    pub(crate) fn names_controller(&self, parent: &Self) -> bool {
        let named = owner_named(&parent.gvk.api_version(), &parent.gvk.kind, &parent.key.name);
        self.controller_named == named
    }

    /// Whether annotations say that a controller wrote the object.
    pub(crate) fn is_written(&self) -> bool {
        self.made_by.is_some() || self.attached_by.is_some() || self.applied
    }
}

/// Borrowed where the text has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Head<'a> {
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    name: Text<'a>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<Annotations<'a>>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    finalizers: Option<Vec<String>>,
    creation_timestamp: Option<Text<'a>>,
    deletion_timestamp: Option<Text<'a>>,
    managed_fields: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Annotations<'a> {
    #[serde(rename = "metahook.dev/controller")]
    made_by: Option<Text<'a>>,
    #[serde(rename = "metacontroller.k8s.io/decorator-controller")]
    attached_by: Option<Text<'a>>,
    #[serde(rename = "metacontroller.k8s.io/last-applied-configuration")]
    applied: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct OwnerReference<'a> {
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    uid: Text<'a>,
    #[serde(default)]
    controller: bool,
}

impl OwnerReference<'_> {
    fn named(&self) -> u64 {
        let [version, kind, name] =
            [&self.api_version, &self.kind, &self.name].map(|text| text.as_ref().map_or("", |text| &*text.0));
        owner_named(version, kind, name)
    }
}

fn owner_named(api_version: &str, kind: &str, name: &str) -> u64 {
    let mut all = hash64();
    (api_version, kind, name).hash(&mut all);
    all.finish()
}

/// The digits of a time like `2026-01-31T12:00:00Z`, which are in the order of the times.
fn time_number(time: &str) -> u64 {
    const DIGITS: usize = 14;
    let digits = time.bytes().filter(u8::is_ascii_digit).take(DIGITS);
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// Cuts the member whose value is `value`, a slice of `json`, with its key and one comma.
fn cut_member(json: &str, value: &str) -> Option<String> {
    let start = (value.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let (before, rest) = json.split_at_checked(start)?;
    let after = rest.get(value.len()..)?;
    let key = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix("\"managedFields\"")?.trim_end();
    Some(match key.strip_suffix(',') {
        Some(before) => [before, after].concat(),
        None => [key, after.trim_start().strip_prefix(',').unwrap_or(after)].concat(),
    })
}

/// Writes `apiVersion` and `kind` into an object that has none.
fn with_kind(json: &str, gvk: &Gvk) -> String {
    let rest = json.trim_start().strip_prefix('{').unwrap_or(json);
    format!(r#"{{"apiVersion":"{}","kind":"{}",{rest}"#, gvk.api_version(), gvk.kind)
}

/// Observed objects by resource and name. Every declared resource has an entry, also an empty one.
#[derive(Debug, Clone, Default)]
pub struct ChildMap(BTreeMap<Arc<Resource>, BTreeMap<Key, Arc<Object>>>);

/// How requests name objects: relative to the parent (v1), or `namespace/name` always (v2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    Relative,
    Uniform,
}

impl ChildMap {
    pub fn declare(&mut self, resource: &Arc<Resource>) {
        self.0.entry(Arc::clone(resource)).or_default();
    }

    pub fn insert(&mut self, resource: &Arc<Resource>, object: Arc<Object>) {
        self.0.entry(Arc::clone(resource)).or_default().insert(object.key.clone(), object);
    }

    /// Removes an object; its resource stays declared.
    pub fn remove(&mut self, id: &ObjectId) {
        if let Some(objects) = self.0.get_mut(&id.resource) {
            objects.remove(&id.key);
        }
    }

    pub fn get(&self, resource: &Arc<Resource>, key: &Key) -> Option<&Arc<Object>> {
        self.0.get(resource)?.get(key)
    }

    pub fn groups(&self) -> impl Iterator<Item = (&Arc<Resource>, &BTreeMap<Key, Arc<Object>>)> {
        self.0.iter()
    }

    /// All objects with the resource they are of, in order.
    pub fn objects(&self) -> impl Iterator<Item = (&Arc<Resource>, &Arc<Object>)> {
        self.0.iter().flat_map(|(resource, objects)| objects.values().map(move |object| (resource, object)))
    }
}

impl Naming {
    /// Whether there is a name for an object.
    pub(crate) fn names(self, parent_namespace: &str, key: &Key) -> bool {
        self == Self::Uniform || parent_namespace.is_empty() || *key.namespace == *parent_namespace
    }

    /// Name of an object in a request about a parent in `parent_namespace` (empty: cluster-scoped); `None` where this
    /// naming has no word for it.
    pub fn name(self, parent_namespace: &str, key: &Key) -> Option<String> {
        match self {
            _ if !self.names(parent_namespace, key) => None,
            Self::Relative if !parent_namespace.is_empty() => Some(key.name.to_string()),
            Self::Relative | Self::Uniform => Some(key.to_string()),
        }
    }
}
