//! Objects by namespace and label, found without a walk over the others.
//!
//! No reconcile walks a cache. What a parent controls is found by the parent's uid; what it might adopt, and what a rule
//! relates to it, by a label that the selector asks for; the parents that might adopt an orphan, by the orphan's labels
//! (`orphan_adopters`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::{change_or_remove, remove_from};
use crate::object::Object;
use crate::object::id::Key;
use crate::object::selector::{Pin, Selector};

/// Objects by namespace, and by label, value and namespace.
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
        let key = &object.key;
        let remove =
            |places: &mut Places| change_or_remove(places, &key.namespace, |keys| remove_from(keys, key));
        remove(&mut self.places);
        for (label, value) in &object.labels {
            change_or_remove(&mut self.labelled, label.as_str(), |values| {
                change_or_remove(values, value.as_str(), remove)
            });
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

/// Keys by the selectors that they stand for, such as parents by their selectors of children.
#[derive(Debug, Default)]
pub(crate) struct SelectorIndex {
    /// By label and value, for selectors that ask for one of some values of a label.
    by_value: BTreeMap<String, BTreeMap<String, KeysBySelector>>,
    /// For selectors that ask for a label with any value.
    by_label: BTreeMap<String, KeysBySelector>,
    /// For selectors that ask for no label: each of them is matched with every object.
    others: KeysBySelector,
}

type KeysBySelector = BTreeMap<Selector, BTreeSet<Key>>;

impl SelectorIndex {
    pub(crate) fn insert(&mut self, selector: &Selector, key: &Key) {
        let add = |keys: &mut KeysBySelector| {
            keys.entry(selector.clone()).or_default().insert(key.clone());
        };
        match selector.pin() {
            Some(Pin::In(label, values)) => {
                let by_value = self.by_value.entry(label.to_owned()).or_default();
                for value in values {
                    add(by_value.entry(value.clone()).or_default());
                }
            }
            Some(Pin::Exists(label)) => add(self.by_label.entry(label.to_owned()).or_default()),
            None => add(&mut self.others),
        }
    }

    /// Returns whether the index is empty then.
    pub(crate) fn remove(&mut self, selector: &Selector, key: &Key) -> bool {
        let remove =
            |keys: &mut KeysBySelector| change_or_remove(keys, selector, |keys| remove_from(keys, key));
        match selector.pin() {
            Some(Pin::In(label, values)) => {
                for value in values {
                    change_or_remove(&mut self.by_value, label, |by_value| {
                        change_or_remove(by_value, value, remove)
                    });
                }
            }
            Some(Pin::Exists(label)) => drop(change_or_remove(&mut self.by_label, label, remove)),
            None => drop(remove(&mut self.others)),
        }
        self.is_empty()
    }

    /// The keys whose selectors match these labels. Each different selector is matched once.
    pub(crate) fn matching<'a>(
        &'a self,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Key> {
        let by_value = labels.iter().filter_map(|(label, value)| self.by_value.get(label)?.get(value));
        let by_label = labels.keys().filter_map(|label| self.by_label.get(label));
        let near = by_value.chain(by_label).chain([&self.others]).flatten();
        near.filter(|(selector, _)| selector.matches(labels)).flat_map(|(_, keys)| keys)
    }

    /// All keys, some of them more than once.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Key> {
        let by_value = self.by_value.values().flat_map(BTreeMap::values);
        by_value.chain(self.by_label.values()).chain([&self.others]).flatten().flat_map(|(_, keys)| keys)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_value.is_empty() && self.by_label.is_empty() && self.others.is_empty()
    }
}
