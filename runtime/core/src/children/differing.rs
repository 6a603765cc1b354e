//! Children that are not what the hook's latest answer says, and that their update strategy leaves as they are.

use std::collections::BTreeMap;
use std::fmt;

use crate::json::difference::Difference;
use crate::object::id::{Key, ObjectId};
use crate::{counted, shorten};

/// Bytes of a path that are remembered.
const MAX_PATH: usize = 200;

/// Children of one parent that differ from the answer and are left as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    children: usize,
    /// The first child, and the first place where it differs.
    first: String,
}

impl Differing {
    /// Counts one more; none where it does not differ.
    pub(super) fn add(all: &mut Option<Self>, id: &ObjectId, differences: &[Difference]) {
        let Some(Difference { path, .. }) = differences.first() else { return };
        let first = || format!("{id} ({})", shorten(path, MAX_PATH));
        all.get_or_insert_with(|| Self { children: 0, first: first() }).children += 1;
    }
}

impl fmt::Display for Differing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { children, first } = self;
        write!(f, "{first} is not as the hook's answer says now, and is left as it is")?;
        match children {
            0 | 1 => {}
            2 => write!(f, ", as is another child")?,
            more => write!(f, ", as are {} other children", more - 1)?,
        }
        write!(f, ": {LEFT}")
    }
}

const LEFT: &str = "the strategy is OnDelete. With updateStrategy.method InPlace it would be updated, with Recreate made anew; deleting it has it made anew, too";

/// Differing children of all parents of a controller. A parent without them has no entry.
#[derive(Debug, Default)]
pub struct DifferingChildren {
    parents: BTreeMap<Key, Differing>,
    children: usize,
}

impl DifferingChildren {
    /// To be called after each plan, and with `None` where the parent is gone.
    pub fn note(&mut self, parent: &Key, now: Option<Differing>) {
        let children = |it: &Option<Differing>| it.as_ref().map_or(0, |it| it.children);
        self.children += children(&now);
        let before = match now {
            Some(now) => self.parents.insert(parent.clone(), now),
            None => self.parents.remove(parent),
        };
        self.children -= children(&before);
    }

    /// The number of children, and the first one.
    pub fn count(&self) -> (usize, Option<&str>) {
        (self.children, self.parents.first_key_value().map(|(_, differing)| differing.first.as_str()))
    }
}

/// Message of the condition `ChildrenDiffer`.
pub fn message(children: usize, first: &str) -> String {
    let many = counted(children, "child is", "children are");
    format!("{many} not as the hook's answers say now, the first is {first}: {LEFT}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::difference::Change;
    use crate::object::testing::resource;

    fn differing(names: &[&str], path: &str) -> Option<Differing> {
        let mut all = None;
        for name in names {
            let id = ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) };
            Differing::add(&mut all, &id, &[]);
            let one = Difference {
                path: path.to_owned(),
                wanted: json!(1),
                found: json!(2),
                change: Change::Value,
            };
            Differing::add(&mut all, &id, &[one]);
        }
        all
    }

    #[test]
    fn the_first_child_and_place_are_named_and_the_strategy() {
        assert_eq!(differing(&[], "x"), None);
        let said = |names: &[&str]| differing(names, "spec.x").unwrap().to_string();
        assert!(said(&["a"]).starts_with("Pod n/a (spec.x) is not as"), "{}", said(&["a"]));
        assert!(said(&["a", "b"]).contains(", as is another child: "), "{}", said(&["a", "b"]));
        assert!(said(&["a", "b", "c"]).contains(", as are 2 other children: the strategy is OnDelete"));
    }

    #[test]
    fn a_path_is_remembered_up_to_its_bound() {
        let length = |path: usize| differing(&["a"], &"p".repeat(path)).unwrap().first.len();
        let rest = "Pod n/a ()".len();
        assert_eq!((length(MAX_PATH), length(MAX_PATH + 1)), (MAX_PATH + rest, MAX_PATH + rest));
        assert!(differing(&["a"], &"p".repeat(MAX_PATH + 1)).unwrap().first.ends_with("…)"));
    }

    #[test]
    fn parents_are_counted_and_freed() {
        let (one, two) = (Key::new("n", "1"), Key::new("n", "2"));
        let mut all = DifferingChildren::default();
        assert_eq!(all.count(), (0, None));
        all.note(&two, differing(&["b", "c"], "x"));
        all.note(&one, differing(&["a"], "x"));
        assert_eq!(all.count(), (3, Some("Pod n/a (x)")));
        all.note(&two, differing(&["b"], "x"));
        all.note(&one, None);
        all.note(&one, None);
        assert_eq!(all.count(), (1, Some("Pod n/b (x)")));
        all.note(&two, None);
        assert_eq!(all.count(), (0, None));
        assert!(all.parents.is_empty());
    }
}
