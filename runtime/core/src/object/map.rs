//! The children of one parent by kind and name, and how each is named in a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::Object;
use crate::object::id::{Key, ObjectId, Resource};

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

    /// Without one object; its resource stays declared.
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
    /// What an object is called in a request about a parent in `parent_namespace` (empty: cluster-scoped);
    /// `None` where this naming has no word for it.
    pub fn name(self, parent_namespace: &str, key: &Key) -> Option<String> {
        match self {
            Self::Relative if parent_namespace.is_empty() => Some(key.to_string()),
            Self::Relative if *key.namespace == *parent_namespace => Some(key.name.to_string()),
            Self::Relative => None,
            Self::Uniform => Some(key.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_hook_version_and_the_scopes() {
        let (same, other, cluster) = (Key::new("n", "x"), Key::new("m", "x"), Key::new("", "x"));
        let v1 = |parent, key| Naming::Relative.name(parent, key);
        let v2 = |parent, key| Naming::Uniform.name(parent, key);
        assert_eq!(v1("n", &same).as_deref(), Some("x"));
        assert_eq!(v1("n", &other), None);
        assert_eq!(v1("n", &cluster), None);
        assert_eq!(v1("", &same).as_deref(), Some("n/x"));
        assert_eq!(v1("", &cluster).as_deref(), Some("x"));
        assert_eq!(v2("n", &same).as_deref(), Some("n/x"));
        assert_eq!(v2("n", &cluster).as_deref(), Some("x"));
        assert_eq!(v2("", &other).as_deref(), Some("m/x"));
    }
}
