//! Effect of a write on one object: what it was, and what it is then.

use std::sync::Arc;

use metahook_core::object::Object;
use metahook_core::object::id::ObjectId;
use serde_json::Value;

/// One object that a write changed.
#[derive(Debug, Clone)]
pub struct Effect {
    pub id: ObjectId,
    /// `None`: there was none.
    pub before: Option<Arc<Object>>,
    /// `None`: it is gone.
    pub after: Option<Arc<Object>>,
}

/// Fields of the metadata that an API server sets.
const SERVER_SET: [&str; 5] = ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"];

impl Effect {
    /// The object before, without what an API server sets.
    pub fn shown_before(&self) -> Option<Value> {
        self.before.as_deref().and_then(without_server_set)
    }

    /// The object after, without what an API server sets.
    pub fn shown_after(&self) -> Option<Value> {
        self.after.as_deref().and_then(without_server_set)
    }
}

fn without_server_set(object: &Object) -> Option<Value> {
    let mut value = object.value().ok()?;
    let metadata = value.get_mut("metadata")?.as_object_mut()?;
    metadata.retain(|field, _| !SERVER_SET.contains(&field.as_str()));
    Some(value)
}
