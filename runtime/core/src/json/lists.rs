//! What the API server publishes about the lists of a kind: which are maps at heart, by which keys, and which are one value.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// One place of an object and what is below it. Knows nothing where nothing is published.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lists {
    /// What the list at this place is, where one is. Of an object: whether it is one value, which only server-side apply
    /// takes it for.
    pub kind: Option<ListKind>,
    pub members: BTreeMap<String, Arc<Lists>>,
    /// Every item of a list, every member of a map.
    pub each: Option<Arc<Lists>>,
}

/// `x-kubernetes-list-type`, and `x-kubernetes-map-type` where it is atomic.
#[derive(Debug, Clone, PartialEq)]
pub enum ListKind {
    /// One value: who sets it, sets all of it.
    Atomic,
    /// Each item at most once; everybody adds their own.
    Set,
    /// The items are told apart by these fields.
    Map(Vec<ListKey>),
}

/// A field of `x-kubernetes-list-map-keys`.
#[derive(Debug, Clone, PartialEq)]
pub struct ListKey {
    pub field: String,
    /// What an item that does not name the field has in it.
    pub default: Option<Value>,
}

impl Lists {
    pub fn is_empty(&self) -> bool {
        self.kind.is_none() && self.members.is_empty() && self.each.is_none()
    }

    pub fn member(&self, name: &str) -> Option<&Self> {
        self.members.get(name).or(self.each.as_ref()).map(AsRef::as_ref)
    }

    pub fn item(&self) -> Option<&Self> {
        self.each.as_deref()
    }
}
