//! Request of one call as an author has it in a file: which hook it is for, and whether the server would take the answer.

use metahook_core::api::ControllerKind;
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::hook::{HookName, HookTransport, HookVersion};
use metahook_core::hook::customize::{self, CustomizeError};
use metahook_core::hook::read::ReadOptions;
use metahook_core::hook::{AnswerWarning, MAX_ANSWER_MEMORY, ResponseError, ignored, response};
use metahook_core::shorten;
use serde::Deserialize;
use serde_json::Value;

use metahook_server::telemetry::escape;

/// The server's default of `--max-children`.
pub(crate) const MAX_CHILDREN: usize = 10_000;

/// Bytes of an object's kind and name in a message.
const MAX_NAME: usize = 300;

/// Hook that a request is for, as the request shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOf {
    /// The controller's name; empty where the request has none.
    pub controller: String,
    kind: ControllerKind,
    pub hook: HookName,
    version: HookVersion,
}

#[derive(Debug, thiserror::Error)]
pub enum AnswerRefused {
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error(transparent)]
    Customize(#[from] CustomizeError),
    /// A server would record an Event.
    #[error("{0}")]
    Ignored(String),
}

/// An object of a cluster, where a request is expected that shows it to a hook.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is an object, {0}, and not a request: put it under `parent:`, for a DecoratorController under `object:`"
)]
pub struct ObjectError(String);

/// Checks that a value may be a request: requests have no kind.
pub fn check_request(value: &Value) -> Result<(), ObjectError> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let is_request = ["parent", "object", "controller"].iter().any(|field| value.get(field).is_some());
    match (text("/apiVersion"), text("/kind")) {
        (Some(_), Some(kind)) if !is_request => {
            let name = text("/metadata/name").map(|name| format!(" {name}"));
            Err(ObjectError(shorten(&escape(&format!("{kind}{}", name.unwrap_or_default())), MAX_NAME)))
        }
        _ => Ok(()),
    }
}

impl RequestOf {
    /// `hook`: where the author names one; else the request's own fields say which it is.
    pub fn new(request: &Value, hook: Option<HookName>) -> Self {
        let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_finalizing = request.get("finalizing") == Some(&Value::Bool(true));
        let by_fields = match request {
            // As `metahook_core` writes them, only those of customize hooks show no children.
            Value::Object(fields)
                if !fields.contains_key("finalizing") && !fields.contains_key("related") =>
            {
                let shows_children = fields.contains_key("children") || fields.contains_key("attachments");
                if shows_children { HookName::Sync } else { HookName::Customize }
            }
            _ if is_finalizing => HookName::Finalize,
            _ => HookName::Sync,
        };
        let hook = hook.unwrap_or(by_fields);
        let is_decorator =
            request.get("object").is_some() || text("/controller/kind") == ControllerKind::Decorator.as_str();
        let version = request.pointer(&format!("/controller/spec/hooks/{hook}/version"));
        Self {
            controller: text("/controller/metadata/name").to_owned(),
            kind: if is_decorator { ControllerKind::Decorator } else { ControllerKind::Composite },
            hook,
            version: version.and_then(|version| HookVersion::deserialize(version).ok()).unwrap_or_default(),
        }
    }

    /// Checks an answer for its author: what the server would ignore is a mistake, too.
    pub fn check(&self, answer: &[u8]) -> Result<(), AnswerRefused> {
        ignored(self.hook, &self.read(answer)?).map_or(Ok(()), |message| Err(AnswerRefused::Ignored(message)))
    }

    /// Reads an answer as the server does, which knows more: declared kinds, labels, names that are taken. Returns the
    /// warnings about it.
    fn read(&self, answer: &[u8]) -> Result<Vec<AnswerWarning>, AnswerRefused> {
        let (via, mode) = (HookTransport::Wasm, self.version.mode());
        let warnings = if self.hook == HookName::Customize {
            customize::rules(answer, via, mode, &CustomizeBounds::default())?.warnings
        } else {
            let reading = ReadOptions {
                kind: self.kind,
                via,
                mode,
                max_children: MAX_CHILDREN,
                max_memory: MAX_ANSWER_MEMORY,
                deletes: true,
            };
            response::sync(answer, reading)?.warnings
        };
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_says_which_hook_it_is_for() {
        let hook = |request: Value| RequestOf::new(&request, None).hook;
        assert_eq!(hook(json!({"parent": {}, "children": {}, "finalizing": false})), HookName::Sync);
        assert_eq!(hook(json!({"parent": {}, "children": {}})), HookName::Sync, "shortened by its author");
        assert_eq!(hook(json!({"object": {}, "attachments": {}, "finalizing": true})), HookName::Finalize);
        assert_eq!(hook(json!({"controller": {}, "parent": {}})), HookName::Customize);
        let named = RequestOf::new(&json!({"parent": {}}), Some(HookName::Finalize));
        assert_eq!(named.hook, HookName::Finalize);
    }

    #[test]
    fn an_object_is_no_request() {
        let demo = json!({"apiVersion": "e.com/v1", "kind": "Demo", "metadata": {"name": "first"}});
        let told = check_request(&demo).unwrap_err().to_string();
        assert!(told.starts_with("this is an object, Demo first, and not a request"), "{told}");
        let unnamed = json!({"apiVersion": "v1", "kind": "List", "items": []});
        assert_eq!(check_request(&unnamed), Err(ObjectError("List".to_owned())));
        for request in
            [json!({"parent": demo}), json!({}), json!({"apiVersion": "v1", "kind": "K", "object": {}})]
        {
            assert_eq!(check_request(&request), Ok(()));
        }
        let long = json!({"apiVersion": "v1", "kind": "K".repeat(MAX_NAME + 1)});
        let ObjectError(name) = check_request(&long).unwrap_err();
        assert!(name.len() <= MAX_NAME, "{}", name.len());
    }

    #[test]
    fn an_answer_is_read_as_by_the_server() {
        let request = |version: &str| {
            let hooks = json!({"sync": {"version": version}});
            let controller = json!({"metadata": {"name": "c"}, "spec": {"hooks": hooks}});
            RequestOf::new(&json!({"controller": controller, "parent": {}, "children": {}}), None)
        };
        let typo = br#"{"children": [], "statuss": {}}"#;
        assert_eq!(request("v1").controller, "c");
        assert!(request("v1").read(typo).is_ok(), "the server does");
        let refused = |request: RequestOf, answer: &[u8]| request.check(answer).unwrap_err().to_string();
        let says = "The sync hook's answer has the unknown field statuss; that has no effect";
        assert_eq!(refused(request("v1"), typo), says);
        assert_eq!(refused(request("v2"), typo), "the hook's answer has the unknown field statuss");
        let decorator = RequestOf::new(&json!({"object": {}, "attachments": {}}), None);
        assert!(refused(decorator, br#"{"children": []}"#).contains("no field attachments"));
        let customize = RequestOf::new(&json!({"parent": {}}), None);
        assert!(customize.check(b"{}").is_ok());
        assert!(refused(customize, br#"{"relatedResources": 1}"#).contains("relatedResources must be"));
    }
}
