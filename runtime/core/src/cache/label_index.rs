//! Objects by namespace and label, found without a walk over the others.
//!
//! No reconcile walks a cache. What a parent controls is found by the parent's uid; what it might adopt, and what a rule
//! relates to it, by a label that the selector asks for; the parents that might adopt an orphan, by the orphan's labels
//! (`orphan_adopters`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::objects::take_out;
use crate::object::Object;
use crate::object::id::Key;
use crate::object::selector::{Pin, Selector};

/// By namespace, and by label, value and namespace.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    places: Places,
    labelled: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Places>>,
}

/// Objects by namespace.
type Places = BTreeMap<Arc<str>, BTreeSet<Key>>;

impl LabelIndex {
    pub(crate) fn insert(&mut self, object: &Object) {
        add(&mut self.places, &object.key);
        for (label, value) in &object.labels {
            let values = match self.labelled.get_mut(label.as_str()) {
                Some(values) => values,
                None => self.labelled.entry(label.as_str().into()).or_default(),
            };
            match values.get_mut(value.as_str()) {
                Some(places) => add(places, &object.key),
                None => add(values.entry(value.as_str().into()).or_default(), &object.key),
            }
        }
    }

    pub(crate) fn remove(&mut self, object: &Object) {
        take_out(&mut self.places, &object.key.namespace, &object.key);
        for (label, value) in &object.labels {
            let Some(values) = self.labelled.get_mut(label.as_str()) else { continue };
            if let Some(places) = values.get_mut(value.as_str()) {
                take_out(places, &object.key.namespace, &object.key);
                if places.is_empty() {
                    values.remove(value.as_str());
                }
            }
            if values.is_empty() {
                self.labelled.remove(label.as_str());
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.values().map(BTreeSet::len).sum()
    }

    /// Those in a namespace (or anywhere) that have the label which says most about the selector; not all of them
    /// need match it. Only a selector that says nothing but what labels are not there is answered by a walk.
    pub(crate) fn near<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
    ) -> Box<dyn Iterator<Item = &'a Key> + 'a> {
        let places: Box<dyn Iterator<Item = &'a Places> + 'a> = match selector.pin() {
            Some(Pin::In(label, values)) => Box::new(
                self.labelled
                    .get(label)
                    .into_iter()
                    .flat_map(move |known| values.iter().filter_map(|value| known.get(value.as_str()))),
            ),
            Some(Pin::Exists(label)) => {
                Box::new(self.labelled.get(label).into_iter().flat_map(BTreeMap::values))
            }
            None => Box::new(std::iter::once(&self.places)),
        };
        match namespace {
            None => Box::new(places.flat_map(BTreeMap::values).flatten()),
            Some(one) => Box::new(places.filter_map(move |places| places.get(one)).flatten()),
        }
    }
}

fn add(places: &mut Places, key: &Key) {
    match places.get_mut(&key.namespace) {
        Some(keys) => keys.insert(key.clone()),
        None => places.entry(Arc::clone(&key.namespace)).or_default().insert(key.clone()),
    };
}
