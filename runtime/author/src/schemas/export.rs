//! Schemas of Kubernetes as JSON Schemas (2020-12), as editors and generators of types read them.

use std::collections::BTreeMap;

use metahook_core::object::id::Gvk;
use serde_json::{Map, Value, json};

use super::{KNOWN, METADATA, kind};

/// The version of JSON Schema that is written.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Fields of a schema that are the same in both.
const SAME: [&str; 17] = [
    "type",
    "description",
    "required",
    "enum",
    "default",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// A document with the schemas that it refers to.
#[derive(Default)]
pub(crate) struct Export {
    definitions: BTreeMap<String, Value>,
}

impl Export {
    /// The schema of whole objects of a kind. Where it is not known any object of that kind will do.
    pub(crate) fn object(&mut self, gvk: &Gvk, custom: Option<&Value>) -> Value {
        let built_in = KNOWN.kinds.get(&kind(gvk)).and_then(|name| KNOWN.schemas.get(name));
        let known = built_in.or(custom);
        let mut schema = known.map_or_else(|| json!({ "type": "object" }), |schema| self.converted(schema));
        let metadata = self.reference(METADATA);
        if let Some(fields) = schema.as_object_mut() {
            let properties = fields.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                properties.insert("apiVersion".to_owned(), json!({ "const": gvk.api_version() }));
                properties.insert("kind".to_owned(), json!({ "const": &*gvk.kind }));
                properties.insert("metadata".to_owned(), metadata);
            }
        }
        let name = format!("{} {}", gvk.api_version(), gvk.kind);
        self.definitions.insert(name.clone(), schema);
        json!({ "$ref": pointer(&name) })
    }

    /// The document of a schema.
    pub(crate) fn document(self, title: &str, schema: Value) -> Value {
        let mut whole = json!({ "$schema": DIALECT, "title": title });
        if let (Some(whole), Value::Object(schema)) = (whole.as_object_mut(), schema) {
            whole.extend(schema);
            if !self.definitions.is_empty() {
                whole.insert("$defs".to_owned(), self.definitions.into_iter().collect::<Map<_, _>>().into());
            }
        }
        whole
    }

    fn reference(&mut self, name: &str) -> Value {
        if !self.definitions.contains_key(name) {
            // First of all, as schemas refer to themselves.
            self.definitions.insert(name.to_owned(), json!({}));
            let schema = KNOWN.schemas.get(name).map(|schema| self.converted(schema)).unwrap_or_default();
            self.definitions.insert(name.to_owned(), schema);
        }
        json!({ "$ref": pointer(name) })
    }

    fn converted(&mut self, schema: &Value) -> Value {
        let Value::Object(fields) = schema else { return json!({}) };
        if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
            return self.reference(name);
        }
        let is = |field: &str| fields.get(field).is_some_and(|value| *value == true);
        let mut made: Map<_, _> = fields
            .iter()
            .filter(|(field, _)| SAME.contains(&field.as_str()))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect();
        if is("x-kubernetes-int-or-string") {
            made.insert("type".to_owned(), json!(["number", "string"]));
        }
        if let (true, Some(Value::String(one))) = (is("nullable"), made.get("type")) {
            let types = json!([one, "null"]);
            made.insert("type".to_owned(), types);
        }
        if let Some(Value::Object(properties)) = fields.get("properties") {
            let all = properties.iter().map(|(name, below)| (name.clone(), self.converted(below)));
            made.insert("properties".to_owned(), all.collect::<Map<_, _>>().into());
        }
        if let Some(items) = fields.get("items") {
            made.insert("items".to_owned(), self.converted(items));
        }
        let others = fields.get("additionalProperties");
        if let Some(below @ Value::Object(_)) = others {
            made.insert("additionalProperties".to_owned(), self.converted(below));
        } else if others.is_none()
            && fields.contains_key("properties")
            && !is("x-kubernetes-preserve-unknown-fields")
        {
            // What the API server drops is a mistake.
            made.insert("additionalProperties".to_owned(), json!(false));
        }
        Value::Object(made)
    }
}

fn pointer(name: &str) -> String {
    format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1").replace(' ', "%20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_kubernetes_becomes_one_of_json() {
        let schema = json!({
            "type": "object", "description": "d", "x-kubernetes-validations": [],
            "properties": {
                "port": { "x-kubernetes-int-or-string": true },
                "note": { "type": "string", "nullable": true, "maxLength": 3 },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {} },
            },
        });
        let made = Export::default().converted(&schema);
        assert_eq!(
            made,
            json!({
                "type": "object", "description": "d", "additionalProperties": false,
                "properties": {
                    "port": { "type": ["number", "string"] },
                    "note": { "type": ["string", "null"], "maxLength": 3 },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                    "any": { "type": "object", "properties": {} },
                },
            })
        );
    }

    #[test]
    fn what_a_kind_refers_to_is_in_the_document_once() {
        let mut export = Export::default();
        let schema = export.object(&Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"), None);
        let document = export.document("t", schema);
        let definitions = document["$defs"].as_object().unwrap();
        let text = document.to_string();
        for part in text.split("\"$ref\":\"#/$defs/").skip(1) {
            let name = part.split('"').next().unwrap().replace("~1", "/").replace("%20", " ");
            assert!(definitions.contains_key(&name), "{name}");
        }
        assert!(definitions.contains_key("apiextensions.v1.JSONSchemaProps"), "which refers to itself");
    }
}
