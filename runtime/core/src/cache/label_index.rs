//! Objects by namespace and label, found without a walk over the others.
//!
//! No reconcile walks a cache. What a parent controls is found by the parent's uid; what it might adopt, and what a rule
//! relates to it, by a label that the selector asks for; the parents that might adopt an orphan, by the orphan's labels
//! ([`OrphanAdopters`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::cache::{ObjectChange, change_or_remove, remove_from};
use crate::object::Object;
use crate::object::ObjectMeta;
use crate::object::cached::CachedObject;
use crate::object::id::Key;
use crate::object::selector::{Pin, Selector, child_selector};

/// Objects by namespace, and by label, value and namespace.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    places: Places,
    labelled: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Places>>,
}

/// Objects by namespace.
type Places = BTreeMap<Arc<str>, BTreeSet<Key>>;

impl LabelIndex {
    pub(crate) fn insert(&mut self, object: &ObjectMeta) {
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

    pub(crate) fn remove(&mut self, object: &ObjectMeta) {
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

    /// Objects in a namespace (or anywhere) with the label that narrows the selector most, behind a position; not all of
    /// them match it. Each comes with the value of that label. A selector that only excludes labels is answered by a walk.
    pub(crate) fn near<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
        after: &'a Position,
    ) -> impl Iterator<Item = (&'a str, &'a Key)> + 'a {
        let from = (Bound::Included(after.value.as_str()), Bound::Unbounded);
        let places: Box<dyn Iterator<Item = (&'a str, &'a Places)> + 'a> = match selector.pin() {
            Some(Pin::In(label, values)) => {
                Box::new(self.labelled.get(label).into_iter().flat_map(move |known| {
                    let values = values.range::<str, _>(from);
                    values.filter_map(|value| Some((value.as_str(), known.get(value.as_str())?)))
                }))
            }
            Some(Pin::Exists(label)) => {
                Box::new(self.labelled.get(label).into_iter().flat_map(move |known| {
                    known.range::<str, _>(from).map(|(value, places)| (&**value, places))
                }))
            }
            None => Box::new(std::iter::once(("", &self.places))),
        };
        places.flat_map(move |(value, places)| {
            let after = after.key.as_ref().filter(|_| *value == *after.value);
            behind(places, namespace, after).map(move |key| (value, key))
        })
    }
}

/// The keys of a namespace (or of any) behind one of them.
fn behind<'a>(
    places: &'a Places,
    namespace: Option<&'a str>,
    after: Option<&'a Key>,
) -> impl Iterator<Item = &'a Key> {
    let first = namespace.or(after.map(|key| &*key.namespace)).unwrap_or_default();
    let last = namespace.map_or(Bound::Unbounded, Bound::Included);
    let keys = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let here = places.range::<str, _>((Bound::Included(first), last));
    here.flat_map(move |(_, all)| all.range::<Key, _>(keys))
}

/// A place in the order in which [`LabelIndex::near`] names objects; the default is before the first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    /// Value of the label by which the objects are found.
    pub(crate) value: String,
    pub(crate) key: Option<Key>,
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
    /// Selectors that ask for one of some values of a label, by label and value.
    by_value: BTreeMap<String, BTreeMap<String, KeysBySelector>>,
    /// Selectors that ask for a label with any value, by label.
    by_label: BTreeMap<String, KeysBySelector>,
    /// Selectors that ask for no label: each of them is matched with every object.
    others: KeysBySelector,
}

type KeysBySelector = BTreeSet<(Selector, Key)>;

/// A place among the selectors that ask for no label; `None` is before the first.
pub(crate) type Behind = Option<(Selector, Key)>;

/// Values of a label under which a selector is filed. One with more is filed under the label alone: as many copies would
/// take the square of its size.
const MAX_FILED_VALUES: usize = 16;

impl SelectorIndex {
    pub(crate) fn insert(&mut self, selector: &Selector, key: &Key) {
        let add = |keys: &mut KeysBySelector| {
            keys.insert((selector.clone(), key.clone()));
        };
        match filed(selector) {
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
        let key = (selector.clone(), key.clone());
        let remove = |keys: &mut KeysBySelector| {
            keys.remove(&key);
            keys.is_empty()
        };
        match filed(selector) {
            Some(Pin::In(label, values)) => {
                for value in values {
                    change_or_remove(&mut self.by_value, label, |by_value| {
                        change_or_remove(by_value, value, remove)
                    });
                }
            }
            Some(Pin::Exists(label)) => {
                change_or_remove(&mut self.by_label, label, remove);
            }
            None => {
                remove(&mut self.others);
            }
        }
        self.is_empty()
    }

    /// The keys whose selectors match these labels, of the selectors that one of the labels leads to.
    pub(crate) fn pinned<'a>(
        &'a self,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Key> {
        self.near(labels).flat_map(|keys| matching(keys, labels))
    }

    /// Whether there are selectors that ask for no label.
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Matches the selectors that ask for no label, behind a place, until nothing is left of `left` requirements. Returns whether
    /// all of them are matched.
    pub(crate) fn match_others(
        &self,
        labels: &BTreeMap<String, String>,
        behind: &mut Behind,
        left: &mut usize,
        found: &mut BTreeSet<Key>,
    ) -> bool {
        let from = behind.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last: Option<(&Selector, bool)> = None;
        let mut at: Option<&(Selector, Key)> = None;
        for entry in self.others.range((from, Bound::Unbounded)) {
            if *left == 0 {
                if let Some(at) = at {
                    *behind = Some(at.clone());
                }
                return false;
            }
            let (selector, key) = entry;
            let matches = match last {
                Some((other, matches)) if other == selector => {
                    *left = left.saturating_sub(1);
                    matches
                }
                _ => {
                    *left = left.saturating_sub(selector.cost());
                    selector.matches(labels)
                }
            };
            last = Some((selector, matches));
            if matches {
                found.insert(key.clone());
            }
            at = Some(entry);
        }
        *behind = None;
        true
    }

    fn near<'a>(&'a self, labels: &'a BTreeMap<String, String>) -> impl Iterator<Item = &'a KeysBySelector> {
        let by_value = labels.iter().filter_map(|(label, value)| self.by_value.get(label)?.get(value));
        let by_label = labels.keys().filter_map(|label| self.by_label.get(label));
        by_value.chain(by_label)
    }

    /// The keys whose selectors match these labels. Each different selector is matched once.
    pub(crate) fn matching<'a>(
        &'a self,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Key> {
        self.near(labels).chain([&self.others]).flat_map(|keys| matching(keys, labels))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_value.is_empty() && self.by_label.is_empty() && self.others.is_empty()
    }
}

fn matching<'a>(
    keys: &'a KeysBySelector,
    labels: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a Key> {
    let mut last = None;
    let mut matches = move |selector: &'a Selector| match last {
        Some((other, matches)) if other == selector => matches,
        _ => {
            let matches = selector.matches(labels);
            last = Some((selector, matches));
            matches
        }
    };
    keys.iter().filter(move |(selector, _)| matches(selector)).map(|(_, key)| key)
}

/// The label, or the values, under which a selector is filed.
fn filed(selector: &Selector) -> Option<Pin<'_>> {
    selector.pin().map(|pin| match pin {
        Pin::In(label, values) if values.len() > MAX_FILED_VALUES => Pin::Exists(label),
        Pin::In(..) | Pin::Exists(_) => pin,
    })
}

/// The parents of a controller that does not generate selectors.
#[derive(Debug, Default)]
pub struct OrphanAdopters {
    selectors: BTreeMap<Key, Selector>,
    index: SelectorIndex,
}

impl OrphanAdopters {
    /// Takes in the change of a parent. A parent with an invalid selector adopts nothing.
    pub fn learn(&mut self, touched: &ObjectChange) {
        if let Some(key) = touched.key() {
            let whole = touched.after.as_ref().and_then(CachedObject::whole);
            self.learn_now(key, whole.map(|parent| &**parent));
        }
    }

    /// Takes in a parent as it is now; `None`: it is gone.
    pub fn learn_now(&mut self, key: &Key, now: Option<&Object>) {
        if let Some(selector) = self.selectors.remove(key) {
            self.index.remove(&selector, key);
        }
        if let Some(parent) = now
            && let Ok(selector) = child_selector(parent, false)
        {
            self.index.insert(&selector, &parent.key);
            self.selectors.insert(parent.key.clone(), selector);
        }
    }

    /// The parents whose selector matches an orphan: those of its namespace, and those without a namespace.
    pub fn of<'a>(&'a self, orphan: &'a ObjectMeta) -> impl Iterator<Item = &'a Key> {
        let matching = self.index.matching(&orphan.labels);
        matching.filter(|key| key.namespace.is_empty() || key.namespace == orphan.key.namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::testing::a;

    fn parent(name: u8, selector: Value) -> CachedObject {
        let key = match name % 3 {
            0 => format!("{name}"),
            1 => format!("n/{name}"),
            _ => format!("m/{name}"),
        };
        a("e/v1", "P", &key).with("spec.selector", selector).cached()
    }

    fn selector() -> impl Strategy<Value = Value> {
        let requirement = |operator: &'static str, values: &'static [&'static str]| {
            let label = prop::sample::select(vec!["a", "b"]);
            label.prop_map(move |key| match values {
                [] => json!({"key": key, "operator": operator}),
                values => json!({"key": key, "operator": operator, "values": values}),
            })
        };
        let one = prop_oneof![
            requirement("In", &["1"]),
            requirement("In", &["1", "2"]),
            requirement("NotIn", &["1"]),
            requirement("Exists", &[]),
            requirement("DoesNotExist", &[]),
            requirement("Near", &[]),
        ];
        prop::collection::vec(one, 0..3).prop_map(|all| json!({"matchExpressions": all}))
    }

    proptest! {
        /// The index finds the same parents as asking each of them would, however their selectors change.
        #[test]
        fn adopters_are_those_that_match(
            steps in prop::collection::vec((0..6_u8, prop::option::of(selector())), 0..30),
            labels in prop::collection::btree_map("[ab]", "[12]", 0..3),
        ) {
            let (mut adopters, mut parents) = (OrphanAdopters::default(), BTreeMap::new());
            for (name, selector) in steps {
                let after = selector.map(|selector| parent(name, selector));
                let before = match &after {
                    Some(parent) => parents.insert(name, parent.clone()),
                    None => parents.remove(&name),
                };
                adopters.learn(&ObjectChange { before, after });
            }
            let orphan = labels.iter().fold(a("v1", "Pod", "n/c"), |pod, (label, value)| pod.label(label, value));
            let orphan = orphan.object();
            let asked = parents.values().filter(|parent| {
                matches!(&*parent.key.namespace, "" | "n")
                    && child_selector(parent.whole().unwrap(), false).is_ok_and(|selector| selector.matches(&orphan.labels))
            });
            let found: Vec<_> = adopters.of(&orphan).cloned().collect();
            let asked: BTreeSet<_> = asked.map(|parent| parent.key.clone()).collect();
            prop_assert_eq!(found.len(), asked.len(), "none twice");
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), asked);
            for parent in parents.into_values() {
                adopters.learn(&ObjectChange { before: Some(parent), after: None });
            }
            prop_assert!(adopters.selectors.is_empty() && adopters.index.is_empty());
        }
    }
}
