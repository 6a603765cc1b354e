//! Orphan adopters: the parents that may adopt an orphan, found by the labels that their own selectors ask for.

use std::collections::BTreeMap;

use crate::cache::ObjectChange;
use crate::cache::label_index::SelectorIndex;
use crate::object::Object;
use crate::object::child_selector;
use crate::object::id::Key;
use crate::object::selector::Selector;

/// The parents of a controller that does not generate selectors.
#[derive(Debug, Default)]
pub struct OrphanAdopters {
    selectors: BTreeMap<Key, Selector>,
    index: SelectorIndex,
}

impl OrphanAdopters {
    /// Takes in the change of a parent. A parent with an invalid selector adopts nothing.
    pub fn learn(&mut self, touched: &ObjectChange) {
        for object in [&touched.before, &touched.after].into_iter().flatten() {
            if let Some(selector) = self.selectors.remove(&object.key) {
                self.index.remove(&selector, &object.key);
            }
        }
        if let Some(parent) = &touched.after
            && let Ok(selector) = child_selector::selector(parent, false)
        {
            self.index.insert(&selector, &parent.key);
            self.selectors.insert(parent.key.clone(), selector);
        }
    }

    /// The parents whose selector matches an orphan: those of its namespace, and those without a namespace.
    pub fn of<'a>(&'a self, orphan: &'a Object) -> impl Iterator<Item = &'a Key> {
        let matching = self.index.matching(&orphan.labels);
        matching.filter(|key| key.namespace.is_empty() || key.namespace == orphan.key.namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
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
            prop_assert!(adopters.selectors.is_empty() && adopters.index.is_empty());
        }
    }
}
