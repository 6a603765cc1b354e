//! Matching of a changed object with the selectors that no label of it leads to, a slice at a time.
//!
//! There may be as many of these as all rules of a controller, and each change looks at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{Kind, RelatedIndex};
use crate::cache::label_index::{Behind, SelectorIndex};
use crate::object::Object;
use crate::object::id::{Key, Resource};
use crate::object::selector::Selector;

/// The matching of one object. Between two slices the index may change: a rule that is new by then belongs to a parent that
/// looks at the objects after that.
#[derive(Debug)]
pub struct Matching {
    resource: Arc<Resource>,
    namespace: Arc<str>,
    /// The labels that are not matched yet; those of the last are.
    sides: Vec<BTreeMap<String, String>>,
    stage: Stage,
    pub found: BTreeSet<Key>,
}

#[derive(Debug)]
enum Stage {
    Anywhere(Behind),
    Within(Behind),
    /// The selector of namespaces, whether it is to be gone on with, and where.
    Selected(Option<Selector>, bool, Behind),
}

impl Default for Stage {
    fn default() -> Self {
        Self::Anywhere(None)
    }
}

impl Matching {
    pub fn new<'a>(
        resource: &Arc<Resource>,
        object: &Key,
        labels: impl Iterator<Item = &'a BTreeMap<String, String>>,
    ) -> Self {
        Self {
            resource: Arc::clone(resource),
            namespace: Arc::clone(&object.namespace),
            sides: labels.cloned().collect(),
            stage: Stage::default(),
            found: BTreeSet::new(),
        }
    }

    /// Looks at about `max` requirements more; `namespace` finds namespaces as they are now. Returns whether none are left.
    pub fn step(
        &mut self,
        index: &RelatedIndex,
        namespace: impl Fn(&str) -> Option<Arc<Object>>,
        max: usize,
    ) -> bool {
        let Some(kind) = index.kinds.get(&self.resource) else { return true };
        let namespace = if kind.selected.is_empty() { None } else { namespace(&self.namespace) };
        let mut left = max;
        while !self.sides.is_empty() {
            if !self.side(kind, namespace.as_deref(), &mut left) {
                return false;
            }
            self.sides.pop();
            self.stage = Stage::default();
        }
        true
    }

    /// Goes on with one set of labels.
    fn side(&mut self, kind: &Kind, namespace: Option<&Object>, left: &mut usize) -> bool {
        let Some(labels) = self.sides.last() else { return true };
        let nothing = SelectorIndex::default();
        loop {
            match &mut self.stage {
                Stage::Anywhere(behind) => {
                    if !kind.anywhere.match_others(labels, behind, left, &mut self.found) {
                        return false;
                    }
                    self.stage = Stage::Within(None);
                }
                Stage::Within(behind) => {
                    let here = kind.within.get(&self.namespace).unwrap_or(&nothing);
                    if !here.match_others(labels, behind, left, &mut self.found) {
                        return false;
                    }
                    self.stage = Stage::Selected(None, false, None);
                }
                Stage::Selected(at, goes_on, behind) => {
                    let Some(namespace) = namespace else { return true };
                    let from = match &*at {
                        None => Bound::Unbounded,
                        Some(at) if *goes_on => Bound::Included(at),
                        Some(at) => Bound::Excluded(at),
                    };
                    let next = kind.selected.range::<Selector, _>((from, Bound::Unbounded)).next();
                    let Some((selector, all)) = next else { return true };
                    if *left == 0 {
                        return false;
                    }
                    if !*goes_on || at.as_ref() != Some(selector) {
                        *left = left.saturating_sub(selector.cost());
                        (*at, *behind) = (Some(selector.clone()), None);
                        *goes_on = selector.matches(&namespace.labels);
                        if *goes_on {
                            self.found.extend(all.pinned(labels).cloned());
                        }
                    }
                    if *goes_on {
                        if !all.match_others(labels, behind, left, &mut self.found) {
                            return false;
                        }
                        *goes_on = false;
                    }
                }
            }
        }
    }
}
