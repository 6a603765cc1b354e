//! Kinds of children that a request in a file leaves out, and that a server shows without objects.

use metahook_core::api::ControllerKind;
use metahook_core::api::hook::HookName;
use metahook_core::bundle::gvk;
use serde_json::{Map, Value};

use crate::documents::Document;
use crate::kinds::KnownKinds;
use crate::render::setup::hook_kinds;

/// The request of a hook with an empty object for each kind of child that it leaves out, as the server shows them, so that an
/// author may write `children: {}`. The kinds are those of the controller among the documents, where that is one for the
/// request's parent.
pub fn with_kinds(
    documents: &[Document],
    hook: HookName,
    text: String,
    mut request: Value,
) -> (String, Value) {
    match add_kinds(documents, hook, &mut request) {
        Some(true) => (request.to_string(), request),
        None | Some(false) => (text, request),
    }
}

/// Whether kinds were added; `None`: no controller is known, or the hook is shown no children.
fn add_kinds(documents: &[Document], hook: HookName, request: &mut Value) -> Option<bool> {
    if hook == HookName::Customize {
        return None;
    }
    let known = KnownKinds::of(documents).ok()?;
    let kinds = hook_kinds(documents, &known).ok()?;
    let (parent, children) = match kinds.controller {
        ControllerKind::Composite => ("parent", "children"),
        ControllerKind::Decorator => ("object", "attachments"),
    };
    let parent = gvk(request.get(parent)?);
    if !kinds.parents.iter().any(|(gvk, _)| *gvk == parent) {
        return None;
    }
    let empty = || Value::Object(Map::new());
    let groups = request.as_object_mut()?.entry(children).or_insert_with(empty).as_object_mut()?;
    let before = groups.len();
    for (gvk, _) in &kinds.children {
        groups.entry(gvk.group_key()).or_insert_with(empty);
    }
    Some(groups.len() > before)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::documents::of_text;

    #[test]
    fn kinds_that_a_request_leaves_out_are_empty_as_a_server_shows_them() {
        let child = |resource| json!({ "apiVersion": "v1", "resource": resource });
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
            "metadata": { "name": "c" },
            "spec": {
                "parentResource": { "apiVersion": "apps/v1", "resource": "deployments" },
                "childResources": [child("pods"), child("configmaps")], "generateSelector": true,
                "hooks": { "sync": { "webhook": { "url": "http://h.n/sync" } } },
            },
        });
        let documents = of_text("c.yaml", &controller.to_string()).unwrap();
        let filled = |request: Value| with_kinds(&documents, HookName::Sync, "as it was".to_owned(), request);
        let parent = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
        let (text, full) = filled(json!({ "parent": parent, "children": { "Pod.v1": { "p": {} } } }));
        let children = json!({ "Pod.v1": { "p": {} }, "ConfigMap.v1": {} });
        assert_eq!(full, json!({ "parent": parent, "children": children }));
        assert_eq!(text, full.to_string());
        assert_eq!(filled(full.clone()), ("as it was".to_owned(), full), "nothing is missing");
        let other = json!({ "parent": { "apiVersion": "v1", "kind": "Pod" }, "children": {} });
        assert_eq!(filled(other.clone()), ("as it was".to_owned(), other), "of another controller");
        let alone = json!({ "parent": parent });
        let (_, full) = filled(alone.clone());
        assert_eq!(
            full["children"],
            json!({ "Pod.v1": {}, "ConfigMap.v1": {} }),
            "the flag --hook says which it is"
        );
        let customize = with_kinds(&documents, HookName::Customize, "as it was".to_owned(), alone.clone());
        assert_eq!(customize, ("as it was".to_owned(), alone));
    }
}
