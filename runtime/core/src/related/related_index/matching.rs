//! Matching of a changed object with the selectors that no label of it leads to, and of a changed namespace with the selectors of
//! namespaces, a slice at a time.
//!
//! There may be as many of these as all rules of a controller, and each change looks at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::{KindIndex, RelatedIndex};
use crate::cache::label_index::{Behind, SelectorIndex};
use crate::object::Object;
use crate::object::id::{Key, Resource};
use crate::object::selector::Selector;
use crate::related::pending::Labels;

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
    fn side(&mut self, kind: &KindIndex, namespace: Option<&Object>, left: &mut usize) -> bool {
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

/// The matching of one namespace. Between two slices the index may change, as with [`Matching`].
#[derive(Debug)]
pub struct NamespaceMatching {
    /// The labels that the namespace had and has.
    sides: Vec<Labels>,
    /// The parent that is next, and the place of its rule.
    at: Option<(Key, usize)>,
    /// The parents found since they were taken out. No slice finds a parent that an earlier one has found.
    pub found: BTreeSet<Key>,
}

impl NamespaceMatching {
    pub(super) fn new(sides: &[Labels]) -> Self {
        Self { sides: sides.to_vec(), at: None, found: BTreeSet::new() }
    }

    /// Looks at about `max` requirements and rules more. Returns whether none are left.
    pub fn step(&mut self, index: &RelatedIndex, max: usize) -> bool {
        let from = self.at.take();
        let start = from.as_ref().map_or(Bound::Unbounded, |(parent, _)| Bound::Included(parent));
        let (mut left, mut last) = (max, None);
        for parent in index.selecting.range::<Key, _>((start, Bound::Unbounded)) {
            let seen = from.as_ref().filter(|(first, _)| first == parent).map_or(0, |(_, rule)| *rule);
            let rules = index.parents.get(parent).map_or(&[][..], |registered| &registered.rules);
            for (nth, rule) in rules.iter().enumerate().skip(seen) {
                if left == 0 {
                    self.at = Some((parent.clone(), nth));
                    return false;
                }
                left -= 1;
                let Some(selector) = rule.namespace_selector() else { continue };
                let is_concerned = match last {
                    // Many parents select the same namespaces.
                    Some((other, is_concerned)) if other == selector => is_concerned,
                    _ => {
                        left = left.saturating_sub(selector.cost().saturating_mul(self.sides.len()));
                        self.concerns(selector)
                    }
                };
                last = Some((selector, is_concerned));
                if is_concerned {
                    self.found.insert(parent.clone());
                    break;
                }
            }
        }
        true
    }

    /// Whether the namespace is selected now and was not before, or the reverse.
    fn concerns(&self, selector: &Selector) -> bool {
        let selects = |side: &Labels| side.as_ref().is_some_and(|labels| selector.matches(labels));
        self.sides.iter().any(selects) && !self.sides.iter().all(selects)
    }
}
