//! Paths of objects at the API server.

use metahook_core::object::id::{Key, Resource};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// The path of one object.
pub(crate) fn object_path(resource: &Resource, key: &Key) -> String {
    format!("{}/{}", list_path(resource, &key.namespace), segment(&key.name))
}

/// The path of a resource's objects in a namespace; in the cluster where it is empty.
pub(crate) fn list_path(resource: &Resource, namespace: &str) -> String {
    let root = version_path(&resource.gvk.group, &resource.gvk.version);
    match (resource.namespaced, namespace) {
        (true, namespace) if !namespace.is_empty() => {
            format!("{root}/namespaces/{}/{}", segment(namespace), resource.plural)
        }
        _ => format!("{root}/{}", resource.plural),
    }
}

/// The namespace of Events about an object: its own, if it has one.
pub(super) fn events_namespace(namespace: &str) -> &str {
    if namespace.is_empty() { "default" } else { namespace }
}

/// Bytes of a segment that are written as `%` and two digits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// One segment of a path: whatever it holds, it stays one.
pub(super) fn segment(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

pub(crate) fn version_path(group: &str, version: &str) -> String {
    let version = segment(version);
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", segment(group)) }
}

#[cfg(test)]
mod tests {
    use metahook_core::object::id::Gvk;

    use super::*;

    #[test]
    fn a_name_never_becomes_more_than_one_segment() {
        let gvk = Gvk::new("apps/v1", "Deployment");
        let resource = Resource { gvk, plural: "deployments".into(), namespaced: true, has_status: true };
        let path = |namespace: &str, name: &str| object_path(&resource, &Key::new(namespace, name));
        assert_eq!(path("n", "a.b"), "/apis/apps/v1/namespaces/n/deployments/a.b");
        assert_eq!(path("n/x?y", "../z#%"), "/apis/apps/v1/namespaces/n%2Fx%3Fy/deployments/..%2Fz%23%25");
    }
}
