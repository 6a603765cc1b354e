//! Which parents might adopt an orphan: their own selectors, found by what labels they ask for.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::objects::{ObjectChange, take_out};
use crate::object::Object;
use crate::object::id::Key;
use crate::object::selector::{Pin, Selector};
use crate::reconcile::child_selector;

/// The parents of a controller that does not generate selectors.
#[derive(Debug, Default)]
pub struct OrphanAdopters {
    selectors: BTreeMap<Key, Selector>,
    by_value: BTreeMap<String, BTreeMap<String, BTreeSet<Key>>>,
    by_label: BTreeMap<String, BTreeSet<Key>>,
    /// Their selectors ask for no label: everything has to be held against them.
    elsewise: BTreeSet<Key>,
}

impl OrphanAdopters {
    /// Takes in that a parent changed. One whose selector is not in order adopts nothing.
    pub fn learn(&mut self, touched: &ObjectChange) {
        for object in [&touched.before, &touched.after].into_iter().flatten() {
            self.forget(&object.key);
        }
        if let Some(parent) = &touched.after
            && let Ok(selector) = child_selector::selector(parent, false)
        {
            self.remember(parent.key.clone(), selector);
        }
    }

    /// The parents that an orphan matches and that are near enough: a parent adopts within its own namespace, one
    /// without a namespace anywhere.
    pub fn of<'a>(&'a self, orphan: &'a Object) -> impl Iterator<Item = &'a Key> {
        let labels = orphan.labels.iter();
        let by_value = labels.clone().filter_map(|(label, value)| self.by_value.get(label)?.get(value));
        let by_label = labels.filter_map(|(label, _)| self.by_label.get(label));
        let keys = by_value.chain(by_label).chain([&self.elsewise]).flatten();
        keys.filter(|key| key.namespace.is_empty() || key.namespace == orphan.key.namespace)
            .filter(|key| self.selectors.get(*key).is_some_and(|selector| selector.matches(&orphan.labels)))
    }

    fn remember(&mut self, key: Key, selector: Selector) {
        match selector.pin() {
            Some(Pin::In(label, values)) => {
                let known = self.by_value.entry(label.to_owned()).or_default();
                for value in values {
                    known.entry(value.clone()).or_default().insert(key.clone());
                }
            }
            Some(Pin::Exists(label)) => {
                self.by_label.entry(label.to_owned()).or_default().insert(key.clone());
            }
            None => {
                self.elsewise.insert(key.clone());
            }
        }
        self.selectors.insert(key, selector);
    }

    fn forget(&mut self, key: &Key) {
        let Some(selector) = self.selectors.remove(key) else {
            return;
        };
        match selector.pin() {
            Some(Pin::In(label, values)) => {
                let Some(known) = self.by_value.get_mut(label) else { return };
                for value in values {
                    take_out(known, value, key);
                }
                if known.is_empty() {
                    self.by_value.remove(label);
                }
            }
            Some(Pin::Exists(label)) => take_out(&mut self.by_label, &label.to_owned(), key),
            None => drop(self.elsewise.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::testing::a;

    fn parent(name: u8, selector: Value) -> Arc<Object> {
        let key = match name % 3 {
            0 => format!("{name}"),
            1 => format!("n/{name}"),
            _ => format!("m/{name}"),
        };
        a("e/v1", "P", &key).with("spec.selector", selector).object()
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
        /// The same parents as if each were asked, however their selectors change.
        #[test]
        fn adopters_are_those_that_match(
            steps in prop::collection::vec((0..6_u8, prop::option::of(selector())), 0..30),
            labels in prop::collection::btree_map("[ab]", "[12]", 0..3),
        ) {
            let (mut adopters, mut parents) = (OrphanAdopters::default(), BTreeMap::new());
            for (name, selector) in steps {
                let after = selector.map(|selector| parent(name, selector));
                let before = match &after {
                    Some(parent) => parents.insert(name, Arc::clone(parent)),
                    None => parents.remove(&name),
                };
                adopters.learn(&ObjectChange { before, after });
            }
            let orphan = labels.iter().fold(a("v1", "Pod", "n/c"), |pod, (label, value)| pod.label(label, value));
            let orphan = orphan.object();
            let asked = parents.values().filter(|parent| {
                matches!(&*parent.key.namespace, "" | "n")
                    && child_selector::selector(parent, false).is_ok_and(|selector| selector.matches(&orphan.labels))
            });
            let found: Vec<_> = adopters.of(&orphan).cloned().collect();
            let asked: BTreeSet<_> = asked.map(|parent| parent.key.clone()).collect();
            prop_assert_eq!(found.len(), asked.len(), "none twice");
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), asked);
            for parent in parents.into_values() {
                adopters.learn(&ObjectChange { before: Some(parent), after: None });
            }
            prop_assert!(adopters.selectors.is_empty() && adopters.by_value.is_empty());
            prop_assert!(adopters.by_label.is_empty() && adopters.elsewise.is_empty());
        }
    }
}
