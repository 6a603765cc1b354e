//! Kinds of children that a request in a file leaves out, and that a server shows without objects.

use metahook_core::api::ControllerKind;
use metahook_core::api::hook::HookName;
use metahook_core::bundle::gvk;
use metahook_core::object::id::Gvk;
use serde_json::{Map, Value};

use crate::call::RequestOf;
use crate::documents::Document;
use crate::kinds::KnownKinds;
use crate::render::setup::{has_hook, hook_kinds};

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

/// The hook that a request is for: its fields say it, but where they name no children, which an author may leave out, it is one
/// that the controller among the documents has.
pub fn hook_of(documents: &[Document], request: &Value) -> HookName {
    match RequestOf::new(request, None).hook {
        HookName::Customize if has_hook(documents, HookName::Customize) == Some(false) => HookName::Sync,
        hook => hook,
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
    let parent = request.get(parent)?;
    if !kinds.parents.iter().any(|(gvk, _)| may_be(parent, gvk)) {
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

/// Whether an object may be of a kind: an author may leave out its `apiVersion` and its `kind`.
fn may_be(object: &Value, kind: &Gvk) -> bool {
    let found = gvk(object);
    let has = |field| object.get(field).is_some();
    (!has("apiVersion") || (&found.group, &found.version) == (&kind.group, &kind.version))
        && (!has("kind") || found.kind == kind.kind)
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
        let (_, of_one) = filled(json!({ "parent": { "metadata": {} }, "children": {} }));
        assert_eq!(of_one["children"]["Pod.v1"], json!({}), "the only controller says which kind it is");
        let alone = json!({ "parent": parent });
        let (_, full) = filled(alone.clone());
        assert_eq!(
            full["children"],
            json!({ "Pod.v1": {}, "ConfigMap.v1": {} }),
            "the flag --hook says which it is"
        );
        assert_eq!(hook_of(&documents, &alone), HookName::Sync, "the controller has no customize hook");
        assert_eq!(hook_of(&[], &alone), HookName::Customize);
        let customize = with_kinds(&documents, HookName::Customize, "as it was".to_owned(), alone.clone());
        assert_eq!(customize, ("as it was".to_owned(), alone));
    }
}
