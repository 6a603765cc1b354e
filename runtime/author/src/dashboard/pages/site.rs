//! Site of one run: the prefix of its links, and the cluster that each page names.

use metahook_core::trace::TracedObject;
use metahook_server::cluster::cluster_name::ClusterName;

use super::terminal::Terminal;

/// Values that all pages of a run have in common.
pub(crate) struct Site {
    pub(crate) prefix: String,
    pub(crate) cluster: ClusterName,
    pub(crate) terminal: Terminal,
}

impl Site {
    /// The link to a page. `path`: begins with a slash.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// The link to the page of an object.
    pub(crate) fn object_link(&self, object: &TracedObject) -> String {
        self.link(&format!("/object?{}", query_of(object, &[])))
    }

    /// The link to the page of a controller.
    pub(super) fn controller_link(&self, kind: &str, name: &str) -> String {
        self.link(&format!("/controllers/{kind}/{name}"))
    }

    /// The link to the requests and answers about a parent.
    pub(crate) fn calls_link(&self, (kind, name): (&str, &str), parent: &TracedObject) -> String {
        let query = query_of(parent, &[("controllerKind", kind), ("controller", name)]);
        self.link(&format!("/calls?{query}"))
    }

    /// The context where there is one, else the API server.
    pub(super) fn short_name(&self) -> &str {
        let ClusterName { context, server } = &self.cluster;
        context.as_deref().unwrap_or(server)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let cluster =
            ClusterName { context: Some("prod".to_owned()), server: "https://10.0.0.1:6443".to_owned() };
        Self { prefix: "/0f".to_owned(), cluster, terminal: Terminal::default() }
    }
}

/// The query of a page about an object. `more`: further fields.
fn query_of(object: &TracedObject, more: &[(&str, &str)]) -> String {
    let TracedObject { group, resource, kind, namespace, name } = object;
    form_urlencoded::Serializer::new(String::new())
        .append_pair("group", group)
        .append_pair("resource", resource)
        .append_pair("kind", kind)
        .append_pair("namespace", namespace)
        .append_pair("name", name)
        .extend_pairs(more)
        .finish()
}
