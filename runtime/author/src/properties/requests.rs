//! Requests made of a request: with keys in another order, unknown fields, other characters, many children, no status.

use metahook_core::object::id::Gvk;
use serde_json::{Map, Value, json};

use super::specs::specs;
use super::texts::{Place, UNICODE, replace_texts, spec_schema};
use crate::schemas::{is_built_in, object_faults};

/// Children of one kind in a large request.
pub(super) const MANY: usize = 1000;

/// The words of requests for the object that a hook is asked about.
const PARENTS: [&str; 2] = ["parent", "object"];
const CHILDREN: [&str; 2] = ["children", "attachments"];

/// JSON with the keys of all objects in the reverse order.
pub(super) fn reversed(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(",");
    match value {
        Value::Object(members) => {
            let members = members.iter().rev();
            let members =
                members.map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), reversed(value)));
            format!("{{{}}}", list(members.collect()))
        }
        Value::Array(items) => format!("[{}]", list(items.iter().map(reversed).collect())),
        scalar => scalar.to_string(),
    }
}

fn parent(request: &mut Value) -> Option<&mut Map<String, Value>> {
    let word = PARENTS.into_iter().find(|word| request.get(*word).is_some())?;
    request.get_mut(word)?.as_object_mut()
}

/// Fields that a later version of Kubernetes or of the server may send.
pub(super) fn with_unknown_fields(request: &Value) -> Option<Value> {
    let mut request = request.clone();
    let unknown = json!({"nested": [1, {"deep": null}], "text": "?"});
    let parent = parent(&mut request)?;
    for field in ["metadata", "status"] {
        if let Some(fields) = parent.get_mut(field).and_then(Value::as_object_mut) {
            fields.insert("unknownField".to_owned(), unknown.clone());
        }
    }
    parent.insert("unknownField".to_owned(), unknown.clone());
    request.as_object_mut()?.insert("unknownField".to_owned(), unknown);
    Some(request)
}

/// With the status of an answer; `None`: it has none.
pub(super) fn with_status(request: &Value, answer: &Value) -> Option<Value> {
    let mut request = request.clone();
    let status = answer.get("status").filter(|status| !status.is_null())?;
    parent(&mut request)?.insert("status".to_owned(), status.clone());
    Some(request)
}

/// `None`: the parent has none.
pub(super) fn without_status(request: &Value) -> Option<Value> {
    let mut request = request.clone();
    parent(&mut request)?.remove("status")?;
    Some(request)
}

fn kind(parent: &Map<String, Value>) -> Option<Gvk> {
    let text = |field: &str| parent.get(field).and_then(Value::as_str);
    Some(Gvk::new(text("apiVersion")?, text("kind")?))
}

/// The kind of the object that a hook is asked about, and its schema among these.
fn schema<'a>(parent: &Map<String, Value>, parents: &'a [(Gvk, Value)]) -> Option<&'a (Gvk, Value)> {
    let gvk = kind(parent)?;
    parents.iter().find(|(known, _)| *known == gvk)
}

/// The request with each spec that the parent's definition allows.
pub(super) fn with_specs(request: &Value, parents: &[(Gvk, Value)]) -> Vec<Value> {
    let mut request = request.clone();
    let specs =
        parent(&mut request).and_then(|parent| schema(parent, parents)).map(|(_, schema)| specs(schema));
    let with = |spec| {
        let mut request = request.clone();
        parent(&mut request)?.insert("spec".to_owned(), spec);
        Some(request)
    };
    specs.into_iter().flatten().filter_map(with).collect()
}

/// Whether the parent is as its definition says.
pub(super) fn is_allowed(request: &Value, parents: &[(Gvk, Value)]) -> bool {
    let of = PARENTS.into_iter().find_map(|word| request.get(word));
    let known = of.and_then(Value::as_object).and_then(|parent| schema(parent, parents));
    let faults = known.zip(of).map(|((gvk, schema), parent)| object_faults(gvk, Some(schema), parent));
    faults.is_some_and(|faults| faults.is_empty())
}

/// The request with other characters in each text of the spec that may have any, and in an annotation.
pub(super) fn with_unicode(request: &Value, parents: &[(Gvk, Value)]) -> Option<Value> {
    let mut request = request.clone();
    let parent = parent(&mut request)?;
    let definition = schema(parent, parents).map(|(_, root)| root);
    let definition = definition.filter(|root| root.pointer("/properties/spec").is_some());
    let is_built_in = definition.is_none() && kind(parent).is_some_and(|gvk| is_built_in(&gvk));
    if let Some(spec) = parent.get_mut("spec") {
        let schema = definition.map(|root| spec_schema(root, spec));
        // Where the rules of the parent are about all of its spec, this stays.
        if schema != Some(None) {
            replace_texts(spec, Place { field: "spec", schema: schema.flatten().as_ref(), is_built_in });
        }
    }
    let annotations = parent.get_mut("metadata")?.as_object_mut()?.entry("annotations").or_insert(json!({}));
    annotations.as_object_mut()?.insert("example.com/text".to_owned(), json!(UNICODE));
    Some(request)
}

/// The request with many children in all, like those that there are, each with a name and a uid of its own; `None`: there
/// are none.
pub(super) fn with_many_children(request: &Value) -> Option<Value> {
    let mut request = request.clone();
    let word = CHILDREN.into_iter().find(|word| request.get(*word).is_some())?;
    let groups = request.get_mut(word)?.as_object_mut()?;
    let kinds =
        groups.values().filter(|group| group.as_object().is_some_and(|group| !group.is_empty())).count();
    for group in groups.values_mut().filter_map(Value::as_object_mut) {
        let Some((name, example)) = group.iter().next().map(|(name, one)| (name.clone(), one.clone())) else {
            continue;
        };
        for number in group.len()..MANY.div_ceil(kinds) {
            let mut copy = example.clone();
            if let Some(metadata) = copy.get_mut("metadata").and_then(Value::as_object_mut) {
                let own = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                metadata.insert("name".to_owned(), json!(format!("{own}-{number}")));
                metadata.insert("uid".to_owned(), json!(format!("00000000-0000-4000-9000-{number:012x}")));
            }
            group.insert(format!("{name}-{number}"), copy);
        }
    }
    (kinds > 0).then_some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Value {
        let child = json!({"metadata": {"name": "c", "uid": "c"}});
        json!({
            "parent": {"metadata": {"name": "a"}, "spec": {"b": ["x", 1]}, "status": {"s": 1}},
            "children": {"Pod.v1": {"c": child}, "Service.v1": {}},
        })
    }

    #[test]
    fn the_order_of_keys_is_turned_and_nothing_else() {
        let text = reversed(&json!({"a": {"b": 1, "c": [{"d": 1, "e": "\""}]}, "f": null}));
        assert_eq!(text, r#"{"f":null,"a":{"c":[{"e":"\"","d":1}],"b":1}}"#);
    }

    #[test]
    fn each_request_differs_in_one_way() {
        assert_eq!(without_status(&request()).unwrap()["parent"].get("status"), None);
        assert_eq!(without_status(&json!({"parent": {}})), None);
        let unicode = with_unicode(&request(), &[]).unwrap();
        assert_eq!(unicode["parent"]["spec"], json!({"b": [UNICODE, 1]}));
        let mut own = request();
        own["parent"]["apiVersion"] = json!("v1");
        own["parent"]["kind"] = json!("Service");
        let unicode = with_unicode(&own, &[]).unwrap();
        assert_eq!(
            unicode["parent"]["spec"], own["parent"]["spec"],
            "texts of built-in kinds have their form"
        );
        let short =
            json!({ "properties": { "spec": { "properties": { "b": { "items": { "maxLength": 1 } } } } } });
        let unicode = with_unicode(&own, &[(Gvk::new("v1", "Service"), short)]).unwrap();
        assert_eq!(unicode["parent"]["spec"], json!({"b": ["ü", 1]}));
        let rules = json!([{ "rule": "!has(self.spec) || self.spec.b.size() < 3" }]);
        let definition = json!({ "x-kubernetes-validations": rules, "properties": { "spec": {} } });
        let unicode = with_unicode(&own, &[(Gvk::new("v1", "Service"), definition)]).unwrap();
        assert_eq!(unicode["parent"]["spec"], own["parent"]["spec"], "a rule above the spec names b");
        let many = with_many_children(&request()).unwrap();
        assert_eq!(many["children"]["Pod.v1"].as_object().unwrap().len(), MANY);
        assert_eq!(many["children"]["Service.v1"], json!({}));
        let pod = json!({ "p": { "metadata": { "name": "p" } } });
        let two = with_many_children(&json!({ "children": { "Pod.v1": pod, "Service.v1": pod } })).unwrap();
        assert_eq!(two["children"]["Pod.v1"].as_object().unwrap().len(), MANY / 2);
        assert_eq!(with_many_children(&json!({"children": {"Pod.v1": {}}})), None);
        let unknown = with_unknown_fields(&request()).unwrap();
        assert!(
            unknown["parent"]["metadata"]["unknownField"].is_object() && unknown["unknownField"].is_object()
        );
        assert_eq!(unknown["parent"]["spec"], request()["parent"]["spec"], "a schema may refuse it there");
    }
}
