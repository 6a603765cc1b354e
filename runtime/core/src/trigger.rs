//! Which parents have to be looked at because an object changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::children;
use crate::index::{Index, Touched};
use crate::object::Object;
use crate::object::id::{Key, Uid};
use crate::object::selector::Selector;

/// A parent changed: itself, where it is or was selected.
pub fn on_parent(touched: &Touched, selector: &Selector) -> Option<Key> {
    let sides = [&touched.after, &touched.before];
    let selected = sides
        .into_iter()
        .flatten()
        .find(|object| selector.matches(&object.labels))?;
    Some(selected.key.clone())
}

/// A child changed: who controls it, who controlled it before, and, where nobody does, whoever might adopt it.
pub fn on_child(touched: &Touched, parents: &Index, generated: bool) -> BTreeSet<Key> {
    let owners = [&touched.before, &touched.after]
        .into_iter()
        .flatten()
        .filter_map(|o| o.controller.as_ref());
    let mut keys: BTreeSet<Key> = owners
        .filter_map(|owner| parents.by_uid(&owner.uid))
        .map(|p| p.key.clone())
        .collect();
    if let Some(orphan) = touched
        .after
        .as_ref()
        .filter(|object| object.controller.is_none() && !object.deleting)
    {
        keys.extend(adopters(orphan, parents, generated).map(|parent| parent.key.clone()));
    }
    keys
}

fn adopters<'a>(
    orphan: &'a Object,
    parents: &'a Index,
    generated: bool,
) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
    if generated {
        let uid = orphan.labels.get(children::UID_LABEL).map(|uid| Uid::new(uid));
        return Box::new(uid.and_then(|uid| parents.by_uid(&uid)).into_iter());
    }
    // A parent adopts within its own namespace; one without a namespace adopts anywhere.
    let near = move |parent: &&Arc<Object>| {
        parent.key.namespace.is_empty() || parent.key.namespace == orphan.key.namespace
    };
    let matches = move |parent: &&Arc<Object>| {
        children::selector(parent, false).is_ok_and(|s| s.matches(&orphan.labels))
    };
    Box::new(parents.in_namespace("").filter(near).filter(matches))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::Event;
    use crate::object::testing::{Build, a};

    fn parent(key: &str, uid: &str) -> Build {
        a("e/v1", "P", key)
            .uid(uid)
            .with("spec.selector", json!({"matchLabels": {"app": uid}}))
    }

    fn parents() -> Index {
        let mut index = Index::default();
        for object in [
            parent("n/one", "1").object(),
            parent("n/two", "2").object(),
            parent("m/three", "3").object(),
        ] {
            index.apply(Event::Applied((*object).clone()));
        }
        index
    }

    fn woken(before: Option<Build>, after: Option<Build>, generated: bool) -> Vec<String> {
        let touched = Touched {
            before: before.map(Build::object),
            after: after.map(Build::object),
        };
        on_child(&touched, &parents(), generated)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_child_wakes_its_parent_and_the_one_it_left() {
        let child = |owner| Some(a("v1", "Pod", "n/c").controlled_by(owner));
        assert_eq!(woken(None, child("1"), true), ["n/one"]);
        assert_eq!(woken(child("1"), None, true), ["n/one"]);
        assert_eq!(woken(child("1"), child("2"), true), ["n/one", "n/two"]);
        assert!(woken(None, child("9"), true).is_empty());
    }

    #[test]
    fn an_orphan_wakes_who_might_adopt_it() {
        assert_eq!(
            woken(
                None,
                Some(a("v1", "Pod", "n/c").label("controller-uid", "2")),
                true
            ),
            ["n/two"]
        );
        assert_eq!(
            woken(None, Some(a("v1", "Pod", "n/c").label("app", "2")), false),
            ["n/two"]
        );
        assert!(
            woken(None, Some(a("v1", "Pod", "n/c").label("app", "3")), false).is_empty(),
            "another namespace"
        );
        assert!(
            woken(
                None,
                Some(a("v1", "Pod", "n/c").label("app", "2").deleting()),
                false
            )
            .is_empty()
        );
    }

    #[test]
    fn a_parent_that_stops_matching_is_looked_at_once_more() {
        let selector = Selector::equals("x", "y");
        let with = || parent("n/one", "1").label("x", "y").object();
        let without = || parent("n/one", "1").object();
        let key = |before, after| on_parent(&Touched { before, after }, &selector);
        assert_eq!(key(Some(with()), Some(without())), Some(Key::new("n", "one")));
        assert_eq!(key(Some(without()), Some(without())), None);
    }
}
