//! JSON Schemas of what hooks are asked and answer, by the kinds of a controller.

use std::collections::BTreeMap;

use metahook_core::api::ControllerKind;
use metahook_core::object::id::Gvk;
use serde_json::{Map, Value, json};

use super::export::Export;
use super::texts;

/// Subject of a schema of a controller's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Parent,
    SyncRequest,
    SyncResponse,
    CustomizeRequest,
    CustomizeResponse,
}

/// A kind with the schema of its definition.
pub(crate) type KnownKind<'a> = (Gvk, Option<&'a Value>);

/// The kinds of a controller.
pub struct HookKinds<'a> {
    pub(crate) controller: ControllerKind,
    pub parents: Vec<KnownKind<'a>>,
    pub(crate) children: Vec<KnownKind<'a>>,
}

impl HookKinds<'_> {
    pub fn schema(&self, subject: Subject) -> Value {
        let mut export = Export::default();
        let (title, schema) = match subject {
            Subject::Parent => ("parent", self.parent(&mut export)),
            Subject::SyncRequest => ("request of a sync or finalize hook", self.request(&mut export)),
            Subject::SyncResponse => ("answer of a sync or finalize hook", self.response(&mut export)),
            Subject::CustomizeRequest => {
                let parent = self.parent(&mut export);
                let fields = json!({
                    "controller": described(any(), texts::CONTROLLER),
                    "parent": described(parent, texts::PARENT),
                    "settings": { "description": texts::SETTINGS },
                });
                ("request of a customize hook", open(&fields, &["controller", "parent"]))
            }
            Subject::CustomizeResponse => ("answer of a customize hook", rules()),
        };
        export.document(title, schema)
    }

    fn parent(&self, export: &mut Export) -> Value {
        any_of(self.parents.iter().map(|(gvk, custom)| export.object(gvk, *custom)).collect())
    }

    fn is_decorator(&self) -> bool {
        self.controller == ControllerKind::Decorator
    }

    fn request(&self, export: &mut Export) -> Value {
        let parent = self.parent(export);
        let mut groups = BTreeMap::new();
        for (gvk, custom) in &self.children {
            let child = export.object(gvk, *custom);
            groups.insert(gvk.group_key(), json!({ "type": "object", "additionalProperties": child }));
        }
        let children = json!({
            "type": "object", "required": groups.keys().collect::<Vec<_>>(),
            "properties": groups, "additionalProperties": false,
        });
        let group = json!({ "type": "object", "additionalProperties": any() });
        let (object, list) = self.names();
        let related = json!({ "type": "object", "additionalProperties": group });
        let finalizing = json!({ "type": "boolean" });
        let fields = json!({
            "controller": described(any(), texts::CONTROLLER),
            object: described(parent, texts::PARENT),
            list: described(children, texts::CHILDREN),
            "related": described(related, texts::RELATED),
            "finalizing": described(finalizing, texts::FINALIZING),
            "settings": { "description": texts::SETTINGS },
        });
        open(&fields, &["controller", object, list, "related", "finalizing"])
    }

    fn response(&self, export: &mut Export) -> Value {
        let children =
            any_of(self.children.iter().map(|(gvk, custom)| export.object(gvk, *custom)).collect());
        let (_, list) = self.names();
        let status = if self.is_decorator() { texts::DECORATOR_STATUS } else { texts::STATUS };
        let events = closed(&event(), &["reason", "message"]);
        let doomed = closed(&doomed(), &["apiVersion", "kind", "name", "uid"]);
        let mut fields = json!({
            "status": { "type": ["object", "null"], "description": status },
            list: { "type": "array", "items": children, "description": texts::DESIRED },
            "resyncAfterSeconds": { "type": ["number", "null"], "description": texts::RESYNC },
            "finalized": { "type": ["boolean", "null"], "description": texts::FINALIZED },
            "events": { "type": ["array", "null"], "items": events, "description": texts::EVENTS },
            "deleteRelated": { "type": ["array", "null"], "items": doomed, "description": texts::DELETE_RELATED },
        });
        if let (true, Some(fields)) = (self.is_decorator(), fields.as_object_mut()) {
            for (field, description) in [("labels", texts::LABELS), ("annotations", texts::ANNOTATIONS)] {
                let values = json!({ "type": ["string", "null"] });
                let changes = json!({ "type": ["object", "null"], "additionalProperties": values });
                fields.insert(field.to_owned(), described(changes, description));
            }
        }
        closed(&fields, &[list])
    }

    /// The fields of the object and of its children.
    fn names(&self) -> (&'static str, &'static str) {
        (if self.is_decorator() { "object" } else { "parent" }, self.controller.children())
    }
}

/// The schema of both kinds of controllers, by their definitions.
pub fn controllers(definitions: &[Value]) -> Value {
    let mut export = Export::default();
    let known = definitions.iter().filter_map(|definition| {
        let kind = definition.pointer("/spec/names/kind")?.as_str()?;
        [ControllerKind::Composite, ControllerKind::Decorator]
            .into_iter()
            .find(|one| one.as_str() == kind)?;
        let (group, version) =
            (definition.pointer("/spec/group")?.as_str()?, definition.pointer("/spec/versions/0")?);
        let gvk = Gvk::new(&format!("{group}/{}", version.get("name")?.as_str()?), kind);
        Some(export.object(&gvk, version.pointer("/schema/openAPIV3Schema")))
    });
    let known = known.collect();
    export.document("controller", any_of(known))
}

fn event() -> Value {
    json!({
        "type": { "enum": ["Normal", "Warning"], "description": texts::EVENT_TYPE },
        "reason": { "type": "string", "maxLength": 128, "description": texts::EVENT_REASON },
        "message": { "type": "string", "description": texts::EVENT_MESSAGE },
    })
}

fn doomed() -> Value {
    json!({
        "apiVersion": text(texts::API_VERSION),
        "kind": text(texts::KIND),
        "namespace": { "type": ["string", "null"], "description": texts::NAMESPACE },
        "name": text(texts::NAME),
        "uid": text(texts::UID),
    })
}

fn rules() -> Value {
    let selector = |description| json!({ "type": ["object", "null"], "description": description });
    let rule = json!({
        "apiVersion": text(texts::API_VERSION),
        "resource": text(texts::RESOURCE),
        "namespace": { "type": ["string", "null"], "description": texts::RULE_NAMESPACE },
        "names": { "type": ["array", "null"], "items": { "type": "string" }, "description": texts::RULE_NAMES },
        "labelSelector": selector(texts::RULE_LABELS),
        "namespaceSelector": selector(texts::RULE_NAMESPACES),
    });
    let rule = closed(&rule, &["apiVersion", "resource"]);
    let rules = json!({ "type": ["array", "null"], "items": rule, "description": texts::RULES });
    closed(&json!({ "relatedResources": rules }), &[])
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

/// A schema, or a reference to one, with what a field of it means.
fn described(mut schema: Value, description: &str) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), json!(description));
    }
    schema
}

fn any() -> Value {
    json!({ "type": "object" })
}

fn any_of(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        0 => any(),
        1 => schemas.remove(0),
        _ => json!({ "anyOf": schemas }),
    }
}

/// An object with these fields, and others that come in later versions.
fn open(fields: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": fields, "required": required })
}

fn closed(fields: &Value, required: &[&str]) -> Value {
    let mut schema = open(fields, required);
    if let Some(schema) = schema.as_object_mut() {
        let closed: Map<_, _> = [("additionalProperties".to_owned(), json!(false))].into_iter().collect();
        schema.extend(closed);
    }
    schema
}
