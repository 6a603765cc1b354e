//! Identities: kinds, resources, names and uids; parsed once, compared, printed.

use std::fmt;
use std::sync::Arc;

/// Length of an object's name.
pub(crate) const MAX_NAME_BYTES: usize = 253;

/// The uid the API server gave an object: two objects of one name never share it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Arc<str>);

impl Uid {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Group, version and kind, as they stand in an object's `apiVersion` and `kind`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub kind: Arc<str>,
}

/// Whether this is a version, or a group and a version: it becomes part of the path under which the API server is asked.
pub fn is_api_version(text: &str) -> bool {
    let (group, version) = text.split_once('/').unwrap_or(("core", text));
    let word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    word(group) && word(version)
}

/// Lower case letters, digits and dashes between them: a part of a DNS name.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(letter) && text.ends_with(letter) && text.chars().all(|c| letter(c) || c == '-')
}

/// A DNS subdomain, as names of most objects are.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_dns_label)
}

impl Gvk {
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }

    pub fn is_named(&self, api_version: &str, kind: &str) -> bool {
        (&*self.group, &*self.version) == split_api_version(api_version) && *self.kind == *kind
    }

    /// The key of this kind's objects in a hook request: `Pod.v1`, `Deployment.apps/v1`.
    pub fn group_key(&self) -> String {
        format!("{}.{}", self.kind, self.api_version())
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

/// Group, version and plural, as a controller's spec names a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gvr {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub resource: Arc<str>,
}

impl Gvr {
    pub fn new(api_version: &str, resource: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Whether both are the same kind of objects, in any version.
    pub fn is_kin(&self, other: &Self) -> bool {
        self.group == other.group && self.resource == other.resource
    }

    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.resource)
    }
}

/// A resource as the API server serves it: both of its names, its scope, whether it has a status subresource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    pub gvk: Gvk,
    pub plural: Arc<str>,
    pub namespaced: bool,
    pub has_status: bool,
}

impl Resource {
    pub fn gvr(&self) -> Gvr {
        Gvr {
            group: Arc::clone(&self.gvk.group),
            version: Arc::clone(&self.gvk.version),
            resource: Arc::clone(&self.plural),
        }
    }

    /// Whether its objects are Secrets of Kubernetes.
    pub fn is_secret(&self) -> bool {
        self.gvk.group.is_empty() && &*self.gvk.kind == "Secret"
    }
}

/// Namespace and name; the namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Key {
    /// Bytes of its longest text.
    pub(crate) fn len(&self) -> usize {
        self.namespace.len() + 1 + self.name.len()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// One object of the cluster: which resource, which name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    pub resource: Arc<Resource>,
    pub key: Key,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource.gvk.kind, self.key)
    }
}

fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

pub fn join_api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_key_of_the_core_group_has_no_slash() {
        assert_eq!(Gvk::new("v1", "Pod").group_key(), "Pod.v1");
        assert_eq!(Gvk::new("apps/v1", "Deployment").group_key(), "Deployment.apps/v1");
    }

    #[test]
    fn api_versions_survive_parsing_and_printing() {
        for text in ["v1", "apps/v1", "example.com/v1alpha1"] {
            let gvk = Gvk::new(text, "X");
            assert_eq!(gvk.api_version(), text);
            assert!(gvk.is_named(text, "X") && !gvk.is_named(text, "Y") && !gvk.is_named("x/v1", "X"));
            assert_eq!(Gvr::new(text, "xs").api_version(), text);
        }
    }
}
