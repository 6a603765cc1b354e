//! An object read as it is now, changed, and written; again where somebody else was faster.

use metahook_core::cache::objects::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::id::{ObjectId, Uid};
use serde_json::Value;

use crate::cluster::api_client::ApiClient;
use crate::cluster::apply::ApplyError;

/// Somebody else may be writing the same object.
const TRIES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RewriteError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("{0} cannot be read")]
    Unreadable(Box<ObjectId>),
}

impl ApiClient {
    /// What the store is to be told: the object as written, or that this one is gone. An object that `change` leaves as
    /// it is is not written.
    pub(crate) async fn rewrite(
        &self,
        id: &ObjectId,
        uid: &Uid,
        change: impl Fn(&mut Value),
    ) -> Result<Vec<CacheEvent>, RewriteError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(now) = self.read(id).await?.filter(|now| now.uid == *uid) else {
                return Ok(vec![CacheEvent::Missing(id.key.clone(), uid.clone())]);
            };
            let before = now.value().map_err(|_invalid| RewriteError::Unreadable(Box::new(id.clone())))?;
            let mut body = before.clone();
            change(&mut body);
            if body == before {
                return Ok(vec![CacheEvent::Wrote(now.into())]);
            }
            match self.carry_out(&Op::Replace { id: id.clone(), body }).await {
                Err(error) if error.is_conflict() && tries < TRIES => {}
                done => return Ok(done?),
            }
        }
    }
}

/// Changes a list of the metadata; one that is not there is empty.
pub(crate) fn list(object: &mut Value, field: &str, change: impl FnOnce(&mut Vec<Value>)) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let mut all = match metadata.get_mut(field).map(Value::take) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    change(&mut all);
    if all.is_empty() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), Value::Array(all));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_that_is_not_there_is_empty_and_an_empty_one_goes() {
        let mut object = json!({"metadata": {"finalizers": ["a"]}});
        list(&mut object, "finalizers", Vec::clear);
        assert_eq!(object, json!({"metadata": {}}));
        list(&mut object, "finalizers", |_| ());
        assert_eq!(object, json!({"metadata": {}}));
        list(&mut object, "finalizers", |all| all.push(json!("b")));
        assert_eq!(object, json!({"metadata": {"finalizers": ["b"]}}));
    }
}
