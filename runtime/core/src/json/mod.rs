//! JSON values: written as Go writes them, merged three ways, compared as Kubernetes would.

pub mod difference;
pub mod go;
pub mod lists;
pub mod merge;

use serde_json::{Map, Value};

/// The object in a field; one that is absent or null becomes an empty one. `None` where something else stands there.
pub(crate) fn object_in<'a>(
    members: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    let value = members.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}
