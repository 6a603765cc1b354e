//! Fields that an API server keeps or sets by itself, and owners as an object names them.

use metahook_core::object::Object;
use metahook_core::object::id::{Resource, Uid};
use serde_json::{Value, json};

/// Puts back what a write of the object cannot change.
pub(super) fn keep(resource: &Resource, old: &Value, new: &mut Value) {
    let Some(fields) = new.as_object_mut() else { return };
    if resource.has_status {
        match old.get("status") {
            Some(status) => drop(fields.insert("status".to_owned(), status.clone())),
            None => drop(fields.remove("status")),
        }
    }
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|_, value| !value.is_null());
    for field in ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        match old.get("metadata").and_then(|old| old.get(field)) {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
}

/// Sets the generation of an object, of kinds that have one: custom ones, and those with a spec.
pub(super) fn set_generation(resource: &Resource, value: &mut Value, generation: i64) {
    let group = &resource.gvk.group;
    let is_custom = group.contains('.') && !group.ends_with(".k8s.io");
    let has_one = is_custom || value.get("spec").is_some();
    if let Some(Value::Object(metadata)) = value.get_mut("metadata").filter(|_| has_one) {
        let is_given = metadata.contains_key("generation") && generation == 1;
        if !is_given {
            metadata.insert("generation".to_owned(), json!(generation));
        }
    }
}

/// The part of an object whose changes count as another generation.
pub(super) fn content(value: &Value) -> Value {
    let mut fields = value.as_object().cloned().unwrap_or_default();
    for field in ["metadata", "status"] {
        fields.remove(field);
    }
    if let Some(time) = value.pointer("/metadata/deletionTimestamp") {
        fields.insert("metadata".to_owned(), time.clone());
    }
    Value::Object(fields)
}

pub(super) fn owner_uids(object: &Object) -> Vec<Uid> {
    let value = object.value().unwrap_or_default();
    let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let uids = owners.into_iter().flatten().filter_map(|owner| owner.get("uid")?.as_str());
    uids.map(Uid::new).collect()
}

pub(super) fn owner_of(holder: &Value) -> Option<String> {
    let owners = holder.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
    Some(format!(", whose controller is {} {}", text("kind"), text("name")))
}

pub(super) fn is_controlled_by(object: &Value, uid: &Uid) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        let is_it = owner.get("uid").and_then(Value::as_str) == Some(uid.as_str());
        is_it && owner.get("controller") == Some(&Value::Bool(true))
    })
}
