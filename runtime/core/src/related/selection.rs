//! Selection of related objects: those of a cache that a rule finds, a slice at a time.

use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::label_index::Position;
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::Key;
#[cfg(test)]
use crate::object::selector::Selector;
use crate::related::rule::{Finds, RuleScope};

/// Selection of the objects that a rule finds, in slices: between two of them the cache may change. An object that comes
/// or goes meanwhile is found or not.
#[derive(Debug)]
pub struct Selection<'a> {
    finds: &'a Finds,
    /// The namespaces that the rule's selector of namespaces, if it has one, finds.
    namespaces: &'a [Arc<str>],
    /// The names, or the places, that are done.
    done: usize,
    after: Position,
    pub found: Vec<Arc<Object>>,
}

impl<'a> Selection<'a> {
    pub fn new(finds: &'a Finds, namespaces: &'a [Arc<str>]) -> Self {
        Self { finds, namespaces, done: 0, after: Position::default(), found: Vec::new() }
    }

    /// Looks at some more objects, about `max`. Returns how many it looked at; fewer than `max` where none are left.
    pub fn step(&mut self, cache: &Cache, max: usize) -> usize {
        let mut steps = 0;
        while steps < max {
            let place = match self.finds {
                Finds::Names { namespace, names } => {
                    let Some(name) = names.get(self.done) else { break };
                    steps += self.named(cache, namespace.as_deref(), name);
                    self.done += 1;
                    continue;
                }
                Finds::Labels { place, .. } => match place {
                    RuleScope::Anywhere if self.done == 0 => None,
                    RuleScope::Namespace(namespace) if self.done == 0 => Some(&**namespace),
                    RuleScope::Anywhere | RuleScope::Namespace(_) => break,
                    RuleScope::Namespaces(_) => match self.namespaces.get(self.done) {
                        Some(namespace) => Some(&**namespace),
                        None => break,
                    },
                },
            };
            steps += self.labelled(cache, place, max - steps);
        }
        steps
    }

    fn named(&mut self, cache: &Cache, namespace: Option<&str>, name: &str) -> usize {
        let Some(namespace) = namespace else {
            let mut steps = 0;
            self.found.extend(
                cache.named(name).inspect(|_| steps += 1).flatten().filter_map(CachedObject::whole).cloned(),
            );
            return steps.max(1);
        };
        self.found.extend(cache.get(&Key::new(namespace, name)).and_then(CachedObject::whole).cloned());
        1
    }

    /// A place counts as one step, too.
    fn labelled(&mut self, cache: &Cache, place: Option<&str>, max: usize) -> usize {
        let Finds::Labels { labels, .. } = self.finds else { return 0 };
        let start = std::mem::take(&mut self.after);
        let mut near = cache.near(place, labels, &start);
        for steps in 1..=max {
            let Some((value, object)) = near.next() else {
                self.done += 1;
                return steps;
            };
            if labels.matches(&object.labels) {
                self.found.extend(object.whole().cloned());
            }
            if steps == max {
                self.after = Position { value: value.to_owned(), key: Some(object.key.clone()) };
            }
        }
        max
    }
}

/// All objects that something finds, at once.
#[cfg(test)]
pub(crate) fn select(finds: &Finds, cache: &Cache, namespaces: &[Arc<str>]) -> Vec<Arc<Object>> {
    let mut selection = Selection::new(finds, namespaces);
    while selection.step(cache, 3) >= 3 {}
    selection.found
}

/// The names of the namespaces whose labels match.
#[cfg(test)]
pub(crate) fn namespaces(selector: &Selector, cache: &Cache) -> Vec<Arc<str>> {
    let found = select(&Finds::matching(selector), cache, &[]);
    found.iter().map(|namespace| Arc::clone(&namespace.key.name)).collect()
}
