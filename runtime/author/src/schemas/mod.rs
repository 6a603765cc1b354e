//! Schemas of kinds: those of the API server's own, kept in a file, and those of CustomResourceDefinitions.

pub(crate) mod export;
mod faults;
pub mod hooks;
mod texts;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use metahook_core::object::id::Gvk;
use serde::Deserialize;
use serde_json::Value;

use faults::Faults;
pub use faults::MAX_FAULTS;

/// A schema of each line, as the Kubernetes of the acceptance tests publishes it, without descriptions. A test compares
/// them; with `BLESS=1` it writes the file.
const BUILT_IN: &str = include_str!("built_in.jsonl");

/// The schema of what all objects have.
const METADATA: &str = "meta.v1.ObjectMeta";

#[derive(Deserialize)]
struct Line {
    name: String,
    /// The kinds that have this schema, such as `apps/v1 Deployment`.
    #[serde(default)]
    kinds: Vec<String>,
    schema: Value,
}

struct BuiltIn {
    schemas: BTreeMap<String, Value>,
    kinds: BTreeMap<String, String>,
}

/// Lines that cannot be read would be missing; a test reads all of them.
static KNOWN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let mut known = BuiltIn { schemas: BTreeMap::new(), kinds: BTreeMap::new() };
    for Line { name, kinds, schema } in BUILT_IN.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        known.kinds.extend(kinds.into_iter().map(|kind| (kind, name.clone())));
        known.schemas.insert(name, schema);
    }
    known
});

/// The text of the file, for the test.
pub fn built_in_schemas() -> &'static str {
    BUILT_IN
}

/// Whether a kind is the API server's own.
pub(crate) fn is_built_in(gvk: &Gvk) -> bool {
    KNOWN.kinds.contains_key(&kind(gvk))
}

/// Parts of an object that the API server would drop, or refuse it for. `custom`: the schema of its kind in its
/// definition. Of a kind without a known schema only the metadata is looked at.
pub(crate) fn object_faults(gvk: &Gvk, custom: Option<&Value>, object: &Value) -> Vec<String> {
    let resolve = |name: &str| KNOWN.schemas.get(name);
    let mut faults = Faults { resolve: &resolve, found: Vec::new() };
    let Value::Object(fields) = object else { return Vec::new() };
    if let Some(schema) = KNOWN.kinds.get(&kind(gvk)).and_then(|name| resolve(name)) {
        faults.look(schema, object, "");
        return faults.found;
    }
    if let (Some(metadata), Some(schema)) = (fields.get("metadata"), resolve(METADATA)) {
        faults.look(schema, metadata, "metadata");
    }
    if let Some(schema) = custom {
        let own =
            fields.iter().filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
        let own = own.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut faults = Faults { resolve: &|_| None, found: faults.found };
        faults.look_into(schema, &own, "");
        return faults.found;
    }
    faults.found
}

/// Parts of an object's status alone that the API server would drop, or refuse it for.
pub(crate) fn status_faults(gvk: &Gvk, custom: Option<&Value>, status: &Value) -> Vec<String> {
    let resolve = |name: &str| KNOWN.schemas.get(name);
    let mut faults = Faults { resolve: &resolve, found: Vec::new() };
    let built_in = KNOWN.kinds.get(&kind(gvk)).and_then(|name| resolve(name));
    if let Some(schema) = built_in.or(custom) {
        let only = [("status".to_owned(), status.clone())].into_iter().collect();
        let unbound = schema.get("properties").and_then(|all| all.get("status"));
        match unbound {
            Some(schema) => faults.look(schema, status, "status"),
            None => faults.look_into(schema, &only, ""),
        }
    }
    faults.found
}

fn kind(gvk: &Gvk) -> String {
    format!("{} {}", gvk.api_version(), gvk.kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_line_can_be_read_and_every_reference_leads_somewhere() {
        let lines: Vec<Line> = BUILT_IN.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), KNOWN.schemas.len());
        for part in BUILT_IN.split(r#""$ref":""#).skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(KNOWN.schemas.contains_key(name), "{name}");
        }
    }

    #[test]
    fn typos_in_built_in_kinds_are_found() {
        let pod = |spec: Value| {
            let metadata = json!({ "name": "a", "labels": { "app": "a" } });
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
        };
        let of = |object: &Value| object_faults(&Gvk::new("v1", "Pod"), None, object);
        let container = json!({
            "name": "a", "image": "b", "ports": [{ "containerPort": 80 }],
            "resources": { "limits": { "cpu": "1", "memory": 1024 } },
            "livenessProbe": { "httpGet": { "port": "http" } },
        });
        assert_eq!(of(&pod(json!({ "containers": [container] }))), Vec::<String>::new());
        assert_eq!(
            of(&pod(json!({ "containers": [{ "name": "a" }], "restartPolicyy": "Never" }))),
            ["spec.restartPolicyy is not in the schema (is restartPolicy meant?): the API server drops it"]
        );
        assert_eq!(
            of(&pod(json!({ "containers": [{ "name": "a", "ports": [{ "containerPort": "80" }] }] }))),
            [
                "spec.containers[0].ports[0].containerPort is a string, and the schema wants an integer: the API server refuses it"
            ]
        );
        assert_eq!(
            of(&pod(json!({}))),
            ["spec lacks containers, which the schema requires: the API server refuses it"]
        );
    }

    #[test]
    fn objects_of_definitions_are_looked_at_by_theirs_and_their_metadata_by_all_objects() {
        let gvk = Gvk::new("example.com/v1", "Thing");
        let schema = json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": { "who": { "type": "string" } } },
            "status": { "type": "object", "properties": { "maps": { "type": "integer" } } },
        } });
        let thing = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a", "label": {} }, "spec": { "whoo": 1 } });
        let said = object_faults(&gvk, Some(&schema), &thing).join("\n");
        assert!(said.contains("metadata.label is not in the schema (is labels meant?)"), "{said}");
        assert!(said.contains("spec.whoo is not in the schema (is who meant?)"), "{said}");
        assert_eq!(object_faults(&gvk, None, &thing).len(), 1, "its schema is not known");
        let status = |status: Value| status_faults(&gvk, Some(&schema), &status);
        assert!(status(json!({ "maps": 1 })).is_empty());
        assert_eq!(
            status(json!({ "mapps": 1 })),
            ["status.mapps is not in the schema (is maps meant?): the API server drops it"]
        );
    }
}
