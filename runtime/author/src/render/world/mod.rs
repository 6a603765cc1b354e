//! Cluster in memory: objects as an API server keeps them that has no defaults, no admission and no other clients.
//!
//! The fields that an API server sets are set here, too, the same in every run: uids and versions by counting, times
//! that are always the same, generations, deletions that wait for finalizers, and the deletion of what is owned by
//! nothing that is left.

mod fields;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use metahook_core::api::selection::FinalizerChange;
use metahook_core::cache::{Cache, CacheEvent};
use metahook_core::children::Op;
use metahook_core::children::last_applied::LAST_APPLIED;
use metahook_core::json::difference::same;
use metahook_core::json::merge::merge;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{ObjectId, Resource, Uid};
use metahook_core::object::selector::Selector;
use metahook_core::object::{Object, ObjectError};
use metahook_core::reconcile::config::ControllerConfig;
use serde_json::{Value, json};

use super::effect::Effect;
use fields::{content, is_controlled_by, keep, owner_of, owner_uids, set_generation};

/// When everything happens.
const TIME: &str = "2000-01-01T00:00:00Z";

/// Versions begin above those of most examples.
const FIRST_VERSION: u128 = 1_000_000;

#[derive(Default)]
pub(crate) struct World {
    caches: BTreeMap<Arc<Resource>, Cache>,
    /// Objects that server-side apply was given last.
    applied: BTreeMap<ObjectId, Value>,
    writes: u128,
    uids: u64,
}

/// A write that an API server refuses.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("an object of that name exists already{owner}")]
    Taken { owner: String },
    #[error("it can be neither updated in place nor recreated, so it is left as it is: {fault}")]
    Unmakable { fault: String },
    #[error("{id}")]
    Object { id: ObjectId, source: ObjectError },
}

impl World {
    /// Takes an object that is there from the beginning, and gives it what an API server would have set.
    pub(crate) fn add(
        &mut self,
        resource: &Arc<Resource>,
        mut value: Value,
    ) -> Result<ObjectId, ObjectError> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|_, value| !value.is_null());
            if !metadata.contains_key("uid") {
                metadata.insert("uid".to_owned(), json!(self.next_uid()));
            }
            metadata.entry("creationTimestamp").or_insert(json!(TIME));
            metadata.entry("resourceVersion").or_insert(json!("1"));
        }
        set_generation(resource, &mut value, 1);
        let object = Arc::new(Object::parse(&value.to_string(), None)?);
        let id = ObjectId { resource: Arc::clone(resource), key: object.key.clone() };
        self.cache(resource).apply(CacheEvent::Wrote(object));
        Ok(id)
    }

    /// Fills in the uids of owners that are named without one.
    pub(crate) fn find_owners(&mut self) -> Result<(), Refusal> {
        let uids: BTreeMap<_, _> = self
            .all()
            .map(|(resource, object)| {
                let gvk = &resource.gvk;
                ((gvk.api_version(), gvk.kind.to_string(), object.key.name.to_string()), object.uid.clone())
            })
            .collect();
        for (resource, object) in self.all_cloned() {
            let Ok(mut value) = object.value() else { continue };
            let mut changed = false;
            let owners = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
            for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
                let text =
                    |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
                let named = (text("apiVersion"), text("kind"), text("name"));
                if text("uid").is_empty()
                    && let Some(uid) = uids.get(&named)
                {
                    owner.insert("uid".to_owned(), json!(uid.as_str()));
                    changed = true;
                }
            }
            if changed {
                let id = ObjectId { resource, key: object.key.clone() };
                self.put(&id, value)?;
            }
        }
        Ok(())
    }

    /// Gives objects of these kinds a label, where they lack it and this owner is their controller.
    pub(crate) fn label_owned(
        &mut self,
        owner: &Uid,
        kinds: &[Arc<Resource>],
        label: &str,
    ) -> Result<(), Refusal> {
        for (resource, object) in self.all_cloned() {
            let Ok(mut value) = object.value() else { continue };
            if !kinds.contains(&resource) || !is_controlled_by(&value, owner) {
                continue;
            }
            let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
            let labels = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut();
            let Some(labels) = labels.filter(|labels| !labels.contains_key(label)) else { continue };
            labels.insert(label.to_owned(), json!(owner.as_str()));
            let id = ObjectId { resource, key: object.key.clone() };
            self.put(&id, value)?;
        }
        Ok(())
    }

    pub(crate) fn get(&self, id: &ObjectId) -> Option<&Arc<Object>> {
        self.caches.get(&id.resource)?.get(&id.key)?.whole()
    }

    /// The objects of a kind that a parent could claim, without those that name another controller as their maker.
    pub(crate) fn candidates(
        &self,
        config: &ControllerConfig,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        let Some(cache) = self.view(resource) else { return Vec::new() };
        let mut all = cache.candidates(&parent.uid, &parent.key.namespace, selector);
        all.retain(|object| config.other_maker(object).is_none());
        all
    }

    /// The objects of a kind.
    pub(crate) fn of(&self, resource: &Arc<Resource>) -> impl Iterator<Item = &Arc<Object>> {
        self.caches.get(resource).into_iter().flat_map(Cache::all_whole)
    }

    /// All objects with the resource they are of, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Arc<Resource>, &Arc<Object>)> {
        self.caches
            .iter()
            .flat_map(|(resource, cache)| cache.all_whole().map(move |object| (resource, object)))
    }

    pub(crate) fn cache(&mut self, resource: &Arc<Resource>) -> &mut Cache {
        self.caches.entry(Arc::clone(resource)).or_default()
    }

    pub(crate) fn view(&self, resource: &Resource) -> Option<&Cache> {
        self.caches.get(resource)
    }

    /// Carries out one write. Nothing where it changes nothing.
    pub(crate) fn carry_out(&mut self, op: &Op) -> Result<Vec<Effect>, Refusal> {
        match op {
            Op::Delete { id, uid } => self.delete(id, uid),
            Op::Recreate { id, uid, body, manager } => {
                let mut effects = self.delete(id, uid)?;
                // An object that waits for its finalizers is made anew in a later reconcile.
                if self.get(id).is_none() {
                    effects.extend(self.create(id, body)?);
                    if manager.is_some() {
                        self.applied.insert(id.clone(), body.clone());
                    }
                }
                Ok(effects)
            }
            Op::Create { id, body } => self.create(id, body),
            Op::Apply { id, over: None, body, .. } => {
                let effects = self.create(id, body)?;
                self.applied.insert(id.clone(), body.clone());
                Ok(effects)
            }
            Op::Replace { id, .. }
            | Op::Apply { id, over: Some(_), .. }
            | Op::HandOver { id, .. }
            | Op::Status { id, .. } => {
                let Some(before) = self.get(id).cloned() else { return Ok(Vec::new()) };
                let Some(value) = self.becomes(op, &before) else { return Ok(Vec::new()) };
                if let Op::Apply { body, .. } = op {
                    self.applied.insert(id.clone(), body.clone());
                }
                if let Op::HandOver { .. } = op
                    && let Some(last) = before.annotations().get(LAST_APPLIED)
                {
                    self.applied.insert(id.clone(), serde_json::from_str(last).unwrap_or_default());
                }
                self.update(id, &before, value)
            }
            // A dry run, which is decided about before.
            Op::DryRun { .. } => Ok(Vec::new()),
        }
    }

    /// Object that a write would make of the one that is there.
    pub(crate) fn dry_run(&self, op: &Op) -> Option<Object> {
        let before = self.get(op.id())?;
        Object::parse(&self.becomes(op, before)?.to_string(), None).ok()
    }

    pub(crate) fn change_finalizers(
        &mut self,
        id: &ObjectId,
        change: FinalizerChange<'_>,
    ) -> Result<Vec<Effect>, Refusal> {
        self.rewrite(id, |value| change.apply(value))
    }

    /// Changes an object in place.
    pub(crate) fn rewrite(
        &mut self,
        id: &ObjectId,
        change: impl FnOnce(&mut Value),
    ) -> Result<Vec<Effect>, Refusal> {
        let Some(before) = self.get(id).cloned() else { return Ok(Vec::new()) };
        let mut value = object_value(id, &before)?;
        change(&mut value);
        self.update(id, &before, value)
    }

    fn becomes(&self, op: &Op, before: &Object) -> Option<Value> {
        let old = before.value().ok()?;
        let mut new = match op {
            Op::Replace { body, .. } => body.clone(),
            Op::Apply { id, body, .. } => merge(&old, self.applied.get(id), body, None),
            Op::Status { body, .. } => {
                let mut new = old.clone();
                let status = body.get("status").cloned();
                new.as_object_mut()?.insert("status".to_owned(), status.unwrap_or_default());
                return Some(new);
            }
            Op::HandOver { .. } => {
                let mut new = old.clone();
                new.pointer_mut("/metadata/annotations")?.as_object_mut()?.remove(LAST_APPLIED)?;
                new
            }
            Op::Create { .. } | Op::Delete { .. } | Op::Recreate { .. } | Op::DryRun { .. } => return None,
        };
        keep(&op.id().resource, &old, &mut new);
        Some(new)
    }

    fn create(&mut self, id: &ObjectId, body: &Value) -> Result<Vec<Effect>, Refusal> {
        if let Some(holder) = self.get(id) {
            let owner = holder.value().ok().and_then(|holder| owner_of(&holder)).unwrap_or_default();
            return Err(Refusal::Taken { owner });
        }
        let mut value = body.clone();
        let uid = self.next_uid();
        if let Some(fields) = value.as_object_mut() {
            if id.resource.has_status {
                fields.remove("status");
            }
            let metadata = fields.entry("metadata").or_insert(json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.retain(|_, value| !value.is_null());
                metadata.insert("uid".to_owned(), json!(uid));
                metadata.insert("creationTimestamp".to_owned(), json!(TIME));
            }
        }
        set_generation(&id.resource, &mut value, 1);
        self.applied.remove(id);
        let after = self.put(id, value)?;
        Ok(vec![Effect { id: id.clone(), before: None, after: Some(after) }])
    }

    /// Writes another state of an object; one that waited for its last finalizer goes.
    fn update(
        &mut self,
        id: &ObjectId,
        before: &Arc<Object>,
        mut value: Value,
    ) -> Result<Vec<Effect>, Refusal> {
        let old = object_value(id, before)?;
        if let (Some(Value::Object(metadata)), version) = (value.get_mut("metadata"), before.version.as_str())
        {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        if same(&old, &value) {
            return Ok(Vec::new());
        }
        if !same(&content(&old), &content(&value)) {
            set_generation(&id.resource, &mut value, before.generation + 1);
        }
        let after = self.put(id, value)?;
        if after.deleting && after.finalizers.is_empty() {
            return Ok(self.remove(id, before));
        }
        Ok(vec![Effect { id: id.clone(), before: Some(Arc::clone(before)), after: Some(after) }])
    }

    fn delete(&mut self, id: &ObjectId, uid: &Uid) -> Result<Vec<Effect>, Refusal> {
        let Some(before) = self.get(id).filter(|now| now.uid == *uid).cloned() else { return Ok(Vec::new()) };
        if before.finalizers.is_empty() {
            return Ok(self.remove(id, &before));
        }
        let mut value = object_value(id, &before)?;
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.entry("deletionTimestamp").or_insert(json!(TIME));
            metadata.entry("deletionGracePeriodSeconds").or_insert(json!(0));
        }
        self.update(id, &before, value)
    }

    /// Removes an object, and all that nothing owns any longer.
    fn remove(&mut self, id: &ObjectId, before: &Arc<Object>) -> Vec<Effect> {
        self.applied.remove(id);
        if let Some(now) = self.get(id).cloned() {
            self.cache(&id.resource).apply(CacheEvent::Deleted((*now).clone()));
        }
        let mut effects = vec![Effect { id: id.clone(), before: Some(Arc::clone(before)), after: None }];
        for (resource, object) in self.all_cloned() {
            let owners = owner_uids(&object);
            let is_left = |uid: &Uid| self.caches.values().any(|cache| cache.by_uid(uid).is_some());
            if owners.contains(&before.uid) && !owners.iter().any(is_left) {
                let id = ObjectId { resource, key: object.key.clone() };
                effects.extend(self.delete(&id, &object.uid).unwrap_or_default());
            }
        }
        effects
    }

    fn put(&mut self, id: &ObjectId, mut value: Value) -> Result<Arc<Object>, Refusal> {
        self.writes += 1;
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            let version = FIRST_VERSION + self.writes;
            metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
        }
        let object = Object::parse(&value.to_string(), Some(&id.resource.gvk));
        let object = object.map_err(|source| Refusal::Object { id: id.clone(), source })?;
        let object = Arc::new(object);
        // A version of the files may be the larger one; it is gone all the same.
        if let Some(now) = self.get(id).cloned() {
            self.cache(&id.resource).apply(CacheEvent::Deleted((*now).clone()));
        }
        self.cache(&id.resource).apply(CacheEvent::Wrote(Arc::clone(&object)));
        Ok(object)
    }

    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    fn all_cloned(&self) -> Vec<(Arc<Resource>, Arc<Object>)> {
        self.all().map(|(resource, object)| (Arc::clone(resource), Arc::clone(object))).collect()
    }
}

fn object_value(id: &ObjectId, object: &Object) -> Result<Value, Refusal> {
    object.value().map_err(|source| Refusal::Object { id: id.clone(), source })
}
