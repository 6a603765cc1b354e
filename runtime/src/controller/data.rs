//! Data of a running controller and its parents of one kind, for all parts of a reconcile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::reconcile::config::ControllerConfig;

use crate::cluster::events::Recorder;
use crate::controller::Controllers;
use crate::queue::Queue;
use crate::store::{Change, Store, WriteGuard, Writer};
use crate::telemetry::metrics::Meter;

/// A CompositeController has one; a DecoratorController has one for each kind of objects that it decorates.
pub(crate) struct ControllerData {
    pub(crate) object: Arc<Object>,
    pub(crate) config: ControllerConfig,
    pub(crate) parents: Arc<Store>,
    /// The stores of the kinds of children, and of revisions.
    pub(crate) children: Vec<Arc<Store>>,
    pub(crate) controllers: Arc<Controllers>,
    pub(crate) recorder: Recorder,
    pub(crate) meter: Arc<Meter>,
    pub(crate) started: Instant,
}

impl ControllerData {
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn parent_id(&self, parent: &Object) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.parents.resource), key: parent.key.clone() }
    }

    /// The author of writes for one parent.
    pub(crate) fn writer(&self, parent: &Key) -> Writer {
        let parents = Arc::clone(&self.parents.resource);
        Writer { controller: self.object.uid.clone(), parents, parent: parent.clone() }
    }

    /// The stores that are listed before the first reconcile. Without all controllers, the children of another one would
    /// look like one's own.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.children.iter().chain([&self.parents]).chain(self.controllers.all())
    }

    /// `None` where no store holds such objects.
    pub(crate) fn write_guard(&self, id: &ObjectId, writer: &Writer) -> Option<WriteGuard> {
        self.stores().find(|store| store.resource == id.resource).map(|store| store.writing(&id.key, writer))
    }

    pub(crate) fn observed_child(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.children.iter().find(|store| store.resource == id.resource)?.get(&id.key)
    }

    /// Adds the parents that a change concerns to their queue.
    pub(crate) fn add_changed(&self, queue: &Queue<Key>, keys: BTreeSet<Key>, change: &Change) {
        let parents = &self.parents.resource;
        for key in keys {
            match &change.by {
                None => queue.add(key),
                Some(by)
                    if by.controller != self.object.uid || by.parents != *parents || by.parent != key =>
                {
                    queue.add_from_peer(key);
                }
                // A child may be gone long after the reconcile that deleted it.
                Some(_) if change.object.after.is_none() => queue.add_if_idle(key),
                // The reconcile that wrote is followed by another one anyway.
                Some(_) => {}
            }
        }
    }

    /// The objects of a kind that a parent could claim, without those of other controllers.
    pub(crate) fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<Arc<Object>> {
        let store = self.children.iter().find(|store| *store.resource == *resource);
        let mut all = store
            .map(|store| store.candidates(&parent.uid, &parent.key.namespace, selector))
            .unwrap_or_default();
        all.retain(|object| self.other_controller(object).is_none());
        all
    }

    /// Another controller that made this child: as long as it exists, the child is left to it.
    pub(crate) fn other_controller<'a>(&self, child: &'a Object) -> Option<&'a str> {
        let maker = self.config.other_maker(child)?;
        self.controllers.get(maker.kind, maker.name).map(|_| maker.name)
    }
}
