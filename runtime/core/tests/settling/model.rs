//! A model of the API server: objects with versions, writes with their checks, and what its watches tell.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use metahook_core::cache::CacheEvent;
use metahook_core::children::Op;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource, Uid};
use serde_json::{Value, json};

/// Refused: the object is not as the writer thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conflict;

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) objects: BTreeMap<(Arc<str>, Key), Value>,
    /// Events that each resource's watch has still to deliver.
    undelivered: BTreeMap<Arc<str>, VecDeque<CacheEvent>>,
    versions: u64,
    uids: u64,
}

pub(crate) fn resource(api_version: &str, kind: &str) -> Arc<Resource> {
    let plural = format!("{}s", kind.to_lowercase()).into();
    Arc::new(Resource { gvk: Gvk::new(api_version, kind), plural, namespaced: true, has_status: true })
}

pub(crate) fn object(value: &Value) -> Object {
    Object::parse(&value.to_string(), None).unwrap()
}

impl Model {
    pub(crate) fn get(&self, id: &ObjectId) -> Option<Object> {
        self.objects.get(&place(id)).map(object)
    }

    /// All objects of a kind.
    pub(crate) fn all(&self, resource: &Resource) -> Vec<Object> {
        let those = self.objects.iter().filter(|((kind, _), _)| *kind == resource.gvk.kind);
        those.map(|(_, value)| object(value)).collect()
    }

    /// Edits an object as a user does, whatever its version: `None` where there is no such object.
    pub(crate) fn edit(&mut self, id: &ObjectId, edit: impl FnOnce(&mut Value)) -> Option<()> {
        let mut value = self.objects.get(&place(id))?.clone();
        edit(&mut value);
        self.put(id, value, CacheEvent::Applied);
        Some(())
    }

    pub(crate) fn create(&mut self, id: &ObjectId, mut value: Value) -> Result<Vec<CacheEvent>, Conflict> {
        if self.objects.contains_key(&place(id)) {
            return Err(Conflict);
        }
        self.uids += 1;
        value["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        value["metadata"]["name"] = json!(&*id.key.name);
        value["metadata"]["namespace"] = json!(&*id.key.namespace);
        Ok(self.put(id, value, CacheEvent::Applied))
    }

    pub(crate) fn delete(&mut self, id: &ObjectId, uid: Option<&Uid>) -> Result<Vec<CacheEvent>, Conflict> {
        let Some(found) = self.get(id) else {
            return Ok(uid.map(|uid| CacheEvent::Missing(id.key.clone(), uid.clone())).into_iter().collect());
        };
        if uid.is_some_and(|uid| *uid != found.uid) {
            return Err(Conflict);
        }
        let (key, uid) = (found.key.clone(), found.uid.clone());
        let last = self.objects.get(&place(id)).cloned().unwrap_or_default();
        self.put(id, last, CacheEvent::Deleted);
        self.objects.remove(&place(id));
        Ok(vec![CacheEvent::Deleting(key, uid)])
    }

    /// Carries out an operation as the server does: versions and uids are checked.
    pub(crate) fn carry_out(&mut self, op: &Op) -> Result<Vec<CacheEvent>, Conflict> {
        match op {
            Op::Create { id, body } => self.create(id, body.clone()),
            Op::Delete { id, uid } => self.delete(id, Some(uid)),
            Op::Recreate { id, uid, body, manager: None } => {
                let mut events = self.delete(id, Some(uid))?;
                events.extend(self.create(id, body.clone())?);
                Ok(events)
            }
            Op::Replace { id, body } => {
                self.same_version(id, body)?;
                Ok(self.put(id, body.clone(), CacheEvent::Applied))
            }
            Op::Apply { .. } | Op::HandOver { .. } | Op::DryRun { .. } | Op::Recreate { .. } => {
                unreachable!("these parents' children are written by dynamic apply")
            }
            Op::Status { id, body } => {
                self.same_version(id, body)?;
                let mut value = self.objects.get(&place(id)).cloned().unwrap_or_default();
                value["status"] = body["status"].clone();
                Ok(self.put(id, value, CacheEvent::Applied))
            }
        }
    }

    /// The next event that the watch of a resource tells.
    pub(crate) fn next_event(&mut self, resource: &Resource) -> Option<CacheEvent> {
        self.undelivered.get_mut(&resource.gvk.kind)?.pop_front()
    }

    fn same_version(&self, id: &ObjectId, body: &Value) -> Result<(), Conflict> {
        let now = self.get(id).ok_or(Conflict)?;
        let same = body["metadata"]["resourceVersion"].as_str() == Some(now.version.as_str());
        if same { Ok(()) } else { Err(Conflict) }
    }

    fn put(
        &mut self,
        id: &ObjectId,
        mut value: Value,
        tell: impl Fn(Object) -> CacheEvent,
    ) -> Vec<CacheEvent> {
        self.versions += 1;
        value["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        self.undelivered
            .entry(Arc::clone(&id.resource.gvk.kind))
            .or_default()
            .push_back(tell(object(&value)));
        let answer = CacheEvent::Wrote(object(&value).into());
        self.objects.insert(place(id), value);
        vec![answer]
    }
}

fn place(id: &ObjectId) -> (Arc<str>, Key) {
    (Arc::clone(&id.resource.gvk.kind), id.key.clone())
}
