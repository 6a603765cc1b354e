//! A controller as its hooks see it: what its type has, as it was when the controller was started.

use serde::Serialize;
use serde_json::{Value, json};

use crate::object::Object;

/// Fields that the type of the spec does not have are gone, and so is the status, which changes all the time.
pub fn snapshot(controller: &Object, spec: &impl Serialize) -> String {
    let mut value = controller.value().unwrap_or_default();
    if let (Some(fields), Ok(spec)) = (value.as_object_mut(), serde_json::to_value(spec)) {
        fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
        fields.insert("spec".to_owned(), spec);
        fields.insert("status".to_owned(), json!({}));
    }
    Value::to_string(&value)
}
